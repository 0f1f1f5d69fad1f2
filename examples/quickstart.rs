//! One producer, three workers, one store file, and no server: each is a process of this same program.
//!
//! ```text
//! cargo run --release --example quickstart [STORE]
//! ```
//!
//! What to look at: the workers are strict, and dawdle between their snapshot and their commit. So two of them often
//! shift the same job off the queue. One commits; the other says `someone hijacked my job` and grabs
//! another. Each run appends its job, token and pid to a file, and each hijack its job and pid. The last line of
//! the output is counted from that file: however many hijacks there were, no job is lost and none is run twice.

mod common;

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{self, Child, Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use casque::{Event, JobId, JobRequest, Policy, Registry, Store, Worker, types::Subject};

const JOBS: u32 = 20;
const WORKERS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    common::run(include_str!("quickstart.rs"), &[], |args| match *args {
        [] => {
            let folder = tempfile::tempdir()?;
            play(&folder.path().join("quickstart.redb"))
        }
        ["producer", store, _] => produce(&Store::open(store)?),
        ["worker", store, log] => work(&Store::open(store)?, Path::new(log)),
        [store] => play(Path::new(store)),
        _ => Err("usage: quickstart [STORE]".into()),
    })
}

/// Starts the others, waits until every job has ended, and counts.
fn play(path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    if path.exists() {
        return Err(format!("{} is there already; name a fresh store", path.display()).into());
    }
    let store = Store::open(path)?;
    let log = path.with_extension("log");

    let mut children = vec![start("producer", path, &log)?];
    for _ in 0..WORKERS {
        children.push(start("worker", path, &log)?);
    }

    // The producer puts the ids of its jobs on the root; here they are waited for, and then each job.
    let enqueued = store.watch_key::<Vec<JobId>>("enqueued", None, PATIENCE)?.ok_or("the ids are gone")?.value;
    for job in &enqueued {
        store.wait_ended(*job, PATIENCE)?;
    }
    store.put("finished", &true)?;
    for child in &mut children {
        child.wait()?;
    }
    store.close()?;

    let log = fs::read_to_string(&log)?;
    let hijacks = log.lines().filter(|line| line.starts_with("hijack ")).count();
    let mut runs: BTreeMap<JobId, Vec<&str>> = BTreeMap::new();
    for (job, run) in log.lines().filter_map(|line| line.strip_prefix("run ")?.split_once(' ')) {
        runs.entry(job.parse()?).or_default().push(run);
    }
    let (mut lost, mut doubled) = (0, 0);
    for job in &enqueued {
        let runs = runs.get(job).map_or(&[][..], Vec::as_slice);
        lost += usize::from(runs.is_empty());
        doubled += usize::from(runs.len() > 1);
        println!("job {job}: {}", runs.join(", "));
    }
    let (jobs, runs) = (enqueued.len(), runs.values().map(Vec::len).sum::<usize>());
    println!("{jobs} jobs, {runs} runs, {hijacks} hijacks, {lost} lost, {doubled} doubled");
    Ok(if lost + doubled == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn start(role: &str, store: &Path, log: &Path) -> Result<Child, Box<dyn Error>> {
    let mut command = Command::new(env::current_exe()?);
    let mut child = command.arg(role).arg(store).arg(log).stderr(Stdio::piped()).spawn()?;
    println!("{role} is process {}", child.id());
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    // A strict worker says on stderr by itself that it was hijacked; here it is told once, with its process.
    let others = stderr.lines().map_while(Result::ok).filter(|line| !line.starts_with("someone hijacked my job"));
    thread::spawn(|| others.for_each(|line| eprintln!("{line}")));
    Ok(child)
}

/// Enqueues the jobs, one commit each.
fn produce(store: &Store) -> Result<ExitCode, Box<dyn Error>> {
    let queue = store.queue("default");
    let ids = (1..=JOBS)
        .map(|number| queue.enqueue(JobRequest::new("greet", &number)))
        .collect::<Result<Vec<JobId>, casque::Error>>()?;
    store.put("enqueued", &ids)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs jobs until the root says that all are finished.
fn work(store: &Store, log: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let pid = process::id();
    // Opened to append and written a line at a time, so that the processes don't write into each other's lines.
    let log = Arc::new(OpenOptions::new().create(true).append(true).open(log)?);
    let hijacks = log.clone();
    let mut tasks = Registry::new();
    tasks.register("greet", move |job, number: u32| {
        log.as_ref().write_all(format!("run {} token {} pid {pid}\n", job.id(), job.token()).as_bytes())?;
        println!("worker {pid}: greeting number {number}");
        Ok(())
    })?;
    let worker = Worker::new(store)
        .tasks(tasks)
        .policy(Policy::Strict)
        .pause_before_commit(|| thread::sleep(Duration::from_millis(fastrand::u64(5..60))))
        .listen(move |event| {
            if let Event::HijackedStrictly(conflict) = event
                && let Subject::Hijack { job, .. } = &conflict.subject
            {
                let by = conflict.by.as_ref().map_or_else(|| "another".to_owned(), ToString::to_string);
                println!("worker {pid}: someone hijacked my job {job} (taken by {by}); grabbing another");
                let line = format!("hijack {job} pid {pid}\n");
                hijacks.as_ref().write_all(line.as_bytes()).expect("the log can be written");
            }
        });

    let (stop, root) = (worker.stop_handle(), store.clone());
    thread::spawn(move || {
        // Also when the wait fails: a worker that can't be told to stop should not stay.
        let _ = root.watch_key::<bool>("finished", None, 2 * PATIENCE);
        stop.stop();
    });
    worker.run()?;
    Ok(ExitCode::SUCCESS)
}
