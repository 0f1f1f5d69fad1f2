//! `casque bench`: what this machine and its disk give a store, in ten seconds.
//!
//! Nothing of the user's store is touched: one of its own is made in the same folder, and removed. Workers are
//! processes of this same program (`crew`). What the disk alone does is measured before and after, and printed beside.

mod crew;
mod disk;
mod mess;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};
use serde::Serialize;

use self::{crew::Crew, mess::Mess};
use super::{
    context::Context,
    exit::Failure,
    output::Output,
    units::{counted, number_from, parse_duration},
};
use crate::{
    clock::{deadline_after, monotonic, sleep},
    error::Result,
    queue::JobRequest,
    store::Store,
};

/// The bytes of a job's arguments.
const PAYLOAD_BYTES: usize = 200;
const BATCH: usize = 100;
/// The queue that the workers work on, and one that nobody does.
const WORKED: &str = "worked";
const LEFT: &str = "left";
/// How often it is looked whether the workers have run out of jobs.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Measure what this machine and its disk give a store
#[derive(Debug, Args)]
#[command(after_help = "\
Makes a store of its own for it, in the folder of --store unless another is named, and
removes it again. Every answer waits for the disk, so the rate of raw syncs says what can be
hoped for; where it changed by much meanwhile, something else was using the disk. Jobs have
200 bytes and handlers do nothing; each worker is a process that runs one job at a time.

Example:
  casque bench --workers 8")]
pub(super) struct Bench {
    /// Where to make the store; its disk is what is measured [default: beside the store]
    #[arg(long, value_name = "PATH")]
    folder: Option<PathBuf>,
    /// So many worker processes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number_from::<usize>(1))]
    workers: usize,
    /// About how long it takes
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true)]
    duration: Duration,
    /// What this process is for another that measures
    #[arg(long, hide = true)]
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Worker,
}

/// Something that was measured.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(rename = "line")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ms: Option<f64>,
}

impl Bench {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        if self.role == Some(Role::Worker) {
            return Ok(crew::work(&context.create()?)?);
        }
        let folder = self.folder.clone().or_else(|| context.path().parent().map(Path::to_owned));
        let folder = folder.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| ".".into());
        // Dropped last: who has something open in the folder goes first.
        let mess = Mess::new()?;
        let folder = mess.make_folder(&folder)?;
        let before = disk::syncs_per_second(&folder, self.part(0.1))?;
        rate(out, "raw fdatasync, before", before)?;

        let path = folder.join("bench.redb");
        let store = context.open_at(&path)?;
        let crew = Crew::start(context, &path, self.workers, &mess)?;
        // Who works is there, and one of them commits for all, when all have run something.
        crew.run_one_job_each(&store)?;
        rate(out, "enqueue, one at a time", self.enqueue_one_by_one(&store)?)?;
        rate(out, "enqueue, in batches of 100", self.enqueue_in_batches(&store)?)?;
        let name = format!("claim and complete, {}", counted(self.workers as u64, "worker"));
        rate(out, &name, self.claim_and_complete(&store)?)?;
        let times = crew.start_times(&store, self.part(0.15))?;
        latency(out, "from enqueue to start, idle", &times)?;
        crew.end()?;
        store.close()?;

        let after = disk::syncs_per_second(&folder, self.part(0.05))?;
        rate(out, "raw fdatasync, after", after)?;
        if (after / before - 1.0).abs() > 0.3 {
            context.say("the disk changed its pace meanwhile: something else uses it; measure again");
        }
        Ok(())
    }

    fn part(&self, part: f64) -> Duration {
        self.duration.mul_f64(part)
    }

    fn enqueue_one_by_one(&self, store: &Store) -> Result<f64> {
        let queue = store.queue(LEFT);
        per_second(self.part(0.15), || queue.enqueue(job("noop")).map(|_| 1))
    }

    fn enqueue_in_batches(&self, store: &Store) -> Result<f64> {
        let queue = store.queue(LEFT);
        per_second(self.part(0.15), || Ok(queue.enqueue_batch((0..BATCH).map(|_| job("noop")))?.len()))
    }

    /// The workers begin all at once, on as much as could be enqueued before: mostly more than they can do.
    fn claim_and_complete(&self, store: &Store) -> Result<f64> {
        let queue = store.queue(WORKED);
        queue.pause()?;
        per_second(self.part(0.15), || Ok(queue.enqueue_batch((0..10 * BATCH).map(|_| job("noop")))?.len()))?;
        queue.resume()?;
        let (begun, deadline) = (monotonic(), deadline_after(self.part(0.2)));
        let before = queue.stats()?.completed;
        loop {
            sleep(LOOK_EVERY);
            let (now, stats) = (monotonic(), queue.stats()?);
            if now >= deadline || stats.ready == 0 {
                // What is left is nobody's business any more.
                queue.pause()?;
                return Ok(as_float(stats.completed - before) / now.duration_since(begun).as_secs_f64());
            }
        }
    }
}

fn job(task: &str) -> JobRequest {
    JobRequest::new(task, &[7_u8; PAYLOAD_BYTES][..])
}

/// Does something again and again; how many of what it says that it did come to a second.
fn per_second(duration: Duration, mut body: impl FnMut() -> Result<usize>) -> Result<f64> {
    let (begun, deadline) = (monotonic(), deadline_after(duration));
    let mut count = 0;
    while monotonic() < deadline {
        count += body()? as u64;
    }
    Ok(as_float(count) / monotonic().duration_since(begun).as_secs_f64())
}

fn rate(out: &mut Output, name: &str, per_second: f64) -> Result<(), Failure> {
    let line = Line { name, per_second: Some(per_second), p50_ms: None, p99_ms: None };
    out.either(&line, format!("{name:<36}{per_second:>10.0} /s"))?;
    // It takes a while, and each line is worth something.
    out.flush()
}

fn latency(out: &mut Output, name: &str, times: &[Duration]) -> Result<(), Failure> {
    let (p50, p99) = (quantile(times, 50), quantile(times, 99));
    let line = Line { name, per_second: None, p50_ms: Some(p50), p99_ms: Some(p99) };
    out.either(&line, format!("{name:<36}{p50:>10.2} ms p50, {p99:.2} ms p99"))?;
    out.flush()
}

/// In milliseconds.
fn quantile(times: &[Duration], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

/// Counts are far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn as_float(count: u64) -> f64 {
    count as f64
}
