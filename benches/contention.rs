//! How claims hold up when many processes want the same queue: 1 to 16 workers, each with 2 ms between its snapshot and
//! its commit, strict and by rebase, with a pause after a hijack and without.
//!
//! ```text
//! cargo bench --bench contention -- [--quick] [--seconds N] [--folder PATH] [--json FILE]
//! ```
//!
//! A claim is counted by the parent, from the rows of the store. What a strict worker tries in vain is a whole round of
//! snapshot, thought and commit; by rebase a lost candidate is replaced within the commit.

mod common;

use std::{thread, time::Duration};

use casque::{JobRequest, Policy, Store};
use serde_json::{Value, json};

use crate::common::{Crew, Options, Report, answer, float, ready, role, sum};

const THINK: Duration = Duration::from_millis(2);
const WORKERS: [usize; 5] = [1, 2, 4, 8, 16];
const BATCH: u64 = 10_000;
/// The pause after a strict conflict is a random part of this, doubled for each further one: as a worker's.
const BACKOFF_FIRST: Duration = Duration::from_millis(2);
const BACKOFF_DOUBLINGS_MAX: u32 = 5;

/// What one set-up gave.
struct Figures {
    claims_per_second: f64,
    wasted_per_claim: f64,
}

fn main() {
    if let Some((_, args)) = role() {
        work(&args);
    }
    let options = Options::parse(4.0, 1.0);
    let mut report = Report::new(&options);
    println!("claims of one job, {} ms between snapshot and commit, {} s each", THINK.as_millis(), options.seconds);
    let mut at_eight = Vec::new();
    for (name, policy, backoff) in
        [("strict", "strict", false), ("strict, with backoff", "strict", true), ("rebase", "rebase", false)]
    {
        Report::heading(name);
        for workers in WORKERS {
            let figures = measure(&options, workers, policy, backoff);
            let (claims, wasted) = (figures.claims_per_second, figures.wasted_per_claim);
            report.line(
                &format!("{name}, {workers} workers"),
                &format!("{claims:>6.0} claims/s  {wasted:>6.2} attempts wasted per claim"),
                &json!({ "claims_per_second": claims, "wasted_per_claim": wasted }),
            );
            if workers == 8 {
                at_eight.push(figures);
            }
        }
    }

    Report::heading("with 8 workers");
    let [strict, _, rebase] = &at_eight[..] else { unreachable!("each policy was measured with 8 workers") };
    let wasted = strict.wasted_per_claim;
    report.verdict("strict wastes per claim, backoff off", wasted, "6 to 8", (6.0..=8.0).contains(&wasted));
    let wasted = rebase.wasted_per_claim;
    report.verdict("rebase wastes per claim", wasted, "at most 0.1", wasted <= 0.1);
    let ratio = rebase.claims_per_second / strict.claims_per_second;
    report.verdict("rebase claims for each strict one", ratio, "at least 3", ratio >= 3.0);
    report.finish();
}

fn measure(options: &Options, workers: usize, policy: &str, backoff: bool) -> Figures {
    let folder = options.fresh_folder();
    let path = folder.path().join("contention.redb");
    let store = Store::open(&path).expect("the store opens");
    let queue = store.queue("default");
    // More than can be claimed in the time: a worker thinks for 2 ms, and there is one disk.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let batches = (options.seconds * 3_000.0).ceil() as u64 / BATCH + 1;
    for _ in 0..batches {
        queue.enqueue_batch((0..BATCH).map(|number| JobRequest::new("noop", &number))).expect("jobs are enqueued");
    }

    let seconds = options.seconds.to_string();
    let path = path.to_str().expect("a path of text");
    let mut crew = Crew::start(workers, "worker", &[path, policy, &backoff.to_string(), &seconds]);
    let before = queue.stats().expect("the queue is counted").running;
    crew.go();
    let answers = crew.answers();
    let after = queue.stats().expect("the queue is counted");
    assert!(after.ready > 0, "the workers ran out of jobs; measure for a shorter time");
    let claims = float(after.running - before);
    Figures {
        claims_per_second: claims / options.seconds,
        wasted_per_claim: (sum(&answers, "attempts") - claims) / claims,
    }
}

/// One worker process: MagLev's loop, without running the jobs.
fn work(args: &[String]) -> ! {
    let [path, policy, backoff, seconds] = args else { panic!("a worker has four arguments") };
    let policy = if policy == "strict" { Policy::Strict } else { Policy::Rebase };
    let (backoff, seconds): (bool, f64) = (backoff.parse().expect("a flag"), seconds.parse().expect("a number"));
    let store = Store::open(path).expect("the store opens");
    // The first claim begins the session and opens the file for writing; neither is to be measured.
    let mut leases = store.queue("default").claim(1, Duration::ZERO).expect("a first claim");
    let mut attempts = 0_u64;
    let mut conflicts = 0_u32;
    ready();
    common::repeat_for(Duration::from_secs_f64(seconds), || {
        let snapshot = store.snapshot().expect("a snapshot");
        let mut queue = snapshot.queue("default");
        queue.shift().expect("the queue can be read");
        thread::sleep(THINK);
        attempts += 1;
        match queue.commit(policy) {
            Ok(claimed) => {
                conflicts = 0;
                leases.extend(claimed);
            }
            Err(error) if error.is_hijacked() => {
                if backoff {
                    let most = BACKOFF_FIRST * 2_u32.pow(conflicts.min(BACKOFF_DOUBLINGS_MAX));
                    thread::sleep(most.mul_f64(fastrand::f64()));
                }
                conflicts += 1;
            }
            Err(error) => panic!("{error}"),
        }
    });
    let answered: Value = json!({ "attempts": attempts });
    answer(&answered)
}
