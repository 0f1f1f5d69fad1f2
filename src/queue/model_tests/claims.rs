//! Claims in the model: which jobs are next, and what of them a claim gets.

use super::model::{Job, Model, Told};
use crate::{
    error::ErrorKind,
    queue::{
        claim::Claim,
        id::{JobId, SessionId, Token},
        select::{Tasks, Wanted},
        state::State,
    },
};

/// What a claim has so far.
#[derive(Default)]
struct Taken {
    jobs: Vec<JobId>,
    /// P4: the last is suspect, so that nothing runs beside it.
    alone: bool,
    /// P4: a suspect job is next, and waits for what was taken to end.
    is_over: bool,
}

impl Model {
    pub(super) fn claim(&mut self, claim: &Claim) -> Result<Told, ErrorKind> {
        let most = claim.wanted.jobs_max;
        if most == 0 || most > 1_000 {
            return Err(ErrorKind::Invalid);
        }
        let mut taken = Taken::default();
        let mut hijacks = Vec::new();
        for queue in &claim.queues {
            if self.queue(queue).paused {
                continue;
            }
            let taken_before = taken.jobs.len();
            let hijacks_before = hijacks.len();
            let mut room = self.room(queue);
            for candidate in &claim.candidates {
                let seen = self.seen[&candidate.key].clone();
                if seen.queue != *queue || taken.alone || taken.jobs.len() >= most {
                    continue;
                }
                let found = self.jobs.get(&seen.job).filter(|job| job.state == State::Ready && job.signature() == seen);
                let Some(job) = found.cloned() else {
                    hijacks.push(seen.job);
                    continue;
                };
                let may_run = !self.paused_tasks.contains(&job.new.task) && room > 0 && self.key_lets_run(&job, &[]);
                let is_free = !job.suspect || (claim.wanted.idle && taken.jobs.is_empty());
                if may_run && is_free {
                    taken.alone = job.suspect;
                    taken.jobs.push(job.id);
                    room -= 1;
                    self.hold(job.id, claim.session);
                }
            }
            if claim.fill {
                let most = most.min(taken.jobs.len().saturating_add(room));
                for job in self.fill(queue, &claim.wanted, most, &mut taken) {
                    self.hold(job, claim.session);
                }
            }
            let count = taken.jobs.len() - taken_before;
            let lost = (hijacks.len() - hijacks_before) as u64;
            let version = self.version + 1;
            let queue = self.queue(queue);
            queue.limits.take(count);
            queue.hijacks += lost;
            if count > 0 || lost > 0 {
                queue.head = Some(version);
            }
        }
        if let Some(queue) = claim.queues.first() {
            self.queue(queue).hijacks += claim.conflicts;
        }
        Ok(Told::Claimed { jobs: taken.jobs, hijacks, alone: taken.alone })
    }

    /// What a claim of one queue would get now.
    pub(super) fn peek(&self, queue: &str, wanted: &Wanted) -> Vec<JobId> {
        if self.queues[queue].paused {
            return Vec::new();
        }
        self.fill(queue, wanted, wanted.jobs_max.min(self.room(queue)), &mut Taken::default())
    }

    /// Adds the next jobs of a queue, in order; gives those.
    fn fill(&self, queue: &str, wanted: &Wanted, most: usize, taken: &mut Taken) -> Vec<JobId> {
        let is_wanted = |task: &String| match &wanted.tasks {
            Tasks::Any => true,
            Tasks::Named(names) => names.contains(task),
        };
        let is_open = |job: &&Job| {
            let task = &job.new.task;
            job.new.queue == queue
                && job.state == State::Ready
                && is_wanted(task)
                && !self.paused_tasks.contains(task)
                && (!job.suspect || wanted.idle)
        };
        let mut ready: Vec<&Job> = self.jobs.values().filter(is_open).collect();
        ready.sort_by_key(|job| (-job.priority, job.place));
        let mut picked: Vec<JobId> = Vec::new();
        for job in ready {
            if taken.is_over || taken.alone || taken.jobs.len() >= most {
                break;
            }
            if !self.key_lets_run(job, &picked) {
                continue;
            }
            if job.suspect && !taken.jobs.is_empty() {
                taken.is_over = true;
                break;
            }
            taken.alone = job.suspect;
            taken.jobs.push(job.id);
            picked.push(job.id);
        }
        picked
    }

    /// How many more jobs of a queue may be claimed.
    fn room(&self, queue: &str) -> usize {
        let limits = &self.queues[queue].limits;
        let running = self.count(queue, State::Running);
        let room = limits.running_max.map_or(u64::MAX, |most| u64::from(most).saturating_sub(running));
        usize::try_from(room).unwrap().min(limits.tokens())
    }

    /// Whether a job's concurrency key lets it run beside what runs and what was picked.
    fn key_lets_run(&self, job: &Job, picked: &[JobId]) -> bool {
        if job.key().is_none() {
            return true;
        }
        let limits = &self.queues[&job.new.queue].limits;
        let of_key = |other: &&Job| other.new.queue == job.new.queue && other.key() == job.key();
        let picked = picked.iter().filter(|id| of_key(&&self.jobs[*id])).count();
        let running = self.jobs.values().filter(of_key).filter(|other| other.state == State::Running).count();
        if running + picked >= limits.key_running_max.unwrap_or(1) as usize {
            return false;
        }
        let goes_before = |other: &Job| other.state == State::Ready || other.holds_back;
        let is_first = !self.jobs.values().filter(of_key).any(|other| goes_before(other) && other.place < job.place);
        !limits.is_strict || (picked == 0 && is_first)
    }

    fn hold(&mut self, id: JobId, session: SessionId) {
        let mut job = self.jobs[&id].clone();
        job.lease = Some((session, Token(self.version + 1)));
        self.enter(job, State::Running);
    }
}
