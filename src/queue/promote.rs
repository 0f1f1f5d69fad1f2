//! Promote: what time brings. Scheduled jobs whose time has come become ready, under their old place; tokens that have
//! come are written into the buckets that had none. Reads and writes only those, and what waits for an ended job that
//! had too many waiting for it to tell in one change.

use std::ops::ControlFlow;

use crate::{
    clock::Timestamp,
    codec,
    engine::Rows,
    error::Result,
    queue::{
        depend::End,
        rate::next_token,
        record::{Home, JobRecord},
    },
    store::{
        apply::Context,
        change::{CHANGE_BYTES_MAX, Outcome},
        keys::{self, ById},
        view::inconsistent,
    },
};

pub(crate) fn promote(context: &mut Context<'_>, limit: usize) -> Result<Outcome> {
    let now = context.now;
    let (mut due, mut untold) = (Vec::new(), Vec::new());
    let range = keys::due_times();
    context.rows.visit(&range.start, &range.end, &mut |key, bytes| {
        if keys::is_untold(key) {
            // The first is enough: each has as many to tell as one change does.
            untold.extend(keys::id_at_end(key).zip(End::from_bytes(bytes)).filter(|_| untold.is_empty()));
            return Ok(ControlFlow::Continue(()));
        }
        if due.len() >= limit || keys::time_of(key).is_none_or(|at| at > now) {
            return Ok(ControlFlow::Break(()));
        }
        due.extend(keys::id_at_end(key));
        Ok(ControlFlow::Continue(()))
    })?;
    let (mut jobs, mut bytes) = (0, 0);
    for (ended, end) in untold {
        context.rows.remove(keys::untold(ended));
        context.ends.queue.push_back((ended, end));
    }
    for id in due {
        let row = ById::Due.key(id);
        let Some(found) = context.rows.get(&row)? else {
            return Err(inconsistent(format!("job {id} is due and is not among the scheduled")));
        };
        bytes += found.len();
        // A row that this build can't read waits for one that can, and holds up nobody.
        let Ok(job) = codec::decode::<JobRecord>(&found) else { continue };
        context.take_out(&job, Home::ById(ById::Due));
        context.put_in(&job, Home::Ready)?;
        jobs += 1;
        if bytes >= CHANGE_BYTES_MAX {
            break;
        }
    }
    context.fill_buckets()?;
    Ok(Outcome::Promoted { jobs })
}

/// When something that time brings is next: a scheduled job, or a token for jobs that wait for one.
pub(crate) fn next_by_time(rows: &dyn Rows, now: Timestamp) -> Result<Option<Timestamp>> {
    Ok(next_due(rows)?.into_iter().chain(next_token(rows, now)?).min())
}

/// When the next scheduled job is due.
pub(crate) fn next_due(rows: &dyn Rows) -> Result<Option<Timestamp>> {
    let first = crate::store::view::first_rows(rows, &keys::due_times(), 1)?;
    Ok(first.first().and_then(|(key, _)| keys::time_of(key)))
}
