//! Attempts that may not take as long as they like: which is over when, and what becomes of it.
//!
//! The keeper ends them; the handler's thread stays the handler's until that returns. Handlers in processes of their
//! own are not among them: whoever runs such a process kills it in time.

use std::time::{Duration, Instant};

use crate::{
    clock::{deadline_after, monotonic},
    queue::{Lease, settle::Ending},
    worker::{
        Setup,
        crew::{Crew, State},
        handler::Ended,
    },
};

/// When the attempt that a handler is at is over.
pub(super) struct Deadline {
    number: usize,
    at: Instant,
    timeout: Duration,
}

/// How long an attempt of a job may take: as the job says, else as its task does.
pub(super) fn timeout_of(setup: &Setup, lease: &Lease) -> Option<Duration> {
    lease.timeout().or_else(|| setup.registry.timeout(lease.task()))
}

/// What the failure of an attempt says that took too long.
pub(crate) fn timed_out(timeout: Duration) -> String {
    match timeout.subsec_nanos() {
        0 => format!("timed out after {} s", timeout.as_secs()),
        _ => format!("timed out after {} ms", timeout.as_millis()),
    }
}

impl Crew {
    /// Has the keeper end the attempt that begins, if it may not take as long as it likes.
    pub(super) fn begin_timeout(&self, state: &mut State, number: usize, lease: &Lease) {
        let Some(timeout) = timeout_of(&self.setup, lease) else { return };
        if self.setup.registry.isolation(lease.task()).is_process() {
            return;
        }
        let at = deadline_after(timeout);
        state.deadlines.push(Deadline { number, at, timeout });
        self.wake_keeper_by(state, at);
    }

    /// Ends the attempts whose time is over; when the next one's is.
    pub(super) fn time_out(&self, state: &mut State) -> Option<Instant> {
        if state.deadlines.is_empty() {
            return None;
        }
        let now = monotonic();
        let (over, left) = std::mem::take(&mut state.deadlines).into_iter().partition(|deadline| deadline.at <= now);
        state.deadlines = left;
        let over: Vec<Deadline> = over;
        for deadline in over {
            let Some(lease) = state.running[deadline.number].clone() else { continue };
            if lease.time_out() {
                state.overdue += 1;
                let retry_after = Some(self.setup.registry.backoff(lease.task(), lease.attempt()));
                let message = timed_out(deadline.timeout);
                state.end(Ended { lease, how: Ending::Fail { message, retry_after } });
            }
        }
        state.deadlines.iter().map(|deadline| deadline.at).min()
    }
}

impl State {
    /// The handler has returned, in time or not.
    pub(super) fn end_timeout(&mut self, number: usize, lease: &Lease) {
        self.deadlines.retain(|deadline| deadline.number != number);
        if self.overdue > 0 && lease.is_timed_out() {
            self.overdue -= 1;
        }
    }
}
