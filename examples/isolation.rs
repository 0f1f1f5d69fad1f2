//! Tasks that abort, leak memory and hang, each in a process of its own: each fails alone, and the worker goes on.
//!
//! ```text
//! cargo run --release --example isolation
//! ```
//!
//! What to look at: four kinds of jobs on one worker. `abort` takes its process down, `leak` asks for more memory than
//! its 64 MiB, `hang` takes longer than its 200 ms; all of that ends one attempt each, with the reason in the job's
//! history. `add` runs among them, in warm processes that are used again and again. The worker's own process is the
//! same from beginning to end, and no child is left. What the children write to stderr as they die shows among it, with
//! what Rust says of a backtrace after a failed allocation. The call of `run_if_child` in `main` is all that it takes.

mod common;

use std::{collections::BTreeSet, error::Error, process::ExitCode, thread, time::Duration};

use casque::{Isolation, JobRequest, Registry, Store, Worker};

/// How many jobs of each kind there are.
const JOBS: u32 = 10;

fn main() -> ExitCode {
    let Ok(tasks) = tasks() else { return ExitCode::FAILURE };
    // In a child this never returns.
    casque::child::run_if_child(&tasks);
    common::run(include_str!("isolation.rs"), &[], |_| play(tasks))
}

fn tasks() -> casque::Result<Registry> {
    let mut tasks = Registry::new();
    tasks.register("add", |_, (a, b): (u32, u32)| Ok((a + b, std::process::id())))?.isolated(Isolation::PROCESS);
    tasks
        .register("abort", |job, ()| -> Result<(), _> {
            eprintln!("job {} aborts its process {}", job.id(), std::process::id());
            std::process::abort()
        })?
        .isolated(Isolation::PROCESS);
    tasks
        .register("leak", |_, ()| -> Result<(), _> {
            let mut hoard = Vec::new();
            loop {
                hoard.push(vec![1_u8; 1 << 20]);
            }
        })?
        .isolated(Isolation::Process { memory_max: Some(64 << 20) });
    tasks
        .register("hang", |_, ()| -> Result<(), _> {
            loop {
                thread::park();
            }
        })?
        .isolated(Isolation::PROCESS)
        .timeout(Duration::from_millis(200));
    Ok(tasks)
}

fn play(tasks: Registry) -> Result<ExitCode, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path().join("isolation.redb"))?;
    let queue = store.queue("default");
    let (mut sums, mut doomed) = (Vec::new(), Vec::new());
    for number in 0..JOBS {
        sums.push((number, queue.enqueue(JobRequest::new("add", &(number, 1_u32)))?));
        for task in ["abort", "leak", "hang"] {
            doomed.push(queue.enqueue(JobRequest::new(task, &()).max_attempts(1))?);
        }
    }
    println!("worker {} begins", std::process::id());
    let report = Worker::new(&store).tasks(tasks).concurrency(2).drain(true).run()?;
    println!("worker {}: {} completed, {} failed", std::process::id(), report.completed, report.failed);

    let mut processes = BTreeSet::new();
    for (number, id) in sums {
        let (sum, process): (u32, u32) = store.wait(id, Duration::ZERO)?;
        assert_eq!(sum, number + 1);
        processes.insert(process);
    }
    println!("{JOBS} sums by {} processes", processes.len());
    for id in &doomed[..3] {
        let job = store.job(*id)?;
        let why = job.errors.last().map_or("", |error| error.message.lines().next().unwrap_or_default());
        println!("{} is {}: {why}", job.task, job.state);
    }
    store.close()?;
    Ok(ExitCode::SUCCESS)
}
