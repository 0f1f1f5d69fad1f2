//! What is done to many jobs at once: to remove them, or to retry them. Each change walks a bounded slice of the rows
//! of one state; the caller goes on where it ended, up to the jobs that were there when it began.

use serde::{Deserialize, Serialize};

use super::{
    admin::{Admin, is_not_yet, retry_found},
    list::JobFilter,
};
use crate::{
    error::{Error, ErrorKind, Result},
    queue::{
        depend::with_waits,
        moves::task_name,
        record::{Home, JobRecord},
        slice::slice,
        state::State,
    },
    store::{
        Store,
        apply::Context,
        change::{Intent, Outcome},
        conflict::Version,
        keys::{self, ById, Range},
    },
};

/// How many rows one change walks.
const SLICE: usize = 1_000;

/// One slice of a walk over the jobs of a state, as it travels in a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sweep {
    pub(crate) state: State,
    pub(crate) queue: Option<String>,
    pub(crate) task: Option<String>,
    /// Jobs that came later are left alone, or a walk beside a producer would never end.
    pub(crate) newest: Version,
    /// The key where the last slice ended.
    pub(crate) after: Option<Vec<u8>>,
    pub(crate) limit: usize,
}

/// What one slice gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Swept {
    pub(crate) jobs: u64,
    /// Jobs that could not be retried: another holds their unique key, they run at most once, or not all that waited
    /// for them know yet.
    pub(crate) refused: u64,
    /// Where the next slice begins; nothing at the end.
    pub(crate) next: Option<Vec<u8>>,
}

impl Store {
    /// Removes all jobs for good that a filter admits; gives how many. Where it names no state, those that have not
    /// begun: waiting, scheduled and ready ones. A job that others wait for is cancelled instead, so that they learn
    /// of its end. Jobs that come meanwhile stay. The filter's `after` does not count.
    ///
    /// ```
    /// # use casque::{JobFilter, JobRequest};
    /// # let store = casque::Store::in_memory()?;
    /// # store.queue("media").enqueue(JobRequest::new("resize", &()))?;
    /// assert_eq!(store.purge(&JobFilter::new().queue("media").task("resize"))?, 1);
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for running jobs, which are to be cancelled. Where it fails in the midst, some are gone, others not.
    pub fn purge(&self, filter: &JobFilter) -> Result<u64> {
        let states = match filter.only_state() {
            Some(State::Running) => {
                return Err(Error::invalid("running jobs can't be purged; cancel them, or wait until they have ended"));
            }
            Some(state) => vec![state],
            None => vec![State::Waiting, State::Scheduled, State::Ready],
        };
        Ok(self.sweep(filter, &states, Admin::Purge)?.jobs)
    }

    /// Puts all jobs back with all their attempts that a filter admits and that are dead, or in another state that it
    /// names: cancelled, or scheduled, which run now. Gives how many; those stay as they are whose unique key another
    /// job holds by now, that run at most once, or that so many waited for that not all of them know yet.
    ///
    /// ```
    /// # use casque::JobFilter;
    /// # let store = casque::Store::in_memory()?;
    /// assert_eq!(store.retry_all(&JobFilter::new().task("resize"))?, 0);
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a state in which no job can be retried.
    pub fn retry_all(&self, filter: &JobFilter) -> Result<u64> {
        self.retry_swept(filter).map(|swept| swept.jobs)
    }

    /// As [`Store::retry_all`]; tells also how many were refused.
    pub(crate) fn retry_swept(&self, filter: &JobFilter) -> Result<Swept> {
        let state = filter.only_state().unwrap_or(State::Dead);
        if !matches!(state, State::Dead | State::Cancelled | State::Scheduled) {
            return Err(Error::invalid(format!(
                "{state} jobs can't be retried; dead, cancelled and scheduled ones can"
            )));
        }
        self.sweep(filter, &[state], Admin::RetryAll)
    }

    fn sweep(&self, filter: &JobFilter, states: &[State], admin: fn(Sweep) -> Admin) -> Result<Swept> {
        let newest = self.version()?;
        let mut all = Swept::default();
        for state in states {
            let mut sweep = Sweep {
                state: *state,
                queue: filter.only_queue().map(str::to_owned),
                task: filter.only_task().map(str::to_owned),
                newest,
                after: None,
                limit: SLICE,
            };
            loop {
                let Outcome::Swept(slice) = self.inner.perform(Intent::Administer(admin(sweep.clone())))? else {
                    return Err(Error::unanswered("a sweep"));
                };
                all.jobs += slice.jobs;
                all.refused += slice.refused;
                sweep.after = slice.next;
                if sweep.after.is_none() {
                    break;
                }
            }
        }
        Ok(all)
    }
}

pub(crate) fn purge(context: &mut Context<'_>, sweep: &Sweep) -> Result<Outcome> {
    if sweep.state == State::Running {
        return Err(Error::invalid("running jobs can't be purged; cancel them"));
    }
    let (jobs, next) = jobs_of(context, sweep)?;
    let mut swept = Swept { next, ..Swept::default() };
    for (home, job) in jobs {
        // Of one that stays it is told from then on how those ended that it waited for.
        let job = with_waits(&context.rows, home, job)?;
        context.purge(job, home)?;
        swept.jobs += 1;
    }
    Ok(Outcome::Swept(swept))
}

pub(crate) fn retry_all(context: &mut Context<'_>, sweep: &Sweep) -> Result<Outcome> {
    let (jobs, next) = jobs_of(context, sweep)?;
    let mut swept = Swept { next, ..Swept::default() };
    for (home, job) in jobs {
        let id = job.id;
        match retry_found(context, home, job) {
            Ok(_) => swept.jobs += 1,
            // What is refused left no trace.
            Err(error) if error.kind() == ErrorKind::Invalid || is_not_yet(context, id, &error)? => swept.refused += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(Outcome::Swept(swept))
}

/// The jobs of a slice, and where the next one begins.
#[allow(clippy::type_complexity, reason = "used twice, just above")]
fn jobs_of(context: &Context<'_>, sweep: &Sweep) -> Result<(Vec<(Home, JobRecord)>, Option<Vec<u8>>)> {
    let (home, mut range, beyond) = family(sweep);
    if let Some(after) = &sweep.after {
        range = range.after(after);
    }
    let is_wanted = |job: &JobRecord| {
        job.state_in(home) == sweep.state
            && job.id.version <= sweep.newest.0
            && sweep.queue.as_ref().is_none_or(|queue| *queue == job.queue)
    };
    let (found, last) = slice(&context.rows, &range, sweep.limit, is_wanted)?;
    let mut jobs = Vec::new();
    for job in found {
        let is_of_task = match &sweep.task {
            Some(task) => *task == task_name(&context.rows, job.task)?,
            None => true,
        };
        if is_of_task {
            jobs.push((home, job));
        }
    }
    Ok((jobs, last.or(beyond)))
}

/// Where the jobs of a state are from where the last slice ended, and where others of them begin.
fn family(sweep: &Sweep) -> (Home, Range, Option<Vec<u8>>) {
    let by_id = match sweep.state {
        State::Ready => {
            let (without_key, keyed) = match &sweep.queue {
                Some(queue) => (keys::ready_of_queue(queue), keys::keyed_of_queue(queue)),
                None => (keys::all_ready(), keys::all_keyed()),
            };
            let is_beyond = sweep.after.as_ref().is_some_and(|after| *after >= keyed.start);
            return if is_beyond { (Home::Ready, keyed, None) } else { (Home::Ready, without_key, Some(keyed.start)) };
        }
        State::Waiting => ById::Waiting,
        State::Scheduled => ById::Due,
        State::Running => ById::Held,
        State::Dead => ById::Dead,
        State::Completed | State::Cancelled => ById::Finished,
    };
    (Home::ById(by_id), by_id.all(), None)
}
