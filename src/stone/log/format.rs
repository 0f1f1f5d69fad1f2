//! The bytes of a log: a header, then two halves of records. Little-endian, without gaps.
//!
//! ```text
//! header, at 0:  magic (8)  format u32  zero u32  store id (16)  log id (16)  bytes of a half u64  checksum u64
//! halves, at 4096 and right behind the first
//! record:        length u32  number of rows u32  version before u64  version after u64  rows  checksum u64
//! row:           length of key u32  length of value u32, or u32::MAX for none  key  value
//! ```
//!
//! Checksums are XXH3 with 64 bits over all that stands before them. A record's has a seed: for a window's first record
//! a hash of (store id, log id, version at the window's start), for each later one the checksum of the record before.
//! So a record verifies only in its own log, behind its own forerunner: what a window leaves of an older one, and a
//! log of an older log, is no record.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Half, LogId};
use crate::{engine::RowSet, store::conflict::Version};

/// Where the halves begin: the header has a block for itself, so that no append touches it.
pub(super) const HALVES_AT: u64 = 4096;
/// How many bytes of the file are the header.
pub(super) const HEADER_BYTES: usize = 64;
/// No half is larger, whatever a header says.
pub(super) const HALF_BYTES_MAX: usize = 64 << 20;

const MAGIC: [u8; 8] = *b"casqulog";
const FORMAT: u32 = 1;
const HEADER_SUM_AT: usize = 56;
const ROWS_AT: usize = 24;
const SUM_BYTES: usize = 8;
const ROW_HEAD_BYTES: usize = 8;
const NO_VALUE: u32 = u32::MAX;

/// What a log says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) store: [u8; 16],
    pub(super) log: LogId,
    pub(super) half_bytes: usize,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store);
        bytes[32..48].copy_from_slice(&self.log.0);
        bytes[48..56].copy_from_slice(&(self.half_bytes as u64).to_le_bytes());
        let sum = xxh3_64(&bytes[..HEADER_SUM_AT]);
        bytes[HEADER_SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// # Errors
    /// What is wrong with the bytes, as it follows the file's name.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let unreadable = || "has a header that can't be read".to_owned();
        if bytes.get(..8) != Some(MAGIC.as_slice()) {
            return Err("does not begin like a log".into());
        }
        let format = u32_at(bytes, 8).ok_or_else(unreadable)?;
        if format != FORMAT {
            return Err(format!("has format {format}, and this build reads {FORMAT}"));
        }
        let head = bytes.get(..HEADER_SUM_AT).ok_or_else(unreadable)?;
        if u64_at(bytes, HEADER_SUM_AT) != Some(xxh3_64(head)) {
            return Err("has a damaged header".into());
        }
        let header = || {
            let half_bytes = usize::try_from(u64_at(head, 48)?).ok()?;
            let store = *head.get(16..)?.first_chunk()?;
            Some(Self { store, log: LogId(*head.get(32..)?.first_chunk()?), half_bytes })
        };
        header().filter(|header| header.half_bytes <= HALF_BYTES_MAX).ok_or_else(unreadable)
    }

    /// Where a half begins in the file.
    pub(super) fn half_at(&self, half: Half) -> u64 {
        match half {
            Half::First => HALVES_AT,
            Half::Second => HALVES_AT + self.half_bytes as u64,
        }
    }

    /// The length of the whole file.
    pub(super) fn file_bytes(&self) -> u64 {
        HALVES_AT + 2 * self.half_bytes as u64
    }

    /// The seed of the first record of a window that starts at this version.
    pub(super) fn window_seed(&self, version: Version) -> u64 {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.store);
        bytes[16..32].copy_from_slice(&self.log.0);
        bytes[32..].copy_from_slice(&version.0.to_le_bytes());
        xxh3_64(&bytes)
    }
}

/// How many bytes a record of these rows takes.
pub(super) fn record_bytes(rows: &RowSet) -> usize {
    let row =
        |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| ROW_HEAD_BYTES + key.len() + value.as_ref().map_or(0, Vec::len);
    ROWS_AT + rows.iter().map(row).sum::<usize>() + SUM_BYTES
}

/// Puts a record of at most [`HALF_BYTES_MAX`] bytes in place of what `buffer` holds; returns its checksum.
pub(super) fn encode_record(buffer: &mut Vec<u8>, seed: u64, before: Version, after: Version, rows: &RowSet) -> u64 {
    buffer.clear();
    buffer.extend_from_slice(&length(record_bytes(rows)));
    buffer.extend_from_slice(&length(rows.len()));
    buffer.extend_from_slice(&before.0.to_le_bytes());
    buffer.extend_from_slice(&after.0.to_le_bytes());
    for (key, value) in rows {
        buffer.extend_from_slice(&length(key.len()));
        buffer.extend_from_slice(&value.as_ref().map_or(NO_VALUE.to_le_bytes(), |value| length(value.len())));
        buffer.extend_from_slice(key);
        buffer.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    let sum = xxh3_64_with_seed(buffer, seed);
    buffer.extend_from_slice(&sum.to_le_bytes());
    sum
}

/// The records of a half, from its start to the first that does not verify.
///
/// A reader does not know at which version the half's window started, nor needs to: it is the first record's own
/// `before`, and the seed made from that verifies nothing but a record that was written first in a window of this very
/// log from that version. Store id and log id are in the seed, and the log id is drawn anew for each life of a file.
pub(super) struct Chain<'a> {
    header: Header,
    rest: &'a [u8],
    /// The checksum of the record before; none at the start.
    previous: Option<u64>,
}

impl<'a> Chain<'a> {
    pub(super) fn new(header: Header, half: &'a [u8]) -> Self {
        Self { header, rest: half, previous: None }
    }
}

impl<'a> Iterator for Chain<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let length = usize::try_from(u32_at(self.rest, 0)?).ok()?;
        let (record, rest) = self.rest.split_at_checked(length)?;
        let body = record.get(..length.checked_sub(SUM_BYTES)?)?;
        let rows = body.get(ROWS_AT..)?;
        let (before, after) = (Version(u64_at(body, 8)?), Version(u64_at(body, 16)?));
        let seed = self.previous.unwrap_or_else(|| self.header.window_seed(before));
        let sum = xxh3_64_with_seed(body, seed);
        if u64_at(record, body.len())? != sum {
            return None;
        }
        self.previous = Some(sum);
        self.rest = rest;
        Some(Record { before, after, count: u32_at(body, 4)?, rows })
    }
}

/// A record whose checksum holds.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) before: Version,
    pub(super) after: Version,
    count: u32,
    rows: &'a [u8],
}

impl Record<'_> {
    /// Puts the record's rows over those that are in `rows`. `None` where they are not sound: they are then not from
    /// [`encode_record`], whatever the checksum says.
    pub(super) fn redo(&self, rows: &mut RowSet) -> Option<()> {
        let mut rest = self.rows;
        let mut last: Option<&[u8]> = None;
        for _ in 0..self.count {
            let key_bytes = usize::try_from(u32_at(rest, 0)?).ok()?;
            let value_bytes = Some(u32_at(rest, 4)?).filter(|&bytes| bytes != NO_VALUE);
            let (key, behind) = rest.get(ROW_HEAD_BYTES..)?.split_at_checked(key_bytes)?;
            let (value, behind) = behind.split_at_checked(usize::try_from(value_bytes.unwrap_or(0)).ok()?)?;
            if last.is_some_and(|last| last >= key) {
                return None;
            }
            rows.insert(key.to_vec(), value_bytes.map(|_| value.to_vec()));
            (last, rest) = (Some(key), behind);
        }
        rest.is_empty().then_some(())
    }
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("nothing in a record is larger than a half").to_le_bytes()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}
