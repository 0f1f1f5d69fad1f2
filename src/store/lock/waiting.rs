//! How a lock is waited for. Where a process commits for all, the wish waits there, and is answered by the change that
//! frees the lock. Else who waits looks at the count of commits (W7), and at the lock's row when that has grown. Either
//! way it looks now and then whether the holder's process is still there.

use std::time::{Duration, Instant};

use crate::{
    clock::{deadline_after, monotonic},
    error::{Error, ErrorKind, Result},
    local,
    queue::enqueue::check_name,
    store::{
        Store,
        change::{Intent, Outcome},
        lock::{
            guard::{LockGuard, Place},
            rules::{Fence, FreeLocks, LockRequest, lock_of},
        },
        session::{Observer, Pulse},
        settings::Settings,
    },
};

/// How often who waits looks whether the holder is there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The lock of that name; nothing where it could not be had in that time. Without a limit it waits for good.
pub(super) fn acquire(store: &Store, name: &str, patience: Option<Duration>) -> Result<Option<LockGuard>> {
    check_name("lock", name)?;
    let place = Place::new(&store.inner, name)?;
    let begun = monotonic();
    let deadline = patience.map(deadline_after);
    if patience == Some(Duration::ZERO) {
        if let Some(fence) = ask(&place, false, Duration::ZERO)? {
            return Ok(Some(LockGuard::new(place, fence)));
        }
        place.forget();
        return Ok(None);
    }
    let mut watch = Watch { place: &place, observer: Observer::default(), next_look: begun };
    loop {
        let seen = store.inner.site.wakes();
        let until = deadline.map_or(watch.next_look, |deadline| deadline.min(watch.next_look));
        // Where another commits, the answer to this may come as late as that.
        if let Some(fence) = ask(&place, true, until.saturating_duration_since(monotonic()))? {
            return Ok(Some(LockGuard::new(place, fence)));
        }
        if !store.inner.has_stone()
            && let Some(fence) = watch.wait(seen, begun, until)?
        {
            return Ok(Some(LockGuard::new(place, fence)));
        }
        let now = monotonic();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(None);
        }
        if now >= watch.next_look {
            watch.look_at_holder()?;
            watch.next_look = monotonic() + LOOK_EVERY;
        }
    }
}

/// Asks for the lock; where the commits are made elsewhere, and another has it, the answer may take so long.
fn ask(place: &Place, waits: bool, wait: Duration) -> Result<Option<Fence>> {
    let request = LockRequest { name: place.name.clone(), claimant: place.claimant, waits };
    let ticket = place.inner.submit_turn(vec![Intent::Lock(request)], wait)?;
    let applied = match ticket.wait(&place.inner.site) {
        // The lock may be given when nobody asks for it any more, and after this place was given up.
        Err(error) if ticket.may_be_answered() => {
            place.leave_later(Some(ticket));
            return Err(error);
        }
        answered => answered?,
    };
    match applied.outcomes.first() {
        Some(Outcome::Locked(fence)) => Ok(*fence),
        _ => Err(Error::unanswered("a wish for a lock")),
    }
}

struct Watch<'a> {
    place: &'a Place,
    observer: Observer,
    next_look: Instant,
}

impl Watch<'_> {
    /// Waits until then, or until the lock is this claimant's by the rows; nothing where it is not, or has to be asked
    /// for anew.
    fn wait(&self, mut seen: u64, begun: Instant, until: Instant) -> Result<Option<Fence>> {
        let inner = &self.place.inner;
        while monotonic() < until {
            inner.wait_for_commit(seen, begun, until);
            inner.check_open()?;
            seen = inner.site.wakes();
            let Some(record) = lock_of(inner.peek()?.as_ref(), &self.place.name)? else { return Ok(None) };
            if record.holder == self.place.claimant {
                return Ok(Some(record.fence));
            }
            if record.claimants().all(|claimant| claimant != self.place.claimant) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// P2: frees the locks of a holder that is dead, or has been stopped for the lease time.
    fn look_at_holder(&mut self) -> Result<()> {
        let inner = &self.place.inner;
        let Some(files) = inner.site.files() else { return Ok(()) };
        let rows = inner.peek()?;
        let Some(record) = lock_of(rows.as_ref(), &self.place.name)? else { return Ok(()) };
        let session = record.holder.session;
        if session == self.place.claimant.session {
            return Ok(());
        }
        let seen = local::look(&files.folder, session)?;
        let beat = match &seen {
            Some(seen) if !seen.is_readable => return Ok(()),
            Some(seen) => {
                let lease = Settings::read(rows.as_ref())?.lease;
                if self.observer.observe(seen, lease, LOOK_EVERY) == Pulse::Alive {
                    return Ok(());
                }
                Some(seen.beat)
            }
            None => None,
        };
        drop(rows);
        match inner.perform(Intent::FreeLocks(FreeLocks { session, beat })) {
            // It has gone on meanwhile, and keeps its locks.
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(()),
            other => other.map(|_| ()),
        }
    }
}
