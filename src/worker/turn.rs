//! A turn: one change that settles what has ended and then claims the next jobs, and what comes of its answer.
//!
//! Whoever takes the turn does all of it on its own thread. Leases that were lost, and results that can't be stored,
//! fail by themselves; the rest of the change stands.

use std::sync::MutexGuard;
use std::time::Duration;

use crate::{
    clock::{deadline_after, monotonic, sleep},
    error::{Error, ErrorKind, Result},
    queue::{
        Lease,
        lease::leases_of,
        promote::has_untold,
        room::Room,
        select::{Selection, Wanted, select_within},
        settle::{Each, Ending, Settled},
        state::State as JobState,
    },
    store::{
        change::{Applied, Intent, Outcome},
        ticket::Ticket,
    },
    worker::{
        Drain, Report,
        claimer::{Batch, Prepared},
        crew::{Crew, Phase, State, Waiting, will_pass},
        event::{Event, tell, tell_of},
        handler::Ended,
        pause_after,
    },
};

/// What came of a turn.
#[derive(Default)]
struct Answer {
    /// To be settled with the next one.
    again: Vec<Ended>,
    report: Report,
    /// Nothing where nothing was claimed, or the claim failed.
    batch: Option<Batch>,
    failure: Option<Error>,
}

impl Crew {
    /// Settles what has ended and claims what there is room for. The lock is free meanwhile.
    pub(super) fn take_turn<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.is_turn_out = true;
        let (endings, settlements) = state.take_endings();
        let wanted = match state.waiting {
            Waiting::Claiming => None,
            _ if self.claims_apart() => None,
            _ => self.wanted(&state, endings.len()),
        };
        drop(state);
        // Read before the claim looks, so that a commit in between is not missed.
        let seen = self.store.inner.site.wakes();
        let answer = self.turn(endings, settlements, wanted.as_ref());
        let mut state = self.lock();
        state.land(answer.again);
        add(&mut state.report, &answer.report);
        let is_drained_dry = self.absorb_claim(&mut state, seen, wanted.map(|wanted| wanted.jobs_max), answer.batch);
        if let Some(failure) = answer.failure {
            state = self.after_failure(state, failure);
        } else {
            state.failures = 0;
        }
        if is_drained_dry {
            state = self.leave_if_drained(state);
        }
        state.is_turn_out = false;
        self.wake(&state);
        state
    }

    /// Claims by a change of its own, which may take its time: others settle meanwhile.
    pub(super) fn claim_apart<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(wanted) = self.wanted(&state, 0) else { return state };
        state.waiting = Waiting::Claiming;
        drop(state);
        let seen = self.store.inner.site.wakes();
        let claimed = self.claimer().claim(&self.setup, &wanted);
        let mut state = self.lock();
        let (batch, failure) = match claimed {
            Ok(batch) => (Some(batch), None),
            Err(error) => (None, Some(error)),
        };
        let is_drained_dry = self.absorb_claim(&mut state, seen, Some(wanted.jobs_max), batch);
        if let Some(failure) = failure {
            drop(state);
            self.tell_if_it_passes("claim", &failure);
            state = self.after_failure(self.lock(), failure);
        } else {
            state.failures = 0;
        }
        if is_drained_dry {
            state = self.leave_if_drained(state);
        }
        state.waiting = Waiting::Nobody;
        self.wake(&state);
        state
    }

    /// Adds what was claimed; whether a draining worker should look if it may leave.
    pub(super) fn absorb_claim(
        &self,
        state: &mut State,
        seen: u64,
        wanted: Option<usize>,
        batch: Option<Batch>,
    ) -> bool {
        let (Some(wanted), Some(batch)) = (wanted, batch) else { return false };
        let found_nothing = batch.leases.is_empty() && !batch.lost && !batch.suspects_wait;
        self.absorb(state, seen, wanted, batch);
        found_nothing && self.setup.drain != Drain::Never && state.in_hand() == 0 && state.phase == Phase::Working
    }

    /// Ends a draining worker that has claimed nothing and has nothing in hand, if nothing of its queues runs.
    pub(super) fn leave_if_drained<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        drop(state);
        let drained = self.is_drained();
        let mut state = self.lock();
        match drained {
            Ok(true) if state.phase == Phase::Working => state.phase = Phase::Stopping,
            Ok(_) => {}
            Err(error) => {
                drop(state);
                self.tell_if_it_passes("see whether all is done", &error);
                state = self.after_failure(self.lock(), error);
                // Whether there is more to claim is seen, and this asked, at once again.
                state.dry = None;
            }
        }
        state
    }

    fn is_drained(&self) -> Result<bool> {
        if self.setup.only.is_some() {
            return Ok(true);
        }
        let rows = self.store.inner.rows()?;
        // What waited for a job that many waited for is told of its end step by step.
        if has_untold(rows.as_ref())? {
            return Ok(false);
        }
        // Somebody may have committed since the claim looked.
        let wanted = Wanted { tasks: self.tasks.clone(), jobs_max: 1, idle: true };
        let mut claimable = Selection::default();
        for queue in &self.setup.queues {
            let stats = crate::queue::info::stats(rows.as_ref(), queue)?;
            if stats.running > 0 || (self.setup.drain == Drain::WhenNothingIsScheduled && stats.scheduled > 0) {
                return Ok(false);
            }
            if !stats.paused {
                let room = Room::seen_in_time(rows.as_ref(), queue)?;
                select_within(rows.as_ref(), queue, &wanted, &room, &mut claimable)?;
            }
        }
        Ok(claimable.jobs.is_empty())
    }

    /// Waits a while after a failure that will pass; ends the worker after one that won't.
    pub(super) fn after_failure<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        failure: Error,
    ) -> MutexGuard<'a, State> {
        if !will_pass(&failure) {
            self.fail(&mut state, failure);
            return state;
        }
        let pause = pause_after(state.failures);
        state.failures = state.failures.saturating_add(1);
        let (until, was_working) = (deadline_after(pause), self.is_working(&state));
        loop {
            let now = monotonic();
            // A request to stop cuts it short, once: what is tried then, and fails, is waited for again.
            if now >= until || (was_working && !self.is_working(&state)) || self.setup.stop.is_at_once() {
                return state;
            }
            state = self.sleep_at_most(state, until - now);
        }
    }

    fn turn(
        &self,
        endings: Vec<Ended>,
        settlements: Vec<crate::queue::settle::Settle>,
        wanted: Option<&Wanted>,
    ) -> Answer {
        let mut answer = Answer::default();
        let prepared = wanted.map(|wanted| self.claimer().prepare(wanted.clone(), self.has_stone())).transpose();
        let prepared = prepared.unwrap_or_else(|error| {
            self.tell_if_it_passes("claim", &error);
            answer.failure = Some(error);
            None
        });
        let mut intents = Vec::new();
        if !settlements.is_empty() {
            intents.push(Intent::SettleEach(settlements));
        }
        let suspects_wait = prepared.as_ref().is_some_and(|prepared| prepared.suspects_wait);
        let claims = match prepared {
            Some(Prepared { claim: Some(claim), .. }) => {
                intents.push(Intent::Claim(claim));
                true
            }
            // The peek has found nothing: that is the claim's answer.
            Some(_) => {
                answer.batch = Some(Batch { suspects_wait, ..Batch::default() });
                false
            }
            None => false,
        };
        if intents.is_empty() {
            return answer;
        }
        let doing = if endings.is_empty() { "claim" } else { "settle a job" };
        match self.submit(intents, Duration::ZERO).and_then(|ticket| self.answer_of(&ticket, doing)) {
            Ok((mut applied, was_late)) => {
                if !endings.is_empty() {
                    let each = match applied.outcomes.first_mut() {
                        Some(Outcome::SettledEach(each)) => std::mem::take(each),
                        _ => Vec::new(),
                    };
                    self.settled(endings, each, &mut answer);
                }
                if claims {
                    match self.batch_of(applied, suspects_wait, was_late) {
                        Ok(batch) => answer.batch = Some(batch),
                        Err(error) => answer.failure = Some(error),
                    }
                }
            }
            Err(error) => {
                // The handlers have done their work: what will pass is waited out, and what won't is left to whoever
                // recovers the jobs. A claim that can't be made must not take settlements along.
                if will_pass(&error) || (claims && !endings.is_empty() && error.kind() != ErrorKind::Closed) {
                    answer.again = endings;
                } else {
                    endings.iter().for_each(|ended| ended.lease.abandon());
                }
                if self.setup.stop.is_at_once() {
                    answer.again.drain(..).for_each(|ended| ended.lease.abandon());
                }
                if error.kind() == ErrorKind::Unknown {
                    self.store.inner.doubt_leases();
                }
                self.tell_if_it_passes(doing, &error);
                answer.failure = Some(error);
            }
        }
        answer
    }

    /// Waits for a change's answer for as long as there may be one: sent anew, it would find itself done. Whether it
    /// came late, too.
    fn answer_of(&self, ticket: &Ticket, doing: &'static str) -> Result<(Applied, bool)> {
        let mut failures = 0;
        loop {
            match ticket.wait(&self.store.inner.site) {
                Ok(applied) => return Ok((applied, failures > 0)),
                Err(error) => {
                    if !ticket.may_be_answered() || !will_pass(&error) || self.setup.stop.is_at_once() {
                        return Err(error);
                    }
                    self.tell_trouble(doing, &error);
                    sleep(pause_after(failures));
                    failures += 1;
                }
            }
        }
    }

    /// The leases that a claim got. Those of an answer that came late go back: maintenance may have taken them for lost
    /// meanwhile.
    pub(super) fn batch_of(&self, applied: Applied, suspects_wait: bool, was_late: bool) -> Result<Batch> {
        let answer = leases_of(&self.store.inner, &self.session, applied)?;
        let hijacks = answer.hijacks.len() as u64;
        for hijack in answer.hijacks {
            tell(&self.setup.listeners, &Event::Hijacked(hijack));
        }
        if was_late {
            return Ok(Batch { hijacks, lost: true, ..Batch::default() });
        }
        if let Some(token) = answer.leases.first().map(Lease::token) {
            let jobs = || answer.leases.iter().map(Lease::id).collect();
            tell_of(&self.setup.listeners, || Event::Claimed { jobs: jobs(), token });
        }
        Ok(Batch {
            alone: answer.alone,
            suspects_wait: answer.suspects_wait || (suspects_wait && !answer.alone),
            leases: answer.leases,
            hijacks,
            lost: false,
        })
    }

    fn settled(&self, endings: Vec<Ended>, each: Vec<Each>, answer: &mut Answer) {
        let mut each = each.into_iter();
        for mut ended in endings {
            match each.next() {
                Some(Each::Settled(settled)) => {
                    ended.lease.note_settled();
                    self.count_settled(&ended, settled, &mut answer.report);
                }
                // Its time was over while its handler's transaction completed it.
                Some(Each::Lost(_)) if ended.lease.is_completed_in_transaction() => {}
                Some(Each::Lost(_)) => {
                    ended.lease.note_settled();
                    answer.report.leases_lost += 1;
                    let (job, token) = (ended.lease.id(), ended.lease.token());
                    tell(&self.setup.listeners, &Event::LeaseLost { job, token });
                }
                // A result that can't be stored is the handler's failure.
                Some(Each::Refused(message)) if matches!(ended.how, Ending::Complete { .. }) => {
                    let retry_after = Some(self.setup.registry.backoff(ended.lease.task(), ended.lease.attempt()));
                    ended.how = Ending::Fail { message, retry_after };
                    answer.again.push(ended);
                }
                Some(Each::Refused(message) | Each::Damaged(message) | Each::NotFound(message)) => {
                    self.tell_trouble("settle a job", &Error::corrupt(message));
                    ended.lease.abandon();
                }
                None => ended.lease.abandon(),
            }
        }
    }

    fn count_settled(&self, ended: &Ended, settled: Settled, report: &mut Report) {
        let (job, token) = (ended.lease.id(), ended.lease.token());
        match (&ended.how, settled.state) {
            (Ending::Complete { .. }, _) => {
                report.completed += 1;
                tell_of(&self.setup.listeners, || Event::Completed { job, token });
            }
            (Ending::Fail { message, .. }, state) => {
                report.failed += 1;
                tell_of(&self.setup.listeners, || Event::Failed { job, state, message: message.clone() });
            }
            (_, state) => {
                report.given_back += u64::from(state != JobState::Cancelled);
                tell_of(&self.setup.listeners, || Event::GivenBack { job, state });
            }
        }
    }

    /// What will not pass ends the worker, and is told by that.
    pub(super) fn tell_if_it_passes(&self, doing: &'static str, error: &Error) {
        if will_pass(error) {
            self.tell_trouble(doing, error);
        }
    }

    pub(super) fn submit(&self, intents: Vec<Intent>, wait: Duration) -> Result<Ticket> {
        #[cfg(test)]
        if let Some(parking) = &self.setup.parking {
            return parking.submit(&self.store, intents, wait);
        }
        self.store.inner.submit_turn(intents, wait)
    }

    pub(super) fn has_stone(&self) -> bool {
        #[cfg(test)]
        if self.setup.parking.is_some() {
            return true;
        }
        self.store.inner.has_stone()
    }

    pub(super) fn tell_trouble(&self, doing: &'static str, error: &Error) {
        tell(&self.setup.listeners, &Event::Trouble { doing, message: error.full_message() });
    }
}

fn add(report: &mut Report, more: &Report) {
    report.completed += more.completed;
    report.failed += more.failed;
    report.given_back += more.given_back;
    report.leases_lost += more.leases_lost;
}
