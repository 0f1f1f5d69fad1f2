//! The bytes of a log, as machines out there hold them. A test that fails here says that the format was changed: then
//! the header takes a new format number, since a log in use may meet a newer build after a crash.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{
    super::{Half, LogId, format::Header},
    rig::{Rig, STORE, replay_image, rows},
};
use crate::{codec::hex, store::conflict::Version};

#[test]
fn header_and_records_have_these_bytes() {
    let rig = Rig::new(&[], 512);
    let mut log = rig.create([0xef; 16], 0x0102).unwrap();
    log.begin(Half::Second, Version(0x0a0b));
    log.append(Version(0x0a0b), Version(0x0a0d), &rows(&[("key", Some("value")), ("no", None)])).unwrap();
    log.append(Version(0x0a0d), Version(0x0a0e), &rows(&[("k", Some(""))])).unwrap();
    let image = rig.live();

    let header = "63617371756c6f6701000000000000005e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5eefefefefefefefefefefefefefefefef\
                  0201000000000000a9d47dff7ec62188";
    assert_eq!(hex(&image[..64]), header);
    assert!(image[64..4096 + 0x0102].iter().all(|byte| *byte == 0));
    assert_eq!(image.len(), 4096 + 2 * 0x0102);
    let records = "3a000000020000000b0a0000000000000d0a0000000000000300000005000000\
                   6b657976616c756502000000ffffffff6e6f8371b922667dc7b9 \
                   29000000010000000d0a0000000000000e0a000000000000\
                   01000000000000006b61c28fff57e20135";
    let (first, rest) = image[4096 + 0x0102..].split_at(58);
    let (second, rest) = rest.split_at(41);
    assert_eq!([hex(first), hex(second)].join(" "), records);
    assert!(rest.iter().all(|byte| *byte == 0));
    assert_eq!(replay_image(&image, LogId([0xef; 16]), Version(0x0a0b)).unwrap().records, 2);
}

#[test]
fn other_formats_and_headers_are_not_read() {
    let bytes = Header { store: STORE, log: LogId([1; 16]), half_bytes: 9 }.encode();
    assert_eq!(Header::decode(&bytes).unwrap().half_bytes, 9);
    let newer = [&bytes[..8], &[2], &bytes[9..]].concat();
    assert_eq!(Header::decode(&newer).unwrap_err(), "has format 2, and this build reads 1");
    for at in 8..64 {
        let mut damaged = bytes;
        damaged[at] ^= 1;
        assert!(Header::decode(&damaged).is_err(), "{at}");
        assert!(Header::decode(&bytes[..at]).is_err(), "{at}");
    }
}

/// The empty input's hash as XXH3's own test vectors have it, and that a seed matters at every length's algorithm.
#[test]
fn checksum_is_xxh3() {
    assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    for length in [0, 3, 8, 16, 100, 200, 1000] {
        let bytes = vec![7; length];
        assert_ne!(xxh3_64_with_seed(&bytes, 1), xxh3_64_with_seed(&bytes, 2));
        assert_eq!(xxh3_64_with_seed(&bytes, 0), xxh3_64(&bytes));
    }
}
