//! The history: one file outside of the store, to which each process appends a line before it calls and one after it
//! was answered, each by one write. The order of its lines is an order of real time that all processes share, without
//! any clock: what was answered before another was called stands before it. A call's interval may be wider than it was,
//! never narrower, so that no right history is condemned.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use casque::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// How many registers there are on the root.
pub const REGISTERS: usize = 4;

/// A register's value; each value is written once, so that whoever reads it says which write it saw.
pub type Value = Option<u64>;

/// A line of the history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The process, by a number that no other has; the test's own is 0.
    pub process: u32,
    /// Which of its calls.
    pub call: u64,
    pub what: What,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum What {
    /// It is about to call.
    Called(Call),
    /// A transaction is about to commit what it has read and made up; the last one of a call counts.
    Tried(Step),
    /// It was answered.
    Answered(Answer),
    /// By who does it: a process is about to be killed or stopped.
    Interrupted,
    /// By who does it: a process was told to go on.
    GoesOn,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Call {
    /// Something on the root; what it reads or makes up is said later.
    Root(Step),
    Enqueue(Vec<u64>),
    Claim,
    Settle(Settle),
    /// An operator takes the job with these arguments from whoever holds it.
    Release(u64),
    Lock(String),
    Unlock {
        lock: String,
        fence: u64,
    },
    /// A look as monitors have it, that may be a moment old.
    Peek,
}

/// What one change reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub reads: Vec<(usize, Value)>,
    pub writes: Vec<(usize, Value)>,
    pub add: i64,
    /// What it read of the counter.
    pub count: Option<i64>,
    /// It holds only while this lock is held under this number.
    pub guard: Option<(String, u64)>,
    /// The job that ends with it.
    pub settle: Option<Settle>,
    /// The version of the store that it read.
    pub version: Option<u64>,
}

/// A lease that is ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    pub payload: u64,
    pub token: u64,
    /// Completed; else it goes back to be claimed again.
    pub completes: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Leased {
    pub payload: u64,
    pub id: String,
    pub token: u64,
}

/// What only grows, as a peek shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peeked {
    pub version: u64,
    /// How many jobs there ever were in the queue, and how many were completed.
    pub jobs: u64,
    pub completed: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It was done, at this version where one was said.
    Done(Option<u64>),
    Enqueued(Vec<String>),
    Claimed(Vec<Leased>),
    Locked(u64),
    Peeked(Peeked),
    /// Refused: the lease or the lock is another's.
    Lost,
    /// Surely not done.
    Not(String),
    /// Perhaps done.
    Unknown(String),
    /// What none of these calls should be answered.
    Wrong(String),
}

impl Answer {
    pub fn of_error(error: &Error) -> Self {
        match error.kind() {
            // A job that is gone is nobody's any more.
            ErrorKind::LeaseLost | ErrorKind::NotFound => Self::Lost,
            ErrorKind::Conflict | ErrorKind::Unavailable | ErrorKind::TimedOut => Self::Not(error.full_message()),
            ErrorKind::Unknown => Self::Unknown(error.full_message()),
            kind => Self::Wrong(format!("{kind:?}: {}", error.full_message())),
        }
    }
}

/// Appends lines for one process.
pub struct Recorder {
    file: File,
    process: u32,
    next: AtomicU64,
}

impl Recorder {
    pub fn open(path: &Path, process: u32) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        Self { file, process, next: AtomicU64::new(1) }
    }

    pub fn note(&self, process: u32, call: u64, what: What) {
        let mut line = serde_json::to_string(&Line { process, call, what }).unwrap();
        line.push('\n');
        (&self.file).write_all(line.as_bytes()).unwrap();
    }

    /// Notes a call, makes it, and notes the answer. The call may note what it tries.
    pub fn call(&self, call: Call, make: impl FnOnce(&dyn Fn(Step)) -> Answer) {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.note(self.process, number, What::Called(call));
        let answer = make(&|step| self.note(self.process, number, What::Tried(step)));
        self.note(self.process, number, What::Answered(answer));
    }

    /// Brings all lines so far to the disk.
    pub fn sync(&self) {
        self.file.sync_data().unwrap();
    }
}

/// What reads the history while it is written.
pub struct Reader {
    file: File,
    rest: String,
    pub lines: Vec<Line>,
}

impl Reader {
    pub fn open(path: &Path) -> Self {
        Self { file: File::open(path).unwrap(), rest: String::new(), lines: Vec::new() }
    }

    /// All lines that there are.
    pub fn whole(path: &Path) -> Vec<Line> {
        let mut reader = Self::open(path);
        reader.read_on();
        reader.lines
    }

    /// Takes in the lines that were added.
    pub fn read_on(&mut self) {
        self.file.read_to_string(&mut self.rest).unwrap();
        let whole = self.rest.rfind('\n').map_or(0, |at| at + 1);
        self.lines.extend(self.rest[..whole].lines().map(|line| serde_json::from_str(line).unwrap()));
        self.rest.drain(..whole);
    }
}
