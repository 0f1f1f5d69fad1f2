//! A lane: what can be skipped or blocked as a whole. A claim merges the lanes of a queue that its worker can run.

use crate::error::{Error, Result};

/// The highest priority.
pub const PRIORITY_MAX: i8 = 100;
/// The lowest priority.
pub const PRIORITY_MIN: i8 = -100;

/// Jobs of one queue with the same priority, task, and suspicion, which all have a concurrency key, or none. Orders by
/// priority, the highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lane {
    /// 0 for the highest priority, 200 for the lowest.
    inverted_priority: u8,
    pub(crate) task: u32,
    /// Its jobs have concurrency keys, and are found through the index of those that may be claimed.
    pub(crate) keyed: bool,
    /// P4: suspect jobs have lanes of their own, so that a worker that is busy skips them at no cost.
    pub(crate) suspect: bool,
}

pub(crate) const LANE_BYTES: usize = 6;

const SUSPECT: u8 = 1;
const KEYED: u8 = 2;

impl Lane {
    pub(crate) fn new(priority: i8, task: u32, suspect: bool) -> Self {
        let inverted = i16::from(PRIORITY_MAX) - i16::from(priority);
        let inverted_priority = u8::try_from(inverted).expect("priorities are checked at enqueue");
        Self { inverted_priority, task, keyed: false, suspect }
    }

    /// The same lane for jobs that have a concurrency key.
    pub(crate) fn with_key(self) -> Self {
        Self { keyed: true, ..self }
    }

    /// Less is sooner.
    pub(crate) fn urgency(self) -> u8 {
        self.inverted_priority
    }

    pub(crate) fn to_bytes(self) -> [u8; LANE_BYTES] {
        let [a, b, c, d] = self.task.to_be_bytes();
        let marks = if self.suspect { SUSPECT } else { 0 } | if self.keyed { KEYED } else { 0 };
        [self.inverted_priority, a, b, c, d, marks]
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [inverted_priority, a, b, c, d, marks] = *<&[u8; LANE_BYTES]>::try_from(bytes).ok()?;
        (marks <= SUSPECT | KEYED).then_some(Self {
            inverted_priority,
            task: u32::from_be_bytes([a, b, c, d]),
            keyed: marks & KEYED != 0,
            suspect: marks & SUSPECT != 0,
        })
    }
}

/// # Errors
/// `Invalid` for a priority out of range.
pub(crate) fn check_priority(priority: i64) -> Result<i8> {
    i8::try_from(priority).ok().filter(|priority| (PRIORITY_MIN..=PRIORITY_MAX).contains(priority)).ok_or_else(|| {
        Error::invalid(format!("priority {priority} is out of range; it goes from -100 to 100, higher first"))
    })
}
