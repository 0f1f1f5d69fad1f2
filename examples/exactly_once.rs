//! A job's effect on the root and its completion are one commit, so that the effect happens exactly once, whatever is
//! killed, and when.
//!
//! ```text
//! cargo run --release --example exactly_once [STORE]
//! ```
//!
//! What to look at: each job adds one to a counter on the root. The parent kills its workers with SIGKILL at random
//! moments and starts others, so handlers run more often than there are jobs. The counter is exact nonetheless: see
//! `job.complete_in` below. With a plain `store.add` and a return, a worker killed in between would count twice.

mod common;

use std::{
    env,
    error::Error,
    path::Path,
    process::{Child, Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use casque::{JobRequest, Registry, Store, Worker};

const JOBS: u32 = 300;
const WORKERS: usize = 3;
const KILLS: usize = 20;
const PATIENCE: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    common::run(include_str!("exactly_once.rs"), &[], |args| match *args {
        [] => {
            let folder = tempfile::tempdir()?;
            play(&folder.path().join("exactly-once.redb"))
        }
        [store] => play(Path::new(store)),
        ["worker", store] => work(&Store::open(store)?),
        _ => Err("usage: exactly_once [STORE]".into()),
    })
}

/// Enqueues the jobs, kills workers while there is something to do, and looks at the counter.
fn play(path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let store = Store::open(path)?;
    let queue = store.queue("default");
    store.remove("counter")?;
    store.remove("runs")?;
    let before = queue.stats()?.completed;
    queue.enqueue_batch((0..JOBS).map(|number| JobRequest::new("count", &number)))?;

    let mut workers = (0..WORKERS).map(|_| start(path)).collect::<Result<Vec<_>, _>>()?;
    let (mut kills, began) = (0, Instant::now());
    while queue.stats()?.completed - before < u64::from(JOBS) && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(fastrand::u64(20..100)));
        if kills < KILLS {
            let victim = fastrand::usize(0..WORKERS);
            end(&mut workers[victim])?;
            workers[victim] = start(path)?;
            kills += 1;
        }
    }
    for worker in &mut workers {
        end(worker)?;
    }

    let counter: i64 = store.get("counter")?.unwrap_or(0);
    let runs: i64 = store.get("runs")?.unwrap_or(0);
    println!("{JOBS} jobs, {kills} workers killed, {runs} runs begun, counter {counter}");
    store.close()?;
    Ok(if counter == i64::from(JOBS) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn start(store: &Path) -> std::io::Result<Child> {
    Command::new(env::current_exe()?).arg("worker").arg(store).spawn()
}

/// On Unix, `kill` is SIGKILL: the process can't prepare for it.
fn end(worker: &mut Child) -> std::io::Result<()> {
    worker.kill()?;
    worker.wait().map(drop)
}

/// Runs jobs until it is killed.
fn work(store: &Store) -> Result<ExitCode, Box<dyn Error>> {
    let mut tasks = Registry::new();
    tasks.register("count", |job, _number: u32| {
        job.store().add("runs", 1)?;
        thread::sleep(Duration::from_millis(fastrand::u64(0..30)));
        job.complete_in(|tx| tx.add("counter", 1))?;
        Ok(())
    })?;
    Worker::new(store).tasks(tasks).concurrency(2).run()?;
    Ok(ExitCode::SUCCESS)
}
