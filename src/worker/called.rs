//! What a worker does about jobs that it holds when an operator cancels them, or pauses their queue or task: those that
//! run are told, those that wait for a handler are settled or go back at once.
//!
//! Where a process commits for all, it calls (`Crew::call`). Else the keeper looks whenever somebody has committed, as
//! long as it holds something. A look may come while a claim is out, whose jobs it can't see: then it is done again
//! when they are there.

use std::{
    collections::{HashMap, HashSet},
    sync::MutexGuard,
    time::{Duration, Instant},
};

use crate::{
    clock::{monotonic, sleep},
    engine::Rows,
    error::Result,
    queue::{Lease, id::JobId, info::is_paused, settle::Ending},
    store::inner::LOOK_ANYWAY,
    worker::{
        crew::{Crew, State, Waiting},
        handler::Ended,
    },
};

/// How often a worker that holds something, and whom nobody calls, reads the count of commits.
const WAKES_EVERY: Duration = Duration::from_millis(25);

/// When the keeper looked last.
pub(super) struct Look {
    wakes: u64,
    at: Instant,
    /// When the count of commits is read next.
    next: Instant,
}

/// What the rows say of held jobs.
#[derive(Default)]
struct Found {
    cancelled: HashSet<JobId>,
    paused: HashSet<JobId>,
}

impl Look {
    pub(super) fn new() -> Self {
        let now = monotonic();
        Self { wakes: 0, at: now, next: now }
    }
}

impl Crew {
    /// Somebody has cancelled jobs or paused a queue or a task, and the store's file shows it.
    pub(super) fn call(&self) {
        let mut state = self.lock();
        state.is_called = true;
        self.keeper_looks(&mut state);
    }

    /// Whether what is held is to be looked at now; gives else when that is due.
    pub(super) fn is_look_due(&self, state: &mut State, look: &mut Look) -> Result<(), Option<Instant>> {
        if state.held().next().is_none() {
            // A mark on what a claim brings that is out now is found when it is there.
            state.is_claim_unseen |= std::mem::take(&mut state.is_called) && state.is_claim_out();
            return Err(None);
        }
        let now = monotonic();
        let is_on_call = self.has_stone();
        let mut is_due = std::mem::take(&mut state.is_called);
        if !is_on_call && now >= look.next {
            look.next = now + WAKES_EVERY;
            let wakes = self.store.inner.site.wakes();
            // A writer may die between its commit and the count of it.
            is_due |= wakes != look.wakes || now.duration_since(look.at) >= LOOK_ANYWAY;
            look.wakes = wakes;
        }
        if is_due { Ok(()) } else { Err((!is_on_call).then_some(look.next)) }
    }

    /// Looks at what is held. The lock is free meanwhile.
    pub(super) fn look<'a>(&'a self, mut state: MutexGuard<'a, State>, look: &mut Look) -> MutexGuard<'a, State> {
        look.at = monotonic();
        state.is_claim_unseen = state.is_claim_out();
        let held: Vec<Lease> = state.held().cloned().collect();
        drop(state);
        let found = self.find(&held);
        if let Err(error) = &found {
            self.tell_if_it_passes("look for cancelled jobs", error);
            sleep(WAKES_EVERY);
        }
        let mut state = self.lock();
        match found {
            Ok(found) => state.heed(&held, &found),
            Err(_) => state.is_called = true,
        }
        state
    }

    fn find(&self, held: &[Lease]) -> Result<Found> {
        let rows = self.store.inner.peek()?;
        let mut found = Found::default();
        let mut known = HashMap::new();
        for lease in held {
            if lease.is_cancelling(rows.as_ref()) {
                found.cancelled.insert(lease.id());
            } else if is_kept_back(rows.as_ref(), lease, &mut known)? {
                found.paused.insert(lease.id());
            }
        }
        Ok(found)
    }
}

/// Whether a job's queue or task is paused.
fn is_kept_back(rows: &dyn Rows, lease: &Lease, known: &mut HashMap<(String, u32), bool>) -> Result<bool> {
    let key = (lease.queue().to_owned(), lease.task_number());
    if let Some(paused) = known.get(&key) {
        return Ok(*paused);
    }
    let paused = is_paused(rows, &key.0, key.1)?;
    known.insert(key, paused);
    Ok(paused)
}

impl State {
    /// Does what was found about leases that are still held.
    fn heed(&mut self, held: &[Lease], found: &Found) {
        for lease in held.iter().filter(|lease| found.cancelled.contains(&lease.id())) {
            // S22: whoever withdraws it first has it, a handler's thread or this one.
            if self.take_unbegun(lease) && lease.withdraw() {
                self.end(Ended { lease: lease.clone(), how: Ending::Cancel });
            } else {
                lease.note_cancelled();
            }
        }
        for lease in held.iter().filter(|lease| found.paused.contains(&lease.id())) {
            if self.take_unbegun(lease) {
                self.give_back(lease.clone());
            }
        }
    }

    /// Takes a lease out of those that wait for a handler, if it is among them.
    fn take_unbegun(&mut self, lease: &Lease) -> bool {
        let before = self.buffer.len();
        self.buffer.retain(|held| (held.id(), held.token()) != (lease.id(), lease.token()));
        self.buffer.len() < before
    }

    fn is_claim_out(&self) -> bool {
        self.is_turn_out || self.waiting == Waiting::Claiming
    }

    fn held(&self) -> impl Iterator<Item = &Lease> {
        self.buffer.iter().chain(self.running.iter().flatten())
    }
}
