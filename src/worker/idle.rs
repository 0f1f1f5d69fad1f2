//! How a worker waits when there is nothing to claim: one thread in the name of all, and the others sleep.
//!
//! Where another process commits for this one, a claim is parked there, and its answer is the wake-up. Else the thread
//! looks at the count of commits (W7). Either way a request to stop is heard at once.

use std::{sync::MutexGuard, time::Duration};

use crate::{
    clock::monotonic,
    error::Result,
    queue::{lease::give_back_late, select::Wanted},
    store::{
        change::Intent,
        inner::{LOOK_ANYWAY, wake_poll},
        ticket::Ticket,
    },
    worker::{
        Drain,
        claimer::Batch,
        crew::{Crew, State, Waiting},
    },
};

/// For how long a claim is parked by a worker that runs nothing.
const PARK: Duration = Duration::from_secs(30);
/// And by one that runs something, and may be able to take a suspect job when it has ended (P4).
const PARK_BUSY: Duration = Duration::from_millis(250);
/// And by one that leaves, or takes a suspect job, as soon as it can.
const PARK_SHORTLY: Duration = Duration::from_millis(25);
/// How long it waits after a parked claim came back before its time and with nothing.
const NOT_PARKED: Duration = Duration::from_millis(5);

impl Crew {
    /// Waits until there may be something to claim, or another thread has brought something, or the worker is to stop.
    pub(super) fn wait_for_work<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let may_park = self.has_stone() && !self.claims_apart() && !self.is_another_alone(&state);
        if may_park { self.park(state) } else { self.watch(state) }
    }

    /// W7: looks at eight bytes of memory, never at the disk.
    fn watch<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting = Waiting::Watching;
        let begun = monotonic();
        let since = *state.dry_since.get_or_insert(begun);
        let waits_for_another = self.is_another_alone(&state);
        if waits_for_another {
            state.dry = Some(self.store.inner.site.wakes());
        }
        while let Some(seen) = state.dry
            && self.is_working(&state)
            && state.buffer.is_empty()
        {
            let now = monotonic();
            // A writer that died after its commit and before it counted it must not keep the worker waiting.
            let looks_anyway = now.duration_since(begun) >= LOOK_ANYWAY;
            // The last run may be settled, and so no commit to come, just before its session says that nothing runs.
            let may_take_suspect = state.suspects_wait && self.session.is_idle();
            let may_run_again = waits_for_another && !self.is_another_alone(&state);
            if looks_anyway || may_take_suspect || may_run_again || self.store.inner.site.wakes() != seen {
                state.dry = None;
                break;
            }
            state = self.sleep_at_most(state, wake_poll(since, now));
        }
        if waits_for_another {
            // It has not looked.
            state.dry = None;
        }
        state.waiting = Waiting::Nobody;
        state
    }

    /// Lets a claim wait where the commits are made.
    fn park<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(wanted) = self.wanted(&state, 0) else { return state };
        let wait = match self.setup.drain {
            _ if state.suspects_wait && !wanted.idle => PARK_SHORTLY,
            Drain::WhenNothingIsReady | Drain::WhenNothingIsScheduled => PARK_SHORTLY,
            Drain::Never if wanted.idle => PARK,
            Drain::Never => PARK_BUSY,
        };
        let jobs_max = wanted.jobs_max;
        state.waiting = Waiting::Claiming;
        drop(state);
        let (seen, begun) = (self.store.inner.site.wakes(), monotonic());
        let claimed = self.park_claim(wanted, wait);
        let mut state = self.lock();
        match claimed {
            Ok(Parked::Answered(batch)) => {
                let is_early = batch.leases.is_empty() && monotonic().duration_since(begun) < wait;
                self.absorb(&mut state, seen, jobs_max, batch);
                if is_early && self.is_working(&state) {
                    state = self.sleep_at_most(state, NOT_PARKED);
                }
                if self.setup.drain != Drain::Never {
                    state.dry = None;
                }
                state.failures = 0;
            }
            Ok(Parked::CalledAway(ticket)) => state.left_parked = Some(ticket),
            Err(error) => {
                drop(state);
                self.tell_if_it_passes("claim", &error);
                state = self.after_failure(self.lock(), error);
            }
        }
        state.waiting = Waiting::Nobody;
        self.wake(&state);
        state
    }

    fn park_claim(&self, wanted: Wanted, wait: Duration) -> Result<Parked> {
        let prepared = self.claimer().prepare(wanted, true)?;
        let Some(claim) = prepared.claim else { return Ok(Parked::Answered(Batch::default())) };
        let ticket = self.submit(vec![Intent::Claim(claim)], wait)?;
        self.lock().parked = Some((ticket.poker(), ticket.number()));
        let answer = ticket.wait_or(&self.store.inner.site, &|| self.setup.stop.is_stopping());
        self.lock().parked = None;
        match answer {
            Some(Ok(applied)) => self.batch_of(applied, false, false).map(Parked::Answered),
            Some(Err(error)) => {
                self.store.inner.doubt_leases();
                give_back_late(&self.store.inner, &self.session, ticket);
                Err(error)
            }
            None => Ok(Parked::CalledAway(ticket)),
        }
    }
}

/// What became of a parked claim.
enum Parked {
    Answered(Batch),
    /// The worker is to stop.
    CalledAway(Ticket),
}
