//! R3: the snapshots that may still pin pages of the file, and the thread that has them give these up in time, also
//! where nobody reads from them any more; or at once, when a process is to compact the file.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use crate::{
    clock::monotonic,
    store::{alarm::Alarm, compact::COMPACT_TURN, site::Site, snapshot::Pin},
};

/// How often it is looked whether a snapshot's time is over, or somebody asks for quiet.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// The snapshots that may still pin pages, and the thread that sees to them.
pub(crate) struct Pins {
    open: Arc<Open>,
    _sweep: Option<Alarm>,
}

#[derive(Default)]
struct Open(Mutex<Vec<Weak<Mutex<Pin>>>>);

impl Pins {
    pub(crate) fn watch(site: &Arc<Site>) -> Self {
        let open: Arc<Open> = Arc::default();
        let (swept, watched) = (open.clone(), site.clone());
        let sweep = Alarm::every("casque-pins", SWEEP_EVERY, move || {
            if swept.sweep(monotonic()) && watched.is_turn_taken(COMPACT_TURN) {
                swept.give_up();
            }
        });
        // Without the thread a snapshot gives its pages up at its next read.
        let sweep = sweep.inspect_err(|error| site.note_trouble(error)).ok();
        Self { open, _sweep: sweep }
    }

    /// Has all of them give their pages up now, but for those that somebody just reads from.
    pub(crate) fn give_up(&self) {
        self.open.give_up();
    }

    pub(crate) fn add(&self, pin: &Arc<Mutex<Pin>>) {
        self.open.lock().push(Arc::downgrade(pin));
    }
}

impl Open {
    /// Gives up what is too old; whether anything is left.
    fn sweep(&self, now: Instant) -> bool {
        // Whoever reads from a snapshot now sees to its time itself; nobody is to wait for that.
        let is_pinned = |pin: &Weak<Mutex<Pin>>| {
            pin.upgrade().is_some_and(|pin| pin.try_lock().map_or(true, |mut pin| pin.expire(now)))
        };
        let mut pins = self.lock();
        pins.retain(is_pinned);
        !pins.is_empty()
    }

    fn give_up(&self) {
        self.lock().retain(|pin| {
            let Some(pin) = pin.upgrade() else { return false };
            let given_up = pin.try_lock().map(|mut pin| pin.give_up());
            given_up.is_err()
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Mutex<Pin>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
