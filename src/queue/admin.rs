//! Administration: what an operator does to jobs, queues and settings. Each verb reads and writes one job, or one row.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    engine::Rows,
    error::{Error, ErrorKind, Result},
    queue::{
        config::{self, QueueSetting},
        depend,
        enqueue::When,
        id::{JobId, Token},
        pause,
        promote::WALK_MAX,
        record::{Finish, Home, JobRecord},
        reschedule,
        settle::{Each, Settled, refusal},
        state::State,
        sweep::{self, Sweep},
    },
    store::{
        apply::Context,
        change::Outcome,
        keys::{self, ById},
        settings::{SettingRecord, check_value, setting_info},
        view::{first_rows, inconsistent},
    },
};

/// How many empty lanes keep their rows.
pub(crate) const EMPTY_LANES_KEPT: usize = 16;

/// One act of administration, as it travels in a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Admin {
    Cancel {
        job: JobId,
    },
    /// Puts a dead or cancelled job back with all its attempts, or lets a scheduled one run now.
    Retry {
        job: JobId,
    },
    /// Takes a job from its holder, as seen under this token.
    Release {
        job: JobId,
        token: Token,
    },
    Requeue {
        job: JobId,
    },
    /// Says that a job which waits for others has no more to wait for than there is.
    Seal {
        job: JobId,
    },
    Pause {
        queue: String,
    },
    Resume {
        queue: String,
    },
    PauseTask {
        task: String,
    },
    ResumeTask {
        task: String,
    },
    /// Gives a job that has not begun another priority or time; what is nothing stays.
    Reschedule {
        job: JobId,
        priority: Option<i64>,
        when: Option<When>,
    },
    /// Removes jobs that have not begun, or have ended.
    Purge(Sweep),
    /// Retries all jobs of a sweep that can be.
    RetryAll(Sweep),
    /// Removes ended jobs whose time is over, at most so many.
    Prune {
        limit: usize,
    },
    /// Removes the rows of lanes that have no jobs, but for some.
    SweepLanes,
    Configure {
        setting: String,
        value: u64,
    },
    ConfigureQueue {
        queue: String,
        settings: Vec<QueueSetting>,
    },
    /// Tends jobs that have nothing to do with each other: one that is refused leaves no trace, and the others stand.
    Each {
        verb: Tend,
        jobs: Vec<JobId>,
    },
}

/// What may be done to several jobs in one change, each judged by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tend {
    Cancel,
    Retry,
    Requeue,
}

pub(crate) fn administer(context: &mut Context<'_>, admin: &Admin) -> Result<Outcome> {
    match admin {
        Admin::Cancel { job } => cancel(context, *job),
        Admin::Retry { job } => retry(context, *job),
        Admin::Release { job, token } => release(context, *job, *token),
        Admin::Requeue { job } => requeue(context, *job),
        Admin::Pause { queue } => pause::set_queue(context, queue, true),
        Admin::Resume { queue } => pause::set_queue(context, queue, false),
        Admin::PauseTask { task } => pause::set_task(context, task, true),
        Admin::ResumeTask { task } => pause::set_task(context, task, false),
        Admin::Reschedule { job, priority, when } => reschedule::reschedule(context, *job, *priority, *when),
        Admin::Purge(sweep) => sweep::purge(context, sweep),
        Admin::RetryAll(sweep) => sweep::retry_all(context, sweep),
        Admin::Seal { job } => depend::seal(context, *job),
        Admin::Prune { limit } => prune(context, *limit),
        Admin::SweepLanes => sweep_lanes(context),
        Admin::Configure { setting, value } => configure(context, setting, *value),
        Admin::ConfigureQueue { queue, settings } => config::configure(context, queue, settings),
        Admin::Each { verb, jobs } => {
            jobs.iter().map(|job| each(context, *verb, *job)).collect::<Result<_>>().map(Outcome::SettledEach)
        }
    }
}

/// One job of several. What its verb says of its state is said before anything is written; a row that can't be read is
/// found out here, so that what fails later fails the whole change.
fn each(context: &mut Context<'_>, verb: Tend, job: JobId) -> Result<Each> {
    if let Err(error) = context.find(job) {
        return refusal(error);
    }
    let tended = match verb {
        Tend::Cancel => cancel(context, job),
        Tend::Retry => retry(context, job),
        Tend::Requeue => requeue(context, job),
    };
    match tended {
        Ok(Outcome::Settled(settled)) => Ok(Each::Settled(settled)),
        Ok(_) => Err(inconsistent(format!("tending job {job} did something else"))),
        Err(error) if error.kind() == ErrorKind::Corrupt => Err(error),
        Err(error) if is_not_yet(context, job, &error)? => Ok(Each::Refused(error.full_message())),
        Err(error) => refusal(error),
    }
}

/// Whether a retry was refused since not all that waited for the job know how it ended.
pub(super) fn is_not_yet(context: &Context<'_>, job: JobId, error: &Error) -> Result<bool> {
    Ok(error.kind() == ErrorKind::Unavailable && context.rows.get(&keys::untold(job))?.is_some())
}

impl Admin {
    /// Whether who holds jobs must look at them when this is done.
    pub(crate) fn is_for_holders(&self) -> bool {
        match self {
            Self::Cancel { .. } | Self::Pause { .. } | Self::PauseTask { .. } => true,
            Self::Each { verb, .. } => *verb == Tend::Cancel,
            _ => false,
        }
    }
}

pub(super) fn settled(job: &JobRecord, state: State) -> Outcome {
    Outcome::Settled(Settled { job: job.id, state, attempt: job.attempt, run_at: job.run_at })
}

pub(super) fn refused(job: &JobRecord, home: Home, verb: &str, why: &str) -> Error {
    Error::invalid(format!("job {} is {}, and can't be {verb}: {why}", job.id, job.state_in(home)))
}

/// What to do with a job that has ended, instead of what can be done before.
pub(super) fn after_end(job: &JobRecord) -> &'static str {
    if job.finish == Some(Finish::Completed) { "it has succeeded; enqueue it anew" } else { "it has ended; retry it" }
}

fn cancel(context: &mut Context<'_>, id: JobId) -> Result<Outcome> {
    let (home, mut job) = context.find(id)?;
    match home {
        // P7: its owner settles it, or its reclaimer.
        Home::ById(ById::Held) => {
            job.cancelling = true;
            context.rows.put_record(ById::Held.key(id), &job)?;
            Ok(settled(&job, State::Running))
        }
        Home::Ready | Home::ById(ById::Due | ById::Waiting) => {
            context.take_out(&job, home);
            let outcome = settled(&job, State::Cancelled);
            context.end_cancelled(job)?;
            Ok(outcome)
        }
        Home::ById(ById::Finished) if job.finish == Some(Finish::Cancelled) => Ok(settled(&job, State::Cancelled)),
        Home::ById(ById::Finished | ById::Dead) => Err(refused(&job, home, "cancelled", "it has already ended")),
    }
}

fn retry(context: &mut Context<'_>, id: JobId) -> Result<Outcome> {
    let (home, job) = context.find(id)?;
    retry_found(context, home, job)
}

pub(super) fn retry_found(context: &mut Context<'_>, home: Home, mut job: JobRecord) -> Result<Outcome> {
    match home {
        Home::ById(ById::Finished) if job.finish == Some(Finish::Completed) => {
            return Err(refused(&job, home, "retried", after_end(&job)));
        }
        Home::ById(ById::Finished | ById::Dead) => {
            if job.is_at_most_once() && job.has_begun() {
                return Err(refused(
                    &job,
                    home,
                    "retried",
                    "it runs at most once, and may have begun; enqueue it anew",
                ));
            }
            if context.rows.get(&keys::untold(job.id))?.is_some() {
                return Err(Error::unavailable(format!(
                    "job {} has just ended, and not all that waited for it know yet; retry it in a moment",
                    job.id
                )));
            }
            context.take_unique_back(&job, State::Ready)?;
            context.take_out(&job, home);
            job.attempt = 0;
            job.finish = None;
            job.finished_at = None;
            job.expires_at = None;
            job.result = None;
        }
        Home::ById(ById::Due) => context.take_out(&job, home),
        Home::ById(ById::Waiting) => return Err(refused(&job, home, "retried", "it waits for other jobs")),
        Home::Ready => return Ok(settled(&job, State::Ready)),
        Home::ById(ById::Held) => return Err(refused(&job, home, "retried", "it runs now")),
    }
    job.run_at = None;
    let outcome = settled(&job, State::Ready);
    context.put_back(job)?;
    Ok(outcome)
}

fn release(context: &mut Context<'_>, id: JobId, token: Token) -> Result<Outcome> {
    let mut job = context.held(id, token)?;
    context.take_out(&job, Home::ById(ById::Held));
    if job.is_at_most_once() && !job.cancelling {
        let label = job.lease.as_ref().map(|lease| lease.label.clone()).unwrap_or_default();
        context.note_may_have_begun(&mut job, &label, "it was taken from its holder");
        let outcome = settled(&job, State::Dead);
        context.end_dead(job)?;
        return Ok(outcome);
    }
    if job.cancelling {
        let outcome = settled(&job, State::Cancelled);
        context.end_cancelled(job)?;
        return Ok(outcome);
    }
    let outcome = settled(&job, State::Ready);
    context.put_back(job)?;
    Ok(outcome)
}

fn requeue(context: &mut Context<'_>, id: JobId) -> Result<Outcome> {
    let (home, mut job) = context.find(id)?;
    match home {
        Home::Ready | Home::ById(ById::Due) => context.take_out(&job, home),
        Home::ById(ById::Held) => return Err(refused(&job, home, "requeued", "it runs now; release it first")),
        Home::ById(ById::Waiting) => return Err(refused(&job, home, "requeued", "it waits for other jobs")),
        Home::ById(ById::Finished | ById::Dead) => {
            return Err(refused(&job, home, "requeued", after_end(&job)));
        }
    }
    job.run_at = None;
    context.renew_place(&mut job);
    let outcome = settled(&job, State::Ready);
    context.put_in(&job, Home::Ready)?;
    Ok(outcome)
}

/// INV-11: only jobs that have ended are in the index of what may go.
fn prune(context: &mut Context<'_>, limit: usize) -> Result<Outcome> {
    let (mut jobs, mut walked, mut range) = (0, 0, keys::expiries());
    while jobs < limit && walked < WALK_MAX {
        let entries = first_rows(&context.rows, &range, limit - jobs)?;
        walked += entries.len();
        let Some((last, _)) = entries.last() else { break };
        range = range.after(last);
        for (key, _) in entries {
            if keys::time_of(&key).is_none_or(|at| at > context.now) {
                return Ok(Outcome::Pruned { jobs });
            }
            let id = keys::id_at_end(&key).ok_or_else(|| inconsistent("an entry of the expiry index names no job"))?;
            let (home, job) = match context.find(id) {
                Ok(found) => found,
                // A row that this build can't read is left to one that can.
                Err(error) if error.kind() == ErrorKind::Corrupt => continue,
                Err(error) => return Err(error),
            };
            context.take_out(&job, home);
            context.forget(&job)?;
            jobs += 1;
        }
    }
    Ok(Outcome::Pruned { jobs })
}

/// Whether there is anything to prune.
pub(crate) fn has_expired(rows: &dyn Rows, now: Timestamp) -> Result<bool> {
    let first = first_rows(rows, &keys::expiries(), 1)?;
    Ok(first.first().and_then(|(key, _)| keys::time_of(key)).is_some_and(|at| at <= now))
}

fn sweep_lanes(context: &mut Context<'_>) -> Result<Outcome> {
    for lane in lanes_to_sweep(&context.rows)? {
        context.rows.remove(lane);
    }
    Ok(Outcome::Done)
}

/// The rows of empty lanes, but for as many as are kept, so that a queue that is filled and emptied in turns does not
/// write lane rows each time.
pub(crate) fn lanes_to_sweep(rows: &dyn Rows) -> Result<Vec<Vec<u8>>> {
    let mut empty = Vec::new();
    for (key, _) in first_rows(rows, &keys::all_lanes(), usize::MAX)? {
        let Some((queue, lane)) = keys::lane_of(&key) else { continue };
        if first_rows(rows, &keys::claimable_in(&queue, lane), 1)?.is_empty() {
            empty.push(key);
        }
    }
    Ok(empty.split_off(EMPTY_LANES_KEPT.min(empty.len())))
}

fn configure(context: &mut Context<'_>, name: &str, value: u64) -> Result<Outcome> {
    check_value(setting_info(name)?, value)?;
    context.rows.put_record(keys::setting(name), &SettingRecord { value })?;
    context.forget_settings();
    Ok(Outcome::Done)
}
