//! The queue as a user holds it: a store and a name.

use std::time::Duration;

use crate::{
    clock::{deadline_after, monotonic, sleep},
    error::{Error, Result},
    queue::{
        IntoJob, Lease,
        admin::Admin,
        claim::{CLAIM_JOBS_MAX, Claim},
        enqueue::check_name,
        id::JobId,
        info::{QueueStats, stats},
        lease::ClaimAnswer,
        promote::next_by_time,
        record::{HeadRecord, Home},
        select::{Selection, Tasks, Wanted, select},
    },
    store::{
        Store,
        change::{BATCH_JOBS_MAX, Candidate, Intent, Outcome},
        inner::wake_poll,
        keys,
        view::get_record,
    },
};

/// A queue of a store.
#[derive(Clone, Debug)]
pub struct Queue {
    store: Store,
    name: String,
}

impl Queue {
    pub(crate) fn new(store: Store, name: &str) -> Self {
        Self { store, name: name.to_owned() }
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Enqueues a job. When this returns, it is on the disk.
    ///
    /// # Errors
    /// `Invalid` for a bad name, priority, or payload; `Full` for a queue that has as many jobs as it may;
    /// `Unavailable` when nothing was written; `Unknown` when it may have been.
    pub fn enqueue(&self, job: impl IntoJob) -> Result<JobId> {
        self.store.inner.perform(Intent::Enqueue(job.into_job().for_queue(&self.name)?))?.enqueued()
    }

    /// Enqueues jobs in one change: all, or none, with nobody's in between. Gives their ids in order.
    ///
    /// # Errors
    /// As [`Queue::enqueue`]; `Invalid` for more than 10,000 jobs, or 8 MiB.
    pub fn enqueue_batch<J: IntoJob>(&self, jobs: impl IntoIterator<Item = J>) -> Result<Vec<JobId>> {
        let intents = jobs
            .into_iter()
            .map(|job| Ok(Intent::Enqueue(job.into_job().for_queue(&self.name)?)))
            .collect::<Result<Vec<_>>>()?;
        if intents.len() > BATCH_JOBS_MAX {
            return Err(Error::invalid(format!(
                "the batch has {} jobs; at most {BATCH_JOBS_MAX} are allowed in one change",
                intents.len()
            )));
        }
        if intents.is_empty() {
            return Ok(Vec::new());
        }
        let applied = self.store.inner.commit(Vec::new(), intents, None)?;
        applied.outcomes.iter().map(Outcome::enqueued).collect()
    }

    /// Claims up to `jobs` jobs, whatever their tasks; waits up to `wait` for the first. The leases beat by themselves.
    ///
    /// Scheduled jobs that are due are made ready on the way; jobs of processes that died are taken back by any
    /// [`Worker`](crate::Worker) on the store, in whatever process. A job that may have taken its process down
    /// ([`Lease::is_suspect`]) is claimed alone, and nothing else for as long as this process has it.
    ///
    /// # Errors
    /// `Invalid` for 0 jobs or more than 1,000.
    pub fn claim(&self, jobs: usize, wait: Duration) -> Result<Vec<Lease>> {
        check_name("queue", &self.name)?;
        if jobs == 0 || jobs > CLAIM_JOBS_MAX {
            return Err(Error::invalid(format!("a claim takes from 1 to {CLAIM_JOBS_MAX} jobs, not {jobs}")));
        }
        let (since, deadline) = (monotonic(), deadline_after(wait));
        let inner = &self.store.inner;
        loop {
            while inner.is_alone() {
                let now = monotonic();
                if now >= deadline {
                    return Ok(Vec::new());
                }
                sleep(wake_poll(since, now).min(deadline - now));
            }
            if inner.has_stone() {
                let leases = self.claim_at_stone(jobs, deadline.saturating_duration_since(monotonic()))?;
                if !leases.is_empty() || monotonic() >= deadline {
                    return Ok(leases);
                }
                continue;
            }
            let seen = inner.site.wakes();
            let next = next_by_time(inner.rows()?.as_ref(), inner.site.now())?;
            if next.is_some_and(|at| at <= inner.site.now()) {
                inner.perform(Intent::Promote { limit: CLAIM_JOBS_MAX })?;
            }
            let wanted = Wanted { tasks: Tasks::Any, jobs_max: jobs, idle: inner.is_idle() };
            let leases = self.store.claim_by_rebase(std::slice::from_ref(&self.name), &wanted, || ())?;
            if !leases.leases.is_empty() || monotonic() >= deadline {
                return Ok(leases.leases);
            }
            let until_next = next.map_or(deadline, |at| deadline_after(at.since(inner.site.now())));
            inner.wait_for_commit(seen, since, deadline.min(until_next));
        }
    }

    /// Claims at a stone, which keeps the claim waiting where there is nothing (C4), and sees to scheduled jobs itself.
    fn claim_at_stone(&self, jobs: usize, wait: Duration) -> Result<Vec<Lease>> {
        let inner = &self.store.inner;
        let session = inner.session()?;
        let wanted = Wanted { tasks: Tasks::Any, jobs_max: jobs, idle: inner.is_idle() };
        let claim = Claim::new(session.id, vec![self.name.clone()], wanted);
        // Only a claim that is alone may wait, so what is due is made ready first.
        let at_once = vec![Intent::Promote { limit: CLAIM_JOBS_MAX }, Intent::Claim(claim.clone())];
        let leases = inner.claim(&session, Vec::new(), at_once, Duration::ZERO)?.leases;
        if !leases.is_empty() || wait.is_zero() {
            return Ok(leases);
        }
        let claim = vec![Intent::Claim(claim)];
        Ok(inner.claim(&session, Vec::new(), claim, wait.min(WAIT_AT_STONE))?.leases)
    }

    /// Claims that very job.
    ///
    /// # Errors
    /// `NotFound` for a job that is nowhere; `Invalid` for one that is not ready, that another was quicker to take,
    /// whose queue or concurrency key is at a limit, or that can't run beside what this process has claimed
    /// ([`Lease::is_suspect`]).
    pub fn claim_job(&self, job: JobId) -> Result<Lease> {
        let inner = &self.store.inner;
        let rows = inner.rows()?;
        let Some((home, record)) = crate::queue::moves::find(rows.as_ref(), job)? else {
            return Err(crate::queue::moves::not_found(rows.as_ref(), job)?);
        };
        if home != Home::Ready {
            return Err(Error::invalid(format!("job {job} is {}, not ready", record.state_in(home))));
        }
        drop(rows);
        if inner.is_alone() {
            return Err(Error::invalid(format!(
                "job {job} can't be claimed: this process has a job that may have taken another down, and runs nothing \
                 beside it"
            )));
        }
        let session = inner.session()?;
        let wanted = Wanted { tasks: Tasks::Any, jobs_max: 1, idle: inner.is_idle() };
        let candidates = vec![Candidate { job, key: record.key_in(home) }];
        let claim = Claim { candidates, fill: false, ..Claim::new(session.id, vec![record.queue], wanted) };
        let lease = inner.claim(&session, Vec::new(), vec![Intent::Claim(claim)], Duration::ZERO)?.leases.pop();
        lease.ok_or_else(|| {
            Error::invalid(format!("job {job} was taken by another, or its queue is paused or at a limit"))
        })
    }

    /// The queue in numbers.
    ///
    /// # Errors
    /// What reading the store says.
    pub fn stats(&self) -> Result<QueueStats> {
        stats(self.store.inner.rows()?.as_ref(), &self.name)
    }

    /// Keeps the queue's jobs from being claimed, also over restarts, until it is resumed. What runs is not
    /// interrupted; what a worker has claimed and not begun goes back.
    ///
    /// # Errors
    /// `Invalid` for a bad name.
    pub fn pause(&self) -> Result<()> {
        let admin = Admin::Pause { queue: self.name.clone() };
        self.store.inner.perform(Intent::Administer(admin)).map(|_| ())
    }

    /// Lets the queue's jobs be claimed again.
    ///
    /// # Errors
    /// `Invalid` for a bad name.
    pub fn resume(&self) -> Result<()> {
        let admin = Admin::Resume { queue: self.name.clone() };
        self.store.inner.perform(Intent::Administer(admin)).map(|_| ())
    }
}

/// For how long a claim waits at a stone before it is sent anew.
const WAIT_AT_STONE: Duration = Duration::from_secs(30);

impl Store {
    /// C1: peeks at what there is, calls `pause`, and claims it: candidates that others took meanwhile are replaced in
    /// the same commit. Where there is nothing, nothing is written and no lock is taken.
    pub(crate) fn claim_by_rebase(
        &self,
        queues: &[String],
        wanted: &Wanted,
        pause: impl FnOnce(),
    ) -> Result<ClaimAnswer> {
        let (candidates, suspects_wait) = self.peek(queues, wanted)?;
        if candidates.is_empty() {
            return Ok(ClaimAnswer { leases: Vec::new(), hijacks: Vec::new(), alone: false, suspects_wait });
        }
        pause();
        let session = self.inner.session()?;
        let claim = Claim { candidates, ..Claim::new(session.id, queues.to_vec(), wanted.clone()) };
        let answer = self.inner.claim(&session, Vec::new(), vec![Intent::Claim(claim)], Duration::ZERO)?;
        // A claim whose candidates are all still there looks no further, and so at no suspect job.
        Ok(ClaimAnswer { suspects_wait: answer.suspects_wait || (suspects_wait && !answer.alone), ..answer })
    }

    /// What a claim would get now, and whether a suspect job waits for somebody who is idle.
    pub(crate) fn peek(&self, queues: &[String], wanted: &Wanted) -> Result<(Vec<Candidate>, bool)> {
        let mut seen = Selection::default();
        let rows = self.inner.rows()?;
        for queue in queues {
            let head: HeadRecord = get_record(rows.as_ref(), &keys::head(queue))?.unwrap_or_default();
            if !head.paused {
                select(rows.as_ref(), queue, wanted, self.inner.site.now(), &mut seen)?;
            }
        }
        let candidates = seen.jobs.iter().map(|job| Candidate { job: job.id, key: job.key_in(Home::Ready) }).collect();
        Ok((candidates, seen.suspects_wait))
    }
}
