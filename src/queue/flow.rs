//! A flow: jobs that wait for each other, enqueued in one change.

use crate::{
    error::{Error, Result},
    queue::{
        IntoJob, JobRequest, OnFailure, Queue,
        enqueue::{Dependency, NewJob},
        id::JobId,
    },
    store::{
        Store,
        change::{BATCH_JOBS_MAX, Intent, Outcome},
    },
};

/// Jobs that wait for each other, to be enqueued in one change: all, or none.
///
/// ```
/// use casque::{JobRequest, flow::{Flow, OnFailure}};
/// # let store = casque::Store::in_memory()?;
/// let mut flow = Flow::new();
/// let fetch = flow.add("media", JobRequest::new("fetch", &"cat.mp4"));
/// let sizes = [320u32, 640].map(|width| flow.add_after([fetch], "media", JobRequest::new("resize", &width)));
/// let publish = flow.add_after(sizes, "media", JobRequest::new("publish", &"cat.mp4").on_failure(OnFailure::Run));
/// let ids = store.enqueue_flow(flow)?;
/// assert_eq!(store.job(ids[publish.index()])?.awaited.map(|awaited| awaited.pending), Some(2));
/// # Ok::<(), casque::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a flow does nothing until it is enqueued"]
pub struct Flow {
    jobs: Vec<Result<NewJob>>,
}

/// A job of a [`Flow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step(u32);

impl Step {
    /// Where its id is among those that enqueueing the flow gives.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Flow {
    /// A flow without jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job that waits for none of the flow.
    pub fn add(&mut self, queue: &str, job: impl IntoJob) -> Step {
        self.add_after([], queue, job)
    }

    /// Adds a job that waits until these have ended. Where one of them dies or is cancelled it is cancelled too, unless
    /// its [`JobRequest::on_failure`] says otherwise.
    pub fn add_after(&mut self, steps: impl IntoIterator<Item = Step>, queue: &str, job: impl IntoJob) -> Step {
        let mut request = job.into_job();
        for step in steps {
            request = request.after_dependency(Dependency::Enqueued(step.0));
        }
        let index = u32::try_from(self.jobs.len()).unwrap_or(u32::MAX);
        self.jobs.push(request.for_queue(queue));
        Step(index)
    }

    /// Adds jobs of which each waits for the one before it.
    pub fn chain<J: IntoJob>(&mut self, queue: &str, jobs: impl IntoIterator<Item = J>) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for job in jobs {
            let before = steps.last().copied();
            steps.push(self.add_after(before, queue, job));
        }
        steps
    }

    /// Adds jobs, and one that runs once when all of these have ended, however they did:
    /// [`Lease::awaited`](crate::Lease::awaited) tells it. Gives the step of the latter.
    pub fn batch<J: IntoJob>(
        &mut self,
        queue: &str,
        jobs: impl IntoIterator<Item = J>,
        completion: impl IntoJob,
    ) -> Step {
        let steps: Vec<Step> = jobs.into_iter().map(|job| self.add(queue, job)).collect();
        self.add_after(steps, queue, completion.into_job().on_failure(OnFailure::Run))
    }

    /// Its jobs, as they stand behind so many others in their change.
    pub(crate) fn into_jobs(self, offset: usize) -> Result<Vec<NewJob>> {
        if self.jobs.len() + offset > BATCH_JOBS_MAX {
            return Err(Error::invalid(format!(
                "the flow has {} jobs; at most {BATCH_JOBS_MAX} are allowed in one change; use an open batch",
                self.jobs.len()
            )));
        }
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        let shifted = |job: Result<NewJob>| {
            let mut job = job?;
            for dependency in job.extra.iter_mut().flat_map(|extra| &mut extra.after) {
                if let Dependency::Enqueued(index) = dependency {
                    *index += offset;
                }
            }
            Ok(job)
        };
        self.jobs.into_iter().map(shifted).collect()
    }
}

impl Store {
    /// Enqueues a flow in one change; gives the ids of its jobs, in the order in which they were added.
    ///
    /// # Errors
    /// As [`Queue::enqueue`]; `Invalid` for more than 10,000 jobs, or 8 MiB; `NotFound` for a job to wait for that
    /// never was.
    pub fn enqueue_flow(&self, flow: Flow) -> Result<Vec<JobId>> {
        let intents: Vec<Intent> = flow.into_jobs(0)?.into_iter().map(Intent::Enqueue).collect();
        if intents.is_empty() {
            return Ok(Vec::new());
        }
        let applied = self.inner.commit(Vec::new(), intents, None)?;
        applied.outcomes.iter().map(Outcome::enqueued).collect()
    }
}

impl Queue {
    /// Enqueues jobs of which each waits for the one before it, in one change; gives their ids in order. Where one dies
    /// or is cancelled, those behind it are cancelled too, unless their [`JobRequest::on_failure`] says otherwise.
    ///
    /// ```
    /// # use casque::{JobRequest, State};
    /// # let store = casque::Store::in_memory()?;
    /// let ids = store.queue("media").enqueue_chain(["fetch", "resize"].map(|task| JobRequest::new(task, &())))?;
    /// assert_eq!(store.job(ids[1])?.state, State::Waiting);
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::enqueue_flow`].
    pub fn enqueue_chain<J: IntoJob>(&self, jobs: impl IntoIterator<Item = J>) -> Result<Vec<JobId>> {
        let mut flow = Flow::new();
        flow.chain(self.name(), jobs);
        self.store().enqueue_flow(flow)
    }
}

impl JobRequest {
    /// Has the job wait until another has ended; may be said more than once. A job that is gone counts as completed.
    /// A [`JobRequest::delay`] counts from when all have ended.
    ///
    /// ```
    /// # use casque::JobRequest;
    /// # let store = casque::Store::in_memory()?;
    /// let queue = store.queue("media");
    /// let fetch = queue.enqueue(JobRequest::new("fetch", &"cat.mp4"))?;
    /// queue.enqueue(JobRequest::new("resize", &640u32).after(fetch))?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn after(self, job: JobId) -> Self {
        self.after_dependency(Dependency::Job(job))
    }

    /// Has a waiting job wait for this one too: the job that a batch ends with, from inside of one of its jobs.
    pub fn before(mut self, waiting: JobId) -> Self {
        self.extra_mut().before.push(Dependency::Job(waiting));
        self
    }

    /// What becomes of the job when one that it waits for dies or is cancelled: by default it is cancelled too.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.extra_mut().on_failure = on_failure;
        self
    }

    fn after_dependency(mut self, dependency: Dependency) -> Self {
        self.extra_mut().after.push(dependency);
        self
    }
}
