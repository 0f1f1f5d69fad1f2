//! What a conflict says: the key, the version it was read at, the version found, and who wrote it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::queue::id::JobId;

/// The number of the commit that last wrote something; the store's own version counts its changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who made a change: the label of its session, and the job it was made in, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// The label of the process, by default its program's name and its pid.
    pub label: String,
    /// The job whose handler made the change.
    pub job: Option<JobId>,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.job {
            Some(job) => write!(f, "{} in job {job}", self.label),
            None => f.write_str(&self.label),
        }
    }
}

/// What a failed guard found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// What conflicted.
    pub subject: Subject,
    /// The version at which it was read; `None` where it was absent.
    pub read: Option<Version>,
    /// The version found at the commit; `None` where it is gone.
    pub found: Option<Version>,
    /// Who wrote the version found, where that is still known.
    pub by: Option<Writer>,
}

/// The thing a conflict is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Subject {
    /// An object on the root.
    Key(String),
    /// A listing of the root: every key that begins so.
    Range(String),
    /// A queue, by a strict claim that shifted this job.
    Hijack {
        /// The queue's name.
        queue: String,
        /// The job that was shifted first.
        job: JobId,
    },
    /// A snapshot whose pages were given up because it was kept for too long.
    SnapshotTooOld,
}

impl Conflict {
    /// Whether a worker lost its job to another.
    #[must_use]
    pub fn is_hijack(&self) -> bool {
        matches!(self.subject, Subject::Hijack { .. })
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Key(key) => write!(f, "conflict on \"{key}\"")?,
            Subject::Range(prefix) => write!(f, "conflict on the keys that begin with \"{prefix}\"")?,
            Subject::Hijack { queue, job } => write!(f, "someone hijacked job {job} of queue \"{queue}\"")?,
            Subject::SnapshotTooOld => f.write_str("snapshot too old")?,
        }
        match self.read {
            Some(version) => write!(f, ": read at version {version}")?,
            None => f.write_str(": read as absent")?,
        }
        match self.found {
            Some(version) => write!(f, ", found at version {version}")?,
            None => f.write_str(", found gone")?,
        }
        if let Some(by) = &self.by {
            write!(f, ", written by {by}")?;
        }
        f.write_str("; retry on a fresh snapshot")
    }
}
