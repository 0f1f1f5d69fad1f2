//! Enqueue in the model, and jobs that wait for others.

use std::collections::BTreeSet;

use super::model::{Job, Model, Waits};
use crate::{
    error::ErrorKind,
    queue::{
        enqueue::{Dependency, NewExtra, NewJob, When},
        id::JobId,
        state::State,
    },
    store::change::Outcome,
};

impl Model {
    pub(super) fn enqueue(&mut self, new: &NewJob) -> Result<Outcome, ErrorKind> {
        if !(-100..=100).contains(&new.priority) || new.attempts_max == 0 || new.task.is_empty() {
            return Err(ErrorKind::Invalid);
        }
        let none = NewExtra::default();
        let extra = new.extra.as_deref().unwrap_or(&none);
        if let Some(unique) = &extra.unique
            && let Some(existing) = self.holder(&new.queue, unique)
        {
            self.join_existing(existing, &extra.before)?;
            self.enqueued.push(existing);
            return Ok(Outcome::Enqueued { job: existing, existing: true });
        }
        let before_they_run = [State::Waiting, State::Scheduled, State::Ready];
        let waiting: u64 = before_they_run.into_iter().map(|state| self.count(&new.queue, state)).sum();
        if self.queue(&new.queue).limits.size_max.is_some_and(|most| waiting >= most) {
            return Err(ErrorKind::Full);
        }
        let id = self.next_place();
        let run_at = match new.when {
            When::Now => None,
            When::After(delay) => Some(self.now.after(delay)),
            When::At(at) => Some(at),
        };
        let job = Job {
            id,
            new: new.clone(),
            state: State::Ready,
            place: id,
            priority: new.priority,
            attempt: 0,
            attempts_max: if extra.at_most_once { 1 } else { new.attempts_max },
            suspect: false,
            cancelling: false,
            enqueued_at: self.now,
            run_at,
            started_at: None,
            finished_at: None,
            expires_at: None,
            lease: None,
            progress: None,
            result: None,
            failures: Vec::new(),
            log: Vec::new(),
            waits: None,
            is_waited_for: false,
            unique_until: extra.unique.as_ref().and_then(|unique| unique.within).map(|within| self.now.after(within)),
            holds_back: false,
        };
        self.put_new(job, extra)?;
        self.known.push(id);
        self.enqueued.push(id);
        Ok(Outcome::Enqueued { job: id, existing: false })
    }

    fn put_new(&mut self, mut job: Job, extra: &NewExtra) -> Result<(), ErrorKind> {
        let (id, mut failed) = (job.id, false);
        if extra.is_open || !extra.after.is_empty() {
            let delay = if let When::After(delay) = job.new.when { Some(delay) } else { None };
            let (is_open, on_failure) = (extra.is_open, extra.on_failure);
            let mut waits = Waits { pending: 0, completed: 0, dead: 0, cancelled: 0, is_open, on_failure, delay };
            for on in self.resolve(&extra.after)? {
                let end = match self.jobs.get_mut(&on) {
                    None if on.version > self.version => return Err(ErrorKind::NotFound),
                    None => State::Completed,
                    Some(other) if other.state.is_final() => other.state,
                    Some(other) => {
                        other.is_waited_for = true;
                        self.links.insert((on, id));
                        waits.pending += 1;
                        continue;
                    }
                };
                waits.count(end);
                failed |= waits.ends_with(end);
            }
            job.waits = Some(waits);
        }
        let is_waiting = !failed && job.waits.as_ref().is_some_and(|waits| !waits.is_over());
        job.is_waited_for = !failed && !extra.before.is_empty();
        if failed {
            job.fail(self.now, None);
            self.end_badly(job, State::Cancelled);
        } else if is_waiting {
            self.enter(job, State::Waiting);
        } else {
            self.begin(job);
        }
        for waiter in self.resolve(&extra.before)? {
            self.join(waiter, id, is_waiting, failed.then_some(State::Cancelled))?;
        }
        Ok(())
    }

    /// Ready, or scheduled until its time has come.
    pub(super) fn begin(&mut self, job: Job) {
        let is_later = job.run_at.is_some_and(|at| at > self.now);
        self.enter(job, if is_later { State::Scheduled } else { State::Ready });
    }

    /// Each once, the oldest first.
    fn resolve(&self, dependencies: &[Dependency]) -> Result<BTreeSet<JobId>, ErrorKind> {
        let resolve = |dependency: &Dependency| match dependency {
            Dependency::Job(job) => Ok(*job),
            Dependency::Enqueued(index) => self.enqueued.get(*index as usize).copied().ok_or(ErrorKind::Invalid),
        };
        dependencies.iter().map(resolve).collect()
    }

    fn join_existing(&mut self, existing: JobId, before: &[Dependency]) -> Result<(), ErrorKind> {
        if before.is_empty() {
            return Ok(());
        }
        let job = self.jobs.get_mut(&existing).ok_or(ErrorKind::NotFound)?;
        let (state, end) = (job.state, job.state.is_final().then_some(job.state));
        job.is_waited_for |= end.is_none();
        let waiters = self.resolve(before)?;
        waiters.into_iter().try_for_each(|waiter| self.join(waiter, existing, state == State::Waiting, end))
    }

    /// An older job, which waits, waits for another too.
    fn join(&mut self, waiter: JobId, job: JobId, is_waiting: bool, end: Option<State>) -> Result<(), ErrorKind> {
        let found = self.jobs.get_mut(&waiter).ok_or(ErrorKind::NotFound)?;
        if found.state != State::Waiting {
            return Err(ErrorKind::Invalid);
        }
        if self.links.contains(&(job, waiter)) {
            return Ok(());
        }
        if is_waiting && found.is_waited_for {
            return Err(ErrorKind::Invalid); // It might be a circle.
        }
        if let Some(end) = end {
            self.go_on(waiter, end);
        } else {
            self.links.insert((job, waiter));
            found.waits.as_mut().expect("it waits").pending += 1;
        }
        Ok(())
    }

    /// Tells those that wait for jobs which have ended, and those that wait for these.
    pub(super) fn tell(&mut self) {
        while let Some((ended, end)) = self.ends.pop_front() {
            let told: Vec<(JobId, JobId)> = self.links.iter().filter(|(on, _)| *on == ended).copied().collect();
            for link in told {
                self.links.remove(&link);
                let Some(job) = self.jobs.get_mut(&link.1) else { continue };
                if job.state == State::Waiting {
                    job.waits.as_mut().expect("it waits").pending -= 1;
                    self.go_on(link.1, end);
                }
            }
        }
    }

    fn go_on(&mut self, waiter: JobId, end: State) {
        let mut job = self.jobs[&waiter].clone();
        let waits = job.waits.as_mut().expect("it waits");
        waits.count(end);
        if waits.ends_with(end) {
            job.fail(self.now, None);
            self.end_badly(job, State::Cancelled);
        } else if waits.is_over() {
            self.let_go(job);
        } else {
            self.jobs.insert(waiter, job);
        }
    }

    /// It waits for nobody any more; its delay counts from now.
    fn let_go(&mut self, mut job: Job) {
        if let Some(delay) = job.waits.as_ref().and_then(|waits| waits.delay) {
            job.run_at = Some(self.now.after(delay));
        }
        self.begin(job);
    }

    pub(super) fn seal(&mut self, id: JobId) -> Result<Outcome, ErrorKind> {
        let mut job = self.find(id)?;
        let mut settled = job.settled();
        let state = job.state;
        let waits = job.waits.as_mut().ok_or(ErrorKind::Invalid)?;
        if waits.is_open {
            if state != State::Waiting {
                return Err(ErrorKind::Invalid);
            }
            waits.is_open = false;
            if waits.is_over() {
                self.let_go(job);
                settled.state = self.jobs[&id].state;
            } else {
                self.jobs.insert(id, job);
            }
        }
        Ok(Outcome::Settled(settled))
    }
}
