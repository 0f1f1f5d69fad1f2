//! A change: a transaction as a value. Only a value can wait in a group, cross a socket, or be tried again.
//!
//! What a change may ask for is listed here; what it does is in `apply` and in the queue's verbs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    codec::Digest,
    error::{Error, Result},
    queue::{
        admin::Admin,
        claim::{Claim, Claimed},
        enqueue::NewJob,
        id::{JobId, Token},
        reclaim::{Reclaim, Reclaimed},
        schedule::{ScheduleAct, Scheduled},
        settle::{Each, Settle, Settled},
        sweep::Swept,
    },
    store::{
        conflict::{Version, Writer},
        lock::{
            Fence,
            rules::{Claimant, FreeLocks, LockRequest},
        },
        object::Value,
    },
};

/// The most bytes that a change's payloads and metadata may take together.
pub const CHANGE_BYTES_MAX: usize = 8 << 20;
/// The most jobs that one change may enqueue.
pub const BATCH_JOBS_MAX: usize = 10_000;

/// A1: the name of a change, made before its first try: who sends it, and the how-manieth of theirs it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ChangeId {
    pub(crate) client: ClientId,
    pub(crate) number: u64,
}

/// One opening of a store: the version it found, and a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ClientId {
    pub(crate) born: Version,
    pub(crate) random: u64,
}

impl fmt::Display for ChangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:016x}.{}", self.client.born, self.client.random, self.number)
    }
}

/// Guards that must hold, and the intents that are then done: all, or none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) id: ChangeId,
    pub(crate) writer: Writer,
    pub(crate) guards: Vec<Guard>,
    pub(crate) intents: Vec<Intent>,
}

impl Change {
    /// Whether workers must look at what they hold when it is committed: a job is to be cancelled, or jobs that wait to
    /// be begun are to go back.
    pub(crate) fn is_for_holders(&self) -> bool {
        self.intents.iter().any(|intent| match intent {
            Intent::Administer(admin) => admin.is_for_holders(),
            _ => false,
        })
    }

    /// About how many bytes its rows will take.
    pub(crate) fn payload_bytes(&self) -> usize {
        let of_intent = |intent: &Intent| match intent {
            Intent::Put { value: Value::Plain(payload), .. } => payload.as_bytes().len(),
            Intent::Enqueue(job) => job.payload_bytes(),
            Intent::Settle(settle) => settle.payload_bytes(),
            Intent::SettleEach(settlements) => settlements.iter().map(Settle::payload_bytes).sum(),
            Intent::Schedule { act: ScheduleAct::Define { job, .. }, .. } => job.args.as_bytes().len(),
            Intent::Schedule { act: ScheduleAct::Fire(fire), .. } => fire.bytes,
            _ => 0,
        };
        self.intents.iter().map(of_intent).sum()
    }
}

/// A condition on the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Guard {
    /// The object is at this version, or absent.
    Object { key: String, version: Option<Version> },
    /// The objects from `start` up to `end` (all that begin with `prefix`, or as many of them as were read) are those
    /// whose keys and versions have this digest.
    Range { prefix: String, start: Vec<u8>, end: Vec<u8>, digest: Digest, read: Version },
    /// C2: no claim and no administration has touched the queue since, and each shifted job is where it was.
    Queue { queue: String, version: Version, shifted: Vec<Candidate> },
    /// The named lock is still held under this number.
    Lock { name: String, fence: Fence },
}

/// A job that a claim has seen, and the key of its row there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) job: JobId,
    pub(crate) key: Vec<u8>,
}

/// One thing that a change does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Intent {
    Put {
        key: String,
        value: Value,
    },
    Remove {
        key: String,
    },
    /// Adds to a counter without reading it, so that two that add don't conflict.
    Add {
        key: String,
        delta: i64,
    },
    Enqueue(NewJob),
    Claim(Claim),
    Settle(Settle),
    /// Settlements that may fail each by itself, and let the rest of the change stand.
    SettleEach(Vec<Settle>),
    /// Says that the lease is still used; refused where it is lost.
    Extend {
        job: JobId,
        token: Token,
    },
    Progress {
        job: JobId,
        token: Token,
        fraction: f32,
        message: String,
    },
    /// Adds lines to a job's log.
    Log {
        job: JobId,
        token: Token,
        lines: Vec<String>,
    },
    /// Makes jobs whose time has come ready, at most so many.
    Promote {
        limit: usize,
    },
    Reclaim(Reclaim),
    Administer(Admin),
    Schedule {
        name: String,
        act: ScheduleAct,
    },
    Lock(LockRequest),
    /// Gives up a named lock, or the wait for it; the first of those who wait has it then.
    Unlock {
        name: String,
        claimant: Claimant,
    },
    FreeLocks(FreeLocks),
}

/// What became of one intent, in the order of the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Done,
    Enqueued {
        job: JobId,
        existing: bool,
    },
    Claimed(Claimed),
    Settled(Settled),
    /// In the order of the settlements.
    SettledEach(Vec<Each>),
    Promoted {
        jobs: usize,
    },
    Reclaimed(Reclaimed),
    Pruned {
        jobs: usize,
    },
    Scheduled(Scheduled),
    Swept(Swept),
    /// The number under which the claimant holds the lock; nothing where another does.
    Locked(Option<Fence>),
    Unlocked {
        was_held: bool,
    },
    LocksFreed {
        locks: usize,
    },
}

impl Outcome {
    /// Where a settled job went, or one that an operator did something to.
    pub(crate) fn settled(&self) -> Result<Settled> {
        match self {
            Self::Settled(settled) => Ok(*settled),
            _ => Err(Error::unanswered("a settlement")),
        }
    }

    /// The job that was enqueued, or was there already.
    pub(crate) fn enqueued(&self) -> Result<JobId> {
        match self {
            Self::Enqueued { job, .. } => Ok(*job),
            _ => Err(Error::unanswered("an enqueue")),
        }
    }
}

/// What became of a change that was neither a conflict nor refused (those are errors).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Applied {
    /// The change's own version; `None` where it had nothing to change, and so is no commit.
    pub(crate) version: Option<Version>,
    pub(crate) stamp: Timestamp,
    pub(crate) outcomes: Vec<Outcome>,
}
