//! Bytes that lie: recovery neither panics nor takes memory beyond the file's halves, and gives no row that was not
//! appended (S30).

use proptest::prelude::*;

use super::{
    super::{
        Half, LogId,
        format::{HALF_BYTES_MAX, HALVES_AT, Header},
    },
    rig::{STORE, replay_image, rows, small_log},
};
use crate::{error::ErrorKind, fuzz::Fuzz, store::conflict::Version};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const HALF: usize = 256;
const LOG: LogId = LogId([1; 16]);
const LIES: [u32; 10] = [0, 1, 7, 8, 31, 32, 33, 257, u32::MAX - 1, u32::MAX];

/// Three records in the first half, one in the second.
fn image() -> Vec<u8> {
    let (rig, mut log) = small_log(HALF);
    log.begin(Half::First, Version(0));
    for version in 0..3 {
        log.append(Version(version), Version(version + 1), &rows(&[("key", Some("value")), ("none", None)])).unwrap();
    }
    log.sync().unwrap();
    log.begin(Half::Second, Version(3));
    log.append(Version(3), Version(4), &rows(&[("key", Some("last"))])).unwrap();
    rig.live()
}

/// A file with this record, made to verify, in its first half.
fn with_record(count: u32, versions: (u64, u64), row_bytes: &[u8]) -> Vec<u8> {
    let header = Header { store: STORE, log: LOG, half_bytes: HALF };
    let mut record = u32::try_from(24 + row_bytes.len() + 8).unwrap().to_le_bytes().to_vec();
    record.extend(count.to_le_bytes());
    record.extend([versions.0.to_le_bytes(), versions.1.to_le_bytes()].concat());
    record.extend(row_bytes);
    let sum = xxh3_64_with_seed(&record, header.window_seed(Version(versions.0)));
    record.extend(sum.to_le_bytes());
    let mut image = header.encode().to_vec();
    image.resize(usize::try_from(HALVES_AT).unwrap(), 0);
    image.extend(record);
    image.resize(usize::try_from(header.file_bytes()).unwrap(), 0);
    image
}

fn row(key_bytes: u32, value_bytes: u32, rest: &str) -> Vec<u8> {
    [&key_bytes.to_le_bytes(), &value_bytes.to_le_bytes(), rest.as_bytes()].concat()
}

#[test]
fn changed_bytes_end_the_chain_or_are_told_as_damage() {
    let whole = image();
    assert_eq!(replay_image(whole.clone(), LOG, Version(0)).unwrap().version, Version(4));
    let halves = usize::try_from(HALVES_AT).unwrap();
    for at in (0..80).chain(halves..whole.len()) {
        for lie in LIES {
            let mut image = whole.clone();
            let lie = &lie.to_le_bytes()[..(whole.len() - at).min(4)];
            image[at..at + lie.len()].copy_from_slice(lie);
            let is_changed = |from: usize, bytes: usize| image[from..from + bytes] != whole[from..from + bytes];
            let is_told = is_changed(0, 64) || is_changed(halves, 3 * 60);
            match replay_image(image.clone(), LOG, Version(0)) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    assert!(is_told, "{at}: {error}");
                }
                // Damage in the last window looks like a torn tail; bytes that no record takes are nobody's.
                Ok(replayed) => {
                    assert!(!is_told, "damage at {at} was not told");
                    let last = if is_changed(halves + HALF, 24 + 8 + "keylast".len() + 8) { 3 } else { 4 };
                    assert_eq!(replayed.version, Version(last), "{at}");
                }
            }
        }
    }
}

#[test]
fn records_that_verify_and_make_no_sense_are_damage() {
    let good = row(1, 2, "kvv");
    let image = with_record(1, (4, 5), &good);
    assert_eq!(replay_image(image, LOG, Version(4)).unwrap().rows, rows(&[("k", Some("vv"))]));

    let bad_rows = [
        (0, good.clone()),
        (2, good.clone()),
        (u32::MAX, good.clone()),
        (1, row(u32::MAX, 0, "k")),
        (1, row(4, 0, "k")),
        (1, row(1, 3, "kvv")),
        (1, row(1, u32::MAX - 1, "kvv")),
        (1, row(1, u32::MAX, "kvv")),
        (1, good[..7].to_vec()),
        (2, [row(1, 1, "kv"), row(1, 1, "kv")].concat()),
        (2, [row(1, 1, "kv"), row(1, 1, "jv")].concat()),
    ];
    for (count, bytes) in bad_rows {
        let error = replay_image(with_record(count, (4, 5), &bytes), LOG, Version(4)).unwrap_err();
        super::assert_corrupt(&error, LOG, 4, "holds no sound rows");
        // What the store has already need not be read.
        assert!(replay_image(with_record(count, (4, 5), &bytes), LOG, Version(5)).is_ok());
    }
    for versions in [(4, u64::MAX), (u64::MAX, u64::MAX), (9, 8), (u64::MAX, 9)] {
        let replayed = replay_image(with_record(1, versions, &good), LOG, Version(4));
        assert_eq!(replayed.is_ok(), versions.0 == 4);
    }
}

#[test]
fn half_size_that_lies_reserves_no_memory_for_it() {
    let whole = image();
    for lie in [HALF as u64 + 1, HALF_BYTES_MAX as u64, HALF_BYTES_MAX as u64 + 1, u64::from(u32::MAX), u64::MAX] {
        let mut image = whole.clone();
        image[48..56].copy_from_slice(&lie.to_le_bytes());
        let sum = xxh3_64(&image[..56]);
        image[56..64].copy_from_slice(&sum.to_le_bytes());
        let error = replay_image(image, LOG, Version(0)).unwrap_err();
        let what = if lie > HALF_BYTES_MAX as u64 { "can't be read" } else { "bytes instead of" };
        super::assert_corrupt(&error, LOG, 0, what);
    }
}

proptest! {
    #[test]
    fn any_bytes_in_the_halves_replay_to_nothing_or_are_damage(
        bytes in prop::collection::vec(any::<u8>(), 2 * HALF),
        length in 0_u32..300,
    ) {
        let mut image = image();
        let halves = usize::try_from(HALVES_AT).unwrap();
        image[halves..].copy_from_slice(&bytes);
        image[halves..halves + 4].copy_from_slice(&length.to_le_bytes());
        prop_assert_eq!(replay_image(image, LOG, Version(0)).unwrap().records, 0);
    }
}

#[test]
fn fuzz_logs() {
    let made = [
        image(),
        with_record(1, (0, 1), &row(3, 5, "keyvalue")),
        with_record(2, (0, 9), &[row(3, u32::MAX, "key"), row(1, 1, "kv")].concat()),
    ];
    Fuzz::new("logs", made).run(|input| {
        match replay_image(input.to_vec(), LOG, Version(0)) {
            // What does not continue from this version is no part of it.
            Ok(replay) => assert!([0, 1, 2, 3, 4, 9].contains(&replay.version.0), "{}", replay.version),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.full_message()),
        }
    });
}
