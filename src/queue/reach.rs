//! How a lease reaches its store: in the process that claimed it, or in a child process through its parent, which does
//! all that concerns the store.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Timestamp,
    error::{Error, Result},
    queue::id::JobId,
    store::{
        Store,
        change::{Applied, Guard, Intent, Outcome},
        inner::Inner,
        session::Session,
        ticket::Ticket,
    },
    task::StopReason,
};

#[derive(Clone)]
pub(crate) enum Reach {
    Here {
        inner: Arc<Inner>,
        session: Arc<Session>,
    },
    #[cfg_attr(not(all(unix, feature = "isolation")), allow(dead_code, reason = "there are no child processes"))]
    Parent(Arc<dyn Parent>),
}

/// The process that holds the lease that a child process runs.
pub(crate) trait Parent: Send + Sync {
    fn commit(&self, guards: Vec<Guard>, intents: Vec<Intent>) -> Result<Applied>;

    /// Why the handler should end, as the parent knows.
    fn stop_reason(&self) -> Option<StopReason>;

    /// The store, opened by this process for itself.
    fn store(&self) -> Result<Store>;
}

impl Reach {
    /// Commits one change for a job, and waits for its answer.
    pub(crate) fn commit(&self, guards: Vec<Guard>, intents: Vec<Intent>, job: Option<JobId>) -> Result<Applied> {
        match self {
            Self::Here { inner, .. } => inner.commit(guards, intents, job),
            Self::Parent(parent) => parent.commit(guards, intents),
        }
    }

    /// Commits one change of one intent, and gives that one's outcome.
    pub(crate) fn perform(&self, intent: Intent) -> Result<Outcome> {
        match self {
            Self::Here { inner, .. } => inner.perform(intent),
            Self::Parent(_) => {
                let applied = self.commit(Vec::new(), vec![intent], None)?;
                let outcome = applied.outcomes.into_iter().next();
                outcome.ok_or_else(|| Error::unanswered("a change"))
            }
        }
    }

    /// Hands in a change without waiting for its answer, within the patience of the store or this one.
    pub(crate) fn submit(&self, intent: Intent, job: JobId, patience: Option<Duration>) -> Result<Ticket> {
        match self {
            Self::Here { inner, .. } => inner.submit(intent, job, patience.unwrap_or(inner.patience)),
            Self::Parent(_) => Err(Error::invalid("a child process waits for the answer to each change")),
        }
    }

    /// The time by the store's clock, or the system's.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Here { inner, .. } => inner.site.now(),
            Self::Parent(_) => Timestamp::now(),
        }
    }

    pub(crate) fn store(&self) -> Result<Store> {
        match self {
            Self::Here { inner, .. } => Ok(Store { inner: inner.clone() }),
            Self::Parent(parent) => parent.store(),
        }
    }

    /// The store and the session of this process; nothing in a child process, which keeps neither.
    pub(crate) fn here(&self) -> Option<(&Arc<Inner>, &Arc<Session>)> {
        match self {
            Self::Here { inner, session } => Some((inner, session)),
            Self::Parent(_) => None,
        }
    }
}
