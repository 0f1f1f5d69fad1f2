//! The model's jobs that wait for others.

use super::{Job, Model};
use crate::{
    clock::Timestamp,
    queue::{id::JobId, state::State},
};

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
    /// What has not begun in a queue goes, one part after the other; what others wait for is cancelled, and `is_there`
    /// still.
    pub(super) fn purge(&mut self, queue: usize, is_there: impl Fn(JobId) -> bool) {
        let now = self.now;
        let waited_for: Vec<JobId> = self.jobs.iter().filter_map(|job| job.after.map(|(on, _)| on)).collect();
        for (state, has_key) in [(State::Scheduled, None), (State::Ready, Some(false)), (State::Ready, Some(true))] {
            for job in &mut self.jobs {
                let is_of_part = has_key.is_none_or(|has_key| has_key == job.key.is_some());
                if job.queue != queue || job.state != Some(state) || !is_of_part {
                    continue;
                }
                if waited_for.contains(&job.id) && is_there(job.id) {
                    job.end(State::Cancelled, now);
                } else {
                    job.state = None;
                }
                job.holds_back = false;
            }
            self.tell(now);
        }
    }

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
