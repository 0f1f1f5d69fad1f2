//! The keeper: the thread that runs the worker. It starts the others, sees that no ending waits for long while the
//! handlers are busy, heeds what is said of held jobs, takes those that lie too long out of the buffer, and ends the
//! worker.
//!
//! While the handlers take turns by themselves, or there is nothing to do, it sleeps.

use std::{
    panic::resume_unwind,
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};

use crate::{
    clock::{deadline_after, monotonic},
    error::{ErrorKind, Result},
    queue::{Lease, QueueStats, info::stats, lease::give_back_late},
    store::{Store, inner::Call},
    task::StopReason,
    worker::{
        Report, Setup,
        called::Look,
        crew::{Crew, Phase, State, Waiting, will_pass},
        event::{Event, tell},
        handler, maintenance,
        prefetch::AHEAD_MAX,
        stop::Bell,
    },
};

/// How long a completion may wait for company while the handlers are busy.
pub(super) const SETTLE_WITHIN: Duration = Duration::from_millis(5);
/// How long a worker that is stopped at once waits for a turn that is out.
const LAST_TURN: Duration = Duration::from_secs(2);

pub(crate) fn run(store: &Store, setup: Setup) -> Result<Report> {
    // Presence comes before the first claim (P1).
    let crew = Arc::new(Crew::new(store, store.inner.session()?, Arc::new(setup)));
    let rung = Arc::downgrade(&crew);
    let bell: Arc<Bell> = Arc::new(move || {
        if let Some(crew) = rung.upgrade() {
            crew.ring();
        }
    });
    crew.setup.stop.add_bell(&bell);
    let called = Arc::downgrade(&crew);
    let call: Arc<Call> = Arc::new(move || {
        if let Some(crew) = called.upgrade() {
            crew.call();
        }
    });
    store.inner.add_holder(&call);
    let serves_all = crew.setup.only.is_none();
    let maintenance = serves_all.then(|| maintenance::start(store, &crew.setup)).transpose()?;
    let serving = serves_all.then(|| store.inner.stand()).transpose()?;
    let mut handlers = Vec::new();
    for number in 0..crew.setup.concurrency {
        match handler::start(number, &crew) {
            Ok(handler) => handlers.push(handler),
            Err(error) => crew.fail(&mut crew.lock(), error),
        }
    }
    let gave_up = Keeper { crew: &crew, look: Look::new(), begun: 0 }.keep();
    if let Some(ticket) = crew.lock().left_parked.take() {
        give_back_late(&store.inner, &crew.session, ticket);
    }
    if !gave_up && let Err(error) = crew.claimer().count_conflicts() {
        crew.tell_trouble("count hijacks", &error);
    }
    drop(serving);
    drop(maintenance);
    // Where it gave up, handlers still run; what they bring is refused by their tokens.
    if !gave_up {
        for thread in handlers {
            if let Err(panic) = thread.join() {
                resume_unwind(panic);
            }
        }
    }
    #[cfg(all(unix, feature = "isolation"))]
    crew.setup.host.close();
    let mut state = crew.lock();
    if let Some(failure) = state.failure.take() {
        return Err(failure);
    }
    let mut report = state.report.clone();
    drop(state);
    match left_in(store, &crew.setup.queues) {
        Ok(left) => report.left = left,
        // What it did is told all the same.
        Err(error) if will_pass(&error) => crew.tell_trouble("count what is left", &error),
        Err(error) => return Err(error),
    }
    Ok(report)
}

fn left_in(store: &Store, queues: &[String]) -> Result<Vec<QueueStats>> {
    let rows = store.inner.rows()?;
    queues.iter().map(|queue| stats(rows.as_ref(), queue)).collect()
}

struct Keeper<'a> {
    crew: &'a Crew,
    look: Look,
    /// How many leases had been begun at the last look.
    begun: u64,
}

impl Keeper<'_> {
    /// Keeps order until the worker is over. Whether it gave up waiting for what runs, since it is to stop at once.
    fn keep(&mut self) -> bool {
        let crew = self.crew;
        let mut state = crew.lock();
        loop {
            if state.phase == Phase::Working && crew.setup.stop.is_stopping() {
                state.phase = Phase::Stopping;
            }
            let next_timeout = crew.time_out(&mut state);
            state = match state.phase {
                Phase::Working => self.look_after(state, next_timeout),
                Phase::Stopping if crew.setup.stop.is_at_once() => return self.give_up(state),
                Phase::Stopping => {
                    state.give_back_buffer();
                    if state.in_hand() == 0 && !state.is_turn_out && state.waiting == Waiting::Nobody {
                        state.phase = Phase::Over;
                        crew.wake(&state);
                        return false;
                    }
                    if !state.is_turn_out && !state.endings.is_empty() {
                        crew.take_turn(state)
                    } else {
                        match crew.is_look_due(&mut state, &mut self.look) {
                            Ok(()) => crew.look(state, &mut self.look),
                            Err(next) => {
                                let next = next.into_iter().chain(next_timeout).min();
                                crew.doze(state, next.map(|next| next.saturating_duration_since(monotonic())))
                            }
                        }
                    }
                }
                Phase::Over => return false,
            };
        }
    }

    /// Does what is due now, or sleeps until the next is.
    fn look_after<'a>(
        &mut self,
        mut state: MutexGuard<'a, State>,
        next_timeout: Option<Instant>,
    ) -> MutexGuard<'a, State>
    where
        Self: 'a,
    {
        let crew = self.crew;
        let mut next = match crew.is_look_due(&mut state, &mut self.look) {
            Ok(()) => return crew.look(state, &mut self.look),
            Err(next) => next.into_iter().chain(next_timeout).min(),
        };
        let now = monotonic();
        if !state.endings.is_empty() {
            let due = state.endings_since + SETTLE_WITHIN;
            if now >= due && !state.is_turn_out {
                return crew.take_turn(state);
            }
            // Endings that come while a turn is out go with the next one.
            next = Some(sooner(next, due.max(now + SETTLE_WITHIN / 5)));
        }
        if !state.buffer.is_empty() && state.measure.is_adapted() {
            let due_back = state.last_begun + AHEAD_MAX;
            if now >= due_back && !state.is_turn_out {
                state.give_back_buffer();
                state.measure.start_anew();
                return crew.take_turn(state);
            }
            next = Some(sooner(next, due_back.max(now + SETTLE_WITHIN / 5)));
        }
        // While handlers are at it the keeper looks by itself, so that they need not wake it for each turn.
        if next.is_none_or(|next| next > now + SETTLE_WITHIN) && state.begun != self.begun {
            next = Some(now + SETTLE_WITHIN);
        }
        self.begun = state.begun;
        crew.doze(state, next.map(|next| next.saturating_duration_since(now)))
    }

    /// S20: what is given up is not charged, whether it has begun or not.
    fn give_up<'a>(&self, mut state: MutexGuard<'a, State>) -> bool
    where
        Self: 'a,
    {
        let crew = self.crew;
        state.phase = Phase::Over;
        state.give_back_buffer();
        crew.wake(&state);
        // Those whose time was over have failed, and are settled so.
        let running = state.running.iter().flatten().filter(|lease| !lease.is_timed_out());
        let running: Vec<Lease> = running.cloned().collect();
        drop(state);
        // A child of this worker would bring nothing any more, and hold its job.
        #[cfg(all(unix, feature = "isolation"))]
        crew.setup.host.close();
        self.give_back_running(running);
        let mut state = crew.lock();
        let deadline = deadline_after(LAST_TURN);
        while (state.is_turn_out || state.waiting != Waiting::Nobody) && monotonic() < deadline {
            state = crew.doze(state, Some(deadline - monotonic()));
        }
        if !state.is_turn_out && !state.endings.is_empty() {
            state = crew.take_turn(state);
        }
        state.running.iter().flatten().next().is_some() || state.is_turn_out || state.waiting != Waiting::Nobody
    }

    fn give_back_running(&self, running: Vec<Lease>) {
        let crew = self.crew;
        // P5: a job whose child process still works is not given back; whoever finds this session gone waits for the
        // child.
        let site = &crew.store.inner.site;
        let is_busy = |lease: &Lease| lease.held_job().is_some_and(|held| site.is_child_busy(&held));
        let (busy, idle): (Vec<Lease>, Vec<Lease>) = running.into_iter().partition(is_busy);
        busy.iter().for_each(Lease::leave_to_child);
        let tickets: Vec<_> = idle.into_iter().map(|lease| (lease.give_up(), lease)).collect();
        for (ticket, lease) in tickets {
            match ticket.and_then(|ticket| lease.settled(&ticket)) {
                Ok(settled) => {
                    tell(&crew.setup.listeners, &Event::GivenBack { job: settled.job, state: settled.state });
                }
                Err(error) if error.kind() == ErrorKind::LeaseLost => {}
                Err(error) => {
                    lease.abandon();
                    crew.tell_trouble("give a job back", &error);
                }
            }
            // Not before: whoever ends by this would settle the job another way.
            lease.call_off(StopReason::LeaseLost);
        }
    }
}

fn sooner(next: Option<Instant>, due: Instant) -> Instant {
    next.map_or(due, |next| next.min(due))
}
