//! Schedules: jobs that are enqueued again and again, each at its slot. A schedule is one row; while it is not paused
//! and has a next slot, an entry in the index by time leads to it.
//!
//! S26: a slot and its job are one change. Whoever keeps the store in order says which slots are due and which one
//! comes next (`plan`); the change is guarded by the slot that it found, so that of several that say so one does it.
//! What an expression means is never asked in a change: that is `spec`. Slots only move forward.

pub(crate) mod define;
pub(crate) mod handle;
pub(crate) mod plan;
pub(crate) mod spec;

#[cfg(feature = "cron")]
#[cfg(test)]
mod cron_tests;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::{define::CatchUp, spec::Spec};
use crate::{
    clock::Timestamp,
    codec::Record,
    engine::Rows,
    error::{Error, ErrorKind, Result},
    queue::{
        enqueue::{NewJob, When, check_name, enqueue},
        id::JobId,
    },
    store::{apply::Context, change::Outcome, keys, view::get_record},
};

/// The metadata of a scheduled job that names its schedule.
pub(crate) const OF_SCHEDULE: &str = "schedule";
/// The metadata of a scheduled job that tells its slot.
pub(crate) const SCHEDULED_FOR: &str = "scheduled_for";

/// A schedule, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScheduleRecord {
    pub(crate) spec: Spec,
    /// What each slot enqueues; its time is the slot's.
    pub(crate) job: NewJob,
    pub(crate) catch_up: CatchUp,
    pub(crate) paused: bool,
    /// The latest slot that is over, whether it was run or passed over.
    pub(crate) last: Option<Timestamp>,
    pub(crate) last_job: Option<JobId>,
    /// None where its slots have come to an end.
    pub(crate) next: Option<Timestamp>,
}

impl Record for ScheduleRecord {
    const NAME: &'static str = "schedule";

    fn validate(&self) -> Result<(), &'static str> {
        if self.next.is_some() && self.next <= self.last {
            return Err("its next slot is over"); // S27
        }
        if self.spec == Spec::Every(Duration::ZERO) {
            return Err("its interval is zero");
        }
        Ok(())
    }
}

impl ScheduleRecord {
    /// When something is to be done for it.
    pub(crate) fn slot(&self) -> Option<Timestamp> {
        self.next.filter(|_| !self.paused)
    }
}

/// What is done to a schedule, as it travels in a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ScheduleAct {
    /// The same spec again keeps the slots as they are; `first` is for a new one, computed from when the last slot was
    /// `seen_last`.
    Define {
        spec: Spec,
        job: Box<NewJob>,
        catch_up: CatchUp,
        seen_last: Option<Timestamp>,
        first: Option<Timestamp>,
    },
    Remove,
    Pause,
    /// Goes on with `next`, where the slot that it stopped at is `seen`.
    Resume {
        seen: Option<Timestamp>,
        next: Option<Timestamp>,
    },
    /// Enqueues its job now, beside its slots.
    Run,
    Fire(Fire),
}

/// Slots whose time has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fire {
    /// The next slot, as it was seen.
    pub(crate) expected: Timestamp,
    /// Those that get a job, in order.
    pub(crate) slots: Vec<Timestamp>,
    /// The latest slot that is over with this.
    pub(crate) over: Timestamp,
    pub(crate) next: Option<Timestamp>,
    /// About how many bytes the jobs will take.
    pub(crate) bytes: usize,
}

/// What became of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scheduled {
    Changed,
    Unchanged,
    /// Another changed it meanwhile; what this change relied on is to be read again.
    Moved,
    Fired(Vec<JobId>),
}

pub(crate) fn schedule(context: &mut Context<'_>, name: &str, act: &ScheduleAct) -> Result<Outcome> {
    check_name("schedule", name)?;
    let before: Option<ScheduleRecord> = get_record(&context.rows, &keys::schedule(name))?;
    let found = || before.as_ref().ok_or_else(|| not_found(name));
    match act {
        ScheduleAct::Define { spec, job, catch_up, seen_last, first } => {
            check_job(job, name)?;
            check_bounds(name, spec, *catch_up)?;
            context.admit_payload(&format!("the arguments of schedule \"{name}\""), job.args.as_bytes().len())?;
            let defined = defined(before.as_ref(), (spec, job, *catch_up), *seen_last, *first);
            defined.map_or(Ok(MOVED), |after| replace(context, name, before.as_ref(), &after))
        }
        ScheduleAct::Remove => {
            let record = found()?;
            context.rows.remove(keys::schedule(name));
            remove_slot(context, name, record);
            Ok(Outcome::Scheduled(Scheduled::Changed))
        }
        ScheduleAct::Pause => {
            let after = ScheduleRecord { paused: true, ..found()?.clone() };
            replace(context, name, before.as_ref(), &after)
        }
        ScheduleAct::Resume { seen, next } => {
            let record = found()?;
            if record.paused && record.next != *seen {
                return Ok(MOVED);
            }
            let next = if record.paused { *next } else { record.next };
            let after = ScheduleRecord { paused: false, next, ..record.clone() };
            replace(context, name, before.as_ref(), &after)
        }
        ScheduleAct::Run => enqueue(context, &job_of(&found()?.job, name, None)),
        // Removed since it was seen.
        ScheduleAct::Fire(fire) => before.as_ref().map_or(Ok(MOVED), |record| self::fire(context, name, record, fire)),
    }
}

/// What a change says that relied on what is no longer so.
const MOVED: Outcome = Outcome::Scheduled(Scheduled::Moved);

pub(crate) fn not_found(name: &str) -> Error {
    Error::not_found(format!("there is no schedule \"{name}\"; `casque schedule list` tells those that there are"))
}

/// When the next slot of any schedule is due.
pub(crate) fn next_slot(rows: &dyn Rows) -> Result<Option<Timestamp>> {
    let first = crate::store::view::first_rows(rows, &keys::slots(), 1)?;
    Ok(first.first().and_then(|(key, _)| keys::time_of(key)))
}

/// The schedule as it is to be from now on; nothing where slots have passed since it was looked at.
fn defined(
    before: Option<&ScheduleRecord>,
    (spec, job, catch_up): (&Spec, &NewJob, CatchUp),
    seen_last: Option<Timestamp>,
    first: Option<Timestamp>,
) -> Option<ScheduleRecord> {
    let (spec, job) = (spec.clone(), job.clone());
    let after = match before {
        None => ScheduleRecord { spec, job, catch_up, paused: false, last: None, last_job: None, next: first },
        Some(before) if before.spec == spec => return Some(ScheduleRecord { job, catch_up, ..before.clone() }),
        Some(before) => ScheduleRecord { spec, job, catch_up, next: first, ..before.clone() },
    };
    (after.last == seen_last).then_some(after)
}

/// # Errors
/// `Invalid` for a job that can't be one of a schedule.
pub(crate) fn check_job(job: &NewJob, name: &str) -> Result<()> {
    job_of(job, name, Some(Timestamp::default())).check()?;
    if matches!(job.when, When::At(_)) {
        return Err(Error::invalid(format!(
            "the job of schedule \"{name}\" has a time of its own; its slots say when it runs, and a \
             delay counts from those"
        )));
    }
    if job.extra.as_ref().is_some_and(|extra| !extra.after.is_empty() || !extra.before.is_empty() || extra.is_open) {
        return Err(Error::invalid(format!(
            "the job of schedule \"{name}\" waits for others, which end once; enqueue what belongs \
             together from its handler"
        )));
    }
    Ok(())
}

/// # Errors
/// `Invalid` for an interval, or a number of slots to make up for, out of its range: whoever looks what is due counts
/// on it. What a cron expression means is not asked in a change.
fn check_bounds(name: &str, spec: &Spec, catch_up: CatchUp) -> Result<()> {
    if let Spec::Every(_) = spec {
        spec.clone().checked().map_err(|error| error.during(&format!("schedule \"{name}\"")))?;
    }
    catch_up.check()
}

fn fire(context: &mut Context<'_>, name: &str, record: &ScheduleRecord, fire: &Fire) -> Result<Outcome> {
    if record.slot() != Some(fire.expected) {
        return Ok(MOVED);
    }
    // S27: whose clock is ahead does not make others' slots come early.
    if fire.over > context.now {
        return Ok(Outcome::Scheduled(Scheduled::Unchanged));
    }
    let in_order = fire.slots.is_sorted_by(|one, next| one < next)
        && fire.slots.first().is_none_or(|slot| *slot >= fire.expected)
        && fire.slots.last().is_none_or(|slot| *slot <= fire.over)
        && fire.over >= fire.expected
        && fire.next.is_none_or(|next| next > fire.over);
    if !in_order {
        return Err(Error::invalid(format!("the slots of schedule \"{name}\" do not follow each other")));
    }
    let mut jobs = Vec::new();
    let (mut over, mut next) = (fire.over, fire.next);
    for (index, slot) in fire.slots.iter().enumerate() {
        match enqueue(context, &job_of(&record.job, name, Some(*slot))) {
            Ok(Outcome::Enqueued { job, .. }) => jobs.push(job),
            Ok(_) => {}
            // The queue may never have room for all of them at once: the others come when it has some.
            Err(error) if error.kind() == ErrorKind::Full && index > 0 => {
                (over, next) = (fire.slots[index - 1], Some(*slot));
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let last_job = jobs.last().copied().or(record.last_job);
    let after = ScheduleRecord { last: Some(over), last_job, next, ..record.clone() };
    replace(context, name, Some(record), &after)?;
    Ok(Outcome::Scheduled(Scheduled::Fired(jobs)))
}

/// The job of a slot; or, without one, of a run beside the slots.
fn job_of(template: &NewJob, name: &str, slot: Option<Timestamp>) -> NewJob {
    let mut job = template.clone();
    job.metadata.push((OF_SCHEDULE.to_owned(), name.to_owned()));
    if let Some(slot) = slot {
        job.metadata.push((SCHEDULED_FOR.to_owned(), slot.to_string()));
        job.when = match template.when {
            When::After(delay) => When::At(slot.after(delay)),
            When::Now | When::At(_) => When::At(slot),
        };
    }
    job
}

/// Writes a schedule's row, and moves its entry in the index by time.
fn replace(
    context: &mut Context<'_>,
    name: &str,
    before: Option<&ScheduleRecord>,
    after: &ScheduleRecord,
) -> Result<Outcome> {
    if before == Some(after) {
        return Ok(Outcome::Scheduled(Scheduled::Unchanged));
    }
    if let Some(before) = before {
        remove_slot(context, name, before);
    }
    context.rows.put_record(keys::schedule(name), after)?;
    if let Some(slot) = after.slot() {
        context.rows.put(keys::slot(slot, name), Vec::new());
    }
    Ok(Outcome::Scheduled(Scheduled::Changed))
}

fn remove_slot(context: &mut Context<'_>, name: &str, record: &ScheduleRecord) {
    if let Some(slot) = record.slot() {
        context.rows.remove(keys::slot(slot, name));
    }
}
