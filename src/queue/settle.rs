//! Settle: how a lease ends, by whoever holds it. Reads: the held row. Writes: its removal, and the job's row where it
//! goes on. P6: any other token is `LeaseLost`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    codec::Payload,
    error::{Error, ErrorKind, Result},
    queue::{
        enqueue::{NewJob, enqueue},
        id::{JobId, Token},
        record::{Home, JobRecord, ProgressRecord},
        state::State,
    },
    store::{apply::Context, change::Outcome, keys::ById},
};

/// The longest progress message, in bytes.
pub const PROGRESS_BYTES_MAX: usize = 4 << 10;

/// A settlement, as it travels in a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settle {
    pub(crate) job: JobId,
    pub(crate) token: Token,
    /// When the handler began; `None` where it has not.
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) how: Ending,
    /// Jobs that are enqueued in the same change, or not at all where the lease can't be settled so.
    pub(crate) enqueues: Vec<NewJob>,
}

/// How a lease ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Ending {
    Complete {
        result: Option<Payload>,
    },
    /// Tried again after the delay; never, where there is none.
    Fail {
        message: String,
        retry_after: Option<Duration>,
    },
    /// Later again, no attempt charged.
    Snooze {
        delay: Duration,
    },
    /// Back to the front of the queue at once, no attempt charged.
    Release,
    Cancel,
}

/// Where a settled job went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settled {
    pub(crate) job: JobId,
    pub(crate) state: State,
    pub(crate) attempt: u32,
    /// When it is tried again.
    pub(crate) run_at: Option<Timestamp>,
}

/// What became of one settlement, or one act on a job, of several that may fail each by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Each {
    Settled(Settled),
    /// P6: the lease is another's, or nobody's.
    Lost(String),
    /// It asks for what can't be done: a result that is too large.
    Refused(String),
    /// The job's row can't be read.
    Damaged(String),
    /// There is no such job.
    NotFound(String),
}

impl Settle {
    /// About how many bytes it adds to a change.
    pub(crate) fn payload_bytes(&self) -> usize {
        let of_enqueues: usize = self.enqueues.iter().map(NewJob::payload_bytes).sum();
        let of_ending = match &self.how {
            Ending::Complete { result } => result.as_ref().map_or(0, |result| result.as_bytes().len()),
            Ending::Fail { message, .. } => message.len(),
            Ending::Snooze { .. } | Ending::Release | Ending::Cancel => 0,
        };
        of_ending + of_enqueues
    }
}

/// Settles one lease, or fails the change.
pub(crate) fn settle(context: &mut Context<'_>, settle: &Settle) -> Result<Outcome> {
    settle_with_jobs(context, settle).map(Outcome::Settled)
}

/// Settles leases that have nothing to do with each other: one that can't be settled leaves no trace, and the change
/// goes on.
pub(crate) fn settle_each(context: &mut Context<'_>, settlements: &[Settle]) -> Result<Outcome> {
    let each = |settle: &Settle| {
        if !settle.enqueues.is_empty() {
            let settled = context.all_or_nothing(|context| settle_with_jobs(context, settle));
            return settled.map_or_else(refusal, |settled| Ok(Each::Settled(settled)));
        }
        match admit(context, settle) {
            Ok(job) => carry_out(context, settle, job).map(Each::Settled),
            Err(error) => refusal(error),
        }
    };
    settlements.iter().map(each).collect::<Result<_>>().map(Outcome::SettledEach)
}

/// What of one of several the others do not suffer from.
pub(crate) fn refusal(error: Error) -> Result<Each> {
    match error.kind() {
        ErrorKind::LeaseLost => Ok(Each::Lost(error.full_message())),
        ErrorKind::Invalid => Ok(Each::Refused(error.full_message())),
        ErrorKind::Corrupt => Ok(Each::Damaged(error.full_message())),
        ErrorKind::NotFound => Ok(Each::NotFound(error.full_message())),
        _ => Err(error),
    }
}

/// The held job that may be settled so. Nothing is written here, so that whatever is refused left no trace.
fn admit(context: &mut Context<'_>, settle: &Settle) -> Result<JobRecord> {
    let job = context.held(settle.job, settle.token)?;
    if let Ending::Complete { result: Some(result) } = &settle.how {
        context.admit_payload(&format!("the result of job {}", job.id), result.as_bytes().len())?;
    }
    Ok(job)
}

/// Settles a lease, and then enqueues the jobs that go with it: so one of them may have the unique key that the settled
/// job gives up.
fn settle_with_jobs(context: &mut Context<'_>, settle: &Settle) -> Result<Settled> {
    let job = admit(context, settle)?;
    let settled = carry_out(context, settle, job)?;
    enqueue_all(context, settle)?;
    Ok(settled)
}

/// Enqueues the jobs that go with a settlement. What is wrong with one of them is wrong with the settlement.
fn enqueue_all(context: &mut Context<'_>, settle: &Settle) -> Result<()> {
    // They are numbered among themselves.
    let before = std::mem::take(&mut context.enqueued);
    for job in &settle.enqueues {
        if job.extra.as_ref().is_some_and(|extra| extra.is_referenced) {
            return Err(Error::invalid(format!(
                "job {} enqueues one that is to have a reference; only a transaction's own jobs can have that",
                settle.job
            )));
        }
        enqueue(context, job).map_err(|error| {
            let what = format!("the job of \"{}\" that job {} enqueues", job.task, settle.job);
            match error.kind() {
                ErrorKind::Corrupt => error.during(&what),
                _ => Error::invalid(error.during(&what).full_message()),
            }
        })?;
    }
    context.enqueued = before;
    Ok(())
}

fn carry_out(context: &mut Context<'_>, settle: &Settle, mut job: JobRecord) -> Result<Settled> {
    let label = job.lease.as_ref().map(|lease| lease.label.clone()).unwrap_or_default();
    context.take_out(&job, Home::ById(ById::Held));
    job.lease = None;
    if settle.started_at.is_some() {
        job.started_at = settle.started_at;
    }
    let is_once = job.is_at_most_once() && settle.started_at.is_some() && !job.cancelling;
    let run_at = context.now;
    let settled = |job: JobId, state, attempt, run_at| Ok(Settled { job, state, attempt, run_at });
    match &settle.how {
        Ending::Complete { result } => {
            job.attempt += 1;
            job.result.clone_from(result);
            let (id, attempt) = (job.id, job.attempt);
            context.end_completed(job)?;
            settled(id, State::Completed, attempt, None)
        }
        Ending::Fail { message, retry_after } => {
            job.attempt += 1;
            job.suspect = false;
            job.note_error(context.now, &label, message);
            let (id, attempt) = (job.id, job.attempt);
            if job.cancelling {
                context.end_cancelled(job)?;
                return settled(id, State::Cancelled, attempt, None);
            }
            match retry_after {
                Some(delay) if job.attempt < job.attempts_max => {
                    context.put_later(job, *delay)?;
                    settled(id, state_after(*delay), attempt, Some(run_at.after(*delay)))
                }
                _ => {
                    context.end_dead(job)?;
                    settled(id, State::Dead, attempt, None)
                }
            }
        }
        Ending::Snooze { .. } | Ending::Release if is_once => {
            context.note_may_have_begun(&mut job, &label, "its handler gave it up");
            let (id, attempt) = (job.id, job.attempt);
            context.end_dead(job)?;
            settled(id, State::Dead, attempt, None)
        }
        _ if job.cancelling => {
            let (id, attempt) = (job.id, job.attempt);
            context.end_cancelled(job)?;
            settled(id, State::Cancelled, attempt, None)
        }
        Ending::Snooze { delay } => {
            let (id, attempt) = (job.id, job.attempt);
            context.put_later(job, *delay)?;
            settled(id, state_after(*delay), attempt, Some(run_at.after(*delay)))
        }
        Ending::Release => {
            let (id, attempt) = (job.id, job.attempt);
            context.put_back(job)?;
            settled(id, State::Ready, attempt, None)
        }
        Ending::Cancel => {
            let (id, attempt) = (job.id, job.attempt);
            context.end_cancelled(job)?;
            settled(id, State::Cancelled, attempt, None)
        }
    }
}

fn state_after(delay: Duration) -> State {
    if crate::clock::millis(delay) > 0 { State::Scheduled } else { State::Ready }
}

/// Says that a lease is still used. It changes nothing: the beat of the session keeps it.
pub(crate) fn extend(context: &mut Context<'_>, job: JobId, token: Token) -> Result<Outcome> {
    context.held(job, token).map(|_| Outcome::Done)
}

pub(crate) fn progress(
    context: &mut Context<'_>,
    job: JobId,
    token: Token,
    fraction: f32,
    message: &str,
) -> Result<Outcome> {
    if !(0.0..=1.0).contains(&fraction) {
        return Err(Error::invalid(format!("progress {fraction} is out of range; it goes from 0 to 1")));
    }
    if message.len() > PROGRESS_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the progress message has {} bytes; at most {PROGRESS_BYTES_MAX} are allowed",
            message.len()
        )));
    }
    let mut held = context.held(job, token)?;
    held.progress = Some(ProgressRecord { fraction, message: message.to_owned() });
    context.rows.put_record(ById::Held.key(job), &held)?;
    Ok(Outcome::Done)
}
