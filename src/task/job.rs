//! The job as its handler sees it.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::queue::Lease;

/// Whether a worker is about to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What a handler knows of the job it runs, and can say about it. It is the job's [`Lease`], and whether to stop.
#[derive(Debug)]
pub struct Job {
    lease: Lease,
    stop: StopFlag,
}

impl Job {
    pub(crate) fn new(lease: Lease, stop: StopFlag) -> Self {
        Self { lease, stop }
    }

    /// Whether the worker was asked to stop. A long handler may then return
    /// [`TaskError::Release`](crate::TaskError::Release).
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_raised()
    }

    /// Whether an operator has cancelled the job since it was claimed, in whatever process: that is known here within a
    /// moment. What a handler then returns other than a success ends the job as cancelled, as does
    /// [`TaskError::Cancel`](crate::TaskError::Cancel).
    ///
    /// ```
    /// # use casque::{Registry, TaskError};
    /// # let mut tasks = Registry::new();
    /// tasks.register("count", |job, to: u64| {
    ///     for number in 0..to {
    ///         if job.is_cancelled() {
    ///             return Err(TaskError::Cancel);
    ///         }
    ///         // A step of the work.
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.lease.is_cancelled()
    }
}

impl Deref for Job {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}
