//! References: a job by the change that enqueues it, for whoever is to store it before the job has its id. Costs one
//! row more, kept as long as the job lives.

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    queue::{id::JobId, record::JobRecord},
    store::{Store, apply::Context, change::ChangeId, keys, view::inconsistent},
};

/// How many transactions may refer to one job: a unique key gives the same job to each.
pub(crate) const REFS_MAX: usize = 100;

/// A job that a transaction enqueues, to be stored in the same commit:
/// [`Transaction::enqueue_ref`](crate::Transaction::enqueue_ref) gives it, [`Store::resolve`] gives the job's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobRef {
    pub(crate) change: ChangeId,
    /// The how-manieth job of the change's own, from 0.
    pub(crate) index: u32,
}

impl JobRef {
    pub(crate) fn row(self) -> Vec<u8> {
        keys::job_ref(self.change, self.index)
    }
}

impl Context<'_> {
    /// The next job that this change enqueues, as a reference.
    pub(crate) fn next_ref(&self) -> JobRef {
        JobRef { change: self.change.id, index: u32::try_from(self.enqueued.len()).unwrap_or(u32::MAX) }
    }

    /// Has a reference lead to a job.
    pub(crate) fn put_ref(&mut self, reference: JobRef, job: JobId) {
        self.rows.put(reference.row(), job.to_bytes().to_vec());
    }

    /// Has one more reference lead to a job that was there before.
    pub(crate) fn add_ref(&mut self, job: JobId) -> Result<()> {
        let (home, mut record) = self.find(job)?;
        let reference = self.next_ref();
        let refs = &mut record.extra.get_or_insert_default().refs;
        if refs.len() >= REFS_MAX {
            return Err(Error::invalid(format!(
                "{REFS_MAX} transactions refer to job {job} by its unique key; no more are allowed, enqueue without"
            )));
        }
        refs.push(reference);
        self.rows.put_record(record.key_in(home), &record)?;
        self.put_ref(reference, job);
        Ok(())
    }

    /// Removes what leads to a job that goes.
    pub(crate) fn forget_refs(&mut self, job: &JobRecord) {
        for reference in job.extra.iter().flat_map(|extra| &extra.refs) {
            self.rows.remove(reference.row());
        }
    }
}

impl Store {
    /// The id of the job that a reference is to.
    ///
    /// # Errors
    /// `NotFound` for a job that is gone, or whose transaction was not committed.
    pub fn resolve(&self, reference: &JobRef) -> Result<JobId> {
        let rows = self.inner.rows()?;
        let Some(bytes) = rows.get(&reference.row())? else {
            let why = "it has ended and is gone, or the transaction that was to enqueue it was not committed";
            return Err(Error::not_found(format!("no job is found by reference {reference}: {why}")));
        };
        JobId::from_bytes(&bytes).ok_or_else(|| inconsistent(format!("reference {reference} leads to no job")))
    }
}

impl std::fmt::Display for JobRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.change, self.index)
    }
}
