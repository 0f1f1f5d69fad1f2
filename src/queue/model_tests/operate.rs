//! Administration in the model.

use std::time::Duration;

use super::model::{Job, Model, Told};
use crate::{
    error::ErrorKind,
    queue::{
        admin::{Admin, Tend},
        enqueue::When,
        id::{JobId, Token},
        settle::Settled,
        state::State,
        sweep::Sweep,
    },
    store::change::Outcome,
};

impl Model {
    pub(super) fn administer(&mut self, admin: &Admin) -> Result<Told, ErrorKind> {
        let settled = |settled: Settled| Told::Is(Outcome::Settled(settled));
        let done = Told::Is(Outcome::Done);
        match admin {
            Admin::Cancel { job } => self.tend(Tend::Cancel, *job).map(settled),
            Admin::Retry { job } => self.tend(Tend::Retry, *job).map(settled),
            Admin::Requeue { job } => self.tend(Tend::Requeue, *job).map(settled),
            Admin::Each { verb, jobs } => Ok(Told::Each(jobs.iter().map(|job| self.tend(*verb, *job)).collect())),
            Admin::Release { job, token } => self.release(*job, *token).map(settled),
            Admin::Seal { job } => self.seal(*job).map(Told::Is),
            Admin::Reschedule { job, priority, when } => self.reschedule(*job, *priority, *when).map(settled),
            Admin::Pause { queue } | Admin::Resume { queue } => {
                let (version, paused) = (self.version + 1, matches!(admin, Admin::Pause { .. }));
                let queue = self.queue(queue);
                if queue.paused != paused {
                    (queue.paused, queue.head) = (paused, Some(version));
                }
                Ok(done)
            }
            Admin::PauseTask { task } | Admin::ResumeTask { task } => {
                let is_other = if matches!(admin, Admin::PauseTask { .. }) {
                    self.paused_tasks.insert(task.clone())
                } else {
                    self.paused_tasks.remove(task)
                };
                if is_other {
                    self.queues.values_mut().for_each(|queue| queue.head = None);
                }
                Ok(done)
            }
            Admin::Purge(sweep) if sweep.state == State::Running => Err(ErrorKind::Invalid),
            Admin::Purge(sweep) => {
                let jobs = self.swept(sweep);
                let count = jobs.len() as u64;
                for job in jobs {
                    if job.is_waited_for && !job.state.is_final() {
                        self.end_badly(job, State::Cancelled);
                    } else {
                        self.forget(job.id);
                    }
                }
                Ok(Told::Swept { jobs: count, refused: 0 })
            }
            Admin::RetryAll(sweep) => {
                let jobs = self.swept(sweep);
                let all = jobs.len() as u64;
                let retried = jobs.into_iter().filter(|job| self.tend(Tend::Retry, job.id).is_ok()).count() as u64;
                Ok(Told::Swept { jobs: retried, refused: all - retried })
            }
            Admin::Prune { limit } => Ok(self.prune(*limit)),
            Admin::SweepLanes => Ok(done),
            Admin::Configure { setting, value } => {
                self.settings.insert(setting.clone(), *value);
                Ok(done)
            }
            Admin::ConfigureQueue { queue, settings } => {
                let (now, version) = (self.now, self.version + 1);
                let queue = self.queue(queue);
                let before = queue.limits.config();
                // Of several settings of one thing the last counts.
                for (index, setting) in settings.iter().enumerate() {
                    let is_same = |other| std::mem::discriminant(other) == std::mem::discriminant(setting);
                    if !settings[index + 1..].iter().any(is_same) {
                        queue.limits.set(*setting, now);
                    }
                }
                if queue.limits.lets_nothing_run() {
                    return Err(ErrorKind::Invalid);
                }
                if queue.limits.config() != before {
                    queue.head = Some(version);
                }
                Ok(done)
            }
        }
    }

    fn tend(&mut self, verb: Tend, id: JobId) -> Result<Settled, ErrorKind> {
        match verb {
            Tend::Cancel => self.cancel(id),
            Tend::Retry => self.retry(id),
            Tend::Requeue => self.requeue(id),
        }
    }

    fn cancel(&mut self, id: JobId) -> Result<Settled, ErrorKind> {
        let mut job = self.find(id)?;
        match job.state {
            State::Running => {
                job.cancelling = true;
                self.jobs.insert(id, job);
            }
            State::Waiting | State::Scheduled | State::Ready => self.end_badly(job, State::Cancelled),
            State::Cancelled => {}
            State::Completed | State::Dead => return Err(ErrorKind::Invalid),
        }
        Ok(self.jobs[&id].settled())
    }

    fn retry(&mut self, id: JobId) -> Result<Settled, ErrorKind> {
        let mut job = self.find(id)?;
        match job.state {
            State::Ready => return Ok(job.settled()),
            State::Scheduled => {}
            State::Dead | State::Cancelled => {
                let unique = job.unique().filter(|unique| unique.states.contains(State::Ready));
                let holder = unique.and_then(|unique| self.holder(&job.new.queue, unique));
                if holder.is_some_and(|holder| holder != id) || (job.is_once() && job.had_begun()) {
                    return Err(ErrorKind::Invalid);
                }
                job.attempt = 0;
                (job.finished_at, job.expires_at, job.result) = (None, None, None);
            }
            State::Waiting | State::Running | State::Completed => return Err(ErrorKind::Invalid),
        }
        job.run_at = None;
        self.put_back(job);
        Ok(self.jobs[&id].settled())
    }

    fn requeue(&mut self, id: JobId) -> Result<Settled, ErrorKind> {
        let mut job = self.find(id)?;
        if !matches!(job.state, State::Ready | State::Scheduled) {
            return Err(ErrorKind::Invalid);
        }
        job.run_at = None;
        job.place = self.next_place();
        self.enter(job, State::Ready);
        Ok(self.jobs[&id].settled())
    }

    fn release(&mut self, id: JobId, token: Token) -> Result<Settled, ErrorKind> {
        let mut job = self.held(id, token)?;
        if job.cancelling {
            self.end_badly(job, State::Cancelled);
        } else if job.is_once() {
            job.may_have_begun(self.now);
            self.end_badly(job, State::Dead);
        } else {
            self.put_back(job);
        }
        Ok(self.jobs[&id].settled())
    }

    fn reschedule(&mut self, id: JobId, priority: Option<i64>, when: Option<When>) -> Result<Settled, ErrorKind> {
        if (priority.is_none() && when.is_none()) || priority.is_some_and(|priority| priority.abs() > 100) {
            return Err(ErrorKind::Invalid);
        }
        let mut job = self.find(id)?;
        if !matches!(job.state, State::Waiting | State::Scheduled | State::Ready) {
            return Err(ErrorKind::Invalid);
        }
        let before = job.clone();
        job.priority = priority.unwrap_or(job.priority);
        let is_waiting = job.state == State::Waiting;
        let mut state = job.state;
        if let Some(when) = when {
            let delay = if let When::After(delay) = when { Some(delay) } else { None };
            job.run_at = match when {
                When::At(at) => Some(at),
                When::After(delay) if !is_waiting && delay > Duration::ZERO => Some(self.now.after(delay)),
                _ => None,
            };
            if let Some(waits) = job.waits.as_mut().filter(|_| is_waiting) {
                waits.delay = delay;
            } else {
                let is_later = job.run_at.is_some_and(|at| at > self.now);
                state = if is_later { State::Scheduled } else { State::Ready };
            }
        }
        if (before.state, state) == (State::Ready, State::Scheduled) && job.had_begun() {
            job.holds_back = self.queue(&job.new.queue).limits.is_strict;
        }
        if state != before.state || job != before {
            self.enter(job, state);
        }
        Ok(self.jobs[&id].settled())
    }

    /// What a sweep goes over, in order. Of the ready jobs those without a concurrency key come first, then the others.
    fn swept(&self, sweep: &Sweep) -> Vec<Job> {
        let is_swept = |job: &&Job| {
            job.state == sweep.state
                && sweep.queue.as_ref().is_none_or(|queue| *queue == job.new.queue)
                && sweep.task.as_ref().is_none_or(|task| *task == job.new.task)
                && (sweep.state != State::Ready || sweep.after.is_some() == job.key().is_some())
        };
        self.jobs.values().filter(is_swept).cloned().collect()
    }
}
