//! What most jobs have no need of: a byte in the record of a job that has none of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    codec::Record,
    queue::{reference::JobRef, state::State},
};

/// The rare part of a job's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extra {
    pub(crate) unique: Option<UniqueRecord>,
    /// The concurrency key: at most so many jobs of one key run at once, as its queue says.
    pub(crate) key: Option<String>,
    /// How long an attempt may take, where not as long as its task says.
    pub(crate) timeout: Option<Duration>,
    /// A run that has begun is never followed by another.
    pub(crate) at_most_once: bool,
    /// What it waits for, or waited for.
    pub(crate) waits: Option<WaitsRecord>,
    /// Other jobs wait for its end.
    pub(crate) has_dependents: bool,
    /// How many lines its log ever had.
    pub(crate) log_lines: u32,
    /// By what it can be found as well, as long as it lives.
    pub(crate) refs: Vec<JobRef>,
}

/// A unique key that a job holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UniqueRecord {
    pub(crate) key: String,
    pub(crate) scope: UniqueScope,
    /// In which states the job holds it.
    pub(crate) states: StateSet,
    /// Until when it holds it at most.
    pub(crate) until: Option<Timestamp>,
}

/// Among which jobs a unique key is unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum UniqueScope {
    #[default]
    Queue,
    Store,
}

/// A set of states, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateSet(u8);

impl StateSet {
    /// All states in which a job has not ended.
    pub(crate) const UNENDED: Self = Self::of(&[State::Waiting, State::Scheduled, State::Ready, State::Running]);

    pub(crate) const fn of(states: &[State]) -> Self {
        let (mut set, mut index) = (0, 0);
        while index < states.len() {
            set |= 1 << states[index] as u8;
            index += 1;
        }
        Self(set)
    }

    /// The states of jobs that have not ended, and of those that succeeded.
    pub(crate) const UNENDED_OR_COMPLETED: Self = Self(Self::UNENDED.0 | Self::of(&[State::Completed]).0);

    pub(crate) fn contains(self, state: State) -> bool {
        self.0 & 1 << state as u8 != 0
    }

    #[cfg(feature = "cli")]
    pub(crate) fn states(self) -> impl Iterator<Item = State> {
        State::ALL.into_iter().filter(move |state| self.contains(*state))
    }

    pub(crate) fn contains_all(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What a job waits for: so many others have not ended yet, and how the others did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitsRecord {
    pub(crate) pending: u32,
    pub(crate) completed: u32,
    pub(crate) dead: u32,
    pub(crate) cancelled: u32,
    /// More may be added; it does not begin before its batch is sealed.
    pub(crate) is_open: bool,
    pub(crate) on_failure: OnFailure,
    /// How long it is put off, once all have ended.
    pub(crate) delay: Option<Duration>,
}

impl Record for WaitsRecord {
    const NAME: &'static str = "record of what a job waits for";
}

/// What becomes of a job when one that it waits for dies or is cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFailure {
    /// It is cancelled too.
    #[default]
    Cancel,
    /// It runs all the same, when all have ended.
    Run,
}
