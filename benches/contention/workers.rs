//! One measurement: worker processes that go MagLev's way (snapshot, shift, thought, commit) and run no jobs.
//!
//! A claim is counted by the parent, from the rows of the store. What a strict worker tries in vain is a whole round of
//! snapshot, thought and commit; by rebase a lost candidate is replaced within the commit. Nobody serves as a stone
//! here, so each commit is made by the worker itself; the workers tell how theirs were made.

use std::{thread, time::Duration};

use casque::{JobRequest, Policy, Store};
use serde_json::{Value, json};

use crate::common::{self, Crew, Options, answer, float, ready, sum};

const BATCH: u64 = 10_000;
/// More than a second can claim: each claim is a commit of its own, and there is one disk.
const CLAIMS_PER_SECOND_MAX: f64 = 6_000.0;
/// The pause after a strict conflict is a random part of this, doubled for each further one: as a worker's.
const BACKOFF_FIRST: Duration = Duration::from_millis(2);
const BACKOFF_DOUBLINGS_MAX: u32 = 5;

/// How a worker claims.
#[derive(Debug, PartialEq)]
pub struct Way {
    pub name: &'static str,
    pub policy: Policy,
    /// Whether it pauses after a hijack.
    pub backoff: bool,
}

pub static WAYS: [Way; 3] = [
    Way { name: "strict", policy: Policy::Strict, backoff: false },
    Way { name: "strict, with backoff", policy: Policy::Strict, backoff: true },
    Way { name: "rebase", policy: Policy::Rebase, backoff: false },
];

/// What is measured at a time.
#[derive(Clone, Copy, PartialEq)]
pub struct Setup {
    pub way: &'static Way,
    pub think_ms: u64,
    pub workers: usize,
}

/// What a measurement gave.
pub struct Figures {
    pub claims_per_second: f64,
    pub wasted_per_claim: f64,
}

pub fn measure(options: &Options, setup: Setup) -> Figures {
    let folder = options.fresh_folder();
    let path = folder.path().join("contention.redb");
    let store = Store::open(&path).expect("the store opens");
    let queue = store.queue("default");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let batches = (options.seconds * CLAIMS_PER_SECOND_MAX).ceil() as u64 / BATCH + 1;
    for _ in 0..batches {
        queue.enqueue_batch((0..BATCH).map(|number| JobRequest::new("noop", &number))).expect("jobs are enqueued");
    }

    let path = path.to_str().expect("a path of text");
    let args = [setup.way.name, &setup.think_ms.to_string(), &options.seconds.to_string()];
    let mut crew = Crew::start(setup.workers, "worker", &[&[path], &args[..]].concat());
    let before = queue.stats().expect("the queue is counted").running;
    crew.go();
    let answers = crew.answers();
    let after = queue.stats().expect("the queue is counted");
    assert!(after.ready > 0, "the workers ran out of jobs; measure for a shorter time");
    let by_stone = sum(&answers, "commits_by_stone");
    assert!(by_stone == 0.0, "a stone made {by_stone} commits; this bench is of direct ones");
    let claims = float(after.running - before);
    Figures {
        claims_per_second: claims / options.seconds,
        wasted_per_claim: (sum(&answers, "attempts") - claims) / claims,
    }
}

/// One worker process.
pub fn work(args: &[String]) -> ! {
    let [path, way, think_ms, seconds] = args else { panic!("a worker has four arguments") };
    let way = WAYS.iter().find(|known| known.name == way).expect("the parent names a way that there is");
    let think = Duration::from_millis(think_ms.parse().expect("a number"));
    let seconds: f64 = seconds.parse().expect("a number");
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
        thread::sleep(think);
        attempts += 1;
        match queue.commit(way.policy) {
            Ok(claimed) => {
                conflicts = 0;
                leases.extend(claimed);
            }
            Err(error) if error.is_hijacked() => {
                if way.backoff {
                    let most = BACKOFF_FIRST * 2_u32.pow(conflicts.min(BACKOFF_DOUBLINGS_MAX));
                    thread::sleep(most.mul_f64(fastrand::f64()));
                }
                conflicts += 1;
            }
            Err(error) => panic!("{error}"),
        }
    });
    let paths = store.commits_by_path();
    let answered: Value = json!({ "attempts": attempts, "commits_by_stone": paths.own_stone + paths.stone });
    answer(&answered)
}
