//! What is at the path: other things than a store, damaged stores, and what a creation leaves.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Redb, RedbOptions, RowSet, SnapshotError, all, failure, puts};
use crate::{engine::Engine, error::ErrorKind};

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.redb");
    (folder, path)
}

fn create(path: &Path, rows: &RowSet) {
    Redb::create(path, rows, &RedbOptions::default()).unwrap();
}

#[track_caller]
fn assert_refused(path: &Path, kind: ErrorKind, says: &str) {
    let error = match Redb::open(path, RedbOptions::default()) {
        Err(error) => error,
        Ok(engine) => {
            let (read_kind, message) = failure(engine.snapshot());
            assert_eq!(read_kind, kind, "{message}");
            engine.write(None, &puts(&[("a", "1")])).unwrap_err()
        }
    };
    let message = error.full_message();
    assert_eq!(error.kind(), kind, "{message}");
    assert!(message.contains(says), "{message}");
    assert!(message.contains(&path.display().to_string()), "{message}");
}

#[test]
fn what_is_not_a_store_is_refused_and_left_alone() {
    let (folder, path) = folder();
    assert_refused(&path, ErrorKind::NotFound, "there is no such file");
    assert_refused(folder.path(), ErrorKind::Invalid, "it is a folder");
    for (content, says) in [
        (&b""[..], "the file is empty"),
        (b"x", "not a casque store"),
        (b"redb", "not a casque store"),
        (&[b'x'; 10_000], "not a casque store"),
    ] {
        fs::write(&path, content).unwrap();
        assert_refused(&path, ErrorKind::Invalid, says);
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

#[test]
fn redb_file_of_another_program_is_refused() {
    let (_folder, path) = folder();
    drop(redb::Database::create(&path).unwrap());
    let engine = Redb::open(&path, RedbOptions::default()).unwrap();
    let (kind, message) = failure(engine.snapshot());
    assert_eq!(kind, ErrorKind::Invalid, "{message}");
    assert!(message.contains("without its table of rows"), "{message}");
}

#[test]
fn file_that_another_program_holds_for_itself_is_unavailable() {
    let (_folder, path) = folder();
    create(&path, &puts(&[("a", "1")]));
    let held = redb::Database::create(&path).unwrap();
    assert_refused(&path, ErrorKind::Unavailable, "has the file open");
    drop(held);
    Redb::open(&path, RedbOptions::default()).unwrap().snapshot().unwrap();
}

#[cfg(unix)]
#[test]
fn missing_permission_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, path) = folder();
    create(&path, &puts(&[("a", "1")]));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    // The superuser may do everything, and shows nothing here.
    if fs::OpenOptions::new().write(true).open(&path).is_ok() {
        return;
    }
    let engine = Redb::open(&path, RedbOptions::default()).unwrap();
    assert_eq!(all(&*engine.snapshot().unwrap()).len(), 1);
    let error = engine.write(None, &puts(&[("a", "2")])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("permission is lacking"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    assert_refused(&path, ErrorKind::Unavailable, "permission is lacking");
}

/// Reads and writes what it can; an engine on a damaged file may fail as it likes, but neither invents nor loses rows
/// without saying so.
fn exercise(path: &Path, expected: &super::Map) -> Vec<ErrorKind> {
    let mut kinds = Vec::new();
    let engine = match Redb::open(path, RedbOptions::default()) {
        Ok(engine) => engine,
        Err(error) => return vec![error.kind()],
    };
    match engine.snapshot() {
        Ok(rows) => {
            for (key, value) in expected {
                match rows.get(key) {
                    Ok(found) => assert_eq!(found.as_ref(), Some(value)),
                    Err(error) => kinds.push(error.kind()),
                }
            }
            let mut seen = 0;
            let visited = rows.visit(b"", &[255], &mut |key, value| {
                assert_eq!(expected.get(key).map(Vec::as_slice), Some(value));
                seen += 1;
                Ok(std::ops::ControlFlow::Continue(()))
            });
            match visited {
                Ok(()) => assert_eq!(seen, expected.len()),
                Err(error) => kinds.push(error.kind()),
            }
        }
        Err(SnapshotError::Failed(error)) => kinds.push(error.kind()),
        Err(SnapshotError::NeedsRecovery) => {}
    }
    match engine.check() {
        Ok(findings) if findings.is_empty() => {}
        Ok(_) => kinds.push(ErrorKind::Corrupt),
        Err(error) => kinds.push(error.kind()),
    }
    kinds
}

#[test]
fn truncated_file_is_corrupt_wherever_it_was_cut() {
    let (folder, path) = folder();
    let expected: super::Map = (0..2000u32).map(|at| (format!("{at:05}").into_bytes(), vec![b'x'; 500])).collect();
    let rows = expected.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    create(&path, &rows);
    let whole = fs::read(&path).unwrap();
    let cut = folder.path().join("cut.redb");
    let lengths = [9, 100, 319, 320, 511, 4095, 4096, 8192, 10_000, 65_536, 200_000, 500_000, whole.len() / 2];
    for length in lengths {
        fs::write(&cut, &whole[..length]).unwrap();
        let kinds = exercise(&cut, &expected);
        assert!(kinds.contains(&ErrorKind::Corrupt), "cut at {length}: {kinds:?}");
        assert!(
            kinds.iter().all(|kind| matches!(kind, ErrorKind::Corrupt | ErrorKind::Unavailable)),
            "{length}: {kinds:?}"
        );
    }
    // At its last bytes there may be free pages only, and then nothing is lost.
    for length in [whole.len() - 1, whole.len() - 4096, whole.len() - 10_000] {
        fs::write(&cut, &whole[..length]).unwrap();
        let kinds = exercise(&cut, &expected);
        eprintln!("cut at {length} of {}: {kinds:?}", whole.len());
    }
}

#[test]
fn changed_bytes_are_found_by_the_check() {
    let (folder, path) = folder();
    let expected: super::Map = (0..2000u32).map(|at| (format!("{at:05}").into_bytes(), vec![b'x'; 500])).collect();
    let rows = expected.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    create(&path, &rows);
    let whole = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.redb");
    let at = whole.windows(500).position(|window| window == [b'x'; 500]).unwrap();
    let mut bytes = whole;
    bytes[at + 17] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let engine = Redb::open(&damaged, RedbOptions::default()).unwrap();
    let findings = engine.check().unwrap();
    assert_eq!(findings.len(), 1);
    assert!(findings[0].contains("damaged.redb"), "{findings:?}");
}

#[test]
fn creation_makes_all_its_rows_or_refuses() {
    let (folder, path) = folder();
    create(&path, &puts(&[("a", "1"), ("b", "2")]));
    let engine = Redb::open(&path, RedbOptions::default()).unwrap();
    assert_eq!(all(&*engine.snapshot().unwrap()).len(), 2);
    let again = Redb::create(&path, &RowSet::new(), &RedbOptions::default()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Invalid);
    assert!(again.to_string().contains("it exists already"), "{again}");
    assert_eq!(all(&*engine.snapshot().unwrap()).len(), 2);
    let missing = folder.path().join("none").join("app.redb");
    let error = Redb::create(&missing, &RowSet::new(), &RedbOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(names(folder.path()), ["app.redb"]);
}

#[test]
fn creation_removes_what_a_killed_one_left() {
    let (folder, path) = folder();
    fs::write(folder.path().join(".app.redb.new"), b"half of a store").unwrap();
    create(&path, &puts(&[("a", "1")]));
    assert_eq!(names(folder.path()), ["app.redb"]);
    assert_eq!(all(&*Redb::open(&path, RedbOptions::default()).unwrap().snapshot().unwrap()).len(), 1);
}

#[test]
fn creation_refuses_a_path_without_a_name() {
    let error = Redb::create(Path::new("/"), &RowSet::new(), &RedbOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn zeroed_page_is_corrupt_and_no_panic_gets_out() {
    let (folder, path) = folder();
    let expected: super::Map = (0..2000u32).map(|at| (format!("{at:05}").into_bytes(), vec![b'x'; 500])).collect();
    let rows = expected.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    create(&path, &rows);
    let whole = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged.redb");
    let mut found = 0;
    for page in (1..whole.len() / 4096).step_by(13) {
        let mut bytes = whole.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0);
        fs::write(&damaged, &bytes).unwrap();
        let kinds = exercise(&damaged, &expected);
        assert!(kinds.iter().all(|kind| *kind == ErrorKind::Corrupt), "page {page}: {kinds:?}");
        found += usize::from(!kinds.is_empty());
        fs::write(&damaged, &bytes).unwrap();
        let engine = Redb::open(&damaged, RedbOptions::default()).unwrap();
        // To put a row beside others reads what lies on its way, and may or may not come across the damage.
        if let Err(error) = engine.write(None, &puts(&[("01000", "new")])) {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unknown), "page {page}: {error}");
        }
    }
    assert!(found > 5, "no page that mattered was zeroed");
}

pub(super) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
