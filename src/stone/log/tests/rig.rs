//! A medium in memory that keeps what a process sees and what a power cut leaves apart, and that can fail.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use super::super::{
    Log, LogId, Medium,
    format::Header,
    replay::Replay,
    replay::{Wanted, replay_on},
};
use crate::{engine::RowSet, error::Result, store::conflict::Version};

pub(super) const STORE: [u8; 16] = [0x5e; 16];

pub(super) fn rows(rows: &[(&str, Option<&str>)]) -> RowSet {
    rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()))).collect()
}

/// A log with small halves on a medium of its own.
pub(super) fn small_log(half_bytes: usize) -> (Rig, Log) {
    let rig = Rig::new(Vec::new(), 512);
    let log = rig.create([1; 16], half_bytes).unwrap();
    (rig, log)
}

/// What recovery makes of the bytes of a file.
pub(super) fn replay_image(image: Vec<u8>, log: LogId, version: Version) -> Result<Replay> {
    replay_on(&Rig::new(image, 512), &Wanted { path: Path::new("/rig/log"), store: STORE, log, version })
}

/// Numbers that follow from a seed: which parts of what was not synced a power cut leaves.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    /// The generator `SplitMix64` (<https://prng.di.unimi.it/splitmix64.c>).
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// When operations fail, counted over writes, syncs and changes of length.
#[derive(Clone, Copy)]
pub(super) struct Failure {
    pub(super) first: u64,
    pub(super) once: bool,
    /// How many sectors of a failing write are written all the same.
    pub(super) sectors: usize,
}

/// The medium; its clones are the same one.
#[derive(Clone)]
pub(super) struct Rig(Arc<Mutex<Images>>);

struct Images {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// What the power may take or leave, in order and each on its own: sectors written, and lengths set.
    unsynced: Vec<Piece>,
    /// What is written at once or not at all, in bytes.
    sector: usize,
    operations: u64,
    failure: Option<Failure>,
}

#[derive(Clone)]
enum Piece {
    Sector(usize, Vec<u8>),
    Length(usize),
}

impl Rig {
    pub(super) fn new(image: Vec<u8>, sector: usize) -> Self {
        let durable = image.clone();
        let images = Images { live: image, durable, unsynced: Vec::new(), sector, operations: 0, failure: None };
        Self(Arc::new(Mutex::new(images)))
    }

    pub(super) fn create(&self, log: [u8; 16], half_bytes: usize) -> Result<Log> {
        let header = Header { store: STORE, log: LogId(log), half_bytes };
        Log::create_on(Arc::new(self.clone()), Path::new("/rig/log"), header)
    }

    pub(super) fn live(&self) -> Vec<u8> {
        self.images().live.clone()
    }

    pub(super) fn unsynced(&self) -> usize {
        self.images().unsynced.len()
    }

    pub(super) fn operations(&self) -> u64 {
        self.images().operations
    }

    /// From now on counts operations from 0.
    pub(super) fn fail(&self, failure: Option<Failure>) {
        let mut images = self.images();
        images.operations = 0;
        images.failure = failure;
    }

    /// What is on the disk when the power goes now and those unsynced pieces made it there that are to be kept.
    pub(super) fn after_cut(&self, keep: impl Fn(usize) -> bool) -> Vec<u8> {
        let images = self.images();
        let mut image = images.durable.clone();
        for (_, piece) in images.unsynced.iter().enumerate().filter(|(index, _)| keep(*index)) {
            piece.apply(&mut image);
        }
        image
    }

    fn images(&self) -> MutexGuard<'_, Images> {
        self.0.lock().unwrap()
    }
}

impl Images {
    /// Counts an operation; the sectors it may still write where it is to fail.
    fn fails(&mut self) -> Option<usize> {
        let number = self.operations;
        self.operations += 1;
        let failure = self.failure?;
        let fails = if failure.once { number == failure.first } else { number >= failure.first };
        fails.then_some(failure.sectors)
    }

    fn write(&mut self, piece: Piece) {
        piece.apply(&mut self.live);
        self.unsynced.push(piece);
    }
}

impl Piece {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Length(len) => image.resize(*len, 0),
            Self::Sector(at, bytes) => {
                image.resize(image.len().max(at + bytes.len()), 0);
                image[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

fn failed() -> io::Error {
    io::Error::other("made to fail")
}

impl Medium for Rig {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let images = self.images();
        let rest = images.live.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut images = self.images();
        let most = images.fails();
        let mut at = usize::try_from(offset).unwrap();
        let (mut rest, mut written) = (bytes, 0);
        while !rest.is_empty() && most.is_none_or(|most| written < most) {
            let count = rest.len().min(images.sector - at % images.sector);
            images.write(Piece::Sector(at, rest[..count].to_vec()));
            (at, rest, written) = (at + count, &rest[count..], written + 1);
        }
        if most.is_some() { Err(failed()) } else { Ok(()) }
    }

    /// One that fails makes nothing durable; which of the pieces are is then up to the cut.
    fn sync(&self) -> io::Result<()> {
        let mut images = self.images();
        if images.fails().is_some() {
            return Err(failed());
        }
        images.durable = images.live.clone();
        images.unsynced.clear();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.images().live.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut images = self.images();
        if images.fails().is_some() {
            return Err(failed());
        }
        images.write(Piece::Length(usize::try_from(len).unwrap()));
        Ok(())
    }
}
