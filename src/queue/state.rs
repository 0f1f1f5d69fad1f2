//! The states of a job. The table of events is in ARCHITECTURE.md; each event is one verb file here.
//!
//! ```text
//!   enqueue --+-----------------------> ready ---claim--> running ---complete--> completed (kept, or gone)
//!             |                           ^                  |
//!             +--delay--> scheduled --promote     fail, snooze (delay)--> scheduled
//!                                         ^                  |
//!                                         +----- release, reclaim       out of attempts, fatal --> dead
//! ```

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum State {
    /// It waits for other jobs.
    Waiting,
    /// Its time has not come: a delay, or the backoff after a failed attempt.
    Scheduled,
    /// It can be claimed.
    Ready,
    /// It is claimed; `started_at` tells whether its handler has begun.
    Running,
    /// Its handler succeeded.
    Completed,
    /// It is out of attempts, or was told that trying again won't help. An operator can retry it.
    Dead,
    /// It was called off.
    Cancelled,
}

impl State {
    /// All of them, in the order of a life.
    pub const ALL: [Self; 7] =
        [Self::Waiting, Self::Scheduled, Self::Ready, Self::Running, Self::Completed, Self::Dead, Self::Cancelled];

    /// Whether nothing more happens to the job by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Dead | Self::Cancelled)
    }

    /// The state's name, as the command line writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for State {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("there is no state \"{text}\"; a job is {names}"))
        })
    }
}
