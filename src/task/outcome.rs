//! How a handler ends when it is not done.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// Why a handler did not finish. Any error turns into one by `?`, and is then tried again.
#[derive(Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TaskError {
    /// The attempt failed; the job is tried again after its backoff, while it has attempts left.
    Failed(String),
    /// Trying again won't help: the job is dead.
    Fatal(String),
    /// Not now: again after so long, without an attempt charged.
    Snooze(Duration),
    /// Somebody else should: back to the front of the queue, without an attempt charged.
    Release,
    /// It need not be done any more.
    Cancel,
}

impl TaskError {
    /// A failure that is tried again.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// A failure that trying again won't help.
    pub fn fatal(message: impl fmt::Display) -> Self {
        Self::Fatal(message.to_string())
    }
}

impl<E: std::error::Error> From<E> for TaskError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::Failed(message)
    }
}
