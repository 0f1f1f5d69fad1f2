//! What an operator does to jobs that have not begun or are dead, in the rows and in the model.

use std::time::Duration;

use super::{Model, Rig};
use crate::{
    error::ErrorKind,
    queue::{admin::Admin, enqueue::When, state::State},
};

pub(super) fn reschedule(rig: &mut Rig, model: &mut Model, which: usize, priority: Option<i64>, delay: Option<u64>) {
    let (now, count) = (rig.now, model.jobs.len());
    let Some(job) = model.jobs.get_mut(which % count.max(1)) else { return };
    let is_strict = model.limits[job.queue].is_strict && job.key.is_some();
    let when = delay.map(|delay| When::After(Duration::from_secs(delay)));
    let found = rig.reschedule(job.id, priority, when).map_err(|error| error.kind());
    let expected = match job.state {
        _ if priority.is_none() && delay.is_none() => Err(ErrorKind::Invalid),
        None => Err(ErrorKind::NotFound),
        Some(State::Waiting | State::Ready | State::Scheduled) => {
            job.priority = priority.unwrap_or(job.priority);
            match (delay, job.state) {
                (None, _) => {}
                (Some(delay), Some(State::Waiting)) => job.delay = delay,
                (Some(delay), state) => {
                    let is_tried_again = state == Some(State::Ready) && job.has_begun && is_strict;
                    job.later(delay, job.holds_back || is_tried_again, now);
                }
            }
            Ok(())
        }
        Some(_) => Err(ErrorKind::Invalid),
    };
    assert_eq!(found, expected, "rescheduling of a job that was {:?}", job.state);
}

pub(super) fn retry_all(rig: &mut Rig, model: &mut Model) {
    let swept = rig.sweep(Admin::RetryAll, State::Dead);
    let dead = |model: &Model, index: &usize| model.jobs[*index].state == Some(State::Dead);
    let all: Vec<usize> = (0..model.jobs.len()).filter(|index| dead(model, index)).collect();
    let count = all.len() as u64;
    let mut refused = 0;
    for index in all {
        let job = &model.jobs[index];
        if model.holder(job.queue, job.unique).is_some() {
            refused += 1;
        } else {
            let job = &mut model.jobs[index];
            (job.state, job.attempt, job.is_told) = (Some(State::Ready), 0, false);
        }
    }
    assert_eq!((swept.jobs, swept.refused), (count - refused, refused));
}
