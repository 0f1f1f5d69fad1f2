//! The rows of a queue: a job is one row, and the family it is in (with a state byte in `finished`) is its state.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    codec::{Payload, Record},
    queue::{
        extra::{Extra, UniqueRecord},
        id::{JobId, Place, SessionId, Token},
        lane::{Lane, PRIORITY_MAX, PRIORITY_MIN},
        state::State,
    },
    store::{
        change::ChangeId,
        conflict::{Version, Writer},
        keys::{self, ById},
    },
};

/// How many errors a job's history keeps: the latest.
pub(crate) const ERRORS_KEPT: usize = 10;
/// The longest error message kept, in bytes.
pub(crate) const ERROR_BYTES_MAX: usize = 4 << 10;

/// A job, whole, in whatever state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) id: JobId,
    pub(crate) change: ChangeId,
    pub(crate) queue: String,
    pub(crate) task: u32,
    pub(crate) priority: i8,
    pub(crate) place: Place,
    pub(crate) args: Payload,
    pub(crate) args_version: u32,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) attempt: u32,
    pub(crate) attempts_max: u32,
    /// P4: a run of it may have taken its process down.
    pub(crate) suspect: bool,
    /// P7: it is to be cancelled by whoever holds it.
    pub(crate) cancelling: bool,
    pub(crate) keep: bool,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) run_at: Option<Timestamp>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) lease: Option<LeaseRecord>,
    pub(crate) progress: Option<ProgressRecord>,
    pub(crate) result: Option<Payload>,
    pub(crate) errors: Vec<ErrorRecord>,
    /// For jobs in `finished`: whether they were completed or cancelled.
    pub(crate) finish: Option<Finish>,
    pub(crate) extra: Option<Box<Extra>>,
}

impl Record for JobRecord {
    const NAME: &'static str = "job";

    fn validate(&self) -> Result<(), &'static str> {
        if !(PRIORITY_MIN..=PRIORITY_MAX).contains(&self.priority) {
            return Err("its priority is out of range");
        }
        if self.attempt > self.attempts_max {
            return Err("it had more attempts than it may have"); // INV-7
        }
        if self.lease.is_some() && self.finished_at.is_some() {
            return Err("it is both held and finished"); // INV-3
        }
        if self.finish.is_some() && self.finished_at.is_none() {
            return Err("it is finished and has no time for that");
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Finish {
    Completed,
    Cancelled,
}

/// Who holds a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    pub(crate) session: SessionId,
    pub(crate) token: Token,
    pub(crate) label: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProgressRecord {
    pub(crate) fraction: f32,
    pub(crate) message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ErrorRecord {
    pub(crate) attempt: u32,
    pub(crate) at: Timestamp,
    pub(crate) session: String,
    pub(crate) message: String,
}

impl JobRecord {
    /// The unique key that it holds in some of its states.
    pub(crate) fn unique(&self) -> Option<&UniqueRecord> {
        self.extra.as_ref()?.unique.as_ref()
    }

    /// Its concurrency key.
    pub(crate) fn key(&self) -> Option<&str> {
        self.extra.as_ref()?.key.as_deref()
    }

    /// Whether a run that has begun is never followed by another.
    pub(crate) fn is_at_most_once(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.at_most_once)
    }

    /// Whether a run of it has ever begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.attempt > 0 || self.started_at.is_some()
    }

    pub(crate) fn lane(&self) -> Lane {
        let lane = Lane::new(self.priority, self.task, self.suspect);
        if self.key().is_some() { lane.with_key() } else { lane }
    }

    /// How many lines its log ever had.
    pub(crate) fn log_lines(&self) -> u32 {
        self.extra.as_ref().map_or(0, |extra| extra.log_lines)
    }

    /// The key of this job's row in a family.
    pub(crate) fn key_in(&self, home: Home) -> Vec<u8> {
        match home {
            Home::Ready => match self.key() {
                Some(key) => keys::keyed(&self.queue, key, self.lane(), self.place),
                None => keys::ready(&self.queue, self.lane(), self.place),
            },
            Home::ById(family) => family.key(self.id),
        }
    }

    /// The state that this job has in a family.
    pub(crate) fn state_in(&self, home: Home) -> State {
        match (home, self.finish) {
            (Home::Ready, _) => State::Ready,
            (Home::ById(ById::Held), _) => State::Running,
            (Home::ById(ById::Waiting), _) => State::Waiting,
            (Home::ById(ById::Due), _) => State::Scheduled,
            (Home::ById(ById::Dead), _) => State::Dead,
            (Home::ById(ById::Finished), Some(Finish::Cancelled)) => State::Cancelled,
            (Home::ById(ById::Finished), _) => State::Completed,
        }
    }

    pub(crate) fn note_error(&mut self, at: Timestamp, session: &str, message: &str) {
        let mut end = message.len().min(ERROR_BYTES_MAX);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        let message = message[..end].to_owned();
        self.errors.push(ErrorRecord { attempt: self.attempt, at, session: session.to_owned(), message });
        if self.errors.len() > ERRORS_KEPT {
            self.errors.remove(0);
        }
    }
}

/// The family that a job's row is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Ready,
    ById(ById),
}

/// A queue's head row: written by claims and administration only, so that its version is the queue object's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeadRecord {
    pub(crate) version: Version,
    pub(crate) paused: bool,
    /// Who made that version.
    pub(crate) by: Writer,
}

impl Record for HeadRecord {
    const NAME: &'static str = "queue head";
}

/// INV-9: how many jobs of a queue are in each state, and two totals that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountRecord {
    pub(crate) waiting: u64,
    pub(crate) scheduled: u64,
    pub(crate) ready: u64,
    pub(crate) running: u64,
    pub(crate) dead: u64,
    pub(crate) cancelled: u64,
    /// Completed jobs that are kept.
    pub(crate) kept: u64,
    /// All ever completed.
    pub(crate) completed: u64,
    /// Strict conflicts and candidates lost.
    pub(crate) hijacks: u64,
}

impl Record for CountRecord {
    const NAME: &'static str = "queue count";
}

impl CountRecord {
    /// How many jobs are in a state now.
    pub(crate) fn now_in(&mut self, state: State) -> &mut u64 {
        match state {
            State::Waiting => &mut self.waiting,
            State::Scheduled => &mut self.scheduled,
            State::Ready => &mut self.ready,
            State::Running => &mut self.running,
            State::Dead => &mut self.dead,
            State::Cancelled => &mut self.cancelled,
            State::Completed => &mut self.kept,
        }
    }
}

/// The task that a number stands for, or the number that stands for a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskRecord {
    pub(crate) number: u32,
    pub(crate) name: String,
    /// Its jobs are not claimed for now, in whatever queue. It stands here since a claim reads this row anyway.
    pub(crate) paused: bool,
}

impl Record for TaskRecord {
    const NAME: &'static str = "task name";
}
