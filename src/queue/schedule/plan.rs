//! What is to be done for schedules whose next slot has come: which slots get a job, and which one is next. It only
//! reads; the change that does it is guarded by what was seen here.

use std::{ops::ControlFlow, time::Duration};

use super::{Fire, ScheduleRecord, define::CatchUp};
use crate::{
    clock::Timestamp,
    codec,
    engine::Rows,
    error::Result,
    store::{keys, view::get_record},
};

/// A slot that is later than this is skipped where that is the policy, and told of by who looks for trouble.
pub(crate) const MISSED_AFTER: Duration = Duration::from_mins(1);

/// The most bytes of arguments that one change enqueues for a schedule.
const FIRE_BYTES_MAX: usize = 4 << 20;

/// The names of the schedules whose next slot has come, in order of those.
pub(crate) fn due_schedules(rows: &dyn Rows, now: Timestamp) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let range = keys::slots();
    rows.visit(&range.start, &range.end, &mut |key, _| {
        if keys::time_of(key).is_none_or(|at| at > now) {
            return Ok(ControlFlow::Break(()));
        }
        names.extend(keys::slot_name(key));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(names)
}

/// What is to be done for a schedule now; nothing where its next slot has not come.
pub(crate) fn plan(rows: &dyn Rows, name: &str, now: Timestamp) -> Result<Option<Fire>> {
    let Some(record) = get_record::<ScheduleRecord>(rows, &keys::schedule(name))? else { return Ok(None) };
    let Some(expected) = record.slot().filter(|slot| *slot <= now) else { return Ok(None) };
    let most = match record.catch_up {
        CatchUp::Skip | CatchUp::One => 1,
        CatchUp::All(most) => (most as usize).max(1),
    };
    let due = record.spec.due(expected, now, most)?;
    let (mut slots, mut next) = (due.slots, due.next);
    let mut over = slots.last().copied().unwrap_or(expected);
    if record.catch_up == CatchUp::Skip {
        slots.retain(|slot| now.since(*slot) <= MISSED_AFTER);
    }
    let job_bytes = codec::encode(&record)?.len();
    let fitting = (FIRE_BYTES_MAX / job_bytes).max(1);
    if slots.len() > fitting {
        next = Some(slots[fitting]);
        slots.truncate(fitting);
        over = slots[fitting - 1];
    }
    let bytes = slots.len() * job_bytes;
    Ok(Some(Fire { expected, slots, over, next, bytes }))
}
