//! The model's jobs that wait for others.

use super::{Job, Model};
use crate::{clock::Timestamp, queue::state::State};

impl Job {
    /// What a waiting job does when the one that it waits for has ended so.
    pub(super) fn go_on(&mut self, ended: Option<State>, now: Timestamp) {
        let runs = self.after.is_some_and(|(_, runs)| runs);
        if matches!(ended, Some(State::Dead | State::Cancelled)) && !runs {
            self.end(State::Cancelled, now);
        } else {
            self.later(self.delay, false, now);
        }
    }
}

impl Model {
    /// What becomes of those that wait for jobs which have ended, and of those that wait for these.
    pub(super) fn tell(&mut self, now: Timestamp) {
        while let Some(ended) = self.jobs.iter().position(|job| job.is_over() && !job.is_told) {
            let (id, state) = (self.jobs[ended].id, self.jobs[ended].state);
            self.jobs[ended].is_told = true;
            let waits = |job: &&mut Job| job.state == Some(State::Waiting) && job.after.is_some_and(|(on, _)| on == id);
            self.jobs.iter_mut().filter(waits).for_each(|job| job.go_on(state, now));
        }
    }
}
