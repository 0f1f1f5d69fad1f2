//! The one public error: a kind that tells the caller what to do, and a message that tells a person what went wrong.
//!
//! Modules below the public surface return this type too; foreign errors become its `source` and never show in a
//! signature.

use serde::{Deserialize, Serialize};

use crate::store::conflict::Conflict;

/// What casque's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed: its [`kind`](Error::kind) says what the caller should do next.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    conflict: Option<Box<Conflict>>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kinds of failure, by what the caller should do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else changed what this change relied on; nothing was written. Retry on a fresh snapshot.
    Conflict,
    /// The lease is no longer ours; nothing was written. Stop: the result is discarded.
    LeaseLost,
    /// There is no such thing.
    NotFound,
    /// The call itself is wrong. Fix it; trying again won't help.
    Invalid,
    /// Nothing was written, and the same call may work later. Back off and retry.
    Unavailable,
    /// The queue has as many jobs as it may; nothing was written. Wait for room, or drop the job.
    Full,
    /// The change was sent and its answer was lost: it is wholly there or wholly absent. Ask before trying again.
    Unknown,
    /// The time given to wait has passed; what was waited for may still come.
    TimedOut,
    /// The closure of a transaction called it off; nothing was written.
    Aborted,
    /// The store or the handle was closed.
    Closed,
    /// The store is damaged. Stop, and keep the file.
    Corrupt,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), conflict: None, source: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// What was answered, and not with its own outcome.
    pub(crate) fn unanswered(what: &str) -> Self {
        Self::corrupt(format!("{what} was answered without its outcome"))
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the store was closed; open it again")
    }

    pub(crate) fn of_conflict(conflict: Conflict) -> Self {
        Self {
            kind: ErrorKind::Conflict,
            message: conflict.to_string(),
            conflict: Some(Box::new(conflict)),
            source: None,
        }
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same error, its message led by what was being done.
    pub(crate) fn during(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The same failure for another caller that it struck: a group fails as one.
    pub(crate) fn for_each_caller(&self) -> Self {
        Self { kind: self.kind, message: self.full_message(), conflict: self.conflict.clone(), source: None }
    }

    /// Calls off the transaction whose closure returns this.
    #[must_use]
    pub fn abort(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Aborted, message)
    }

    /// What the caller should do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// For a [`ErrorKind::Conflict`]: what conflicted, at which versions, and who won.
    #[must_use]
    pub fn conflict(&self) -> Option<&Conflict> {
        self.conflict.as_deref()
    }

    /// Whether a strict claim lost its job to another worker.
    #[must_use]
    pub fn is_hijacked(&self) -> bool {
        self.conflict.as_ref().is_some_and(|conflict| conflict.is_hijack())
    }

    /// The message and the messages of its sources, on one line.
    #[must_use]
    pub fn full_message(&self) -> String {
        let mut line = self.message.clone();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            let text = cause.to_string();
            if !line.contains(&text) {
                line.push_str(": ");
                line.push_str(&text);
            }
            source = cause.source();
        }
        line
    }
}
