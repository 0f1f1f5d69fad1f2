//! A persistent object store with optimistic concurrency, and the job queue that lives in it. One store file, any
//! number of processes, no server to run.
//!
//! ```
//! use casque::{Registry, Store, JobRequest, Worker};
//! use std::time::Duration;
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("app.redb");
//! let store = Store::open(&path)?;                       // in as many processes as you like
//! let id = store.queue("default").enqueue(JobRequest::new("greet", &"world"))?;   // on the disk when this returns
//!
//! let mut tasks = Registry::new();
//! tasks.register("greet", |job, name: String| Ok(format!("hello {name} from job {}", job.id())))?;
//! Worker::new(&store).tasks(tasks).drain(true).run()?;   // usually in another process
//!
//! let greeting: String = store.wait(id, Duration::from_secs(5))?;
//! assert!(greeting.starts_with("hello world"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! - What was answered is on the disk: [`Queue::enqueue`] and [`Store::transaction`] return after the sync.
//! - A job is in exactly one [`State`]; none is lost or made twice, whatever process is killed, and when.
//! - A job runs at least once. Its completion is fenced by a [`Token`](types::Token), so that a worker that lost its
//!   job can't settle it; effects on the root made in [`Lease::complete_in`], and jobs enqueued by [`Lease::enqueue`],
//!   happen exactly once. Where a second run is worse than none, [`JobRequest::at_most_once`] says so.
//! - A commit that loses says which key, which versions, and who won: [`Conflict`].
//!
//! # Where to look
//!
//! [`Store`] is the root map and its transactions; [`Queue`] enqueues and claims; [`flow`] has jobs that wait for
//! others; [`Task`] and [`Registry`] say what jobs run; [`Worker`] runs them; `cli` gives your own binary the commands
//! of `casque`. `doc/guide.md` goes through it by subject; `ARCHITECTURE.md` tells how it works.
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods, clippy::unwrap_used)]

mod clock;
mod error;
mod random;

mod codec;
mod engine;
mod local;
mod stone;

mod queue;
mod store;
mod task;
mod worker;

mod check;
#[cfg(test)]
mod fuzz;
mod sessions;

#[cfg(all(unix, feature = "isolation"))]
pub mod child;
pub mod testing;

#[cfg(feature = "cli")]
pub mod cli;

pub use clock::Timestamp;
pub use codec::Payload;
pub use error::{Error, ErrorKind, Result};
pub use queue::{
    CatchUp, JobFilter, JobInfo, JobRequest, JobStatus, Lease, Policy, Queue, QueueView, Schedule, Unique, id::JobId,
    state::State,
};
pub use store::{
    Store,
    conflict::{Conflict, Version},
    open::StoreOptions,
    snapshot::{Object, Snapshot},
    transaction::Transaction,
};
#[cfg(feature = "tokio")]
pub use task::AsyncTask;
pub use task::{Isolation, Job, Registry, Task, TaskError};
pub use worker::{Event, Report, StopHandle, Worker};

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// And the guide's.
#[cfg(doctest)]
#[doc = include_str!("../doc/guide.md")]
struct Guide;

/// Jobs that have to do with each other: what waits for what, and how a transaction refers to a job.
pub mod flow {
    pub use crate::queue::{Awaited, Batch, Flow, JobRef, OnFailure, Step};
}

/// What the types above are made of, give and take; few programs need to name them.
pub mod types {
    #[cfg(feature = "exec")]
    pub use crate::task::exec::{Exec, ExecOutput};
    pub use crate::{
        check::Finding,
        codec::Codec,
        queue::{
            IntoJob, JobError, LogLine, QueueConfig, QueueStats, Rate, Reschedule, ScheduleInfo, Watch,
            claim::Hijack,
            id::{SessionId, Token},
        },
        sessions::SessionInfo,
        stone::Commits,
        store::{
            compact::Compacted,
            conflict::{Subject, Writer},
            inner::Serving,
            lock::{Fence, LockGuard, LockInfo},
            settings::{SETTINGS, SettingInfo, Unit},
        },
        task::{Backoff, Registered, StopReason},
    };
}

/// Where tests hold, kill or fail a process from outside; no part of the interface.
#[doc(hidden)]
pub mod hooks {
    pub use crate::{
        engine::{StorageHook, StorageOperation},
        store::{committer::Step, paths::CommitsByPath},
    };
}
