//! A lease whose handler runs in a child process: the holder's side, and the child's.

use std::sync::{Arc, Mutex, atomic::AtomicBool};

use super::{Held, Lease, Run};
use crate::{
    clock::Timestamp,
    queue::{
        claim::ClaimedJob,
        id::Token,
        outbox::Outbox,
        reach::{Parent, Reach},
    },
    task::CalledOff,
};

impl Lease {
    /// The lease of a job that a child process runs for its parent, which has noted that it began.
    pub(crate) fn in_child(
        parent: Arc<dyn Parent>,
        job: ClaimedJob,
        token: Token,
        started_at: Option<Timestamp>,
    ) -> Self {
        Self {
            held: Arc::new(Held {
                inner: Reach::Parent(parent),
                task: job.task,
                record: job.record,
                token,
                run: Mutex::new(Run { started_at, ..Run::default() }),
                is_settled: AtomicBool::new(false),
                is_completed_in_transaction: AtomicBool::new(false),
                outbox: Outbox::default(),
                called_off: CalledOff::default(),
            }),
        }
    }

    /// What a child process needs to run the job: as it was claimed, and when it began.
    pub(crate) fn for_child(&self) -> (ClaimedJob, Option<Timestamp>) {
        let job = ClaimedJob { task: self.held.task.clone(), record: self.held.record.clone() };
        (job, self.run().started_at)
    }
}
