//! The registry: which code the ids of tasks name in this process.

#[cfg(feature = "tokio")]
mod on_runtime;

use std::{
    any::Any,
    collections::{BTreeMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    codec::Payload,
    error::{Error, Result},
    queue::{
        enqueue::{ATTEMPTS_DEFAULT, check_name},
        lease::result_payload,
    },
    task::{Isolation, Job, Task, TaskError, default_backoff},
};

type Run = dyn Fn(&Job) -> Result<RunOutput, TaskError> + Send + Sync;
type Describe = dyn Fn(u32, &Payload) -> Result<serde_json::Value> + Send + Sync;
type Backoff = dyn Fn(u32) -> Duration + Send + Sync;

/// What a handler that is done gives: its result, encoded.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunOutput {
    pub(crate) result: Option<Payload>,
}

/// The tasks that a process can run.
///
/// ```
/// use casque::Registry;
/// use std::path::PathBuf;
///
/// let mut registry = Registry::new();
/// registry.register("resize", |job, (path, width): (PathBuf, u32)| {
///     println!("job {}: {} to {width}", job.id(), path.display());
///     Ok(())
/// })?;
/// # Ok::<(), casque::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    tasks: BTreeMap<String, Entry>,
    /// Earlier ids of tasks.
    aliases: BTreeMap<String, String>,
    /// Where the async tasks run that are registered from now on; where they are registered, if nothing is said.
    #[cfg(feature = "tokio")]
    runtime: Option<tokio::runtime::Handle>,
}

#[derive(Clone)]
struct Entry {
    version: u32,
    attempts_max: u32,
    at_most_once: bool,
    timeout: Option<Duration>,
    isolation: Isolation,
    run: Arc<Run>,
    describe: Arc<Describe>,
    backoff: Arc<Backoff>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tasks.keys()).finish()
    }
}

impl Registry {
    /// A registry without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a [`Task`] under its id and its aliases.
    ///
    /// # Errors
    /// `Invalid` for an id that is taken, or is no name.
    pub fn task<T: Task>(&mut self) -> Result<&mut Self> {
        let decode = |version: u32, args: &Payload| {
            if version == T::VERSION { args.decode::<T>() } else { T::upgrade(version, args) }
        };
        let entry = Entry {
            version: T::VERSION,
            attempts_max: T::MAX_ATTEMPTS,
            at_most_once: T::AT_MOST_ONCE,
            timeout: T::TIMEOUT,
            isolation: T::ISOLATION,
            run: Arc::new(move |job: &Job| {
                let task = decode(job.args_version(), job.payload()).map_err(|error| of_args(&error))?;
                finish(&task.run(job)?)
            }),
            describe: Arc::new(move |version, args| to_json(&decode(version, args)?)),
            backoff: Arc::new(T::backoff),
        };
        self.insert(T::ID, entry)?;
        for alias in T::ALIASES {
            self.insert_alias(alias, T::ID)?;
        }
        Ok(self)
    }

    /// Registers a closure under an id. Its jobs are enqueued by that id, with the same type of arguments:
    /// [`JobRequest::new`](crate::JobRequest::new).
    ///
    /// # Errors
    /// `Invalid` for an id that is taken, or is no name.
    pub fn register<A, O>(
        &mut self,
        id: &str,
        run: impl Fn(&Job, A) -> Result<O, TaskError> + Send + Sync + 'static,
    ) -> Result<Registered<'_, A>>
    where
        A: Serialize + DeserializeOwned + 'static,
        O: Serialize + 'static,
    {
        self.register_encoded(id, move |job, args| finish(&run(job, args)?))
    }

    /// The ids that this registry can run, earlier ones included.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.tasks.keys().chain(self.aliases.keys()).map(String::as_str)
    }

    /// A job's arguments as JSON, where the registry knows their type.
    #[must_use]
    pub fn describe(&self, task: &str, version: u32, args: &Payload) -> serde_json::Value {
        self.entry(task).and_then(|entry| (entry.describe)(version, args).ok()).unwrap_or_else(|| args.to_json())
    }

    /// The version that the arguments of a task have here; 1 for a task that is not registered.
    #[must_use]
    pub fn version(&self, task: &str) -> u32 {
        self.entry(task).map_or(1, |entry| entry.version)
    }

    /// Whether the task reads arguments that come as its present version.
    ///
    /// # Errors
    /// `Invalid` where it can't.
    #[cfg(feature = "cli")]
    pub(crate) fn check_args(&self, task: &str, args: &Payload) -> Result<()> {
        let Some(entry) = self.entry(task) else { return Ok(()) };
        (entry.describe)(entry.version, args)
            .map(|_| ())
            .map_err(|error| error.during(&format!("the arguments of task \"{task}\"")))
    }

    /// How many attempts a job of a task has where nothing else is said.
    #[must_use]
    pub fn max_attempts(&self, task: &str) -> u32 {
        self.entry(task).map_or(ATTEMPTS_DEFAULT, |entry| entry.attempts_max)
    }

    /// Whether a job of a task runs at most once where nothing else is said.
    #[cfg(feature = "cli")]
    pub(crate) fn is_at_most_once(&self, task: &str) -> bool {
        self.entry(task).is_some_and(|entry| entry.at_most_once)
    }

    /// How long an attempt of a task may take where its job says nothing.
    #[must_use]
    pub fn timeout(&self, task: &str) -> Option<Duration> {
        self.entry(task).and_then(|entry| entry.timeout)
    }

    /// Where the handler of a task runs.
    #[must_use]
    pub fn isolation(&self, task: &str) -> Isolation {
        self.entry(task).map_or(Isolation::Thread, |entry| entry.isolation)
    }

    /// A task that has no time to run.
    pub(crate) fn first_without_time(&self) -> Option<&str> {
        self.tasks.iter().find(|(_, entry)| entry.timeout == Some(Duration::ZERO)).map(|(id, _)| id.as_str())
    }

    /// The task whose handler runs in a process of its own with the least memory, and how much that is.
    pub(crate) fn first_isolated(&self) -> Option<(&str, Option<u64>)> {
        let isolated = self.tasks.iter().filter_map(|(id, entry)| match entry.isolation {
            Isolation::Process { memory_max } => Some((id.as_str(), memory_max)),
            Isolation::Thread => None,
        });
        isolated.min_by_key(|(_, memory_max)| memory_max.unwrap_or(u64::MAX))
    }

    /// Whether it can run a task of this id, present or earlier.
    #[cfg(all(unix, feature = "isolation"))]
    pub(crate) fn knows(&self, task: &str) -> bool {
        self.entry(task).is_some()
    }

    /// Whether there is no task to run.
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Adds the tasks of another registry.
    ///
    /// # Errors
    /// `Invalid` for an id that is taken.
    pub(crate) fn add_all(&mut self, other: Self) -> Result<()> {
        for (id, entry) in other.tasks {
            self.insert(&id, entry)?;
        }
        for (alias, id) in other.aliases {
            self.insert_alias(&alias, &id)?;
        }
        Ok(())
    }

    pub(crate) fn names(&self) -> HashSet<String> {
        self.ids().map(str::to_owned).collect()
    }

    /// Runs a job's handler. A panic in it is a failed attempt with its message.
    pub(crate) fn run(&self, job: &Job) -> Result<RunOutput, TaskError> {
        let Some(entry) = self.entry(job.task()) else {
            return Err(TaskError::Release);
        };
        catch_unwind(AssertUnwindSafe(|| (entry.run)(job))).unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
    }

    /// How long to wait after so many failed attempts; the default where the task's own formula panics.
    pub(crate) fn backoff(&self, task: &str, attempt: u32) -> Duration {
        let backoff = |entry: &Entry| catch_unwind(AssertUnwindSafe(|| (entry.backoff)(attempt))).ok();
        self.entry(task).and_then(backoff).unwrap_or_else(|| default_backoff(attempt))
    }

    /// Registers a closure that encodes its result.
    fn register_encoded<A: Serialize + DeserializeOwned + 'static>(
        &mut self,
        id: &str,
        run: impl Fn(&Job, A) -> Result<RunOutput, TaskError> + Send + Sync + 'static,
    ) -> Result<Registered<'_, A>> {
        let upgrades = Upgrades::<A>::default();
        let (decode, describe) = (upgrades.clone(), upgrades.clone());
        let entry = Entry {
            version: 1,
            attempts_max: ATTEMPTS_DEFAULT,
            at_most_once: false,
            timeout: None,
            isolation: Isolation::Thread,
            run: Arc::new(move |job: &Job| {
                let args = decode.read(job.args_version(), job.payload()).map_err(|error| of_args(&error))?;
                run(job, args)
            }),
            describe: Arc::new(move |version, args| to_json(&describe.read(version, args)?)),
            backoff: Arc::new(default_backoff),
        };
        self.insert(id, entry)?;
        Ok(Registered { registry: self, id: id.to_owned(), upgrades })
    }

    fn entry(&self, task: &str) -> Option<&Entry> {
        self.tasks.get(task).or_else(|| self.tasks.get(self.aliases.get(task)?))
    }

    fn insert(&mut self, id: &str, entry: Entry) -> Result<()> {
        self.check_free(id)?;
        self.tasks.insert(id.to_owned(), entry);
        Ok(())
    }

    fn insert_alias(&mut self, alias: &str, id: &str) -> Result<()> {
        self.check_free(alias)?;
        self.aliases.insert(alias.to_owned(), id.to_owned());
        Ok(())
    }

    fn check_free(&self, id: &str) -> Result<()> {
        check_name("task", id)?;
        if self.tasks.contains_key(id) || self.aliases.contains_key(id) {
            return Err(Error::invalid(format!(
                "task \"{id}\" is registered already; give each task an id of its own"
            )));
        }
        Ok(())
    }
}

/// A closure that was registered, to say more about it.
pub struct Registered<'a, A> {
    registry: &'a mut Registry,
    id: String,
    upgrades: Upgrades<A>,
}

impl<A> Registered<'_, A> {
    /// Also runs the jobs of an id that the task had before.
    ///
    /// # Errors
    /// `Invalid` for an id that is taken.
    pub fn alias(&mut self, alias: &str) -> Result<&mut Self> {
        self.registry.insert_alias(alias, &self.id)?;
        Ok(self)
    }

    /// The present version of the arguments (1 where nothing is said), and how to read those of other ones. Whoever
    /// enqueues says the same version: [`JobRequest::args_version`](crate::JobRequest::args_version).
    pub fn version(
        &mut self,
        version: u32,
        upgrade: impl Fn(u32, &Payload) -> Result<A> + Send + Sync + 'static,
    ) -> &mut Self {
        self.upgrades.set(version, Arc::new(upgrade));
        self.change(|entry| entry.version = version)
    }

    /// How long to wait before the next attempt, after so many failed ones.
    pub fn backoff(&mut self, backoff: impl Fn(u32) -> Duration + Send + Sync + 'static) -> &mut Self {
        self.change(|entry| entry.backoff = Arc::new(backoff))
    }

    /// How many attempts a job has where its producer says nothing: for the command line, which knows the registry.
    /// From Rust, [`JobRequest::max_attempts`](crate::JobRequest::max_attempts) says so.
    pub fn max_attempts(&mut self, attempts: u32) -> &mut Self {
        self.change(|entry| entry.attempts_max = attempts)
    }

    /// Jobs of it run at most once where their producer says nothing: for the command line, which knows the registry.
    /// From Rust, [`JobRequest::at_most_once`](crate::JobRequest::at_most_once) says so.
    pub fn at_most_once(&mut self) -> &mut Self {
        self.change(|entry| entry.at_most_once = true)
    }

    /// How long an attempt may take where its job says nothing; as [`Task::TIMEOUT`].
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.change(|entry| entry.timeout = Some(timeout))
    }

    /// Where the handler runs: [`Isolation::PROCESS`] for a process of its own, on a thread of the worker by default.
    pub fn isolated(&mut self, isolation: Isolation) -> &mut Self {
        self.change(|entry| entry.isolation = isolation)
    }

    fn change(&mut self, change: impl FnOnce(&mut Entry)) -> &mut Self {
        if let Some(entry) = self.registry.tasks.get_mut(&self.id) {
            change(entry);
        }
        self
    }
}

/// The present version, and how other ones are read.
type Versioned<A> = Option<(u32, Upgrade<A>)>;
type Upgrade<A> = Arc<dyn Fn(u32, &Payload) -> Result<A> + Send + Sync>;

/// How the arguments of a closure are read: the present version as they are, older ones by its upgrade.
struct Upgrades<A>(Arc<RwLock<Versioned<A>>>);

impl<A> Clone for Upgrades<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<A> Default for Upgrades<A> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<A> Upgrades<A> {
    fn set(&self, version: u32, upgrade: Upgrade<A>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some((version, upgrade));
    }
}

impl<A: DeserializeOwned> Upgrades<A> {
    fn read(&self, version: u32, args: &Payload) -> Result<A> {
        match &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            Some((present, upgrade)) if version != *present => upgrade(version, args),
            None if version != 1 => {
                Err(Error::invalid(format!("the arguments are of version {version}, and this is 1")))
            }
            _ => args.decode(),
        }
    }
}

/// S28: arguments that can't be read are a failed attempt of that one job; its raw bytes are kept.
fn of_args(error: &Error) -> TaskError {
    TaskError::Failed(format!("the arguments can't be read: {}", error.full_message()))
}

fn panicked(panic: &(dyn Any + Send)) -> TaskError {
    let text = panic.downcast_ref::<&str>().copied();
    let message = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    TaskError::Failed(format!("the handler panicked: {}", message.unwrap_or("a value that is no text")))
}

fn finish<O: Serialize>(output: &O) -> Result<RunOutput, TaskError> {
    Ok(RunOutput { result: result_payload(output)? })
}

fn to_json<T: Serialize>(value: &T) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(|error| Error::invalid("the arguments can't be shown as JSON").because(error))
}
