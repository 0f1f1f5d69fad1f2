//! A flow of jobs across several worker processes: a chain, a fan-out, what a run enqueues with its completion, and a
//! job that runs once when all have ended.
//!
//! ```text
//! cargo run --release --example workflow [STORE]
//! ```
//!
//! What to look at: "fetch" runs before anything else. It finds the pages of a book and enqueues a job for each, in the
//! same commit as its own completion, so that no crash leaves it with some of them, or twice. Each page is "scanned"
//! and then "proofread", a chain; page 13 can't be read, so that its proofreading is cancelled. When all have ended,
//! however they did, "publish" runs, once, and counts what came of them. Three processes share the work; no job of the
//! flow waits in any of them for another.

mod common;

use std::{
    env,
    error::Error,
    path::Path,
    process::{Child, Command, ExitCode},
    time::Duration,
};

use casque::{JobId, JobRequest, Registry, Store, TaskError, Worker, flow::Flow};

const PAGES: u32 = 20;
const UNREADABLE: u32 = 13;
const WORKERS: usize = 3;

fn main() -> ExitCode {
    common::run(include_str!("workflow.rs"), &[], |args| match *args {
        [] => {
            let folder = tempfile::tempdir()?;
            play(&folder.path().join("workflow.redb"))
        }
        [store] => play(Path::new(store)),
        ["worker", store] => work(&Store::open(store)?),
        _ => Err("usage: workflow [STORE]".into()),
    })
}

/// Enqueues the first job and the last, and waits for the latter.
fn play(path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let store = Store::open(path)?;
    let queue = store.queue("default");
    // A batch that is open: what runs in it may add to it.
    let batch = queue.open_batch(JobRequest::new("publish", &"a book"))?;
    batch.enqueue("default", JobRequest::new("fetch", &("a book", batch.id().to_string())))?;
    batch.seal()?;

    let mut workers = (0..WORKERS).map(|_| start(path)).collect::<Result<Vec<_>, _>>()?;
    let summary: String = store.wait(batch.id(), Duration::from_mins(1))?;
    println!("{summary}");
    for worker in &mut workers {
        worker.kill()?;
        worker.wait()?;
    }
    store.close()?;
    Ok(ExitCode::SUCCESS)
}

fn start(store: &Path) -> std::io::Result<Child> {
    Command::new(env::current_exe()?).arg("worker").arg(store).spawn()
}

/// Runs jobs until it is killed.
fn work(store: &Store) -> Result<ExitCode, Box<dyn Error>> {
    let mut tasks = Registry::new();
    tasks.register("fetch", |job, (_book, batch): (String, String)| {
        let batch: JobId = batch.parse()?;
        for page in 1..=PAGES {
            let mut flow = Flow::new();
            let scan = flow.add("default", JobRequest::new("scan", &page).before(batch));
            flow.add_after([scan], "default", JobRequest::new("proofread", &page).before(batch));
            job.enqueue_flow(flow)?;
        }
        Ok(())
    })?;
    tasks.register("scan", |_, page: u32| {
        if page == UNREADABLE {
            return Err(TaskError::fatal("the page can't be read"));
        }
        Ok(())
    })?;
    tasks.register("proofread", |_, _page: u32| Ok(()))?;
    tasks.register("publish", |job, book: String| {
        let ends = job.awaited();
        Ok(format!("{book}: {} jobs completed, {} died, {} were cancelled", ends.completed, ends.dead, ends.cancelled))
    })?;
    Worker::new(store).tasks(tasks).concurrency(2).run()?;
    Ok(ExitCode::SUCCESS)
}
