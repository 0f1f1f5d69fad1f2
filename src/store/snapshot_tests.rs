//! R3: a snapshot that has given its pages up reads newer rows, and refuses where they may differ from what it showed.

use super::{
    Store,
    snapshot::{PIN_MAX, Snapshot},
    transaction::Transaction,
};
use crate::{
    clock::monotonic,
    error::{Error, ErrorKind},
    queue::JobRequest,
    store::conflict::Subject,
};

/// Makes the time of a snapshot be up.
fn expire(snapshot: &Snapshot) {
    snapshot.pin().lock().unwrap().expire(monotonic() + PIN_MAX);
}

fn assert_too_old(error: &Error, snapshot: &Snapshot) {
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let conflict = error.conflict().unwrap();
    assert_eq!((&conflict.subject, conflict.read), (&Subject::SnapshotTooOld, Some(snapshot.version())));
    assert!(error.to_string().starts_with("snapshot too old"), "{error}");
}

fn store() -> Store {
    let store = Store::in_memory().unwrap();
    store.put("same", &1u32).unwrap();
    store.put("other", &1u32).unwrap();
    store.queue("q").enqueue(JobRequest::new("t", &())).unwrap();
    store
}

#[test]
fn snapshot_keeps_its_pages_until_its_time_is_up() {
    let store = store();
    let snapshot = store.snapshot().unwrap();
    store.put("same", &2u32).unwrap();
    snapshot.pin().lock().unwrap().expire(monotonic());
    assert_eq!(snapshot.get::<u32>("same").unwrap(), Some(1));
}

#[test]
fn old_snapshot_of_an_unchanged_store_shows_everything() {
    let store = store();
    let snapshot = store.snapshot().unwrap();
    expire(&snapshot);
    assert_eq!(snapshot.get::<u32>("same").unwrap(), Some(1));
    assert_eq!(snapshot.get::<u32>("none").unwrap(), None);
    assert_eq!(snapshot.list::<u32>("").unwrap().len(), 2);
    assert!(snapshot.queue("q").shift().unwrap().is_some());
}

/// S47, in part: without a figure for the file.
#[test]
fn old_snapshot_shows_what_has_not_changed_since_and_refuses_the_rest() {
    let store = store();
    let snapshot = store.snapshot().unwrap();
    store.put("other", &2u32).unwrap();
    store.put("new", &1u32).unwrap();
    expire(&snapshot);
    assert_eq!(snapshot.get::<u32>("same").unwrap(), Some(1));
    assert_too_old(&snapshot.get::<u32>("other").unwrap_err(), &snapshot);
    // A key that was put since was absent then, and one that is gone may have been there: neither can be told.
    assert_too_old(&snapshot.get::<u32>("new").unwrap_err(), &snapshot);
    store.remove("same").unwrap();
    assert_too_old(&snapshot.get::<u32>("same").unwrap_err(), &snapshot);
    assert_too_old(&snapshot.list::<u32>("sa").unwrap_err(), &snapshot);
    assert_too_old(&snapshot.queue("q").shift().unwrap_err(), &snapshot);
    assert_too_old(&snapshot.queue("q").version().unwrap_err(), &snapshot);
    let job = store.jobs(&crate::JobFilter::new(), 1).unwrap()[0].id;
    assert_too_old(&snapshot.job(job).unwrap_err(), &snapshot);
}

#[test]
fn transaction_whose_snapshot_got_too_old_is_a_conflict_to_run_again() {
    let store = store();
    let snapshot = store.snapshot().unwrap();
    let pin = snapshot.pin().clone();
    let mut tx = Transaction::new(snapshot, None);
    store.put("other", &2u32).unwrap();
    pin.lock().unwrap().expire(monotonic() + PIN_MAX);
    assert_eq!(tx.get::<u32>("same").unwrap(), Some(1));
    let error = tx.get::<u32>("other").unwrap_err();
    assert_eq!((error.kind(), &error.conflict().unwrap().subject), (ErrorKind::Conflict, &Subject::SnapshotTooOld));
    assert_eq!(tx.list::<u32>("").unwrap_err().kind(), ErrorKind::Conflict);
}
