//! A named lock as its holder has it.

use std::{sync::Arc, thread, time::Duration};

use crate::{
    clock::sleep,
    error::{Error, ErrorKind, Result},
    random,
    store::{
        Store,
        change::{Guard, Intent, Outcome},
        inner::Inner,
        lock::{
            rules::{Claimant, Fence, lock_of},
            waiting::acquire,
        },
        session::Session,
        snapshot::version_of,
        ticket::Ticket,
        transaction::Transaction,
    },
};

/// How long who drops a guard waits for the lock to be free; then a thread sees to it.
const DROP_PATIENCE: Duration = Duration::from_secs(1);
/// How often that thread tries.
const TRY_EVERY: Duration = Duration::from_millis(200);

/// A named lock that this process holds. Dropping it unlocks.
///
/// While the process is stopped for longer than the lease time, another may take the lock over: work that must not be
/// done twice is guarded by [`Transaction::guard`], or by the [`fence`](LockGuard::fence) where it is done elsewhere.
#[must_use = "the lock is free as soon as its guard is dropped"]
pub struct LockGuard {
    place: Place,
    fence: Fence,
}

/// A claimant's place in a lock, held or waited for; dropping it gives it up.
pub(super) struct Place {
    pub(super) inner: Arc<Inner>,
    session: Arc<Session>,
    pub(super) name: String,
    pub(super) claimant: Claimant,
    /// Nothing of it is in the store.
    is_empty: bool,
}

impl Store {
    /// Takes the lock of that name, which need not have been made; waits until it is free, for as long as it takes.
    ///
    /// Those who wait get it in the order they came. A thread that has it and asks again waits for itself.
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// let held = store.lock("nightly-report")?;
    /// // Nobody else, in whatever process, is here now.
    /// held.unlock()?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a bad name; `Unavailable` when the store can't be written to.
    pub fn lock(&self, name: &str) -> Result<LockGuard> {
        loop {
            if let Some(held) = acquire(self, name, None)? {
                return Ok(held);
            }
        }
    }

    /// Takes the lock of that name if it is free; nothing where another has it.
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// let held = store.try_lock("nightly-report")?.expect("it is free");
    /// assert!(store.try_lock("nightly-report")?.is_none());
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::lock`].
    pub fn try_lock(&self, name: &str) -> Result<Option<LockGuard>> {
        acquire(self, name, Some(Duration::ZERO))
    }

    /// Takes the lock of that name, and waits so long for it.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let store = casque::Store::in_memory()?;
    /// let held = store.lock_within("nightly-report", Duration::from_secs(5))?;
    /// let late = store.lock_within("nightly-report", Duration::from_millis(10)).err();
    /// assert_eq!(late.map(|error| error.kind()), Some(casque::ErrorKind::TimedOut));
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TimedOut`, naming who has it; else as [`Store::lock`].
    pub fn lock_within(&self, name: &str, patience: Duration) -> Result<LockGuard> {
        if let Some(held) = acquire(self, name, Some(patience))? {
            return Ok(held);
        }
        let holder = match lock_of(self.inner.rows()?.as_ref(), name)? {
            Some(record) => format!("{} holds it, and {} wait", record.label, record.waiters.len()),
            None => "it has just become free; try again".to_owned(),
        };
        Err(Error::new(
            ErrorKind::TimedOut,
            format!("the lock \"{name}\" could not be had within {patience:?}: {holder}"),
        ))
    }
}

impl LockGuard {
    pub(super) fn new(place: Place, fence: Fence) -> Self {
        Self { place, fence }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// The number of this holding: whoever holds the lock later has a greater one.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Asks whether the lock is still held.
    ///
    /// # Errors
    /// `LeaseLost` where it was taken over while this process was stopped: stop what needs the lock.
    pub fn check(&self) -> Result<()> {
        self.place.inner.commit(vec![self.guard()], Vec::new(), None).map(|_| ())
    }

    /// Unlocks, and says whether that went well.
    ///
    /// # Errors
    /// `LeaseLost` where another had taken the lock over; `Unavailable` when the store can't be written to: it is
    /// unlocked as soon as it can.
    pub fn unlock(mut self) -> Result<()> {
        let fence = self.fence;
        if self.place.leave(self.place.inner.patience)? {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::LeaseLost,
            format!("the lock \"{}\" held under {fence} was taken over before it was unlocked", self.place.name),
        ))
    }

    /// Whether the lock was lost, as far as a peek shows: for who looks often.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command line looks often"))]
    pub(crate) fn is_seen_lost(&self) -> Result<bool> {
        let rows = self.place.inner.peek()?;
        Ok(match lock_of(rows.as_ref(), &self.place.name)? {
            Some(record) => record.fence > self.fence,
            // A peek may be from before the lock was taken.
            None => version_of(rows.as_ref())?.0 >= self.fence.0,
        })
    }

    fn guard(&self) -> Guard {
        Guard::Lock { name: self.place.name.clone(), fence: self.fence }
    }
}

impl std::fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LockGuard({:?} under {})", self.place.name, self.fence)
    }
}

impl Transaction {
    /// Commits only if this lock is still held, under the very number: what a holder that was stopped for too long does
    /// late is refused as a whole.
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// let held = store.lock("ledger")?;
    /// store.transaction(|tx| {
    ///     tx.guard(&held);
    ///     tx.put("balance", &7)
    /// })?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn guard(&mut self, held: &LockGuard) {
        self.add_guard(held.guard());
    }
}

impl Place {
    pub(super) fn new(inner: &Arc<Inner>, name: &str) -> Result<Self> {
        let session = inner.session()?;
        let [nonce, _] = random::words();
        let claimant = Claimant { session: session.id, nonce };
        session.take_lock(nonce);
        Ok(Self { inner: inner.clone(), session, name: name.to_owned(), claimant, is_empty: false })
    }

    /// Nothing of it is in the store, so that there is nothing to give up.
    pub(super) fn forget(mut self) {
        self.is_empty = true;
    }

    /// Has a thread give it up, after the answer to a wish for the lock that may still come: the session lives, so
    /// nobody else would. Where the store is closed, it is freed with the session.
    pub(super) fn leave_later(&self, late: Option<Ticket>) {
        let (inner, name, claimant) = (Arc::downgrade(&self.inner), self.name.clone(), self.claimant);
        let free = move || {
            // Given or refused, or never to be told: what is left of it goes.
            late.as_ref().map(Ticket::wait_for_good);
            while let Some(inner) = inner.upgrade() {
                match leave(&inner, &name, claimant, inner.patience) {
                    Err(error) if error.kind() != ErrorKind::Closed => {}
                    _ => return,
                }
                drop(inner);
                sleep(TRY_EVERY);
            }
        };
        if let Err(error) = thread::Builder::new().name("casque-unlock".into()).spawn(free) {
            self.inner.site.note_trouble(&Error::unavailable("a thread can't be started").because(error));
        }
    }

    /// Gives it up; whether the lock was held until then.
    fn leave(&mut self, patience: Duration) -> Result<bool> {
        let was_held = leave(&self.inner, &self.name, self.claimant, patience)?;
        self.is_empty = true;
        Ok(was_held)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.session.let_go_lock(self.claimant.nonce);
        if self.is_empty || self.leave(DROP_PATIENCE).is_ok() {
            return;
        }
        self.leave_later(None);
    }
}

fn leave(inner: &Inner, name: &str, claimant: Claimant, patience: Duration) -> Result<bool> {
    let unlock = Intent::Unlock { name: name.to_owned(), claimant };
    match inner.perform_within(unlock, patience)? {
        Outcome::Unlocked { was_held } => Ok(was_held),
        _ => Err(Error::unanswered("an unlocking")),
    }
}
