//! R4: a process that is stopped while it reads pins pages for as long as it is, and each commit then makes the file
//! grow. Who commits notices, and slows down, so that there is time to do something about that process.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    clock::{monotonic, sleep},
    engine::redb::{pinned_by, pinned_transactions},
    error::Error,
    local::is_stopped,
    store::snapshot::PIN_MAX,
};

/// What is too much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How much the file may grow while somebody pins its pages; half of that where that one is stopped.
    pub(crate) bytes: u64,
    /// How long somebody may.
    pub(crate) age: Duration,
    /// How long each commit waits beyond.
    pub(crate) pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 20, age: 2 * PIN_MAX, pause: Duration::from_secs(1) }
    }
}

/// What is known of the file's growth, and of who reads it.
#[derive(Default)]
pub(crate) struct Growth {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    looked: Option<Instant>,
    bytes: u64,
    /// The transactions that somebody reads: since when, as far as was seen, and how large the file was then.
    pinned: BTreeMap<u64, (Instant, u64)>,
    is_slow: bool,
}

impl Growth {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// How long each commit is to wait, if it is; `tell` is called when that begins. Cheap: it looks rarely, and at a
    /// file that does not grow not at all.
    pub(crate) fn pause(&self, store: &Path, tell: impl FnOnce(&Error)) -> Option<Duration> {
        let now = monotonic();
        let mut state = self.lock();
        if state.looked.is_none_or(|looked| now.duration_since(looked) >= self.limits.age / 10) {
            state.looked = Some(now);
            let was_slow = state.is_slow;
            let too_old = self.pinned_too_long(&mut state, store, now);
            state.is_slow = too_old.is_some();
            if let Some(transaction) = too_old.filter(|_| !was_slow) {
                tell(&trouble(store, transaction));
            }
        }
        state.is_slow.then_some(self.limits.pause)
    }

    /// Waits, under the writer's lock and so for all, where commits are to be slow.
    pub(crate) fn slow_down(&self, store: &Path, tell: impl FnOnce(&Error)) {
        if let Some(pause) = self.pause(store, tell) {
            sleep(pause);
        }
    }

    /// The oldest transaction that is read for too long, where the file has grown too much since.
    fn pinned_too_long(&self, state: &mut State, store: &Path, now: Instant) -> Option<u64> {
        let bytes = std::fs::metadata(store).ok()?.len();
        if bytes == state.bytes && !state.is_slow {
            return None;
        }
        state.bytes = bytes;
        let pinned = pinned_transactions(store).unwrap_or_default();
        state.pinned.retain(|transaction, _| pinned.contains(transaction));
        for transaction in pinned {
            state.pinned.entry(transaction).or_insert((now, bytes));
        }
        let mut grown = state.pinned.iter().map(|(transaction, (since, then))| {
            (*transaction, now.duration_since(*since), bytes.saturating_sub(*then))
        });
        let too_long = grown.find(|&(transaction, age, growth)| {
            // A process that runs gives its pages up in half of that time (R3). For one that is known not to run, there
            // is no sense in waiting: a fast disk takes a gigabyte meanwhile.
            (growth >= self.limits.bytes && age >= self.limits.age)
                || (growth >= self.limits.bytes / 2 && is_read_by_the_stopped(store, transaction))
        });
        too_long.map(|(transaction, _, _)| transaction)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_read_by_the_stopped(store: &Path, transaction: u64) -> bool {
    pinned_by(store).iter().any(|pinned| pinned.transaction == transaction && is_stopped(pinned.pid))
}

/// Who reads that transaction, and what to do about it.
fn trouble(store: &Path, transaction: u64) -> Error {
    let readers: Vec<String> = pinned_by(store)
        .iter()
        .filter(|pinned| pinned.transaction == transaction)
        .map(|pinned| format!("process {}", pinned.pid))
        .collect();
    let who = if readers.is_empty() {
        "a process that can't be seen from here (look as root, and outside of containers)".to_owned()
    } else {
        readers.join(" and ")
    };
    Error::unavailable(format!(
        "{who} keeps on reading an old snapshot of {}, so that the file grows, and commits are slow until it goes on \
         or is killed",
        store.display()
    ))
}
