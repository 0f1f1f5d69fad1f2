//! A job that is enqueued, and run at once by a process that is nobody's child.
//!
//! The process that spawns starts one that starts another and ends: so the last is adopted by the system, nobody has to
//! reap it, and it outlives whoever spawned the job. It says that it is there before the job is enqueued, and is then
//! told its id; it claims that job as any worker would, runs it, and ends.

use std::{fs::OpenOptions, process::Stdio};

use rustix::{
    process::setsid,
    stdio::{dup2_stderr, dup2_stdout},
};

use super::{
    Role, again,
    host::place_of,
    inside::{no_socket, take_socket},
    process::Process,
    wire::{Listener, Once, Order, Speaker, VERSION, Word},
};
use crate::{
    error::{Error, ErrorKind, Result},
    queue::{
        IntoJob, Queue,
        enqueue::{NewJob, When},
        id::JobId,
    },
    store::{change::Intent, open::StoreOptions},
    task::Registry,
    worker::Worker,
};

impl Queue {
    /// Enqueues a job, and has it run at once in a new process of this program, which outlives this one, shares nothing
    /// with it, and leaves no zombie. Its `main` calls [`child::run_if_child`](crate::child::run_if_child) first. What
    /// the job prints goes nowhere; follow it by [`Store::job`](crate::Store::job) and
    /// [`Store::wait`](crate::Store::wait). It is a job like any other: where the process can't be started or is
    /// killed, and for attempts after the first, it is run by whatever worker there is.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tasks = casque::Registry::new();
    /// tasks.register("convert", |job, file: String| {
    ///     job.progress(0.5, "halfway")?;
    ///     Ok(file.len())
    /// })?;
    /// casque::child::run_if_child(&tasks);
    ///
    /// let store = casque::Store::open("app.redb")?;
    /// let id = store.queue("media").spawn(casque::JobRequest::new("convert", "cat.mov"))?;
    /// println!("{:?}", store.job(id)?.progress);
    /// let length: usize = store.wait(id, Duration::from_secs(60))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Queue::enqueue`]; `Invalid` for a job that is not to run now, for a store in memory, and where `main` does
    /// not take part, and then nothing was enqueued.
    pub fn spawn(&self, job: impl IntoJob) -> Result<JobId> {
        let new = job.into_job().for_queue(self.name())?;
        new.check()?;
        check_now(&new)?;
        let store = self.store();
        let Some(place) = place_of(store) else {
            return Err(Error::invalid("a store in memory can't be reached from another process; enqueue the job"));
        };
        // Others run the job where the system has no process for it.
        let process = match launched() {
            Ok(process) => Some(process),
            Err(error) if error.kind() == ErrorKind::Invalid => return Err(error),
            Err(error) => {
                store.inner.site.note_trouble(&error);
                None
            }
        };
        let job = store.inner.perform(Intent::Enqueue(new))?.enqueued()?;
        if let Some(mut process) = process {
            let once = Once { place, queue: self.name().to_owned(), job };
            if let Err(error) = process.tell(&Order::Once(once), None) {
                store.inner.site.note_trouble(&error);
            }
        }
        Ok(job)
    }
}

fn check_now(job: &NewJob) -> Result<()> {
    let waits = job.extra.as_ref().is_some_and(|extra| !extra.after.is_empty() || extra.is_open);
    if job.when != When::Now || waits {
        return Err(Error::invalid("a job that is spawned runs at once; enqueue one that is to wait"));
    }
    Ok(())
}

/// A process that waits to be told its job. The one that started it has ended, and is reaped.
fn launched() -> Result<Process> {
    let mut process = Process::launch()?;
    process.greet()?;
    let launched = process.reap();
    launched.map_err(|error| Error::unavailable("a process can't be waited for").because(error))?;
    Ok(process)
}

/// Starts the process that is to run the job, with the socket that this one has as its stdin.
pub(super) fn launch() -> Result<()> {
    let start = || {
        let mut command = again(Role::Once)?;
        command.stdin(Stdio::inherit()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without a group of its own: whoever leads one can't begin a session.
        std::os::unix::process::CommandExt::process_group(&mut command, rustix::process::getpgrp().as_raw_pid());
        command.spawn()
    };
    start().map(drop).map_err(|error| Error::unavailable("a process can't be started").because(error))
}

/// Runs the job that this process is told.
pub(super) fn run_once(registry: &Registry) -> Result<()> {
    // Nothing of the terminal or the session of whoever spawned the job is left.
    setsid().map_err(|error| Error::unavailable("a session can't be begun").because(error))?;
    let nothing = OpenOptions::new().write(true).open("/dev/null").map_err(|error| no_socket(&error))?;
    dup2_stdout(&nothing).and_then(|()| dup2_stderr(&nothing)).map_err(|error| no_socket(&error.into()))?;
    let socket = take_socket()?;
    let mut listener = Listener::new(socket.try_clone().map_err(|error| no_socket(&error))?);
    Speaker::new(socket).say(&Word::Hello { version: VERSION.to_owned() })?;
    let Some(Order::Once(once)) = listener.next()? else { return Ok(()) };
    drop(listener);
    let store = StoreOptions::new().create(false).commits(once.place.commits).open(&once.place.path)?;
    let worker = Worker::new(&store).tasks(registry.clone()).queue(once.queue).only(once.job);
    let ran = worker.run();
    let closed = store.close();
    ran.and(closed)
}
