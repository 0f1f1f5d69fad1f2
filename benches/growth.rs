//! How large a store grows: while jobs pass with few alive, and after a backlog that was drained.
//!
//! ```text
//! cargo bench --bench growth -- [--quick] [--full] [--jobs N] [--only WORD] [--folder PATH] [--json FILE]
//! ```
//!
//! A process of its own does the work, and this one is the stone. `--full` passes and piles up ten million jobs, else a
//! million, or 100,000 with `--quick`. What is promised: below 128 MiB after the first without any compaction, and
//! after the second by one.

mod common;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use casque::{JobRequest, Lease, Store};
use serde_json::json;

use crate::common::{Crew, Options, Report, answer, file_bytes, float, mebibytes, ready, role};

/// The bytes of a job's arguments.
const PAYLOAD_BYTES: usize = 200;
/// How many jobs one change enqueues, claims or completes; no more are alive while jobs pass.
const BATCH: u64 = 1_000;
const PROMISED_BYTES: u64 = 128 << 20;

fn main() {
    if let Some((role, args)) = role() {
        match role.as_str() {
            "pass" => pass(&args),
            "pile" => pile(&args, true),
            "fill" => pile(&args, false),
            other => panic!("there is no role {other}"),
        }
    }
    let options = Options::parse(0.0, 0.0);
    let jobs = options.jobs.unwrap_or(match (options.full, options.quick) {
        (true, _) => 10_000_000,
        (_, true) => 100_000,
        _ => 1_000_000,
    });
    let mut report = Report::new(&options);
    println!("{jobs} jobs of {PAYLOAD_BYTES} bytes through a stone, in batches of {BATCH}");
    if options.wants("passing") {
        Report::heading("passing: at most a thousand alive");
        grow(&options, &mut report, jobs, "pass");
    }
    if options.wants("backlog") {
        Report::heading("backlog: all are enqueued, then drained");
        grow(&options, &mut report, jobs, "pile");
    }
    if options.wants("live") {
        Report::heading("live: all are enqueued, and compacted");
        grow(&options, &mut report, jobs, "fill");
    }
    report.finish();
}

fn grow(options: &Options, report: &mut Report, jobs: u64, work: &str) {
    let folder = options.fresh_folder();
    let path = folder.path().join("growth.redb");
    let store = Store::open(&path).expect("the store opens");
    let serving = store.serve().expect("this process is the stone");
    let name = path.to_str().expect("a path of text");
    let mut crew = Crew::start(1, work, &[name, &jobs.to_string()]);
    let began = Instant::now();
    crew.go();
    crew.answers();
    let took = began.elapsed();
    let bytes = file_bytes(&path);
    drop(crew);
    let what = match work {
        "pass" => "after the jobs have passed",
        "pile" => "after the backlog was drained",
        _ => "with all of them in it",
    };
    let rate = float(jobs) / took.as_secs_f64();
    report.line(
        what,
        &format!("{:>8.1} MiB, {rate:.0} jobs/s", mebibytes(bytes)),
        &json!({ "bytes": bytes, "jobs_per_second": rate }),
    );
    if work == "pass" {
        report.verdict("MiB of the file", mebibytes(bytes), "below 128", bytes < PROMISED_BYTES);
    } else {
        let began = Instant::now();
        let bytes = store.compact().expect("nobody reads").bytes_after;
        let took = began.elapsed().as_secs_f64();
        let text = format!("{:>8.1} MiB, after {took:.1} s", mebibytes(bytes));
        report.line("compacted", &text, &json!({ "bytes": bytes, "seconds": took }));
        if work == "pile" {
            report.verdict("MiB of the file, compacted", mebibytes(bytes), "below 128", bytes < PROMISED_BYTES);
        }
    }
    drop(serving);
}

/// Enqueues, claims and completes a batch, again and again.
fn pass(args: &[String]) -> ! {
    let (store, jobs, path) = open(args);
    ready();
    for batch in 0..jobs / BATCH {
        enqueue(&store);
        complete(&store);
        tell(batch, jobs, &path);
    }
    leave(store)
}

/// Enqueues all, and then completes all, if they are to be drained.
fn pile(args: &[String], drain: bool) -> ! {
    let (store, jobs, path) = open(args);
    ready();
    for batch in 0..jobs / BATCH {
        enqueue(&store);
        tell(batch, jobs, &path);
    }
    for batch in 0..if drain { jobs / BATCH } else { 0 } {
        complete(&store);
        tell(batch, jobs, &path);
    }
    leave(store)
}

fn open(args: &[String]) -> (Store, u64, std::path::PathBuf) {
    let [path, jobs] = args else { panic!("the work has two arguments") };
    (Store::open(path).expect("the store opens"), jobs.parse().expect("a number"), path.into())
}

fn enqueue(store: &Store) {
    let job = || JobRequest::new("noop", &[7_u8; PAYLOAD_BYTES][..]);
    store.queue("default").enqueue_batch((0..BATCH).map(|_| job())).expect("jobs are enqueued");
}

fn complete(store: &Store) {
    let mut done = 0;
    while done < BATCH {
        let jobs = usize::try_from(BATCH).expect("it is small");
        let leases = store.queue("default").claim(jobs, Duration::from_secs(10)).expect("a claim");
        assert!(!leases.is_empty(), "the jobs are there");
        store
            .transaction(|tx| leases.iter().try_for_each(|lease: &Lease| tx.complete(lease)))
            .expect("the leases stand");
        done += leases.len() as u64;
    }
}

/// Tells ten times how large the file is by now.
fn tell(batch: u64, jobs: u64, path: &Path) {
    let tenth = (jobs / BATCH / 10).max(1);
    if (batch + 1).is_multiple_of(tenth) {
        eprintln!("  {:>3} %  {:>8.1} MiB", 10 * (batch + 1) / tenth, mebibytes(file_bytes(path)));
    }
}

fn leave(store: Store) -> ! {
    let served = store.commits_by_path();
    store.close().expect("the store closes");
    answer(&json!({ "stone": served.stone, "direct": served.direct }))
}
