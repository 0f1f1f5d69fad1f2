//! The storage fails at each of its operations in turn, once and from then on.
//!
//! Failing from then on, with the engine then dropped, is what the file and the other processes see of a process that
//! is killed there: redb writes nothing after a failure, and its locks are freed.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Redb, RedbOptions, SnapshotError, all, files::names, puts};
use crate::{
    engine::{Engine, RowSet, Rows, StorageHook, StorageOperation},
    error::ErrorKind,
};

/// Lets a number of operations happen, then fails one or all further ones.
#[derive(Debug)]
struct Failing {
    seen: AtomicU64,
    first: u64,
    once: bool,
    kind: io::ErrorKind,
}

impl Failing {
    fn at(first: u64, once: bool) -> Arc<Self> {
        Arc::new(Self { seen: AtomicU64::new(0), first, once, kind: io::ErrorKind::Other })
    }

    fn has_failed(&self) -> bool {
        self.seen.load(Ordering::Relaxed) > self.first
    }
}

impl StorageHook for Failing {
    fn before(&self, operation: StorageOperation, _bytes: u64) -> io::Result<()> {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        let fails = if self.once { seen == self.first } else { seen >= self.first };
        if fails { Err(io::Error::new(self.kind, format!("{operation:?} was made to fail"))) } else { Ok(()) }
    }
}

fn hooked(hook: Arc<Failing>) -> RedbOptions {
    RedbOptions { hook: Some(hook), ..RedbOptions::default() }
}

const STEPS: u32 = 4;

fn step(number: u32) -> RowSet {
    let mut rows = puts(&[
        (&format!("{number}/a"), "whole"),
        (&format!("{number}/z"), &"long".repeat(2000)),
        ("last", &number.to_string()),
    ]);
    rows.insert(b"first".to_vec(), None);
    rows
}

/// Whether a step is in the rows; it must be so wholly or not at all.
#[track_caller]
fn has(rows: &dyn Rows, number: u32) -> bool {
    let (a, z) =
        (rows.get(format!("{number}/a").as_bytes()).unwrap(), rows.get(format!("{number}/z").as_bytes()).unwrap());
    assert_eq!(a.is_some(), z.is_some(), "step {number} is there by half");
    a.is_some()
}

fn snapshot_of(engine: &Redb) -> Box<dyn Rows> {
    match engine.snapshot() {
        Ok(rows) => rows,
        Err(SnapshotError::NeedsRecovery) => {
            engine.recover().unwrap();
            engine.snapshot().unwrap()
        }
        Err(SnapshotError::Failed(error)) => panic!("{}", error.full_message()),
    }
}

/// What became of each step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Acknowledged,
    Absent,
    Unknown,
}

/// The script: reads and writes in turn, recovering where it is told to, never giving up.
fn run(engine: &Redb) -> Vec<Outcome> {
    (0..STEPS)
        .map(|number| {
            match engine.snapshot() {
                // A read may fail like a write, and is then simply not made.
                Ok(rows) => drop(rows.get(b"last")),
                Err(SnapshotError::NeedsRecovery) => drop(engine.recover()),
                Err(SnapshotError::Failed(_)) => {}
            }
            match engine.write(None, &step(number)) {
                Ok(()) => Outcome::Acknowledged,
                Err(error) if error.kind() == ErrorKind::Unknown => {
                    let _ = engine.recover();
                    Outcome::Unknown
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.full_message());
                    Outcome::Absent
                }
            }
        })
        .collect()
}

#[track_caller]
fn assert_holds(path: &Path, outcomes: &[Outcome]) {
    let engine = Redb::open(path, RedbOptions::default()).unwrap();
    let rows = snapshot_of(&engine);
    let mut last = None;
    for (number, outcome) in (0..).zip(outcomes) {
        let there = has(&*rows, number);
        match outcome {
            Outcome::Acknowledged => assert!(there, "step {number} was lost: {outcomes:?}"),
            Outcome::Absent => assert!(!there, "step {number} is there and should not be: {outcomes:?}"),
            Outcome::Unknown => {}
        }
        if there {
            last = Some(number.to_string().into_bytes());
        }
    }
    assert_eq!(rows.get(b"last").unwrap(), last);
    assert_eq!(rows.get(b"first").unwrap().is_some(), last.is_none());
    engine.write(None, &puts(&[("afterwards", "works")])).unwrap();
    assert_eq!(engine.check().unwrap(), Vec::<String>::new());
    engine.close().unwrap();
}

fn fail_at_each_operation(once: bool) {
    let mut unknown = 0;
    for first in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.redb");
        Redb::create(&path, &puts(&[("first", "row")]), &RedbOptions::default()).unwrap();
        let hook = Failing::at(first, once);
        let engine = Redb::open(&path, hooked(Arc::clone(&hook))).unwrap();
        let outcomes = run(&engine);
        if once && hook.has_failed() {
            let failed = outcomes.iter().filter(|outcome| **outcome != Outcome::Acknowledged).count();
            assert!(failed <= 1, "one failure of the storage failed {failed} writes: {outcomes:?}");
            // The engine goes on by itself.
            engine.write(None, &puts(&[("afterwards", "works")])).unwrap();
        }
        unknown += outcomes.iter().filter(|outcome| **outcome == Outcome::Unknown).count();
        // Closed by the failing storage, or dropped as a killed process is.
        if first % 2 == 0 {
            let _ = engine.close();
        }
        drop(engine);
        assert_holds(&path, &outcomes);
        if !hook.has_failed() {
            assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Acknowledged));
            assert!(first > 20 && unknown > 0, "the script is too short to show anything");
            return;
        }
    }
}

#[test]
fn writes_are_whole_or_absent_when_one_operation_fails() {
    fail_at_each_operation(true);
}

#[test]
fn writes_are_whole_or_absent_when_the_storage_fails_for_good() {
    fail_at_each_operation(false);
}

#[test]
fn others_go_on_when_a_writer_dies_in_mid_commit() {
    let (mut asked, mut grew) = (0, 0);
    for first in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.redb");
        Redb::create(&path, &puts(&[("first", "row")]), &RedbOptions::default()).unwrap();
        let reader = Redb::open(&path, RedbOptions::default()).unwrap();
        let before = reader.snapshot().unwrap();
        let writer = Redb::open(&path, RedbOptions::default()).unwrap();
        writer.write(None, &puts(&[("other", "writer")])).unwrap();
        // One process has a writable handle open as well, or none has.
        if first % 2 == 0 {
            writer.close().unwrap();
        }
        let hook = Failing::at(first, false);
        let dying = Redb::open(&path, hooked(Arc::clone(&hook))).unwrap();
        let written = dying.write(None, &step(0));
        drop(dying);

        // Who had it open reads on without being told; a step may be there, then stays.
        let rows = reader.snapshot().unwrap();
        let there = has(&*rows, 0);
        assert_eq!(rows.get(b"other").unwrap().unwrap(), b"writer");
        assert_eq!(before.get(b"first").unwrap().unwrap(), b"row");
        let late = Redb::open(&path, RedbOptions::default()).unwrap();
        if matches!(late.snapshot(), Err(SnapshotError::NeedsRecovery)) {
            asked += 1;
        }
        late.recover().unwrap();
        let recovered = has(&*late.snapshot().unwrap(), 0);
        assert!(recovered || !there, "recovery took away what had been seen");
        assert!(recovered || written.is_err());
        grew += u32::from(recovered && !there);
        assert!(all(&*reader.snapshot().unwrap()) == all(&*late.snapshot().unwrap()));
        late.write(None, &step(1)).unwrap();
        assert!(has(&*reader.snapshot().unwrap(), 1));
        assert_eq!(all(&*before).len(), 1);
        late.close().unwrap();
        if !hook.has_failed() {
            assert!(written.is_ok());
            break;
        }
    }
    eprintln!("recovery was asked for {asked} times and showed {grew} unanswered writes");
    assert!(asked > 0);
}

#[test]
fn creation_leaves_no_store_or_a_whole_one() {
    for first in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.redb");
        let hook = Failing::at(first, false);
        let rows = puts(&[("a", "1"), ("z", "2")]);
        match Redb::create(&path, &rows, &hooked(Arc::clone(&hook))) {
            Ok(()) => {
                assert_eq!(names(folder.path()), ["app.redb"]);
                assert!(first > 5 && !hook.has_failed());
                return;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.full_message());
                assert_eq!(names(folder.path()), Vec::<String>::new());
            }
        }
        Redb::create(&path, &rows, &RedbOptions::default()).unwrap();
        let engine = Redb::open(&path, RedbOptions::default()).unwrap();
        assert_eq!(all(&*engine.snapshot().unwrap()).len(), 2);
    }
}

#[test]
fn full_disk_is_told_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.redb");
    Redb::create(&path, &puts(&[("first", "row")]), &RedbOptions::default()).unwrap();
    let mut told = [0, 0];
    for first in 0.. {
        let hook = Arc::new(Failing {
            seen: AtomicU64::new(0),
            first,
            once: false,
            kind: if first % 2 == 0 { io::ErrorKind::StorageFull } else { io::ErrorKind::QuotaExceeded },
        });
        let engine = Redb::open(&path, hooked(Arc::clone(&hook))).unwrap();
        let Err(error) = engine.write(None, &step(0)) else { break };
        assert!(error.to_string().contains("the disk is full; free some space"), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        told[usize::from(error.kind() == ErrorKind::Unknown)] += 1;
    }
    assert!(told[0] > 0 && told[1] > 0, "{told:?}");
}
