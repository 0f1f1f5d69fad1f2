//! Tasks whose handlers are futures, on a runtime that the program has.
//!
//! A handler's thread starts the future there and waits for its end. So all that holds for a blocking handler holds for
//! this one, and as many run at once as the worker has threads.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use crossbeam_channel::bounded;
use serde::{Serialize, de::DeserializeOwned};
use tokio::runtime::Handle;

use crate::{
    codec::Payload,
    error::{Error, Result},
    queue::lease::StopHook,
    task::{
        AsyncTask, Isolation, Job, StopReason, TaskError,
        registry::{Entry, Registered, Registry, finish, of_args, panicked, to_json},
    },
};

/// When a job is tried again whose runtime was gone.
const NO_RUNTIME: Duration = Duration::from_secs(1);

impl Registry {
    /// The async tasks that are registered from here on run on this runtime, and not on the one in which they are
    /// registered. It must be running for as long as the worker is: a runtime of the flavour `current_thread` runs
    /// nothing but while something is in its `block_on`.
    ///
    /// ```
    /// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    /// let mut tasks = casque::Registry::new();
    /// tasks.runtime(runtime.handle().clone());
    /// tasks.register_async("fetch", |_, url: String| async move { Ok(url.len()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn runtime(&mut self, runtime: Handle) -> &mut Self {
        self.runtime = Some(runtime);
        self
    }

    /// Registers an [`AsyncTask`] under its id and its aliases.
    ///
    /// # Errors
    /// `Invalid` for an id that is taken, or is no name, and where there is no runtime.
    pub fn async_task<T: AsyncTask>(&mut self) -> Result<&mut Self> {
        let runtime = self.runtime_for(T::ID)?;
        let decode = |version: u32, args: &Payload| {
            if version == T::VERSION { args.decode::<T>() } else { T::upgrade(version, args) }
        };
        let entry = Entry {
            version: T::VERSION,
            attempts_max: T::MAX_ATTEMPTS,
            at_most_once: T::AT_MOST_ONCE,
            timeout: T::TIMEOUT,
            isolation: Isolation::Thread,
            run: Arc::new(move |job: &Job| {
                let task = decode(job.args_version(), job.payload()).map_err(|error| of_args(&error))?;
                finish(&run_on(&runtime, job, move |job| task.run(job))?)
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

    /// Registers an async closure under an id. Its future runs on the runtime in which this is called, or on the one
    /// of [`Registry::runtime`]; blocking and async tasks may stand in one registry.
    ///
    /// When the run is called off (the job was cancelled, its time is over, it is another's, or the worker stops at
    /// once) the future is dropped at its next `.await`, and what it holds with it; then its slot in the worker is
    /// free. A gentle stop waits for it. A panic in it is a failed attempt.
    ///
    /// What the job's handle does with the store blocks for a commit, as `job.progress` does. Where that matters to the
    /// runtime, there are [`Lease::progress_async`](crate::Lease::progress_async) and
    /// [`Lease::log_async`](crate::Lease::log_async); for the rest, as `job.complete_in`, use
    /// `tokio::task::spawn_blocking` with a clone of the job.
    ///
    /// Each future that runs keeps one thread of the worker waiting, so that
    /// [`Worker::concurrency`](crate::Worker::concurrency) is the limit for both kinds: about 26 KiB of memory for
    /// each, 13 MiB for 500. On a runtime of one thread, run the worker by
    /// [`Worker::run_async`](crate::Worker::run_async): the blocking call would keep the runtime from running anything.
    ///
    /// In a process of its own ([`Registered::isolated`]) it needs a runtime where that process registers it, and is
    /// not dropped: there `job.is_cancelled` tells it.
    ///
    /// ```
    /// use casque::{JobRequest, Registry, Store, Worker};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> casque::Result<()> {
    /// # let store = Store::in_memory()?;
    /// let mut tasks = Registry::new();
    /// tasks.register_async("greet", |job, name: String| async move {
    ///     job.progress_async(0.5, "thinking").await?;
    ///     tokio::time::sleep(Duration::from_millis(1)).await;
    ///     Ok(format!("hello {name}"))
    /// })?;
    /// let id = store.queue("default").enqueue_async(JobRequest::new("greet", &"world")).await?;
    /// Worker::new(&store).tasks(tasks).concurrency(8).drain(true).run_async().await?;
    /// assert_eq!(store.wait_async::<String>(id, Duration::from_secs(5)).await?, "hello world");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for an id that is taken, or is no name, and where there is no runtime.
    pub fn register_async<A, O, F>(
        &mut self,
        id: &str,
        run: impl Fn(Job, A) -> F + Send + Sync + 'static,
    ) -> Result<Registered<'_, A>>
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Future<Output = Result<O, TaskError>> + Send,
    {
        let runtime = self.runtime_for(id)?;
        let run = Arc::new(run);
        self.register_encoded(id, move |job, args: A| {
            let run = run.clone();
            finish(&run_on(&runtime, job, move |job| run(job, args))?)
        })
    }

    fn runtime_for(&self, task: &str) -> Result<Handle> {
        let here = || {
            Handle::try_current().map_err(|error| {
                Error::invalid(format!(
                    "the async task \"{task}\" is registered outside of a tokio runtime; register it in one, or name \
                     one before with `Registry::runtime`"
                ))
                .because(error)
            })
        };
        self.runtime.clone().map_or_else(here, Ok)
    }
}

/// Runs a job's future on a runtime, and waits until it has ended or was dropped.
fn run_on<O, F>(runtime: &Handle, job: &Job, start: impl FnOnce(Job) -> F + Send + 'static) -> Result<O, TaskError>
where
    O: Send + 'static,
    F: Future<Output = Result<O, TaskError>> + Send,
{
    let (sender, ended) = bounded(1);
    let own = job.clone();
    let running = runtime.spawn(async move {
        // Moved here before the future is made, so that it is dropped after it: who waits learns of a future's end when
        // all that it held is gone.
        let sender = sender;
        let outcome = caught(async move { start(own).await }).await;
        // Nobody waits any more only where the handler's thread has died.
        let _ = sender.send(outcome);
    });
    let abort = running.abort_handle();
    let hook: Arc<StopHook> = Arc::new(move |_| abort.abort());
    job.on_call_off(&hook);
    ended.recv().unwrap_or_else(|_| Err(dropped(job)))
}

/// Runs a future to its end and drops it; a panic in it is a failure.
async fn caught<O>(future: impl Future<Output = Result<O, TaskError>>) -> Result<O, TaskError> {
    let mut future = pin!(future);
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)))
            .unwrap_or_else(|panic| std::task::Poll::Ready(Err(panicked(panic.as_ref()))))
    })
    .await
}

/// How a run ends whose future was dropped.
fn dropped(job: &Job) -> TaskError {
    match job.stop_reason() {
        Some(StopReason::Cancelled) => TaskError::Cancel,
        // Where its time is over or it is another's, this is nobody's any more.
        Some(_) => TaskError::Release,
        None => TaskError::Snooze(NO_RUNTIME),
    }
}
