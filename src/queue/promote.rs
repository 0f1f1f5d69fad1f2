//! Promote: what time brings. Scheduled jobs whose time has come become ready, under their old place; tokens that have
//! come are written into the buckets that had none. Reads and writes only those, and what waits for an ended job that
//! had too many waiting for it to tell in one change. A job that this build can't read waits for one that can, and
//! holds up nobody.

use std::ops::ControlFlow;

use crate::{
    clock::Timestamp,
    codec,
    engine::Rows,
    error::Result,
    queue::{
        depend::End,
        id::JobId,
        rate::next_token,
        record::{Home, JobRecord},
    },
    store::{
        apply::Context,
        change::{CHANGE_BYTES_MAX, Outcome},
        keys::{self, ById},
        view::{first_key, inconsistent},
    },
};

/// How many entries of an index by time are looked at in one go, however many of them are of jobs that this build can't
/// read.
pub(crate) const WALK_MAX: usize = 10_000;

pub(crate) fn promote(context: &mut Context<'_>, limit: usize) -> Result<Outcome> {
    let now = context.now;
    let (mut due, mut untold, mut bytes) = (Vec::new(), None, 0);
    let rows = &context.rows;
    walk(rows, &mut |at, entry| {
        match entry {
            // The first is enough: each has as many to tell as one change does.
            Entry::Untold(ended, end) => untold = untold.or(Some((ended, end))),
            Entry::Scheduled(_) if due.len() >= limit || at > now => return Ok(ControlFlow::Break(())),
            Entry::Scheduled(id) => {
                let found = rows.get(&ById::Due.key(id))?;
                let found =
                    found.ok_or_else(|| inconsistent(format!("job {id} is due and is not among the scheduled")))?;
                if let Ok(job) = codec::decode::<JobRecord>(&found) {
                    bytes += found.len();
                    due.push(job);
                }
            }
        }
        Ok(if bytes < CHANGE_BYTES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    if let Some((ended, end)) = untold {
        context.rows.remove(keys::untold(ended));
        context.ends.queue.push_back((ended, end));
    }
    let jobs = due.len();
    for job in due {
        context.take_out(&job, Home::ById(ById::Due));
        context.put_in(&job, Home::Ready)?;
    }
    context.fill_buckets()?;
    Ok(Outcome::Promoted { jobs })
}

/// When something that time brings is next: a scheduled job, or a token for jobs that wait for one.
pub(crate) fn next_by_time(rows: &dyn Rows, now: Timestamp) -> Result<Option<Timestamp>> {
    Ok(next_due(rows, now)?.into_iter().chain(next_token(rows, now)?).min())
}

/// When the next scheduled job is due that can be promoted then, as far as is known by now.
pub(crate) fn next_due(rows: &dyn Rows, now: Timestamp) -> Result<Option<Timestamp>> {
    let mut next = None;
    walk(rows, &mut |at, entry| {
        let is_left_alone = match entry {
            Entry::Scheduled(id) if at <= now => {
                rows.get(&ById::Due.key(id))?.is_some_and(|row| codec::decode::<JobRecord>(&row).is_err())
            }
            Entry::Scheduled(_) | Entry::Untold(..) => false,
        };
        if is_left_alone {
            return Ok(ControlFlow::Continue(()));
        }
        next = Some(at);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(next)
}

/// Whether a job has ended, and not all that waited for it know.
pub(crate) fn has_untold(rows: &dyn Rows) -> Result<bool> {
    Ok(first_key(rows, &keys::due_times())?.is_some_and(|key| keys::is_untold(&key)))
}

/// An entry of the index of what is due.
enum Entry {
    Untold(JobId, End),
    Scheduled(JobId),
}

fn walk(rows: &dyn Rows, found: &mut dyn FnMut(Timestamp, Entry) -> Result<ControlFlow<()>>) -> Result<()> {
    let range = keys::due_times();
    let mut walked = 0;
    rows.visit(&range.start, &range.end, &mut |key, bytes| {
        walked += 1;
        if walked > WALK_MAX {
            return Ok(ControlFlow::Break(()));
        }
        let Some((at, id)) = keys::time_of(key).zip(keys::id_at_end(key)) else { return Ok(ControlFlow::Continue(())) };
        if !keys::is_untold(key) {
            return found(at, Entry::Scheduled(id));
        }
        End::from_bytes(bytes).map_or(Ok(ControlFlow::Continue(())), |end| found(at, Entry::Untold(id, end)))
    })
}
