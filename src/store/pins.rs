//! R3: the snapshots that may still pin pages of the file, and the thread that has them give these up in time, also
//! where nobody reads from them any more.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use crate::{
    clock::monotonic,
    store::{alarm::Alarm, site::Site, snapshot::Pin},
};

/// The snapshots that may still pin pages, and the thread that sees to them.
pub(crate) struct Pins {
    open: Arc<Mutex<Vec<Weak<Mutex<Pin>>>>>,
    _sweep: Option<Alarm>,
}

impl Pins {
    pub(crate) fn watch(site: &Site) -> Self {
        let open: Arc<Mutex<Vec<Weak<Mutex<Pin>>>>> = Arc::default();
        let swept = open.clone();
        let sweep = Alarm::every("casque-pins", Duration::from_secs(1), move || {
            let now = monotonic();
            // Whoever reads from a snapshot now sees to its time itself; nobody is to wait for that.
            let is_pinned = |pin: &Weak<Mutex<Pin>>| {
                pin.upgrade().is_some_and(|pin| pin.try_lock().map_or(true, |mut pin| pin.expire(now)))
            };
            swept.lock().unwrap_or_else(PoisonError::into_inner).retain(is_pinned);
        });
        // Without the thread a snapshot gives its pages up at its next read.
        let sweep = sweep.inspect_err(|error| site.note_trouble(error)).ok();
        Self { open, _sweep: sweep }
    }

    pub(crate) fn add(&self, pin: &Arc<Mutex<Pin>>) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(pin));
    }
}
