//! Schedules as a user tends them.

use std::time::Duration;

use super::{
    ScheduleAct, ScheduleRecord, Scheduled,
    define::{CatchUp, Definition, Schedule},
    not_found,
    spec::Spec,
};
use crate::{
    clock::Timestamp,
    codec::Payload,
    engine::Rows,
    error::{Error, ErrorKind, Result},
    queue::{enqueue::NewJob, id::JobId},
    store::{
        Store,
        change::{Intent, Outcome},
        keys,
        view::{for_each, get_record},
    },
};

/// How often an act is tried anew that relies on what others keep changing.
const TRIES_MAX: u32 = 12;

/// A schedule as it was found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// Its name.
    pub name: String,
    /// The interval, where it goes by one.
    pub every: Option<Duration>,
    /// The cron expression, where it goes by one.
    pub cron: Option<String>,
    /// The time zone of the expression.
    pub zone: Option<String>,
    /// What is done about slots that were missed.
    pub catch_up: CatchUp,
    /// Whether its slots pass without a job until it is resumed.
    pub paused: bool,
    /// The task of its jobs.
    pub task: String,
    /// The queue of its jobs.
    pub queue: String,
    /// The arguments of its jobs.
    pub args: Payload,
    /// The version of the task that they were written for.
    pub args_version: u32,
    /// The priority of its jobs.
    pub priority: i64,
    /// The latest slot that is over, whether it was run or passed over.
    pub last: Option<Timestamp>,
    /// The job that it enqueued last.
    pub last_job: Option<JobId>,
    /// The next slot; none where the expression names no further time.
    pub next: Option<Timestamp>,
    spec: Spec,
    /// All that its jobs are enqueued with.
    pub(crate) job: NewJob,
}

impl ScheduleInfo {
    fn of(name: &str, record: ScheduleRecord) -> Self {
        let (every, cron, zone) = match &record.spec {
            Spec::Every(every) => (Some(*every), None, None),
            Spec::Cron { expression, zone } => (None, Some(expression.clone()), Some(zone.clone())),
        };
        Self {
            name: name.to_owned(),
            every,
            cron,
            zone,
            catch_up: record.catch_up,
            paused: record.paused,
            task: record.job.task.clone(),
            queue: record.job.queue.clone(),
            args: record.job.args.clone(),
            args_version: record.job.args_version,
            priority: record.job.priority,
            last: record.last,
            last_job: record.last_job,
            next: record.next,
            spec: record.spec,
            job: record.job,
        }
    }

    /// The next `count` slots. Of a paused schedule, those that it would have.
    ///
    /// # Errors
    /// `Invalid` for a cron expression in a program that was built without the feature `cron`.
    pub fn upcoming(&self, count: usize) -> Result<Vec<Timestamp>> {
        self.next.map_or(Ok(Vec::new()), |next| self.spec.upcoming(next, count))
    }
}

impl Store {
    /// Defines a schedule, in place of the one of that name if there is one; tells whether that changed anything. Its
    /// next slot stays as it is where the times are as before; a paused one stays paused.
    ///
    /// # Errors
    /// `Invalid`, saying what is wrong with it.
    ///
    /// ```
    /// # use casque::{JobRequest, Schedule};
    /// # use std::time::Duration;
    /// # let store = casque::Store::in_memory()?;
    /// # store.schedule(Schedule::every("sweep", Duration::from_secs(900), JobRequest::new("sweep", &())))?;
    /// let sweep = || Schedule::every("sweep", Duration::from_secs(900), JobRequest::new("sweep", &()));
    /// assert!(!store.schedule(sweep())?, "it is so already");
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn schedule(&self, schedule: Schedule) -> Result<bool> {
        self.define(&schedule.checked()?)
    }

    pub(crate) fn define(&self, definition: &Definition) -> Result<bool> {
        let Definition { name, spec, job, catch_up } = definition;
        self.try_until_still(name, |record| {
            let seen_last = record.as_ref().and_then(|record| record.last);
            let first = spec
                .first(self.inner.site.now(), seen_last)
                .map_err(|error| error.during(&format!("schedule \"{name}\"")))?;
            Ok(ScheduleAct::Define {
                spec: spec.clone(),
                job: Box::new(job.clone()),
                catch_up: *catch_up,
                seen_last,
                first: Some(first),
            })
        })
    }

    /// All schedules, in order of their names.
    ///
    /// # Errors
    /// What reading the store says.
    ///
    /// ```
    /// # use casque::{JobRequest, Schedule};
    /// # use std::time::Duration;
    /// # let store = casque::Store::in_memory()?;
    /// # store.schedule(Schedule::every("sweep", Duration::from_secs(900), JobRequest::new("sweep", &())))?;
    /// let next = store.schedules()?[0].upcoming(2)?;
    /// assert_eq!(next[1].since(next[0]), Duration::from_secs(900));
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn schedules(&self) -> Result<Vec<ScheduleInfo>> {
        let mut schedules = Vec::new();
        for_each(self.inner.look()?.as_ref(), &keys::schedules(), |key, bytes| {
            schedules.push(ScheduleInfo::of(&keys::root_name(key), crate::codec::decode(bytes)?));
            Ok(())
        })?;
        Ok(schedules)
    }

    /// The schedule of that name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn schedule_named(&self, name: &str) -> Result<ScheduleInfo> {
        let record = read(self.inner.rows()?.as_ref(), name)?;
        record.map(|record| ScheduleInfo::of(name, record)).ok_or_else(|| not_found(name))
    }

    /// Removes a schedule. The jobs that it has enqueued stay.
    ///
    /// # Errors
    /// `NotFound`.
    ///
    /// ```
    /// # use casque::{JobRequest, Schedule};
    /// # use std::time::Duration;
    /// # let store = casque::Store::in_memory()?;
    /// # store.schedule(Schedule::every("sweep", Duration::from_secs(900), JobRequest::new("sweep", &())))?;
    /// store.remove_schedule("sweep")?;
    /// assert!(store.schedules()?.is_empty());
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn remove_schedule(&self, name: &str) -> Result<()> {
        self.inner.perform(intent(name, ScheduleAct::Remove)).map(|_| ())
    }

    /// Lets a schedule's slots pass without a job, also over restarts, until it is resumed.
    ///
    /// # Errors
    /// `NotFound`.
    ///
    /// ```
    /// # use casque::{JobRequest, Schedule};
    /// # use std::time::Duration;
    /// # let store = casque::Store::in_memory()?;
    /// # store.schedule(Schedule::every("sweep", Duration::from_secs(900), JobRequest::new("sweep", &())))?;
    /// store.pause_schedule("sweep")?;
    /// assert!(store.schedule_named("sweep")?.paused);
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn pause_schedule(&self, name: &str) -> Result<()> {
        self.inner.perform(intent(name, ScheduleAct::Pause)).map(|_| ())
    }

    /// Lets a paused schedule go on with the first slot that is still to come.
    ///
    /// # Errors
    /// `NotFound`.
    ///
    /// ```
    /// # use casque::{JobRequest, Schedule};
    /// # use std::time::Duration;
    /// # let store = casque::Store::in_memory()?;
    /// # store.schedule(Schedule::every("sweep", Duration::from_secs(900), JobRequest::new("sweep", &())))?;
    /// store.pause_schedule("sweep")?;
    /// store.resume_schedule("sweep")?;
    /// assert!(!store.schedule_named("sweep")?.paused);
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn resume_schedule(&self, name: &str) -> Result<()> {
        let resumed = self.try_until_still(name, |record| {
            let record = record.ok_or_else(|| not_found(name))?;
            let next = match record.next {
                Some(seen) => record.spec.due(seen, self.inner.site.now(), 1)?.next,
                None => None,
            };
            Ok(ScheduleAct::Resume { seen: record.next, next })
        });
        resumed.map(|_| ())
    }

    /// Enqueues a schedule's job now, beside its slots.
    ///
    /// # Errors
    /// `NotFound`; as [`Queue::enqueue`](crate::Queue::enqueue).
    ///
    /// ```
    /// # use casque::{JobRequest, Schedule};
    /// # use std::time::Duration;
    /// # let store = casque::Store::in_memory()?;
    /// # store.schedule(Schedule::every("sweep", Duration::from_secs(900), JobRequest::new("sweep", &())))?;
    /// let id = store.run_schedule("sweep")?;
    /// assert_eq!(store.job(id)?.task, "sweep");
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn run_schedule(&self, name: &str) -> Result<JobId> {
        match self.inner.perform(intent(name, ScheduleAct::Run))? {
            Outcome::Enqueued { job, .. } => Ok(job),
            _ => Err(Error::corrupt("an enqueue was answered without its outcome")),
        }
    }

    /// Does to a schedule what follows from how it is, as often as another changes it meanwhile; tells whether anything
    /// has changed.
    fn try_until_still(&self, name: &str, act: impl Fn(Option<ScheduleRecord>) -> Result<ScheduleAct>) -> Result<bool> {
        for _ in 0..TRIES_MAX {
            let record = read(self.inner.rows()?.as_ref(), name)?;
            match self.inner.perform(intent(name, act(record)?))? {
                Outcome::Scheduled(Scheduled::Moved) => {}
                outcome => return Ok(outcome == Outcome::Scheduled(Scheduled::Changed)),
            }
        }
        Err(Error::new(ErrorKind::Unavailable, format!("schedule \"{name}\" is changed all the time; try again")))
    }
}

pub(crate) fn intent(name: &str, act: ScheduleAct) -> Intent {
    Intent::Schedule { name: name.to_owned(), act }
}

fn read(rows: &dyn Rows, name: &str) -> Result<Option<ScheduleRecord>> {
    get_record(rows, &keys::schedule(name))
}
