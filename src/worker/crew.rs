//! What the threads of a worker share: the leases that no handler has begun, and how those that were begun have ended.
//!
//! The handlers' threads take turns by themselves. Whoever finds nothing to run takes the turn (`turn`): settles what
//! has ended and claims the next, in one change. Where that finds nothing, one thread waits for work (`idle`), and the
//! others sleep. The thread that runs the worker (`keeper`) sees to what no handler may be free for.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    clock::{deadline_after, monotonic},
    error::Error,
    queue::{
        Lease,
        claim::CLAIM_JOBS_MAX,
        select::{Tasks, Wanted},
        settle::{Ending, Settle},
    },
    store::{Store, change::BATCH_JOBS_MAX, promise::Poker, session::Session, site, ticket::Ticket},
    worker::{
        Report, Setup,
        claimer::{Batch, Claimer},
        handler::{Ended, Handled},
        keeper::SETTLE_WITHIN,
        prefetch::Measure,
        timeouts::Deadline,
    },
};

/// How much one turn settles: what goes beyond waits for the next one.
const ENDINGS_MAX: usize = 1_000;
const ENDING_BYTES_MAX: usize = 4 << 20;
/// The turn of the one busy worker that makes itself idle for suspect jobs.
const SUSPECTS_TURN: &str = "suspects";

pub(super) struct Crew {
    pub(super) store: Store,
    pub(super) session: Arc<Session>,
    pub(super) setup: Arc<Setup>,
    claimer: Mutex<Claimer>,
    pub(super) tasks: Tasks,
    /// Held for moments only: no commit, no handler and no listener runs under it.
    state: Mutex<State>,
    /// Handlers that have nothing to do sleep here, and whoever waits for a moment.
    work: Condvar,
    /// The keeper sleeps here.
    keeper: Condvar,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct State {
    pub(super) phase: Phase,
    /// Claimed, and begun by nobody.
    pub(super) buffer: VecDeque<Lease>,
    /// Ended, and settled by nobody.
    pub(super) endings: Vec<Ended>,
    pub(super) endings_since: Instant,
    /// What each handler runs.
    pub(super) running: Vec<Option<Lease>>,
    running_count: usize,
    /// When attempts of those that may not take as long as they like are over.
    pub(super) deadlines: Vec<Deadline>,
    /// How many handlers run on whose time is over.
    pub(super) overdue: usize,
    /// Endings that a turn has taken along.
    in_flight: usize,
    /// Somebody settles, or claims without waiting; nobody else does before it is answered.
    pub(super) is_turn_out: bool,
    pub(super) waiting: Waiting,
    /// The count of commits before the last claim that left nothing to claim; nothing where there may be more.
    pub(super) dry: Option<u64>,
    /// Since when there was nothing to run.
    pub(super) dry_since: Option<Instant>,
    /// P4: what is out is suspect, and nothing runs beside it.
    alone: bool,
    /// P4: a suspect job waits until a worker is idle.
    pub(super) suspects_wait: bool,
    /// P4: this worker claims no more until it is idle, for a suspect job that waits.
    suspects_turn: Option<site::Turn>,
    pub(super) measure: Measure,
    /// When a handler last took a lease.
    pub(super) last_begun: Instant,
    pub(super) begun: u64,
    pub(super) is_keeper_awake: bool,
    /// What is held is to be looked at: some of it may have been cancelled, or its queue or task paused.
    pub(super) is_called: bool,
    /// A claim was out at the last look, and what it brings is to be looked at too.
    pub(super) is_claim_unseen: bool,
    /// Until when the keeper sleeps; nothing where it is awake, or about to be, or only others can wake it.
    keeper_sleeps_until: Option<Instant>,
    sleepers: usize,
    /// How often in a row a turn failed.
    pub(super) failures: u32,
    /// Why the worker ends, if it was not asked to.
    pub(super) failure: Option<Error>,
    /// The claim that is parked, by which whoever waits for it can be called away.
    pub(super) parked: Option<(Poker, u64)>,
    /// A claim that was parked when the worker was asked to stop.
    pub(super) left_parked: Option<Ticket>,
    pub(super) report: Report,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Working,
    /// Nothing is claimed or begun any more; what runs is waited for.
    Stopping,
    Over,
}

/// Who waits for work, in the name of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Nobody,
    /// A thread that looks at the count of commits. Others may settle and claim.
    Watching,
    /// A thread whose claim is out and may take its time. Others may settle.
    Claiming,
}

impl Crew {
    pub(super) fn new(store: &Store, session: Arc<Session>, setup: Arc<Setup>) -> Self {
        let now = monotonic();
        let state = State {
            phase: Phase::Working,
            buffer: VecDeque::new(),
            endings: Vec::new(),
            endings_since: now,
            running: vec![None; setup.concurrency],
            running_count: 0,
            deadlines: Vec::new(),
            overdue: 0,
            in_flight: 0,
            is_turn_out: false,
            waiting: Waiting::Nobody,
            dry: None,
            dry_since: None,
            alone: false,
            suspects_wait: false,
            suspects_turn: None,
            measure: Measure::new(setup.prefetch, setup.concurrency),
            last_begun: now,
            begun: 0,
            is_keeper_awake: true,
            is_called: false,
            is_claim_unseen: false,
            keeper_sleeps_until: None,
            sleepers: 0,
            failures: 0,
            failure: None,
            parked: None,
            left_parked: None,
            report: Report::default(),
        };
        Self {
            store: store.clone(),
            session,
            claimer: Mutex::new(Claimer::new(store, &setup)),
            tasks: Tasks::Named(Arc::new(setup.registry.names())),
            setup,
            state: Mutex::new(state),
            work: Condvar::new(),
            keeper: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // What a panic interrupts is put in order by the thread's ward.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn claimer(&self) -> MutexGuard<'_, Claimer> {
        self.claimer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next lease for this handler; nothing when the worker has no more for it. Until then the thread takes turns,
    /// waits for work, or sleeps.
    pub(super) fn next_lease<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        number: usize,
    ) -> Option<(MutexGuard<'a, State>, Lease)> {
        loop {
            if !self.is_working(&state) {
                self.keeper.notify_one();
                return None;
            }
            if let Some(lease) = state.begin_next(number) {
                self.begin_timeout(&mut state, number, &lease);
                self.leave_to_others(&mut state);
                return Some((state, lease));
            }
            let may_claim = state.waiting == Waiting::Nobody && state.may_claim(&self.setup);
            let has_to_wait = may_claim && (state.dry.is_some() || self.is_another_alone(&state));
            state = if state.is_turn_out {
                self.sleep(state)
            } else if !state.endings.is_empty() {
                self.take_turn(state)
            } else if has_to_wait {
                self.wait_for_work(state)
            } else if may_claim && self.claims_apart() {
                self.claim_apart(state)
            } else if may_claim {
                self.take_turn(state)
            } else {
                self.sleep(state)
            };
        }
    }

    /// Takes note of what a handler did.
    pub(super) fn take_back(&self, state: &mut State, number: usize, lease: Lease, handled: Handled) {
        state.running[number] = None;
        state.running_count -= 1;
        state.end_timeout(number, &lease);
        state.report.completed += u64::from(handled.is_completed_in_transaction);
        if let Some(took) = handled.took {
            state.measure.note(took);
        }
        if let Some(how) = handled.how {
            state.end(Ended { lease, how });
        }
        if state.phase != Phase::Working {
            self.keeper.notify_one();
        }
    }

    /// Whether jobs are still claimed and begun.
    pub(super) fn is_working(&self, state: &State) -> bool {
        state.phase == Phase::Working && !self.setup.stop.is_stopping()
    }

    /// Whether a claim is a change of its own: a strict one is, since it needs a snapshot and may conflict; and one
    /// that pauses on purpose, which endings must not wait for.
    pub(super) fn claims_apart(&self) -> bool {
        self.setup.policy == crate::queue::Policy::Strict || self.setup.pause.is_some()
    }

    /// What the next claim may take; nothing where it is not the time for one. `own_endings` are settled before it.
    pub(super) fn wanted(&self, state: &State, own_endings: usize) -> Option<Wanted> {
        if !self.is_working(state) || !state.may_claim(&self.setup) || self.is_another_alone(state) {
            return None;
        }
        Some(Wanted {
            tasks: self.tasks.clone(),
            jobs_max: state.room(&self.setup).min(CLAIM_JOBS_MAX),
            idle: self.session.in_hand_count() == own_endings && state.overdue == 0,
        })
    }

    /// P4: whether another worker of this process, or whoever claims by hand in it, runs a suspect job.
    pub(super) fn is_another_alone(&self, state: &State) -> bool {
        let is_own = state.alone && state.in_hand() > 0;
        !is_own && self.session.is_alone()
    }

    /// Adds what a claim brought, and sees to it that somebody runs it.
    pub(super) fn absorb(&self, state: &mut State, seen: u64, wanted: usize, batch: Batch) {
        state.report.hijacks += batch.hijacks;
        state.alone = batch.alone;
        state.suspects_wait = batch.suspects_wait;
        state.suspects_turn = None;
        // One busy worker makes itself idle for suspect jobs; all others go on, and so does one that can't become idle,
        // since others in its process have jobs in hand.
        let own = state.in_hand() + batch.leases.len();
        if batch.suspects_wait && !batch.alone && self.session.in_hand_count() <= own {
            state.suspects_turn = self.store.inner.site.try_turn(SUSPECTS_TURN);
        }
        // Where it got all that it wanted, there may be more.
        state.dry = (!batch.lost && batch.leases.len() < wanted).then_some(seen);
        if batch.lost || !batch.leases.is_empty() {
            state.dry_since = None;
            state.last_begun = monotonic();
        }
        if batch.leases.len() == wanted {
            state.measure.grow();
        }
        if std::mem::take(&mut state.is_claim_unseen) && !batch.leases.is_empty() {
            state.is_called = true;
            self.keeper_looks(state);
        }
        if self.is_working(state) {
            state.buffer.extend(batch.leases);
        } else {
            // S19: claimed while the worker was asked to stop.
            batch.leases.into_iter().for_each(|lease| state.give_back(lease));
            self.keeper.notify_one();
        }
    }

    /// Who leaves to run a job sees to it that somebody else does what is left to do.
    fn leave_to_others(&self, state: &mut State) {
        let is_left = !state.endings.is_empty() || !state.buffer.is_empty();
        if is_left {
            // It may sleep until some timeout, which can be hours away.
            self.wake_keeper_by(state, state.last_begun + SETTLE_WITHIN);
        } else if !state.is_keeper_awake && !self.has_stone() {
            self.keeper_looks(state);
        }
        let has_work = is_left || (state.waiting == Waiting::Nobody && state.may_claim(&self.setup));
        if has_work && state.sleepers > 0 && !state.is_turn_out {
            self.work.notify_one();
        }
    }

    /// Wakes the keeper.
    pub(super) fn keeper_looks(&self, state: &mut State) {
        state.is_keeper_awake = true;
        state.keeper_sleeps_until = None;
        self.keeper.notify_one();
    }

    /// Wakes all who sleep, after something has changed for them.
    pub(super) fn wake(&self, state: &State) {
        if state.sleepers > 0 {
            self.work.notify_all();
        }
        if state.phase != Phase::Working {
            self.keeper.notify_one();
        }
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.sleepers += 1;
        let mut state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.sleepers -= 1;
        state
    }

    pub(super) fn sleep_at_most<'a>(&self, mut state: MutexGuard<'a, State>, pause: Duration) -> MutexGuard<'a, State> {
        state.sleepers += 1;
        let (mut state, _) = self.work.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
        state.sleepers -= 1;
        state
    }

    /// The keeper's sleep.
    pub(super) fn doze<'a>(&self, mut state: MutexGuard<'a, State>, pause: Option<Duration>) -> MutexGuard<'a, State> {
        state.is_keeper_awake = pause.is_some();
        state.keeper_sleeps_until = pause.map(deadline_after);
        let mut state = match pause {
            Some(pause) => self.keeper.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0,
            None => self.keeper.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.is_keeper_awake = true;
        state.keeper_sleeps_until = None;
        state
    }

    /// Wakes the keeper in time for what is due then.
    pub(super) fn wake_keeper_by(&self, state: &mut State, due: Instant) {
        if !state.is_keeper_awake || state.keeper_sleeps_until.is_some_and(|until| until > due) {
            self.keeper_looks(state);
        }
    }

    /// What rings when the worker is asked to stop.
    pub(super) fn ring(&self) {
        // Under the lock, so that whoever has looked at the request and is about to sleep hears it.
        let parked = self.lock().parked.clone();
        if let Some((poker, number)) = parked {
            poker.poke();
            // Who reads the answers sleeps by the connection: the answer wakes it.
            self.store.inner.call_off(number);
        }
        self.work.notify_all();
        self.keeper.notify_one();
    }

    /// Ends the worker for a failure that no retry will mend.
    pub(super) fn fail(&self, state: &mut State, error: Error) {
        state.failure.get_or_insert(error);
        if state.phase == Phase::Working {
            state.phase = Phase::Stopping;
        }
        self.work.notify_all();
        self.keeper.notify_one();
    }

    /// Puts the shared state in order when a thread panics: our own bug, or a pause that a user's code put into a
    /// claim.
    pub(super) fn ward(&self) -> Ward<'_> {
        Ward { crew: self }
    }
}

pub(super) struct Ward<'a> {
    crew: &'a Crew,
}

impl Drop for Ward<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.crew.lock();
            state.is_turn_out = false;
            state.waiting = Waiting::Nobody;
            state.phase = Phase::Over;
            self.crew.work.notify_all();
            self.crew.keeper.notify_one();
        }
    }
}

impl State {
    fn begin_next(&mut self, number: usize) -> Option<Lease> {
        let lease = self.buffer.pop_front()?;
        self.running[number] = Some(lease.clone());
        self.running_count += 1;
        self.last_begun = monotonic();
        self.begun += 1;
        Some(lease)
    }

    pub(super) fn end(&mut self, ended: Ended) {
        if self.endings.is_empty() {
            self.endings_since = monotonic();
        }
        self.endings.push(ended);
    }

    /// Gives back what no handler has begun.
    pub(super) fn give_back(&mut self, lease: Lease) {
        if lease.withdraw() {
            self.end(Ended { lease, how: Ending::Release });
        }
    }

    pub(super) fn give_back_buffer(&mut self) {
        for lease in std::mem::take(&mut self.buffer) {
            self.give_back(lease);
        }
    }

    /// What the next turn settles. Endings of leases that were given up meanwhile are nobody's.
    pub(super) fn take_endings(&mut self) -> (Vec<Ended>, Vec<Settle>) {
        let (mut bytes, mut settlements) = (0, Vec::with_capacity(self.endings.len().min(ENDINGS_MAX)));
        self.endings.retain(|ended| !ended.lease.is_settled());
        let mut enqueues = 0;
        for ended in self.endings.iter().take(ENDINGS_MAX) {
            let settle = ended.lease.ending(ended.how.clone());
            bytes += settle.payload_bytes();
            enqueues += settle.enqueues.len();
            let is_much = bytes > ENDING_BYTES_MAX || enqueues > BATCH_JOBS_MAX;
            if is_much && !settlements.is_empty() {
                break;
            }
            settlements.push(settle);
        }
        let rest = self.endings.split_off(settlements.len());
        let taken = std::mem::replace(&mut self.endings, rest);
        self.in_flight = taken.len();
        (taken, settlements)
    }

    /// A turn is answered: what it could not settle yet goes with the next one.
    pub(super) fn land(&mut self, again: Vec<Ended>) {
        self.in_flight = 0;
        if !again.is_empty() {
            self.endings.splice(0..0, again);
        }
    }

    /// Whether a claim may go out: there is room, and nothing must run alone or wait for this worker to be idle.
    fn may_claim(&self, setup: &Setup) -> bool {
        let is_busy = self.running_count + self.buffer.len() > 0;
        let must_wait = is_busy && (self.alone || self.suspects_turn.is_some());
        // What is held is worked off by half before more is claimed, so that claims stay few.
        let is_low = self.buffer.is_empty() || self.buffer.len() < self.measure.ahead() / 2;
        !must_wait && is_low && self.room(setup) > 0
    }

    fn room(&self, setup: &Setup) -> usize {
        let most = setup.concurrency + self.measure.ahead();
        most.saturating_sub(self.running_count + self.buffer.len()).min(self.measure.claim_max())
    }

    /// How many leases this worker holds.
    pub(super) fn in_hand(&self) -> usize {
        self.buffer.len() + self.running_count + self.endings.len() + self.in_flight
    }
}

/// Whether trying again may help.
pub(super) fn will_pass(error: &Error) -> bool {
    use crate::error::ErrorKind::{Closed, Corrupt, Invalid};

    !matches!(error.kind(), Closed | Corrupt | Invalid)
}
