//! Worker processes of this same program, which tell their parent when a job begins.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum as _;
use crossbeam_channel::{Receiver, unbounded};

use super::{WORKED, job, mess::Mess};
use crate::{
    cli::{
        context::Context,
        exit::{Exit, Failure},
    },
    clock::{deadline_after, monotonic},
    error::{Error, Result},
    store::Store,
    task::Registry,
    worker::Worker,
};

/// How long a job may take to begin before something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);

/// The processes. Dropping this kills those that have not ended.
pub(super) struct Crew<'a> {
    mess: &'a Mess,
    /// When a job began, as far as this process heard.
    begun: Receiver<Instant>,
}

impl<'a> Crew<'a> {
    pub(super) fn start(context: &Context, store: &Path, count: usize, mess: &'a Mess) -> Result<Self, Failure> {
        let failed = |error| Failure::new(Exit::Failed, format!("a worker can't be started: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let how = context.globals.commits.to_possible_value().map_or(String::new(), |how| how.get_name().to_owned());
        let (tell, begun) = unbounded();
        let crew = Self { mess, begun };
        for _ in 0..count {
            let mut command = Command::new(&program);
            command.arg("--store").arg(store).args(["--commits", &how, "bench", "--role", "worker"]);
            let stdout = mess.start_worker(command.stdin(Stdio::piped()).stdout(Stdio::piped())).map_err(failed)?;
            let tell = tell.clone();
            let hear = move || {
                for _ in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok) {
                    let _ = tell.send(monotonic());
                }
            };
            thread::Builder::new().name("casque-bench".into()).spawn(hear).map_err(failed)?;
        }
        Ok(crew)
    }

    /// So many jobs that each worker must have come to run one.
    pub(super) fn run_one_job_each(&self, store: &Store) -> Result<()> {
        for _ in 0..self.mess.workers() * 4 {
            self.time_to_start(store)?;
        }
        Ok(())
    }

    /// How long one job after the other takes from its enqueue to its start.
    pub(super) fn start_times(&self, store: &Store, duration: Duration) -> Result<Vec<Duration>> {
        let deadline = deadline_after(duration);
        let mut times = Vec::new();
        while times.is_empty() || monotonic() < deadline {
            times.push(self.time_to_start(store)?);
        }
        Ok(times)
    }

    fn time_to_start(&self, store: &Store) -> Result<Duration> {
        let enqueued = monotonic();
        store.queue(TOLD).enqueue(job("told"))?;
        let begun = self.begun.recv_timeout(PATIENCE).map_err(|_| {
            Error::unavailable(format!("no worker has begun a job in {PATIENCE:?}; see what it says above"))
        })?;
        Ok(begun.saturating_duration_since(enqueued))
    }

    /// Ends all of them in order.
    pub(super) fn end(self) -> Result<(), Failure> {
        let failed = |error| Failure::new(Exit::Failed, format!("a worker can't be waited for: {error}"));
        self.mess.end_workers().map_err(failed)
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        self.mess.kill_workers();
    }
}

/// The queue of jobs whose start is told: what is left on the other would come first.
const TOLD: &str = "told";

/// One of the crew: works until its parent closes its input, or is gone.
pub(super) fn work(store: &Store) -> Result<()> {
    let mut tasks = Registry::new();
    tasks.register("noop", |_, _: Vec<u8>| Ok(()))?;
    tasks.register("told", |_, _: Vec<u8>| {
        // A parent that is gone hears nothing, and this ends.
        let _ = writeln!(std::io::stdout(), "begun");
        Ok(())
    })?;
    let worker = Worker::new(store).tasks(tasks).queue(WORKED).queue(TOLD);
    let stop = worker.stop_handle();
    thread::Builder::new()
        .name("casque-bench".into())
        .spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stop.stop();
        })
        .map_err(|error| Error::unavailable("a thread can't be started").because(error))?;
    worker.run().map(drop)
}
