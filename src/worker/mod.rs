//! The worker: claims jobs, runs their handlers on its threads, settles them, and keeps the store in order meanwhile.
//!
//! `called` heeds cancelled jobs and pauses, `crew` is what its threads share, `handler` runs jobs, `turn` settles and
//! claims in one change, `idle` waits, `prefetch` says how much is claimed ahead, `keeper` sees to what no handler is
//! free for, `timeouts` ends attempts that take too long, `maintenance` promotes, reclaims and prunes. A worker writes
//! through the same store as everybody else; nothing here knows of rows.

mod called;
mod claimer;
mod crew;
#[cfg(test)]
mod drain_tests;
mod event;
mod handler;
mod idle;
mod keeper;
mod maintenance;
#[cfg(test)]
mod parking_tests;
mod prefetch;
mod stop;
#[cfg(test)]
mod tests;
mod timeouts;
mod turn;

use std::{sync::Arc, time::Duration};

pub(crate) use self::maintenance::enqueue_due_slots;
#[cfg(all(unix, feature = "isolation"))]
pub(crate) use self::timeouts::timed_out;
pub use self::{event::Event, stop::StopHandle};
use crate::{
    clock::sleep,
    error::{Error, ErrorKind, Result},
    queue::{Policy, QueueStats, Schedule, enqueue::check_name, id::JobId, schedule::define::Definition},
    store::{Store, alarm::Alarm},
    task::{Registry, Task},
    worker::{
        event::{Listener, tell},
        prefetch::Prefetch,
    },
};

/// The most handlers that one worker runs at once.
pub const CONCURRENCY_MAX: usize = 1_000;

/// Runs the jobs of queues in this process.
///
/// ```
/// use casque::{Registry, Store, Worker};
///
/// # let store = Store::in_memory()?;
/// let mut tasks = Registry::new();
/// tasks.register("greet", |_, name: String| Ok(println!("hello {name}")))?;
/// let worker = Worker::new(&store).tasks(tasks).queue("mail").queue("default").concurrency(4);
/// let stop = worker.stop_handle(); // for a signal handler, or another thread
/// # stop.stop();
/// worker.run()?;
/// # Ok::<(), casque::Error>(())
/// ```
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    store: Store,
    setup: Setup,
    /// What was wrong in how it was set up; `run` tells.
    wrong: Option<Error>,
}

/// How a worker works.
pub(crate) struct Setup {
    pub(crate) queues: Vec<String>,
    pub(crate) registry: Registry,
    pub(crate) schedules: Vec<Definition>,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: Prefetch,
    pub(crate) policy: Policy,
    pub(crate) drain: Drain,
    pub(crate) backoff: bool,
    pub(crate) pause: Option<Arc<dyn Fn() + Send + Sync>>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) stop: StopHandle,
    /// The one job that it runs before it leaves, where it is to run no other.
    pub(crate) only: Option<JobId>,
    #[cfg(all(unix, feature = "isolation"))]
    pub(crate) host: crate::child::Host,
    #[cfg(test)]
    pub(crate) parking: Option<Arc<parking_tests::Parking>>,
}

/// Keeps a store in order without working on it, until the alarm is dropped.
pub(crate) fn maintain(store: &Store) -> Result<Alarm> {
    maintenance::start(store, &Arc::new(Worker::new(store).setup))
}

/// When a worker leaves by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    Never,
    WhenNothingIsReady,
    WhenNothingIsScheduled,
}

/// What a worker did, and what it left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Jobs completed.
    pub completed: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Jobs given back uncharged.
    pub given_back: u64,
    /// Leases lost to others before they could be settled.
    pub leases_lost: u64,
    /// Candidates, or strict claims, that another was quicker to take.
    pub hijacks: u64,
    /// Its queues, as it left them; none where that could not be read.
    pub left: Vec<QueueStats>,
}

impl Report {
    /// Adds what a later run has done.
    pub(crate) fn add(&mut self, later: Self) {
        self.completed += later.completed;
        self.failed += later.failed;
        self.given_back += later.given_back;
        self.leases_lost += later.leases_lost;
        self.hijacks += later.hijacks;
        self.left = later.left;
    }
}

impl Worker {
    /// A worker on a store, without tasks, for the queue `default` where no other is named.
    pub fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            setup: Setup {
                queues: Vec::new(),
                registry: Registry::new(),
                schedules: Vec::new(),
                concurrency: 1,
                prefetch: Prefetch::Adapted,
                policy: Policy::default(),
                drain: Drain::Never,
                backoff: true,
                pause: None,
                listeners: Vec::new(),
                stop: StopHandle::default(),
                only: None,
                #[cfg(all(unix, feature = "isolation"))]
                host: crate::child::Host::default(),
                #[cfg(test)]
                parking: None,
            },
            wrong: None,
        }
    }

    /// Also works on this queue.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        if let Err(error) = check_name("queue", &name) {
            self.wrong.get_or_insert(error);
        }
        if !self.setup.queues.contains(&name) {
            self.setup.queues.push(name);
        }
        self
    }

    /// Also runs the tasks of a registry.
    pub fn tasks(mut self, registry: Registry) -> Self {
        if let Err(error) = self.setup.registry.add_all(registry) {
            self.wrong.get_or_insert(error);
        }
        self
    }

    /// Also runs this task.
    pub fn task<T: Task>(mut self) -> Self {
        if let Err(error) = self.setup.registry.task::<T>() {
            self.wrong.get_or_insert(error);
        }
        self
    }

    /// Also runs this async task, on the runtime that this is called in.
    #[cfg(feature = "tokio")]
    pub fn async_task<T: crate::AsyncTask>(mut self) -> Self {
        if let Err(error) = self.setup.registry.async_task::<T>() {
            self.wrong.get_or_insert(error);
        }
        self
    }

    /// Defines this schedule when it begins, as [`Store::schedule`] does: in as many workers as you like.
    ///
    /// ```
    /// use casque::{JobRequest, Registry, Schedule, Store, Worker};
    /// use std::time::Duration;
    ///
    /// # let store = Store::in_memory()?;
    /// let mut tasks = Registry::new();
    /// tasks.register("sweep", |_, (): ()| Ok(()))?;
    /// let sweep = Schedule::every("sweep", Duration::from_secs(900), JobRequest::new("sweep", &()));
    /// let worker = Worker::new(&store).tasks(tasks).schedule(sweep);
    /// # worker.stop_handle().stop();
    /// worker.run()?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        match schedule.checked() {
            Ok(definition) => self.setup.schedules.push(definition),
            Err(error) => {
                self.wrong.get_or_insert(error);
            }
        }
        self
    }

    /// How many handlers run at once, each on a thread of its own; 1 by default.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        if handlers == 0 || handlers > CONCURRENCY_MAX {
            let error = Error::invalid(format!(
                "a concurrency of {handlers} is out of range; it goes from 1 to {CONCURRENCY_MAX}"
            ));
            self.wrong.get_or_insert(error);
        }
        self.setup.concurrency = handlers.clamp(1, CONCURRENCY_MAX);
        self
    }

    /// How many jobs more than it can run at once it claims ahead: fewer commits per job, but other workers can't have
    /// them. Where nothing is said it adapts: to at most 50 ms of work, as measured, and what lies untouched for longer
    /// is given back.
    pub fn prefetch(mut self, jobs: usize) -> Self {
        self.setup.prefetch = Prefetch::Fixed(jobs.min(CONCURRENCY_MAX));
        self
    }

    /// What it does when another takes its job; [`Policy::Rebase`] by default. A strict worker says on stderr when a
    /// job was hijacked.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.setup.policy = policy;
        self
    }

    /// Whether it leaves when nothing that it can run is ready and nothing of its queues runs anywhere.
    pub fn drain(mut self, drain: bool) -> Self {
        self.setup.drain = if drain { Drain::WhenNothingIsReady } else { Drain::Never };
        self
    }

    /// Leaves only when nothing is scheduled any more, either.
    pub fn drain_with_scheduled(mut self) -> Self {
        self.setup.drain = Drain::WhenNothingIsScheduled;
        self
    }

    /// Whether a strict worker waits for a random moment after a hijack (the default). Off is for experiments.
    pub fn backoff(mut self, backoff: bool) -> Self {
        self.setup.backoff = backoff;
        self
    }

    /// Calls this between a claim's snapshot and its commit: for experiments and tests with hijacks.
    pub fn pause_before_commit(mut self, pause: impl Fn() + Send + Sync + 'static) -> Self {
        self.setup.pause = Some(Arc::new(pause));
        self
    }

    /// Tells this of each [`Event`], after it has happened.
    pub fn listen(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.setup.listeners.push(Arc::new(listener));
        self
    }

    /// Runs this job of its queue and no other, if it is ready, and leaves; it keeps no store in order, and does not
    /// commit for others.
    #[cfg(all(unix, feature = "isolation"))]
    pub(crate) fn only(mut self, job: JobId) -> Self {
        self.setup.only = Some(job);
        self.drain(true).prefetch(0)
    }

    /// Uses a handle that was made before, to stop several workers at once.
    pub fn stopped_by(mut self, stop: &StopHandle) -> Self {
        self.setup.stop = stop.clone();
        self
    }

    /// What stops this worker, from any thread.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.setup.stop.clone()
    }

    /// Whether it is set up rightly, as [`Worker::run`] would say.
    #[cfg(feature = "cli")]
    pub(crate) fn check(self) -> Result<()> {
        self.wrong.map_or(Ok(()), Err)
    }

    /// Works until it is stopped, or drained; on this thread and those of its handlers.
    ///
    /// # Errors
    /// `Invalid` for a wrong setup: no task, an id given twice, a bad queue name, a concurrency out of range, isolated
    /// tasks in a program whose `main` does not call `casque::child::run_if_child`; `Closed`
    /// when the store was closed; `Corrupt` when it is damaged. What will pass, as a lock that another holds, is told
    /// as [`Event::Trouble`] and tried again.
    pub fn run(self) -> Result<Report> {
        if self.setup.registry.is_empty() && self.wrong.is_none() {
            return Err(Error::invalid("the worker has no task to run; give it some with `task` or `tasks`"));
        }
        self.run_whatever_it_knows()
    }

    /// As [`Worker::run`]; without a task it only keeps the store in order.
    pub(crate) fn run_whatever_it_knows(self) -> Result<Report> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let mut setup = self.setup;
        if setup.queues.is_empty() {
            setup.queues.push("default".to_owned());
        }
        if let Some(task) = setup.registry.first_without_time() {
            return Err(Error::invalid(format!(
                "task \"{task}\" has a timeout of 0, which lets no attempt run; leave it out, or give it some time"
            )));
        }
        #[cfg(all(unix, feature = "isolation"))]
        setup.host.check(&setup.registry)?;
        #[cfg(not(all(unix, feature = "isolation")))]
        if let Some((task, _)) = setup.registry.first_isolated() {
            return Err(Error::invalid(format!(
                "task \"{task}\" is to run in a process of its own; that is for unix, with the feature \"isolation\""
            )));
        }
        // What is set up wrongly defines nothing.
        define(&self.store, &setup)?;
        keeper::run(&self.store, setup)
    }
}

/// Defines the schedules of a worker. What will pass is waited for.
fn define(store: &Store, setup: &Setup) -> Result<()> {
    for definition in &setup.schedules {
        let mut failures = 0;
        while let Err(error) = store.define(definition) {
            if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) {
                return Err(error);
            }
            if setup.stop.is_stopping() {
                return Ok(());
            }
            failures += 1;
            tell(&setup.listeners, &Event::Trouble { doing: "define a schedule", message: error.full_message() });
            sleep(pause_after(failures));
        }
    }
    Ok(())
}

/// How long to wait before trying again what has just failed, after so many failures in a row.
pub(crate) fn pause_after(failures: u32) -> Duration {
    let most = Duration::from_millis(10) * 2u32.saturating_pow(failures.min(7));
    crate::random::up_to(most)
}
