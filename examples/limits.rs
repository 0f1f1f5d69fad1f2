//! Four worker processes keep to the limits of one queue: so many jobs at once, one of each customer, so many in a
//! second.
//!
//! ```text
//! cargo run --release --example limits [STORE]
//! ```
//!
//! What to look at: the limits are rows of the store, so that all processes keep to them, whoever is there. Each job
//! tells when it begins and when it ends; the judge counts what ran at once, and what ran in any second. Forty jobs of
//! one customer stand in front of the others and hold up none of them.

mod common;

use std::{
    env,
    error::Error,
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use casque::{
    JobRequest, Registry, Store, Timestamp, Worker,
    types::{QueueConfig, Rate},
};

const PROCESSES: usize = 4;
const CUSTOMERS: usize = 10;
const JOBS_EACH: usize = 8;
/// How many jobs of the first customer stand before all others.
const JOBS_OF_FIRST: usize = 40;
/// The limits: at once, and in a second with a burst.
const AT_ONCE: u32 = 3;
const PER_SECOND: u32 = 60;
const BURST: u32 = 10;

fn main() -> ExitCode {
    common::run(include_str!("limits.rs"), &[], |args| match *args {
        [] => {
            let folder = tempfile::tempdir()?;
            play(&folder.path().join("limits.redb"))
        }
        [store] => play(Path::new(store)),
        ["worker", store, diary] => work(&Store::open(store)?, Path::new(diary)),
        _ => Err("usage: limits [STORE]".into()),
    })
}

/// Sets the limits, enqueues, lets the workers work, and judges what they wrote down.
fn play(path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let store = Store::open(path)?;
    let queue = store.queue("calls");
    let rate = Rate::new(PER_SECOND, Duration::from_secs(1)).burst(BURST);
    queue.configure(&QueueConfig::new().concurrency(AT_ONCE).concurrency_per_key(1).rate(rate))?;
    let customers = (0..JOBS_OF_FIRST).map(|_| 0).chain((0..JOBS_EACH).flat_map(|_| 1..CUSTOMERS));
    let jobs: Vec<JobRequest> = customers
        .map(|customer| JobRequest::new("call", &customer).concurrency_key(format!("customer-{customer}")))
        .collect();
    let count = jobs.len();
    queue.enqueue_batch(jobs)?;

    let diary = path.with_extension("diary");
    let program = env::current_exe()?;
    let workers = (0..PROCESSES)
        .map(|_| Command::new(&program).arg("worker").arg(path).arg(&diary).spawn())
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    let mut all_well = true;
    for mut worker in workers {
        all_well &= worker.wait()?.success();
    }

    let text = fs::read_to_string(&diary)?;
    fs::remove_file(&diary)?;
    let entries: Vec<Entry> = text.lines().filter_map(Entry::read).collect();
    let (at_once, of_one_customer) = most_at_once(&entries);
    let in_a_second = most_in_a_second(&entries);
    let ended = entries.iter().filter(|entry| !entry.begins).count();
    println!("{PROCESSES} processes ran {ended} of {count} jobs of {CUSTOMERS} customers");
    println!("at most {at_once} ran at once; the limit is {AT_ONCE}");
    println!("at most {of_one_customer} of one customer ran at once; the limit is 1");
    println!("at most {in_a_second} began in one second; the rate is {PER_SECOND}, and {BURST} more after a pause");
    all_well &= ended == count && at_once <= AT_ONCE as usize && of_one_customer == 1;
    // A job takes its token when it is claimed, and may begin a moment later: as many as may be claimed at once.
    all_well &= in_a_second <= (PER_SECOND + BURST + AT_ONCE) as usize;
    store.close()?;
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Works until nothing is left, and writes down what begins and ends.
fn work(store: &Store, diary: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let diary = OpenOptions::new().create(true).append(true).open(diary)?;
    let mut tasks = Registry::new();
    tasks.register("call", move |job, customer: i32| {
        let note = |sign| {
            let line = format!("{sign} {} {customer} {}\n", job.id(), Timestamp::now().as_millis());
            (&diary).write_all(line.as_bytes())
        };
        note('+')?;
        thread::sleep(Duration::from_millis(fastrand::u64(5..20)));
        note('-')?;
        Ok(())
    })?;
    Worker::new(store).queue("calls").tasks(tasks).concurrency(2).drain(true).run()?;
    store.clone().close()?;
    Ok(ExitCode::SUCCESS)
}

/// One line of the diary.
struct Entry<'a> {
    begins: bool,
    job: &'a str,
    customer: &'a str,
    at_ms: u64,
}

impl<'a> Entry<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut words = line.split(' ');
        let begins = words.next()? == "+";
        let (job, customer) = (words.next()?, words.next()?);
        Some(Self { begins, job, customer, at_ms: words.next()?.parse().ok()? })
    }
}

/// The most that ran at once, of all customers and of one.
fn most_at_once(entries: &[Entry<'_>]) -> (usize, usize) {
    let mut running: Vec<(&str, &str)> = Vec::new();
    let (mut of_all, mut of_one) = (0, 0);
    for entry in entries {
        running.retain(|(job, _)| *job != entry.job);
        if entry.begins {
            running.push((entry.job, entry.customer));
        }
        of_all = of_all.max(running.len());
        of_one = of_one.max(running.iter().filter(|(_, customer)| *customer == entry.customer).count());
    }
    (of_all, of_one)
}

fn most_in_a_second(entries: &[Entry<'_>]) -> usize {
    let begun: Vec<u64> = entries.iter().filter(|entry| entry.begins).map(|entry| entry.at_ms).collect();
    let in_the_second_from = |from: &u64| begun.iter().filter(|at| (*from..from + 1_000).contains(at)).count();
    begun.iter().map(in_the_second_from).max().unwrap_or(0)
}
