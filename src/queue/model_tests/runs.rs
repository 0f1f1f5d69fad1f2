//! In the model: what becomes of jobs that are held, by their holder or by whoever finds it dead; and what time brings.

use std::time::Duration;

use super::model::{Job, Model, Told};
use crate::{
    error::ErrorKind,
    queue::{
        reclaim::{Reclaim, Reclaimed},
        settle::{Ending, Settle, Settled},
        state::State,
    },
    store::change::{Intent, Outcome},
};

impl Model {
    /// One settlement, and what goes with it: all or nothing, though the change may go on without it.
    pub(super) fn settle(&mut self, settle: &Settle) -> Result<Settled, ErrorKind> {
        self.whole(|model| {
            let job = model.held(settle.job, settle.token)?;
            let settled = model.end_run(job, settle);
            // They are numbered among themselves.
            let enqueued = std::mem::take(&mut model.enqueued);
            for new in &settle.enqueues {
                model.enqueue(new).map_err(|_| ErrorKind::Invalid)?;
            }
            model.enqueued = enqueued;
            Ok(settled)
        })
    }

    fn end_run(&mut self, mut job: Job, settle: &Settle) -> Settled {
        let (id, now) = (job.id, self.now);
        job.started_at = settle.started_at.or(job.started_at);
        let is_last = job.is_once() && settle.started_at.is_some() && !job.cancelling;
        let charged = matches!(settle.how, Ending::Complete { .. } | Ending::Fail { .. });
        job.attempt += u32::from(charged);
        let later = |delay: Duration| {
            let state = if delay.is_zero() { State::Ready } else { State::Scheduled };
            (state, Some(now.after(delay)))
        };
        let mut attempt = job.attempt;
        let (state, run_at) = match &settle.how {
            Ending::Complete { result } => {
                job.result.clone_from(result);
                self.complete(job);
                (State::Completed, None)
            }
            Ending::Fail { message, retry_after } => {
                job.suspect = false;
                job.fail(now, Some(message.clone()));
                if job.cancelling {
                    self.end_badly(job, State::Cancelled);
                    (State::Cancelled, None)
                } else if let Some(delay) = retry_after.filter(|_| job.attempt < job.attempts_max) {
                    self.put_later(job, delay);
                    later(delay)
                } else {
                    self.end_badly(job, State::Dead);
                    (State::Dead, None)
                }
            }
            Ending::Snooze { .. } | Ending::Release if is_last => {
                job.may_have_begun(now);
                attempt = job.attempt;
                self.end_badly(job, State::Dead);
                (State::Dead, None)
            }
            Ending::Snooze { delay } if !job.cancelling => {
                self.put_later(job, *delay);
                later(*delay)
            }
            Ending::Release if !job.cancelling => {
                self.put_back(job);
                (State::Ready, None)
            }
            Ending::Snooze { .. } | Ending::Release | Ending::Cancel => {
                self.end_badly(job, State::Cancelled);
                (State::Cancelled, None)
            }
        };
        Settled { job: id, state, attempt, run_at }
    }

    /// What a holder says while it works.
    pub(super) fn tell_of_run(&mut self, intent: &Intent) -> Result<Told, ErrorKind> {
        let (Intent::Extend { job, token } | Intent::Progress { job, token, .. } | Intent::Log { job, token, .. }) =
            intent
        else {
            unreachable!("nothing else is told of a run")
        };
        if matches!(intent, Intent::Progress { fraction, .. } if !(0.0..=1.0).contains(fraction)) {
            return Err(ErrorKind::Invalid);
        }
        let mut job = self.held(*job, *token)?;
        match intent {
            Intent::Progress { fraction, message, .. } => job.progress = Some((*fraction, message.clone())),
            Intent::Log { lines, .. } => {
                let line = |text: &String| (self.now, job.attempt + 1, text.clone());
                let lines: Vec<_> = lines.iter().map(line).collect();
                job.log.extend(lines);
            }
            _ => {}
        }
        self.jobs.insert(job.id, job);
        Ok(Told::Is(Outcome::Done))
    }

    /// The jobs of a session that died.
    pub(super) fn reclaim(&mut self, reclaim: &Reclaim) -> Told {
        let is_held = |job: &&Job| job.lease.is_some_and(|(session, _)| session == reclaim.session);
        let held: Vec<Job> = self.jobs.values().filter(is_held).cloned().collect();
        let mut done = Reclaimed::default();
        for mut job in held {
            let (id, now) = (job.id, self.now);
            let token = job.lease.expect("it is held").1;
            if reclaim.busy.contains(&id) {
                done.busy.push(id);
                continue;
            }
            if !reclaim.power_cut && reclaim.ended.contains(&(id, token)) {
                job.attempt += 1;
                self.complete(job);
                done.completed.push(id);
                continue;
            }
            let started = reclaim.started.iter().find(|(of, by, _)| (*of, *by) == (id, token));
            if reclaim.power_cut {
                job.suspect = true;
                if job.is_once() {
                    job.may_have_begun(now);
                }
            } else if let Some((.., at)) = started {
                job.started_at = Some(*at);
                job.attempt += 1;
                job.suspect = true;
                job.fail(now, None);
            }
            if job.cancelling {
                self.end_badly(job, State::Cancelled);
                done.cancelled.push(id);
            } else if job.attempt >= job.attempts_max {
                self.end_badly(job, State::Dead);
                done.dead.push(id);
            } else {
                let list = if job.suspect { &mut done.suspects } else { &mut done.requeued };
                list.push(id);
                self.put_back(job);
            }
        }
        Told::Is(Outcome::Reclaimed(done))
    }

    pub(super) fn promote(&mut self, limit: usize) -> Told {
        let mut due: Vec<_> = self
            .jobs
            .values()
            .filter(|job| job.state == State::Scheduled && job.run_at.is_some_and(|at| at <= self.now))
            .map(|job| (job.run_at, job.id))
            .collect();
        due.sort_unstable();
        due.truncate(limit);
        for (_, id) in &due {
            self.enter(self.jobs[id].clone(), State::Ready);
        }
        Told::Is(Outcome::Promoted { jobs: due.len() })
    }

    pub(super) fn prune(&mut self, limit: usize) -> Told {
        let mut over: Vec<_> = self
            .jobs
            .values()
            .filter(|job| job.state.is_final() && job.expires_at.is_some_and(|at| at <= self.now))
            .map(|job| (job.expires_at, job.id))
            .collect();
        over.sort_unstable();
        over.truncate(limit);
        over.iter().for_each(|(_, id)| self.forget(*id));
        Told::Is(Outcome::Pruned { jobs: over.len() })
    }
}
