//! What every worker does beside its jobs, safely in all of them at once: scheduled jobs are made ready when their time
//! comes, slots of schedules are enqueued at theirs, jobs of dead and stopped sessions are taken back, ended ones are
//! removed when their time is over.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    clock::{Timestamp, monotonic},
    error::{ErrorKind, Result},
    queue::{
        admin::{Admin, has_expired, lanes_to_sweep},
        promote::next_by_time,
    },
    store::{
        Store,
        alarm::Alarm,
        change::{Intent, Outcome},
        inner::{LOOK_ANYWAY, wake_poll},
    },
    worker::{
        Setup,
        event::{Event, tell},
    },
};

mod recovery;
mod slots;

use recovery::{LEASES_EVERY, Recovery};
use slots::Slots;

/// W7: how often the other sessions are looked at.
const SESSIONS_EVERY: Duration = Duration::from_millis(200);
/// How many looks a stone takes in the time of a lease, and how rarely it looks at most.
const LOOKS_PER_LEASE: u32 = 10;
const SESSIONS_EVERY_MAX: Duration = Duration::from_secs(3);
/// How often ended jobs are looked at.
const PRUNE_EVERY: Duration = Duration::from_secs(10);
/// How many jobs one change promotes or prunes.
const SLICE: usize = 500;

/// Enqueues the slots of schedules that have come, at once.
pub(crate) fn enqueue_due_slots(store: &Store) -> Result<()> {
    let mut slots = Slots::new();
    slots.look(store.inner.rows()?.as_ref())?;
    slots.fire(store, &[])
}

struct Maintenance {
    store: Store,
    setup: Arc<Setup>,
    recovery: Recovery,
    slots: Slots,
    seen_wakes: Option<u64>,
    /// When somebody last committed, as far as this thread saw.
    quiet_since: Instant,
    next_due: Option<Timestamp>,
    next_look: Instant,
    next_promote: Instant,
    next_sessions: Instant,
    /// When leases of this process are looked at next, where another maintains the store.
    next_own_leases: Instant,
    next_prune: Instant,
}

/// Starts the thread; it ends when the alarm is dropped.
pub(crate) fn start(store: &Store, setup: &Arc<Setup>) -> Result<Alarm> {
    let now = monotonic();
    let mut maintenance = Maintenance {
        recovery: Recovery::new(store, setup)?,
        slots: Slots::new(),
        store: store.clone(),
        setup: setup.clone(),
        seen_wakes: None,
        quiet_since: now,
        next_due: None,
        next_look: now,
        next_promote: now,
        next_sessions: now,
        next_own_leases: now,
        next_prune: now,
    };
    let alarm = Alarm::paced("casque-maintenance", Duration::ZERO, move || maintenance.tick())?;
    store.inner.add_maintainer(alarm.ringer());
    Ok(alarm)
}

impl Maintenance {
    /// Does what is due; gives when to look again. Where another process maintains the store it is rung for.
    fn tick(&mut self) -> Option<Duration> {
        if !self.store.inner.maintains() {
            return self.look_at_own_leases();
        }
        let now = monotonic();
        if self.store.inner.take_client_gone() {
            // A stone sees at once that a process has gone; whether it died its session's file tells.
            self.next_sessions = now;
        }
        if now >= self.next_promote {
            let promoted = self.promote();
            // Where it fails it is tried again, but not at every tick.
            self.next_promote = if promoted.is_err() { now + SESSIONS_EVERY } else { now };
            self.tell_trouble("make scheduled jobs ready", promoted);
        }
        let fired = self.slots.fire(&self.store, &self.setup.listeners);
        self.tell_trouble("enqueue what is scheduled", fired);
        if now >= self.next_sessions {
            let every = self.sessions_every();
            self.next_sessions = now + every;
            let recovered = self.recovery.look(every);
            self.tell_trouble("take back jobs of dead sessions", recovered);
        }
        if now >= self.next_prune {
            self.next_prune = now + PRUNE_EVERY;
            let pruned = self.prune().and_then(|()| self.sweep_lanes()).and_then(|()| self.recovery.clear_leftovers());
            self.tell_trouble("remove ended jobs", pruned);
        }
        Some(self.pause())
    }

    /// How soon to look again. A stone is rung for after each commit; who is none polls the count of commits (W7).
    fn pause(&self) -> Duration {
        let now = monotonic();
        if !self.store.inner.is_stone() {
            return wake_poll(self.quiet_since, now);
        }
        let time = self.store.inner.site.now();
        let until_due = self.next_due.map(|at| at.since(time).max(Duration::from_millis(1)));
        let until_look = self.next_sessions.min(self.next_prune).saturating_duration_since(now);
        until_due.into_iter().chain(self.slots.until_next(time)).fold(until_look, Duration::min)
    }

    /// How soon the sessions are looked at again. A stone is told at once who is gone; that somebody is stopped shows
    /// after a lease, and so needs no more than some looks in that time.
    fn sessions_every(&self) -> Duration {
        if self.store.inner.is_stone() {
            (self.recovery.lease() / LOOKS_PER_LEASE).clamp(SESSIONS_EVERY, SESSIONS_EVERY_MAX)
        } else {
            SESSIONS_EVERY
        }
    }

    /// What this process has in hand no other knows.
    fn look_at_own_leases(&mut self) -> Option<Duration> {
        let now = monotonic();
        self.next_sessions = now;
        // Rung for in between, it waits all the same: an answer may be on its way.
        if now < self.next_own_leases {
            return Some(self.next_own_leases - now);
        }
        if !self.recovery.take_doubt() {
            return None;
        }
        self.next_own_leases = now + LEASES_EVERY;
        let looked = self.recovery.give_back_lost();
        self.tell_trouble("give back lost leases", looked);
        Some(LEASES_EVERY)
    }

    fn tell_trouble(&self, doing: &'static str, done: Result<()>) {
        if let Err(error) = done
            && error.kind() != ErrorKind::Closed
        {
            tell(&self.setup.listeners, &Event::Trouble { doing, message: error.full_message() });
        }
    }

    fn promote(&mut self) -> Result<()> {
        let wakes = self.store.inner.site.wakes();
        let now = monotonic();
        if self.seen_wakes != Some(wakes) {
            self.quiet_since = now;
        }
        if self.seen_wakes != Some(wakes) || now >= self.next_look {
            let rows = self.store.inner.peek()?;
            self.next_due = next_by_time(rows.as_ref(), self.store.inner.site.now())?;
            self.slots.look(rows.as_ref())?;
            self.seen_wakes = Some(wakes);
            self.next_look = now + LOOK_ANYWAY;
        }
        if self.next_due.is_none_or(|at| at > self.store.inner.site.now()) {
            return Ok(());
        }
        // Others may promote the same jobs; whoever commits second finds nothing to do, and looks again at the next
        // commit.
        self.next_due = None;
        if let Outcome::Promoted { jobs } = self.store.inner.perform(Intent::Promote { limit: SLICE })?
            && jobs > 0
        {
            self.seen_wakes = None;
            tell(&self.setup.listeners, &Event::Promoted { jobs });
        }
        Ok(())
    }

    fn sweep_lanes(&self) -> Result<()> {
        if lanes_to_sweep(self.store.inner.peek()?.as_ref())?.is_empty() {
            return Ok(());
        }
        self.store.inner.perform(Intent::Administer(Admin::SweepLanes)).map(|_| ())
    }

    fn prune(&mut self) -> Result<()> {
        loop {
            if !has_expired(self.store.inner.peek()?.as_ref(), self.store.inner.site.now())? {
                return Ok(());
            }
            let prune = Intent::Administer(Admin::Prune { limit: SLICE });
            let Outcome::Pruned { jobs } = self.store.inner.perform(prune)? else { return Ok(()) };
            if jobs == 0 {
                return Ok(());
            }
            tell(&self.setup.listeners, &Event::Pruned { jobs });
        }
    }
}
