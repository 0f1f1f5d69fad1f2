//! A schedule as a user defines it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{check_job, spec::Spec};
use crate::{
    error::{Error, Result},
    queue::{
        IntoJob, JobRequest,
        enqueue::{NewJob, check_name},
    },
};

/// The most slots that can be made up for at once.
pub(crate) const CATCH_UP_MAX: u32 = 1_000;

/// What is done where slots have passed without anybody there: no worker, no `casque serve`; or where several have come
/// by the time that somebody looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CatchUp {
    /// The latest gets its job if its time is less than a minute ago; all others pass without one.
    Skip,
    /// One job for all of them, with the time of the latest. The default: a nightly job that was missed for a restart
    /// is run, and no burst comes after a long time.
    #[default]
    One,
    /// A job for each, but for no more than the latest so many, at most 1,000.
    All(u32),
}

/// A job that is enqueued again and again: at equal intervals, or as a cron expression says.
///
/// Given to [`Store::schedule`](crate::Store::schedule), or to a [`Worker`](crate::Worker) that defines it when it
/// begins. Each slot is enqueued once, by whichever process keeps the store in order, in one change with the note that
/// it was. The job has its slot's time as `run_at`, and in its metadata as `scheduled_for`.
///
/// ```
/// use casque::{CatchUp, JobRequest, Schedule};
/// use std::time::Duration;
///
/// # let store = casque::Store::in_memory()?;
/// let sweep = Schedule::every("sweep", Duration::from_secs(900), JobRequest::new("sweep", &()));
/// store.schedule(sweep.queue("upkeep").catch_up(CatchUp::Skip))?;
/// # #[cfg(feature = "cron")]
/// store.schedule(Schedule::cron("report", "30 4 * * 1-5", JobRequest::new("report", &())).zone("Europe/Berlin"))?;
/// # Ok::<(), casque::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a schedule does nothing until a store or a worker is told of it"]
pub struct Schedule {
    name: String,
    spec: Spec,
    queue: String,
    job: JobRequest,
    catch_up: CatchUp,
}

/// A schedule that was found sound.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) spec: Spec,
    pub(crate) job: NewJob,
    pub(crate) catch_up: CatchUp,
}

impl CatchUp {
    /// # Errors
    /// `Invalid` for a number of slots out of range.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::All(most) if !(1..=CATCH_UP_MAX).contains(&most) => Err(Error::invalid(format!(
                "making up for {most} slots at once is out of range; it goes from 1 to {CATCH_UP_MAX}"
            ))),
            _ => Ok(()),
        }
    }
}

impl Schedule {
    /// A schedule with a slot each so long, the first so long after it was defined; from 100 ms to ten years.
    pub fn every(name: impl Into<String>, every: Duration, job: impl IntoJob) -> Self {
        Self::of(name.into(), Spec::Every(every), job.into_job())
    }

    /// A schedule by a cron expression: minute, hour, day of the month, month, day of the week (0 or 7 is Sunday), as
    /// `30 4 * * 1-5`; with six fields the first is the second. Names (`MON`, `JAN`), ranges, lists, steps, `L`, `W`,
    /// `#` and `@daily` and its like are known. Needs the feature `cron`, which is a default one.
    ///
    /// Where daylight saving time skips a fixed time of day, its slot is the first moment after the gap; where one
    /// comes twice, the first. Expressions with a wildcard, a step or a range for hour or minute have a slot at each
    /// moment that matches.
    pub fn cron(name: impl Into<String>, expression: impl Into<String>, job: impl IntoJob) -> Self {
        let spec = Spec::Cron { expression: expression.into(), zone: "UTC".to_owned() };
        Self::of(name.into(), spec, job.into_job())
    }

    fn of(name: String, spec: Spec, job: JobRequest) -> Self {
        Self { name, spec, queue: "default".to_owned(), job, catch_up: CatchUp::default() }
    }

    /// The time zone of a cron expression, by its name in the IANA database; UTC by default.
    pub fn zone(mut self, name: impl Into<String>) -> Self {
        if let Spec::Cron { zone, .. } = &mut self.spec {
            *zone = name.into();
        }
        self
    }

    /// The queue of its jobs; `default` by default.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue = name.into();
        self
    }

    /// What is done about slots that were missed; [`CatchUp::One`] by default.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.catch_up = catch_up;
        self
    }

    /// The definition, checked as far as that goes without a store and without the time.
    pub(crate) fn checked(self) -> Result<Definition> {
        check_name("schedule", &self.name)?;
        let named = |error: Error| error.during(&format!("schedule \"{}\"", self.name));
        self.catch_up.check().map_err(named)?;
        let spec = self.spec.checked().map_err(named)?;
        let job = self.job.for_queue(&self.queue)?;
        check_job(&job, &self.name)?;
        Ok(Definition { name: self.name, spec, job, catch_up: self.catch_up })
    }
}
