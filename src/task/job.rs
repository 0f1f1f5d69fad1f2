//! The job as its handler sees it.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{queue::Lease, task::StopReason};

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
/// Clones are of the same run; one that outlives it can settle nothing any more.
#[derive(Clone, Debug)]
pub struct Job {
    lease: Lease,
    stop: StopFlag,
}

impl Job {
    pub(crate) fn new(lease: Lease, stop: StopFlag) -> Self {
        Self { lease, stop }
    }

    /// Whether nobody wants what the handler does any more: the job was cancelled, in whatever process, its time is
    /// over, or it is another's. That is known here within a moment. A long handler looks from time to time, and
    /// returns; it does not matter what, but that a success of a job that was cancelled counts.
    ///
    /// ```
    /// # let mut tasks = casque::Registry::new();
    /// tasks.register("count", |job, up_to: u64| {
    ///     for _ in 0..up_to {
    ///         if job.is_cancelled() {
    ///             return Err(casque::TaskError::Cancel);
    ///         }
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.stop_reason().is_some_and(|reason| reason != StopReason::Stopping)
    }

    /// Whether the worker was asked to stop. A long handler may then return
    /// [`TaskError::Release`](crate::TaskError::Release).
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_raised() || self.stop_reason() == Some(StopReason::Stopping)
    }

    /// Why the handler should end before it is done, if it should.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.lease.stop_reason().or_else(|| self.stop.is_raised().then_some(StopReason::Stopping))
    }

    /// The lease, which may outlive the job's handle.
    #[cfg(any(feature = "exec", all(unix, feature = "isolation")))]
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }
}

impl Deref for Job {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}
