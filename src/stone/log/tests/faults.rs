//! The storage fails at each of its operations in turn, once and from then on (L4, S32).

use std::sync::Arc;

use super::{
    super::{Half, Log, replay},
    rig::{Failure, Rig, STORE, replay_image, rows},
};
use crate::{
    engine::disk::{Disk, image::Image},
    error::{ErrorKind, Result},
    store::conflict::Version,
};

/// Three windows of two records each, up to the first failure. What was synced and appended by then, and the error.
fn run(log: &mut Log) -> (Version, Version, Result<()>) {
    let (mut synced, mut appended) = (Version(0), Version(0));
    let mut half = Half::First;
    for _ in 0..3 {
        log.begin(half, appended);
        for _ in 0..2 {
            let after = Version(appended.0 + 1);
            let value = after.to_string().repeat(40);
            let result = log.append(appended, after, &rows(&[("a", Some(&value)), (&value, None)]));
            // A record whose write failed may be there.
            appended = after;
            if let Err(error) = result.and_then(|()| log.sync()) {
                return (synced, appended, Err(error));
            }
            synced = appended;
        }
        half = half.other();
    }
    (synced, appended, Ok(()))
}

/// L4: what a failure leaves the log fit for is nothing.
#[track_caller]
fn assert_broken(log: &mut Log, appended: Version) {
    assert!(log.is_broken());
    let after = Version(appended.0 + 1);
    for error in [log.append(appended, after, &rows(&[])).unwrap_err(), log.sync().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("it failed before") && error.to_string().contains("new log"), "{error}");
    }
    log.begin(Half::First, after);
    assert!(log.append(after, Version(after.0 + 1), &rows(&[])).is_err());
}

const HALF: usize = 512;

#[test]
fn failed_operation_breaks_the_log_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for once in [true, false] {
        let mut broken = 0;
        for first in 0.. {
            let disk = Arc::new(Disk::of(Image::default()));
            disk.fail(Some(Failure { first, once, sectors: 0 }.to_disk(512)));
            let mut log = match Log::create(&path, STORE, HALF, Some(disk.clone())) {
                Ok(log) => log,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
                    assert!(error.to_string().contains("was made to fail"), "{error}");
                    continue;
                }
            };
            let (synced, appended, ended) = run(&mut log);
            disk.fail(None);
            let replayed = replay(&path, STORE, log.id(), synced, Some(disk.clone())).unwrap();
            assert!(replayed.version <= appended);
            let Err(error) = ended else {
                assert!(broken > 5 && !log.is_broken() && replayed.version == synced);
                break;
            };
            broken += 1;
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
            assert_broken(&mut log, appended);
            assert_eq!(replay(&path, STORE, log.id(), synced, Some(disk.clone())).unwrap(), replayed);
        }
    }
}

#[test]
fn file_of_full_size_is_not_filled_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let disk = Arc::new(Disk::of(Image::default()));
    let count = || {
        disk.fail(Some(Failure { first: u64::MAX, once: true, sectors: 0 }.to_disk(512)));
        drop(Log::create(&path, STORE, HALF, Some(disk.clone())).unwrap());
        disk.counted()
    };
    assert_eq!(count(), 4, "zeros, the header, a sync of the file and one of its folder");
    assert_eq!(count(), 3, "the header and the syncs");
}

/// A failing write leaves a part of itself, a failing sync any part of what was written.
#[test]
fn torn_write_and_half_done_sync_lose_nothing_and_end_the_log() {
    for (once, sectors) in [(true, 0), (true, 1), (true, 3), (false, 2), (true, 100)] {
        for first in 0.. {
            let rig = Rig::new(&[], 64);
            let mut log = rig.create([1; 16], 1024).unwrap();
            rig.fail(Some(Failure { first, once, sectors }));
            let (synced, appended, ended) = run(&mut log);
            if ended.is_err() {
                assert_broken(&mut log, appended);
            }
            assert_eq!(
                rig.operations() - u64::from(ended.is_err()),
                first.min(12),
                "the log was written after it broke"
            );
            for mask in 0..1_u64 << rig.unsynced() {
                // The store has all that was answered but the last window, which the log must give.
                let stored = Version(synced.0.saturating_sub(1) / 2 * 2);
                let image = rig.after_cut(|index| mask >> index & 1 == 1);
                let replayed = replay_image(&image, log.id(), stored).unwrap();
                assert!(replayed.version >= synced && replayed.version <= appended);
            }
            if ended.is_ok() {
                break;
            }
        }
    }
}
