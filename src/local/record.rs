//! The bytes of a session file: a header, a beat, and slots for notes. Little-endian, at fixed places.
//!
//! ```text
//!   0  magic and format (8)   pid u32   label length u32   started_ms u64
//!  24  boot id, zero-padded (64)        label (256)
//! 344  checksum of all before (8)
//! 352  beat u64   the longest time to the next beat, in ms, u64
//! 512  notes of 64 bytes: job (12)  token u64  started_ms u64  state u8 ... checksum (8)
//! ```
//!
//! Nothing is synced: after a power cut a file may be empty or hold zeros, and then says nothing about itself.

use super::boot::BOOT_ID_BYTES;
use crate::queue::id::{ID_BYTES, JobId, Token};

/// No more than this is ever written to, or read from, a session file.
pub(super) const FILE_BYTES: usize = 1 << 20;
pub(super) const BEAT_AT: u64 = 352;
pub(super) const BEAT_BYTES: usize = 16;
pub(super) const NOTE_BYTES: usize = 64;
pub(super) const NOTES_MAX: u32 = 16_376;
const _: () = assert!(HEADER_BYTES + NOTES_MAX as usize * NOTE_BYTES == FILE_BYTES);

const HEADER_BYTES: usize = 512;
const HEADER_SUM_AT: usize = 344;
const MAGIC: [u8; 8] = *b"casqses2";
const BOOT_AT: usize = 24;
const LABEL_AT: usize = BOOT_AT + BOOT_ID_BYTES + 1;
const LABEL_BYTES: usize = HEADER_SUM_AT - LABEL_AT;
const NOTE_SUM_AT: usize = NOTE_BYTES - 8;

/// What a session says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) pid: u32,
    pub(super) boot_id: String,
    pub(super) label: String,
    pub(super) started_ms: u64,
}

/// What a session noted about one job that it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) job: JobId,
    pub(crate) token: Token,
    pub(crate) started_ms: u64,
    pub(crate) state: NoteState,
}

/// How far a noted job came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoteState {
    /// Its handler was called.
    Started,
    /// Its handler returned, and has no result and no transaction that a commit must carry.
    EndedClean,
    /// Its handler ended otherwise.
    EndedOther,
}

/// Where the slot with this index stands in the file.
pub(super) fn slot_at(index: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(index) * NOTE_BYTES as u64
}

impl Header {
    /// The header with a beat of 0.
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let boot = &self.boot_id.as_bytes()[..self.boot_id.floor_char_boundary(BOOT_ID_BYTES)];
        let label = &self.label.as_bytes()[..self.label.floor_char_boundary(LABEL_BYTES)];
        let label_length = u32::try_from(label.len()).expect("a label is cut to fewer bytes than a u32 counts");
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.pid.to_le_bytes());
        bytes[12..16].copy_from_slice(&label_length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.started_ms.to_le_bytes());
        bytes[BOOT_AT..BOOT_AT + boot.len()].copy_from_slice(boot);
        bytes[LABEL_AT..LABEL_AT + label.len()].copy_from_slice(label);
        let sum = checksum(&bytes[..HEADER_SUM_AT]);
        bytes[HEADER_SUM_AT..HEADER_SUM_AT + 8].copy_from_slice(&sum);
        bytes
    }

    /// `None` where the bytes are not a header of this format, whole and undamaged.
    pub(super) fn decode(file: &[u8]) -> Option<Self> {
        let (head, rest) = file.split_at_checked(HEADER_SUM_AT)?;
        if head[..8] != MAGIC || rest.get(..8)? != checksum(head) {
            return None;
        }
        let label_length = usize::try_from(u32_at(head, 12)?).ok()?;
        let label = head.get(LABEL_AT..)?.get(..label_length)?;
        let boot = head.get(BOOT_AT..LABEL_AT)?;
        let boot = boot.split(|&byte| byte == 0).next()?;
        Some(Self {
            pid: u32_at(head, 8)?,
            boot_id: String::from_utf8_lossy(boot).into_owned(),
            label: String::from_utf8_lossy(label).into_owned(),
            started_ms: u64_at(head, 16)?,
        })
    }
}

/// The beat in a session file and when the next is due, in milliseconds; 0 where the file is too short to hold them.
pub(super) fn beat(file: &[u8]) -> (u64, u64) {
    let beat = usize::try_from(BEAT_AT).ok().and_then(|at| Some((u64_at(file, at)?, u64_at(file, at + 8)?)));
    beat.unwrap_or((0, 0))
}

/// The bytes of a beat, one write: who reads it sees no beat without its own interval.
pub(super) fn encode_beat(beat: u64, interval_ms: u64) -> [u8; BEAT_BYTES] {
    let mut bytes = [0; BEAT_BYTES];
    bytes[..8].copy_from_slice(&beat.to_le_bytes());
    bytes[8..].copy_from_slice(&interval_ms.to_le_bytes());
    bytes
}

/// The notes in a session file: free, torn and cut slots hold none.
pub(super) fn notes(file: &[u8]) -> Vec<Note> {
    file.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(NOTE_BYTES).filter_map(Note::decode).collect()
}

impl Note {
    pub(super) fn encode(&self) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        bytes[..ID_BYTES].copy_from_slice(&self.job.to_bytes());
        bytes[12..20].copy_from_slice(&self.token.0.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.started_ms.to_le_bytes());
        bytes[28] = match self.state {
            NoteState::Started => 1,
            NoteState::EndedClean => 2,
            NoteState::EndedOther => 3,
        };
        let sum = checksum(&bytes[..NOTE_SUM_AT]);
        bytes[NOTE_SUM_AT..].copy_from_slice(&sum);
        bytes
    }

    fn decode(slot: &[u8]) -> Option<Self> {
        let (body, sum) = slot.split_at_checked(NOTE_SUM_AT)?;
        if sum != checksum(body) {
            return None;
        }
        let state = match body[28] {
            1 => NoteState::Started,
            2 => NoteState::EndedClean,
            3 => NoteState::EndedOther,
            _ => return None,
        };
        let job = JobId::from_bytes(&body[..ID_BYTES])?;
        Some(Self { job, token: Token(u64_at(body, 12)?), started_ms: u64_at(body, 20)?, state })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// 64-bit FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>): it tells a torn write from a whole one, no more.
fn checksum(bytes: &[u8]) -> [u8; 8] {
    let step = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step).to_le_bytes()
}
