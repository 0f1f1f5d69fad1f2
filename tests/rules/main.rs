//! The rules of the root and of its queues, as a user of the library meets them, on every engine and in one process.

mod admin;
mod claims;
mod hijacks;
mod limits;
mod root;
mod settle;
mod unique;
mod workers;

use std::time::Duration;

use casque::{ErrorKind, JobInfo, JobRequest, Lease, Queue, Result, State, Store, StoreOptions};

/// How long a test waits for what must happen; only a test that fails waits that long.
const SOON: Duration = Duration::from_secs(30);

/// What a process of the tests is called.
const LABEL: &str = "tester";

/// Runs a test on a store in memory and on one in a file; afterwards each must be sound.
fn on_each_engine(test: impl Fn(&Store)) {
    eprintln!("in memory:");
    let options = StoreOptions::new().label(LABEL);
    let memory = options.open_in_memory().unwrap();
    test(&memory);
    assert_eq!(memory.check().unwrap(), []);
    eprintln!("in a file:");
    let folder = tempfile::tempdir().unwrap();
    let file = options.open(folder.path().join("app.redb")).unwrap();
    test(&file);
    assert_eq!(file.check().unwrap(), []);
    file.close().unwrap();
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

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
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
fn refused<T: std::fmt::Debug>(store: &Store, call: impl FnOnce() -> Result<T>, expected: ErrorKind, says: &[&str]) {
    let before = store.version().unwrap();
    let error = call().unwrap_err();
    assert_eq!(error.kind(), expected, "{error}");
    let message = error.full_message();
    assert!(says.iter().all(|part| message.contains(part)), "\"{message}\" lacks one of {says:?}");
    assert_eq!(store.version().unwrap(), before, "{message}: yet something was written");
}
