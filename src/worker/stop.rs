//! How a worker is stopped: gently at first, at once the second time.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicU8, Ordering},
};

use crate::task::StopFlag;

const RUNNING: u8 = 0;
const GENTLE: u8 = 1;
const AT_ONCE: u8 = 2;

/// Stops a worker from another thread. Clones stop the same worker; it may be called before the worker runs, and more
/// often than needed.
#[derive(Clone, Debug, Default)]
pub struct StopHandle {
    level: Arc<AtomicU8>,
    flag: StopFlag,
    bells: Arc<Bells>,
}

/// What rings in a worker when it is asked to stop.
pub(crate) type Bell = dyn Fn() + Send + Sync;

#[derive(Default)]
struct Bells(Mutex<Vec<Weak<Bell>>>);

impl std::fmt::Debug for Bells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bells")
    }
}

impl StopHandle {
    /// Asks the worker to claim no more, to give back what it has not begun, and to finish what it has. Asked a second
    /// time, it stops at once: what runs is given back uncharged, its handler is told so
    /// ([`Job::is_cancelled`](crate::Job::is_cancelled)), and its result will be refused.
    pub fn stop(&self) {
        let _ = self.level.compare_exchange(GENTLE, AT_ONCE, Ordering::AcqRel, Ordering::Acquire);
        let _ = self.level.compare_exchange(RUNNING, GENTLE, Ordering::AcqRel, Ordering::Acquire);
        self.flag.raise();
        self.ring();
    }

    /// Stops at once.
    pub fn stop_now(&self) {
        self.level.store(AT_ONCE, Ordering::Release);
        self.flag.raise();
        self.ring();
    }

    /// Whether the worker was asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.level.load(Ordering::Acquire) != RUNNING
    }

    pub(crate) fn is_at_once(&self) -> bool {
        self.level.load(Ordering::Acquire) == AT_ONCE
    }

    /// Has this rung at each request, for as long as it lives. Requests that came before ring nothing.
    pub(crate) fn add_bell(&self, bell: &Arc<Bell>) {
        self.bells.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(bell));
    }

    fn ring(&self) {
        let mut bells = self.bells.0.lock().unwrap_or_else(PoisonError::into_inner);
        bells.retain(|bell| bell.strong_count() > 0);
        let bells = bells.clone();
        bells.iter().filter_map(Weak::upgrade).for_each(|bell| bell());
    }

    pub(crate) fn flag(&self) -> StopFlag {
        self.flag.clone()
    }
}
