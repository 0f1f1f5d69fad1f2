//! What a worker tells of itself: every event, after it has happened.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use crate::{
    queue::{
        claim::Hijack,
        id::{JobId, SessionId, Token},
        state::State,
    },
    store::conflict::Conflict,
};

/// Something that has happened in a worker. A listener gets each; with the feature `tracing` each is also an event of
/// `tracing`, at level debug, with no arguments in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Jobs were claimed.
    Claimed {
        /// The jobs, in the order in which they run.
        jobs: Vec<JobId>,
        /// The token of their leases.
        token: Token,
    },
    /// A candidate was taken by another, and the claim took the next job in the same commit.
    Hijacked(Hijack),
    /// A strict claim lost its job, and the worker tries again on a fresh snapshot.
    HijackedStrictly(Conflict),
    /// A handler begins.
    Started {
        /// The job.
        job: JobId,
        /// Its task.
        task: String,
        /// The number of the run.
        attempt: u32,
        /// The token of the lease.
        token: Token,
    },
    /// A handler has ended; nothing of that is stored yet.
    Ended {
        /// The job.
        job: JobId,
        /// The token of the lease.
        token: Token,
        /// How long it ran.
        took: Duration,
    },
    /// A job was completed.
    Completed {
        /// The job.
        job: JobId,
        /// The token of the lease.
        token: Token,
    },
    /// An attempt failed, and the job is `Scheduled`, `Dead` or `Cancelled`.
    Failed {
        /// The job.
        job: JobId,
        /// Where it is now.
        state: State,
        /// What the handler said.
        message: String,
    },
    /// A job was given back uncharged: released, snoozed, or not begun when the worker stopped, or when the job before
    /// it took much longer than those before.
    GivenBack {
        /// The job.
        job: JobId,
        /// Where it is now.
        state: State,
    },
    /// The lease of a job was lost before it could be settled; what its handler did is discarded.
    LeaseLost {
        /// The job.
        job: JobId,
        /// The token that no longer counts.
        token: Token,
    },
    /// Jobs of a session that died or stopped were taken back.
    Recovered {
        /// The session.
        session: SessionId,
        /// Jobs that are ready again, or ended by it.
        jobs: Vec<JobId>,
    },
    /// Jobs whose time had come were made ready.
    Promoted {
        /// How many.
        jobs: usize,
    },
    /// Slots of a schedule had come, and were enqueued.
    Scheduled {
        /// The schedule's name.
        schedule: String,
        /// Their jobs; where a unique key was held, those that were there already.
        jobs: Vec<JobId>,
    },
    /// Ended jobs whose time was over were removed.
    Pruned {
        /// How many.
        jobs: usize,
    },
    /// Something failed that the worker will try again.
    Trouble {
        /// What it was about.
        doing: &'static str,
        /// What went wrong.
        message: String,
    },
}

/// What is called with each event, on the thread that it happened on; it should be quick.
pub(crate) type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// Tells a listener, and `tracing`.
pub(crate) fn tell(listeners: &[Listener], event: &Event) {
    trace(event);
    for listener in listeners {
        // A listener that panics must not take the worker's threads along; the panic hook has told of it.
        let _ = catch_unwind(AssertUnwindSafe(|| listener(event)));
    }
}

/// As [`tell`], for what happens with each job: it is made only where somebody hears it.
pub(crate) fn tell_of(listeners: &[Listener], event: impl FnOnce() -> Event) {
    if !listeners.is_empty() || is_traced() {
        tell(listeners, &event());
    }
}

#[cfg(feature = "tracing")]
fn is_traced() -> bool {
    tracing::enabled!(target: "casque::worker", tracing::Level::DEBUG)
}

#[cfg(not(feature = "tracing"))]
fn is_traced() -> bool {
    false
}

#[cfg(feature = "tracing")]
fn trace(event: &Event) {
    match event {
        Event::Trouble { doing, message } => tracing::warn!(target: "casque::worker", doing, message, "trouble"),
        event => tracing::debug!(target: "casque::worker", ?event),
    }
}

#[cfg(not(feature = "tracing"))]
fn trace(_: &Event) {}
