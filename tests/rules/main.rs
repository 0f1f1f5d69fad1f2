//! The rules of the root and of its queues, as a user of the library meets them, on every engine and on every path that
//! a change may take to the disk.

mod admin;
mod claims;
mod flow;
mod hijacks;
mod limits;
mod locks;
#[path = "../processes/mod.rs"]
mod processes;
mod progress;
mod queue_limits;
mod root;
mod schedules;
mod settle;
mod timeouts;
mod unique;
mod workers;

use std::{fmt::Debug, time::Duration};

use casque::{ErrorKind, JobInfo, JobRequest, Lease, Queue, Result, State, Store, hooks::CommitsByPath};
use processes::{Committer, Scene, play, until};

/// How long a test waits for what must happen; only a test that fails waits that long.
const SOON: Duration = Duration::from_secs(30);

/// What a process of the tests is called.
const LABEL: &str = "tester";

/// Who commits for the process of a test.
#[derive(Clone, Copy, Debug)]
enum Path {
    Memory,
    Direct,
    OwnStone,
    OwnStoneWithoutLog,
    /// Another process, which is the stone.
    Client,
}

impl Path {
    /// That all commits of a store whose only writer is this process went this way.
    fn check(self, commits: CommitsByPath, all: u64) {
        let expected = match self {
            Self::Memory | Self::Direct => CommitsByPath { direct: all, ..CommitsByPath::default() },
            Self::OwnStone | Self::OwnStoneWithoutLog => CommitsByPath { own_stone: all, ..CommitsByPath::default() },
            // The stone's process keeps the store in order, by commits of its own.
            Self::Client => CommitsByPath { stone: commits.stone.clamp(all.min(1), all), ..CommitsByPath::default() },
        };
        assert_eq!(commits, expected, "{self:?}: the commits went another way");
    }
}

#[test]
fn actor() {
    play(&[]);
}

/// Runs a test on a store in memory, and on one in a file by each path; afterwards each must be sound, and all commits
/// must have gone that way.
fn on_each_engine(test: impl Fn(&Store)) {
    for path in [Path::Memory, Path::Direct, Path::OwnStone, Path::OwnStoneWithoutLog, Path::Client] {
        eprintln!("{path:?}:");
        let scene = Scene::without_disk(match path {
            Path::Memory | Path::Direct => Committer::Itself,
            Path::OwnStone => Committer::Worker,
            Path::OwnStoneWithoutLog => Committer::WorkerWithoutLog,
            Path::Client => Committer::Server,
        });
        let options = scene.options().label(LABEL);
        let store = match path {
            Path::Memory => options.open_in_memory().unwrap(),
            _ => options.open(scene.store_path()).unwrap(),
        };
        let serving = matches!(path, Path::OwnStone | Path::OwnStoneWithoutLog).then(|| store.serve().unwrap());
        let server = scene.server();
        let expected = if serving.is_some() { Some(std::process::id()) } else { server };
        until("who is to commit", || (store.stone() == expected).then_some(()));

        test(&store);
        assert_eq!(store.check().unwrap(), []);
        let commits = store.commits_by_path();
        println!("{path:?}: {commits:?}");
        path.check(commits, store.version().unwrap().0);
        assert_eq!(store.stone(), expected, "{path:?}: who commits has changed");
        drop(serving);
        store.close().unwrap();
    }
}

/// A job of the one task that tests without a worker use.
fn job() -> JobRequest {
    JobRequest::new("task", &())
}

/// Claims the next job of a queue, which there must be.
fn claim_one(queue: &Queue) -> Lease {
    queue.claim(1, Duration::ZERO).unwrap().pop().expect("a job that is ready")
}

fn ids(leases: &[Lease]) -> Vec<casque::JobId> {
    leases.iter().map(Lease::id).collect()
}

fn complete(leases: &[Lease]) {
    for lease in leases {
        lease.complete().unwrap();
    }
}

/// What a test does with a lease, and what it calls that.
type Act<'a, T> = (&'a str, &'a dyn Fn(&Lease) -> T);

fn state(store: &Store, lease: &Lease) -> State {
    store.job(lease.id()).unwrap().state
}

fn kind<T: Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// A job that is out of attempts.
fn dead(store: &Store, request: JobRequest) -> JobInfo {
    let queue = store.queue("dead");
    let id = queue.enqueue(request).unwrap();
    queue.claim_job(id).unwrap().fail("no", None).unwrap();
    store.job(id).unwrap()
}

/// Asserts that a call fails with a kind and a message that holds all of these, and that it changes nothing.
fn refused<T: Debug>(store: &Store, call: impl FnOnce() -> Result<T>, expected: ErrorKind, says: &[&str]) {
    let before = store.version().unwrap();
    let error = call().unwrap_err();
    assert_eq!(error.kind(), expected, "{error}");
    let message = error.full_message();
    assert!(says.iter().all(|part| message.contains(part)), "\"{message}\" lacks one of {says:?}");
    assert_eq!(store.version().unwrap(), before, "{message}: yet something was written");
}
