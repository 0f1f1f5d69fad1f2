//! The log as the stone uses it, on real files and on a medium that loses power. What stands in a file after a cut is
//! in `power`, what a failing storage does in `faults`, bytes that lie in `hostile`, the format in `golden`.

mod faults;
mod golden;
mod hostile;
mod power;
mod rig;

use std::{fs, path::Path};

use self::rig::{STORE, replay_image, rows, small_log};
use super::{HALF_BYTES, Half, Log, LogId, replay};
use crate::{
    error::{Error, ErrorKind},
    store::conflict::Version,
};

const FULL_BYTES: u64 = 4096 + 2 * HALF_BYTES as u64;

/// A damaged log's error names the log, the store's version and a remedy.
#[track_caller]
fn assert_corrupt(error: &Error, log: LogId, version: u64, what: &str) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    for part in [what, &log.to_string(), &format!("the store is at version {version} "), "put back", "backup"] {
        assert!(error.to_string().contains(part), "{error}\nlacks: {part}");
    }
}

/// A synced log at `path`: versions 5 to 7 in the first half, 7 to 8 in the second.
fn two_windows(path: &Path) -> Log {
    let mut log = Log::create(path, STORE, HALF_BYTES, None).unwrap();
    log.begin(Half::First, Version(5));
    log.append(Version(5), Version(6), &rows(&[("a", Some("6")), ("b", Some("6")), ("c", Some("6"))])).unwrap();
    log.append(Version(6), Version(7), &rows(&[("a", Some("7")), ("b", None)])).unwrap();
    log.sync().unwrap();
    log.begin(Half::First.other(), Version(7));
    log.append(Version(7), Version(8), &rows(&[("d", Some("8"))])).unwrap();
    log.sync().unwrap();
    log
}

#[test]
fn both_windows_are_replayed_later_rows_over_earlier_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let id = two_windows(&path).id();
    let replayed = replay(&path, STORE, id, Version(5), None).unwrap();
    assert_eq!(replayed.rows, rows(&[("a", Some("7")), ("b", None), ("c", Some("6")), ("d", Some("8"))]));
    assert_eq!((replayed.version, replayed.records), (Version(8), 3));
}

#[test]
fn what_the_store_has_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let id = two_windows(&path).id();
    for (version, records, keys) in [(6, 2, vec!["a", "b", "d"]), (7, 1, vec!["d"]), (8, 0, vec![]), (900, 0, vec![])] {
        let replayed = replay(&path, STORE, id, Version(version), None).unwrap();
        assert_eq!((replayed.version, replayed.records), (Version(version.max(8)), records));
        assert!(replayed.rows.keys().eq(keys.iter().map(|key| key.as_bytes())), "{version}");
    }
}

#[test]
fn half_begun_anew_gives_none_of_its_old_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut log = two_windows(&path);
    log.begin(Half::First, Version(8));
    assert_eq!(replay(&path, STORE, log.id(), Version(7), None).unwrap().version, Version(8));
    // As long as the record that it overwrites, so that the old second one stands right behind it.
    log.append(Version(8), Version(9), &rows(&[("a", Some("9")), ("b", Some("9")), ("c", Some("9"))])).unwrap();
    log.sync().unwrap();
    let replayed = replay(&path, STORE, log.id(), Version(7), None).unwrap();
    assert_eq!((replayed.version, replayed.records), (Version(9), 2));
    assert_eq!(replayed.rows["b".as_bytes()], Some("9".into()));
}

#[test]
fn log_without_records_has_nothing_to_replay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = Log::create(&path, STORE, HALF_BYTES, None).unwrap();
    let replayed = replay(&path, STORE, log.id(), Version(3), None).unwrap();
    assert_eq!((replayed.rows.len(), replayed.version, replayed.records), (0, Version(3), 0));
}

#[test]
fn new_log_on_an_old_file_has_none_of_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let old = two_windows(&path).id();
    let mut log = Log::create(&path, STORE, HALF_BYTES, None).unwrap();
    assert_ne!(log.id(), old);
    assert_eq!(replay(&path, STORE, log.id(), Version(5), None).unwrap().records, 0);
    assert_corrupt(
        &replay(&path, STORE, old, Version(5), None).unwrap_err(),
        old,
        5,
        &format!("it is log {}", log.id()),
    );
    // The same record in the same place: what follows in the file chained from one of another log.
    log.begin(Half::First, Version(5));
    log.append(Version(5), Version(6), &rows(&[("a", Some("6")), ("b", Some("6")), ("c", Some("6"))])).unwrap();
    assert_eq!(replay(&path, STORE, log.id(), Version(5), None).unwrap().version, Version(6));
}

#[test]
fn log_that_is_missing_or_not_the_one_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let missing = LogId([7; 16]);
    assert_corrupt(&replay(&path, STORE, missing, Version(5), None).unwrap_err(), missing, 5, "no such file");

    let id = two_windows(&path).id();
    let error = replay(&path, [8; 16], id, Version(5), None).unwrap_err();
    assert_corrupt(&error, id, 5, "another store");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");

    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_corrupt(&replay(&path, STORE, id, Version(5), None).unwrap_err(), id, 5, "instead of 16781312");
    for (at, what) in [(0, "does not begin like a log"), (8, "format"), (20, "damaged header"), (60, "damaged header")]
    {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        fs::write(&path, &bytes).unwrap();
        assert_corrupt(&replay(&path, STORE, id, Version(5), None).unwrap_err(), id, 5, what);
    }
    fs::write(&path, "").unwrap();
    assert_corrupt(&replay(&path, STORE, id, Version(5), None).unwrap_err(), id, 5, "does not begin like a log");
}

#[test]
fn records_that_do_not_continue_from_the_store_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut log = two_windows(&path);
    let id = log.id();
    let error = replay(&path, STORE, id, Version(4), None).unwrap_err();
    assert_corrupt(&error, id, 4, "versions 5 to 6 does not continue from version 4");

    log.begin(Half::First, Version(8));
    log.append(Version(8), Version(12), &rows(&[("a", None)])).unwrap();
    let error = replay(&path, STORE, id, Version(10), None).unwrap_err();
    assert_corrupt(&error, id, 10, "versions 8 to 12 does not continue from version 10");

    // A gap between the halves: what was answered between them is lost.
    log.sync().unwrap();
    log.begin(Half::Second, Version(13));
    log.append(Version(13), Version(14), &rows(&[])).unwrap();
    let error = replay(&path, STORE, id, Version(8), None).unwrap_err();
    assert_corrupt(&error, id, 8, "versions 13 to 14 does not continue from version 12");
    // And the same versions in both.
    log.sync().unwrap();
    log.begin(Half::Second, Version(8));
    log.append(Version(8), Version(9), &rows(&[])).unwrap();
    assert_eq!(replay(&path, STORE, id, Version(8), None).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn record_that_does_not_fit_is_refused_and_breaks_nothing() {
    let (rig, mut log) = small_log(200);
    log.begin(Half::Second, Version(0));
    let wide = rows(&[("a", Some(&"x".repeat(91)))]);
    assert_eq!(Log::record_bytes(&wide), 132);
    log.append(Version(0), Version(1), &wide).unwrap();
    assert_eq!(log.used(), 132);
    assert!(log.fits(68) && !log.fits(69));
    let error = log.append(Version(1), Version(2), &wide).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("a record of 132 bytes does not fit behind 132 of 200"), "{error}");
    log.append(Version(1), Version(2), &rows(&[("a", Some(&"x".repeat(27)))])).unwrap();
    assert_eq!(log.used(), 200);
    log.sync().unwrap();
    assert_eq!(replay_image(&rig.live(), log.id(), Version(0)).unwrap().version, Version(2));
    log.begin(Half::First, Version(2));
    assert_eq!(log.used(), 0);
}

#[test]
#[should_panic(expected = "a window begins when all records before it are synced")]
fn window_does_not_begin_before_the_sync() {
    let (_, mut log) = small_log(200);
    log.begin(Half::First, Version(0));
    log.append(Version(0), Version(1), &rows(&[])).unwrap();
    log.begin(Half::Second, Version(1));
}

#[test]
#[should_panic(expected = "records of a window continue each other")]
fn record_that_does_not_continue_the_window_is_our_bug() {
    let (_, mut log) = small_log(200);
    log.begin(Half::First, Version(0));
    let _ = log.append(Version(1), Version(2), &rows(&[]));
}

#[test]
fn file_gets_its_full_size_whatever_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for before in [0, 1, FULL_BYTES - 1, FULL_BYTES, FULL_BYTES + 1] {
        fs::write(&path, vec![0xaa; usize::try_from(before).unwrap()]).unwrap();
        let log = Log::create(&path, STORE, HALF_BYTES, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), FULL_BYTES);
        assert_eq!(replay(&path, STORE, log.id(), Version(1), None).unwrap().records, 0);
    }
}

#[test]
fn log_that_was_removed_or_replaced_fails_its_sync() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for replaced in [false, true] {
        let mut log = two_windows(&path);
        fs::remove_file(&path).unwrap();
        if replaced {
            fs::write(&path, "another").unwrap();
        }
        let error = log.sync().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert!(error.to_string().contains("removed or replaced"), "{error}");
        assert!(log.is_broken());
    }
}

#[cfg(unix)]
#[test]
fn log_is_its_owners_only_and_no_link() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    drop(Log::create(&path, STORE, HALF_BYTES, None).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let (hard, soft) = (folder.path().join("hard"), folder.path().join("soft"));
    fs::hard_link(&path, &hard).unwrap();
    symlink(&path, &soft).unwrap();
    let before = fs::read(&path).unwrap();
    for (link, why) in [(&hard, "hard links"), (&soft, "symbolic link")] {
        let error = Log::create(link, STORE, HALF_BYTES, None).err().expect("a link is refused");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(why) && error.to_string().contains(&link.display().to_string()), "{error}");
    }
    assert!(fs::read(&path).unwrap() == before);
}
