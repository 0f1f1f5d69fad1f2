//! Why a handler should end before it is done, and how it learns of that.

use std::{
    fmt,
    sync::atomic::{AtomicU8, Ordering},
};

use serde::{Deserialize, Serialize};

/// Why a handler should end before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StopReason {
    /// The job was cancelled.
    Cancelled,
    /// The attempt has taken as long as it may, and has failed by that.
    TimedOut,
    /// The job is no longer this worker's.
    LeaseLost,
    /// The worker was asked to stop. Who can't be done soon may return
    /// [`TaskError::Release`](crate::TaskError::Release).
    Stopping,
}

impl StopReason {
    const ALL: [Self; 4] = [Self::Cancelled, Self::TimedOut, Self::LeaseLost, Self::Stopping];
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "the job was cancelled",
            Self::TimedOut => "the attempt timed out",
            Self::LeaseLost => "the lease was lost",
            Self::Stopping => "the worker stops",
        })
    }
}

/// Why the run of one lease is called off, if it is: the first reason stands.
#[derive(Debug, Default)]
pub(crate) struct CalledOff(AtomicU8);

impl CalledOff {
    pub(crate) fn note(&self, reason: StopReason) {
        let _ = self.0.compare_exchange(0, reason as u8 + 1, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(crate) fn reason(&self) -> Option<StopReason> {
        let number = usize::from(self.0.load(Ordering::Acquire));
        StopReason::ALL.get(number.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::{CalledOff, StopReason};

    #[test]
    fn first_reason_stands() {
        let called_off = CalledOff::default();
        assert_eq!(called_off.reason(), None);
        for reason in StopReason::ALL {
            let one = CalledOff::default();
            one.note(reason);
            called_off.note(reason);
            assert_eq!((one.reason(), called_off.reason()), (Some(reason), Some(StopReason::ALL[0])));
        }
    }
}
