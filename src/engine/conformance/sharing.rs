//! Several engines on one file, as several processes have them.

use super::{Redb, RedbOptions, RowSet, SnapshotError, all, change, puts};
use crate::{engine::Engine, error::ErrorKind};

fn new_store() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.redb");
    Redb::create(&path, &puts(&[("first", "row")]), &RedbOptions::default()).unwrap();
    (folder, path)
}

fn open(path: &std::path::Path) -> Redb {
    Redb::open(path, RedbOptions::default()).unwrap()
}

#[test]
fn engines_on_one_file_see_each_others_writes() {
    let (_folder, path) = new_store();
    let (one, two, reader) = (open(&path), open(&path), open(&path));
    assert_eq!(all(&*reader.snapshot().unwrap()).len(), 1);
    for round in 0..20 {
        let value = round.to_string();
        one.write(None, &change(&[("from one", Some(&value)), ("from two", None)])).unwrap();
        let seen = two.snapshot().unwrap();
        assert_eq!(seen.get(b"from one").unwrap().unwrap(), value.as_bytes());
        two.write(None, &change(&[("from two", Some(&value)), ("from one", None)])).unwrap();
        let rows = one.snapshot().unwrap();
        assert_eq!(rows.get(b"from two").unwrap().unwrap(), value.as_bytes());
        assert_eq!(rows.get(b"from one").unwrap(), None);
        assert_eq!(seen.get(b"from one").unwrap().unwrap(), value.as_bytes());
        assert!(all(&*reader.snapshot().unwrap()) == all(&*rows));
    }
    one.close().unwrap();
    two.write(None, &puts(&[("after", "one closed")])).unwrap();
    assert_eq!(reader.snapshot().unwrap().get(b"after").unwrap().unwrap(), b"one closed");
    two.close().unwrap();
    assert_eq!(open(&path).check().unwrap(), Vec::<String>::new());
}

#[test]
fn snapshot_from_before_the_first_write_outlives_the_change_of_handles() {
    let (_folder, path) = new_store();
    let engine = open(&path);
    let old = engine.snapshot().unwrap();
    for round in 0..10 {
        engine.write(None, &puts(&[("first", &round.to_string())])).unwrap();
    }
    assert_eq!(old.get(b"first").unwrap().unwrap(), b"row");
    assert_eq!(engine.snapshot().unwrap().get(b"first").unwrap().unwrap(), b"9");
}

#[test]
fn check_works_beside_snapshots_and_other_engines() {
    let (_folder, path) = new_store();
    let (engine, other) = (open(&path), open(&path));
    other.write(None, &puts(&[("first", "other")])).unwrap();
    engine.write(None, &puts(&[("first", "new")])).unwrap();
    let held = (engine.snapshot().unwrap(), other.snapshot().unwrap());
    assert_eq!(engine.check().unwrap(), Vec::<String>::new());
    assert_eq!(held.0.get(b"first").unwrap().unwrap(), b"new");
    other.write(None, &puts(&[("first", "newer")])).unwrap();
    assert_eq!(engine.snapshot().unwrap().get(b"first").unwrap().unwrap(), b"newer");
}

#[test]
fn closed_engine_refuses_and_says_so() {
    let (_folder, path) = new_store();
    let engine = open(&path);
    engine.write(None, &RowSet::from([(b"large".to_vec(), Some(vec![1; 1 << 20]))])).unwrap();
    let held = engine.snapshot().unwrap();
    engine.close().unwrap();
    assert_eq!(engine.write(None, &puts(&[("a", "1")])).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(engine.recover().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(engine.check().unwrap_err().kind(), ErrorKind::Closed);
    match engine.snapshot() {
        Err(SnapshotError::Failed(error)) => assert_eq!(error.kind(), ErrorKind::Closed),
        _ => panic!("a closed engine gave a snapshot"),
    }
    assert_eq!(held.get(b"large").unwrap_err().kind(), ErrorKind::Closed);
    engine.close().unwrap();
}
