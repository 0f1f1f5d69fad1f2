//! R4: where commits are slow because somebody reads an old snapshot, what is not to be slow with them.
#![cfg(target_os = "linux")]

use std::{
    os::unix::net::UnixStream,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use super::WINDOW_BYTES_MAX;
use crate::{
    clock::monotonic,
    engine::Rows,
    random,
    stone::wire::{
        Hello, PROTOCOL, Purpose, Reply, Request, Welcome,
        spoken::{hear, say},
    },
    store::{
        Store, change::ClientId, conflict::Version, inner::Serving, keys, object::FormatRecord, open::StoreOptions,
        view::get_record,
    },
};

const DEADLINE: Duration = Duration::from_mins(1);
/// How long each commit waits where they are slow, and what is far less than that.
const PAUSE: Duration = Duration::from_secs(6);
const SOON: Duration = Duration::from_secs(3);
const VALUE_BYTES: usize = 1_000_000;

/// A store whose stone is this process, where commits are slow for as long as the rows are held.
fn slow(folder: &tempfile::TempDir) -> (Store, Serving, Box<dyn Rows + Send>) {
    let options = StoreOptions::new().timeout(DEADLINE).growth_limits(256 << 10, Duration::from_millis(100), PAUSE);
    let store = options.open(folder.path().join("app.redb")).unwrap();
    let serving = store.serve().unwrap();
    while store.stone().is_none() {
        thread::yield_now();
    }
    let pinned = store.inner.rows().unwrap();
    // Little at a time, so that the window is not full when it begins.
    let value = "x".repeat(4 << 10);
    while store.inner.site.commit_pause().is_none() {
        store.put("load", &value).unwrap();
    }
    (store, serving, pinned)
}

#[test]
fn lock_is_lent_at_once_though_commits_are_slow() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _serving, pinned) = slow(&folder);
    let format: FormatRecord = get_record(pinned.as_ref(), keys::FORMAT).unwrap().unwrap();
    let mut borrower = UnixStream::connect(folder.path().join("app.redb.d/sock")).unwrap();
    borrower.set_read_timeout(Some(DEADLINE)).unwrap();
    let client = ClientId { born: Version(0), random: random::words()[0] };
    let (purpose, pid, label) = (Purpose::Work, std::process::id(), "borrower".to_owned());
    say(&mut borrower, &Hello { protocol: PROTOCOL, store: format.store, client, purpose, pid, label });
    assert!(matches!(hear(&mut borrower), Welcome::Come { .. }));
    store.put("n", "1").unwrap();
    let asked = monotonic();
    say(&mut borrower, &Request::Borrow { ask: 1 });
    assert!(matches!(hear(&mut borrower), Reply::Asked { ask: 1, answer: Ok(()) }));
    let waited = monotonic().duration_since(asked);
    assert!(waited < SOON, "the lock was lent after {waited:?}");
    assert!(store.inner.site.commit_pause().is_some(), "commits are slow");
    say(&mut borrower, &Request::GiveBack);
}

#[test]
fn stone_leaves_at_once_though_its_window_is_full_and_commits_are_slow() {
    const WRITERS: usize = 12;
    let folder = tempfile::tempdir().unwrap();
    let (store, serving, pinned) = slow(&folder);
    let (value, done) = ("y".repeat(VALUE_BYTES), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let (store, value, done) = (&store, &value, &done);
            scope.spawn(move || {
                store.put(&number.to_string(), value).unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while done.load(Ordering::SeqCst) <= WINDOW_BYTES_MAX / VALUE_BYTES {
            thread::yield_now();
        }
        let told = monotonic();
        drop(serving);
        let waited = monotonic().duration_since(told);
        let was_full = done.load(Ordering::SeqCst) < WRITERS;
        // Before what it did not take is committed directly, slowly too.
        drop(pinned);
        assert!(waited < SOON, "it left after {waited:?}");
        assert!(was_full, "its window took all");
    });
    assert_eq!(store.get::<String>("0").unwrap().map(|value| value.len()), Some(VALUE_BYTES));
}
