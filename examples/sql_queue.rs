//! The job table of a web program, without its database: two workers look for a new job each and process it, while the
//! program that asked for them polls their state and then reads their results. And `synchronize`, by a named lock.
//!
//! ```text
//! cargo run --release --example sql_queue [STORE]
//! ```
//!
//! What to look at: there, a worker found a `new` row under a row lock and wrote `processing` into it; here a claim
//! does both, and the job of a worker that dies is new again. The row lock was also how processes kept out of each
//! other's way, once somebody had made a row for the name; here any name is a lock. Each bill needs the next number,
//! which is in a plain file: without the lock, two bills would have the same.

mod common;

use std::{
    collections::BTreeSet,
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode},
    thread,
    time::Duration,
};

use casque::{JobId, JobRequest, State, Store};

const WORKERS: usize = 2;
const REQUESTS: u64 = 12;
/// What tells the workers that there will be no more.
const CLOSED: &str = "closed";

fn main() -> ExitCode {
    common::run(include_str!("sql_queue.rs"), &[], |args| match *args {
        [] => {
            let folder = tempfile::tempdir()?;
            play(&folder.path().join("bills.redb"))
        }
        [store] => play(Path::new(store)),
        ["worker", store] => work(&Store::open(store)?),
        ["requester", store] => request(&Store::open(store)?),
        _ => Err("usage: sql_queue [STORE]".into()),
    })
}

/// Starts two workers and a requester, and looks at the numbers when they are done.
fn play(path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let store = Store::open(path)?;
    store.put(CLOSED, &false)?;
    fs::write(numbers(&store), "0")?;
    let program = env::current_exe()?;
    let start = |role: &str| Command::new(&program).arg(role).arg(path).spawn();
    let workers = (0..WORKERS).map(|_| start("worker")).collect::<Result<Vec<Child>, std::io::Error>>()?;
    let mut all_well = start("requester")?.wait()?.success();
    store.put(CLOSED, &true)?;
    for mut worker in workers {
        all_well &= worker.wait()?.success();
    }
    println!("{REQUESTS} requests, and the last number is {}", fs::read_to_string(numbers(&store))?);
    store.close()?;
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The web program: asks for bills, polls their state as a page would, and reads the results.
fn request(store: &Store) -> Result<ExitCode, Box<dyn Error>> {
    let queue = store.queue("bills");
    let mut open: Vec<(JobId, State)> = Vec::new();
    for customer in 0..REQUESTS {
        open.push((queue.enqueue(JobRequest::new("bill", &customer))?, State::Ready));
    }
    let mut numbers = BTreeSet::new();
    while !open.is_empty() {
        for (id, seen) in &mut open {
            let job = store.job(*id)?;
            if job.state != *seen {
                *seen = job.state;
                println!("job {id} is {seen}");
            }
            if job.state == State::Completed {
                let number: u64 = job.result.ok_or("a bill has a number")?.decode()?;
                println!("job {id} has bill {number}");
                numbers.insert(number);
            }
        }
        open.retain(|(_, seen)| !seen.is_final());
        thread::sleep(Duration::from_millis(5));
    }
    store.clone().close()?;
    let is_complete = numbers == (1..=REQUESTS).collect();
    println!("{} different numbers, from 1 to {REQUESTS}: {is_complete}", numbers.len());
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A worker: finds a new job, processes it, and writes its result.
fn work(store: &Store) -> Result<ExitCode, Box<dyn Error>> {
    let queue = store.queue("bills");
    loop {
        let Some(job) = queue.claim(1, Duration::from_millis(200))?.pop() else {
            if store.get(CLOSED)? == Some(true) {
                break;
            }
            continue;
        };
        job.start()?;
        let customer: u64 = job.args()?;
        let number = synchronize(store, "bill-numbers", || next_number(&numbers(store)))?;
        println!("worker {}: bill {number} for customer {customer}", std::process::id());
        job.complete_with(&number)?;
    }
    store.clone().close()?;
    Ok(ExitCode::SUCCESS)
}

/// Does something that no other process does at the same time, under a name that need not be known before.
fn synchronize<T>(
    store: &Store,
    name: &str,
    body: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let held = store.lock(name)?;
    let value = body()?;
    held.unlock()?;
    Ok(value)
}

/// Takes the next number from a file, slowly: two that did so at once would take the same.
fn next_number(path: &Path) -> Result<u64, Box<dyn Error>> {
    let number: u64 = fs::read_to_string(path)?.trim().parse()?;
    thread::sleep(Duration::from_millis(3));
    fs::write(path, (number + 1).to_string())?;
    Ok(number + 1)
}

fn numbers(store: &Store) -> PathBuf {
    store.path().map(|path| path.with_extension("numbers")).unwrap_or_default()
}
