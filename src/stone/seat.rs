//! A process's place as the stone: empty, or taken by the thread that serves. Who has something to commit looks here
//! first.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use crossbeam_channel::Sender;

use crate::{
    error::Result,
    store::{committer::Section, promise::Promise, ticket::Pending},
};

/// What a thread of this process wants of its own stone.
pub(crate) enum Errand {
    Change(Box<Pending>),
    /// Bring all that was answered into the store's file. The promise is dropped where the stone leaves first.
    CloseWindow(Promise<Result<()>>),
    /// Do this with the window closed.
    Section {
        purpose: &'static str,
        work: Section,
    },
    /// The claim of this process that waits under this number is to be answered now.
    CallOff {
        number: u64,
    },
    /// Leave: others may commit.
    Leave,
}

/// Where errands go while the seat is taken.
pub(super) struct Serving {
    pub(super) errands: Sender<Errand>,
    pub(super) waker: Arc<mio::Waker>,
    /// The thread sleeps, or is about to look a last time before it does.
    pub(super) is_asleep: Arc<AtomicBool>,
}

#[derive(Default)]
pub(crate) struct Seat {
    serving: RwLock<Option<Serving>>,
    /// What `serving` says, to be asked without a lock.
    is_taken: AtomicBool,
}

impl Seat {
    pub(crate) fn is_serving(&self) -> bool {
        self.is_taken.load(Ordering::Acquire)
    }

    /// Hands an errand to the stone of this process; back where it is none.
    pub(crate) fn send(&self, errand: Errand) -> Result<(), Errand> {
        if !self.is_serving() {
            return Err(errand);
        }
        // Held while sending, so that nothing is sent after the seat was vacated and emptied.
        let serving = self.serving.read().unwrap_or_else(PoisonError::into_inner);
        let Some(serving) = &*serving else { return Err(errand) };
        serving.errands.send(errand).map_err(|error| error.0)?;
        if serving.is_asleep.swap(false, Ordering::SeqCst) {
            // A waker fails only for want of memory in the system; the thread looks again within a second.
            let _ = serving.waker.wake();
        }
        Ok(())
    }

    pub(super) fn take(&self, serving: Serving) {
        *self.serving.write().unwrap_or_else(PoisonError::into_inner) = Some(serving);
        self.is_taken.store(true, Ordering::Release);
    }

    /// No errand is sent after this returns.
    pub(super) fn vacate(&self) {
        self.is_taken.store(false, Ordering::Release);
        self.serving.write().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Sees to it that nobody waits for a stone that is none any more, however it ended.
pub(super) struct Vacant<'a> {
    seat: &'a Seat,
}

impl<'a> Vacant<'a> {
    pub(super) fn at_the_end(seat: &'a Seat) -> Self {
        Self { seat }
    }
}

impl Drop for Vacant<'_> {
    fn drop(&mut self) {
        self.seat.vacate();
    }
}
