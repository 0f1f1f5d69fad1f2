//! Following a job from outside: where it is, how far it is, and each change of that.

use std::time::Duration;

use serde::Serialize;

use crate::{
    clock::{deadline_after, monotonic},
    engine::Rows,
    error::{Error, ErrorKind, Result},
    queue::{
        id::JobId,
        log::{self, LogLine},
        moves::find,
        record::{Home, JobRecord},
        state::State,
    },
    store::{Store, snapshot::version_of},
};

/// Where a job is and how far: what a page that shows it asks for again and again.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobStatus {
    /// Where it is in its life; nothing for a job that has ended and was not kept.
    pub state: Option<State>,
    /// How many runs were charged.
    pub attempt: u32,
    /// How far it is, from 0 to 1, as its handler has said.
    pub fraction: Option<f32>,
    /// What its handler has said last.
    pub message: Option<String>,
    /// How many lines its log ever had: [`Store::log`] reads them.
    pub log_lines: u32,
    /// Its last failure.
    pub error: Option<String>,
}

impl JobStatus {
    /// Whether nothing more happens to the job by itself.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.state.is_none_or(State::is_final)
    }

    fn of(rows: &dyn Rows, id: JobId) -> Result<Self> {
        if let Some((home, job)) = find(rows, id)? {
            return Ok(Self::in_home(home, job));
        }
        if id.version > version_of(rows)?.0 {
            return Err(Error::not_found(format!("there is no job {id} yet")));
        }
        Ok(Self::of_nothing())
    }

    fn in_home(home: Home, mut job: JobRecord) -> Self {
        let (state, log_lines) = (job.state_in(home), job.log_lines());
        let (fraction, message) = job.progress.map(|progress| (progress.fraction, progress.message)).unzip();
        let error = job.errors.pop().map(|error| error.message);
        Self { state: Some(state), attempt: job.attempt, fraction, message, log_lines, error }
    }

    fn of_nothing() -> Self {
        Self { state: None, attempt: 0, fraction: None, message: None, log_lines: 0, error: None }
    }
}

impl Store {
    /// Where a job is and how far. Made to be asked often: what was committed in the last moment (20 ms) may not show,
    /// and a job that has ended and was not kept is one without a state.
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// let id = store.queue("media").enqueue(casque::JobRequest::new("encode", &"cat.mp4"))?;
    /// let status = store.status(id)?;
    /// assert_eq!(status.state, Some(casque::State::Ready));
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` for a job that was not enqueued yet.
    pub fn status(&self, id: JobId) -> Result<JobStatus> {
        let seen = JobStatus::of(self.inner.peek()?.as_ref(), id);
        match seen {
            // It may have been enqueued a moment ago.
            Err(error) if error.kind() == ErrorKind::NotFound => JobStatus::of(self.inner.rows()?.as_ref(), id),
            seen => seen,
        }
    }

    /// Follows a job: its status now, and then each change of it as it happens, until the job has ended. Changes that
    /// follow on each other within moments come as one.
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// # let mut tasks = casque::Registry::new();
    /// # tasks.register("encode", |_, _: String| Ok(()))?;
    /// let id = store.queue("media").enqueue(casque::JobRequest::new("encode", &"cat.mp4"))?;
    /// # casque::Worker::new(&store).queue("media").tasks(tasks).drain(true).run()?;
    /// for status in store.watch(id) {
    ///     let status = status?;
    ///     println!("{:?} {}", status.state, status.message.unwrap_or_default());
    /// }
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn watch(&self, id: JobId) -> Watch {
        Watch { store: self.clone(), id, last: None, seen: None }
    }

    /// The log that a job's handler wrote, oldest line first, from the line of that number on. Empty where it wrote
    /// nothing, and where the job is gone. At most 1,000 lines are kept, the latest.
    ///
    /// # Errors
    /// What reading the store says.
    pub fn log(&self, id: JobId, from: u32) -> Result<Vec<LogLine>> {
        log::read(self.inner.rows()?.as_ref(), id, from)
    }
}

/// The changes of a job's status, as [`Store::watch`] gives them.
#[derive(Clone, Debug)]
#[must_use = "nothing is watched before it is asked"]
pub struct Watch {
    store: Store,
    id: JobId,
    last: Option<JobStatus>,
    /// The count of commits before `last` was read.
    seen: Option<u64>,
}

impl Watch {
    /// The next change; the first time, what is now. Nothing when the job has ended and that was told.
    ///
    /// # Errors
    /// `TimedOut` when nothing has changed in that time: ask again; `NotFound` for a job that was not enqueued yet.
    pub fn next_within(&mut self, patience: Duration) -> Result<Option<JobStatus>> {
        if self.last.as_ref().is_some_and(JobStatus::is_ended) {
            return Ok(None);
        }
        let inner = &self.store.inner;
        let (since, deadline) = (monotonic(), deadline_after(patience));
        loop {
            if let Some(seen) = self.seen {
                inner.wait_for_commit(seen, since, deadline);
            }
            // Read before the job is, so that a commit in between is not missed.
            let seen = inner.site.wakes();
            let status = self.store.status(self.id)?;
            self.seen = Some(seen);
            if self.last.as_ref() != Some(&status) {
                self.last = Some(status.clone());
                return Ok(Some(status));
            }
            if monotonic() >= deadline {
                let message = format!("nothing has become of job {} in {patience:?}", self.id);
                return Err(Error::new(ErrorKind::TimedOut, message));
            }
        }
    }

    /// What can't be read is told once.
    pub(crate) fn end(&mut self) {
        self.last = Some(JobStatus::of_nothing());
    }
}

impl Iterator for Watch {
    type Item = Result<JobStatus>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_within(Duration::MAX) {
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
                Ok(next) => return next.map(Ok),
            }
        }
    }
}
