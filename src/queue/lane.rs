//! A lane: what can be skipped or blocked as a whole. A claim merges the lanes of a queue that its worker can run.

use crate::error::{Error, Result};

/// The highest priority.
pub const PRIORITY_MAX: i8 = 100;
/// The lowest priority.
pub const PRIORITY_MIN: i8 = -100;

/// Jobs of one queue with the same priority, task, and suspicion. Orders by priority, the highest first.
///
/// Lanes with a concurrency key will put the key's bytes behind these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lane {
    /// 0 for the highest priority, 200 for the lowest.
    inverted_priority: u8,
    pub(crate) task: u32,
    /// P4: suspect jobs have lanes of their own, so that a worker that is busy skips them at no cost.
    pub(crate) suspect: bool,
}

const LANE_BYTES: usize = 6;

impl Lane {
    pub(crate) fn new(priority: i8, task: u32, suspect: bool) -> Self {
        let inverted = i16::from(PRIORITY_MAX) - i16::from(priority);
        Self { inverted_priority: u8::try_from(inverted).expect("priorities are checked at enqueue"), task, suspect }
    }

    /// Less is sooner.
    pub(crate) fn urgency(self) -> u8 {
        self.inverted_priority
    }

    pub(crate) fn to_bytes(self) -> [u8; LANE_BYTES] {
        let [a, b, c, d] = self.task.to_be_bytes();
        [self.inverted_priority, a, b, c, d, u8::from(self.suspect)]
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [inverted_priority, a, b, c, d, suspect] = *<&[u8; LANE_BYTES]>::try_from(bytes).ok()?;
        (suspect < 2).then_some(Self {
            inverted_priority,
            task: u32::from_be_bytes([a, b, c, d]),
            suspect: suspect == 1,
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
