//! A log on the disk in memory, whose writes a power cut takes apart at small sectors.

use std::{io, path::Path, sync::Arc};

use super::super::{
    Log, LogId,
    format::Header,
    replay::Replay,
    replay::{Wanted, replay_on},
};
use crate::{
    engine::{
        RowSet,
        disk::{
            self, Disk, Operation,
            image::Image,
            trace::{Kept, mix},
        },
    },
    error::Result,
    store::conflict::Version,
};

pub(super) const STORE: [u8; 16] = [0x5e; 16];
const LOG: &str = "log";

pub(super) fn rows(rows: &[(&str, Option<&str>)]) -> RowSet {
    rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()))).collect()
}

/// A log with small halves on a disk of its own.
pub(super) fn small_log(half_bytes: usize) -> (Rig, Log) {
    let rig = Rig::new(&[], 512);
    let log = rig.create([1; 16], half_bytes).unwrap();
    (rig, log)
}

/// What recovery makes of the bytes of a file.
pub(super) fn replay_image(image: &[u8], log: LogId, version: Version) -> Result<Replay> {
    let disk = Disk::of(Image::default().with(LOG, image));
    replay_on(&disk.open(LOG), &Wanted { path: Path::new("/rig/log"), store: STORE, log, version })
}

/// Numbers that follow from a seed: which parts of what was not synced a power cut leaves.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    /// The generator `SplitMix64` (<https://prng.di.unimi.it/splitmix64.c>).
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
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

impl Failure {
    pub(super) fn to_disk(self, sector: usize) -> disk::Failure {
        disk::Failure {
            first: self.first,
            count: if self.once { 1 } else { u64::MAX },
            may_fail: |_, operation| operation != Operation::Read,
            kind: io::ErrorKind::Other,
            written: self.sectors * sector,
        }
    }
}

/// The disk with its one file; its clones are the same one.
#[derive(Clone)]
pub(super) struct Rig {
    disk: Disk,
    sector: usize,
}

impl Rig {
    pub(super) fn new(image: &[u8], sector: usize) -> Self {
        Self { disk: Disk::of(Image::default().with(LOG, image)).in_sectors(sector), sector }
    }

    pub(super) fn create(&self, log: [u8; 16], half_bytes: usize) -> Result<Log> {
        let header = Header { store: STORE, log: LogId(log), half_bytes };
        Log::create_on(Arc::new(self.disk.open(LOG)), Path::new("/rig/log"), header)
    }

    pub(super) fn live(&self) -> Vec<u8> {
        bytes(&self.disk.live())
    }

    pub(super) fn unsynced(&self) -> usize {
        self.disk.cut().pending.len()
    }

    /// Counted since it was said which fail.
    pub(super) fn operations(&self) -> u64 {
        self.disk.counted()
    }

    pub(super) fn fail(&self, failure: Option<Failure>) {
        self.disk.fail(failure.map(|failure| failure.to_disk(self.sector)));
    }

    /// What is on the disk when the power goes now and those unsynced pieces made it there that are to be kept.
    pub(super) fn after_cut(&self, keep: impl Fn(usize) -> bool) -> Vec<u8> {
        let cut = self.disk.cut();
        let kept = |index| if keep(index) { Kept::Whole } else { Kept::Nothing };
        bytes(&cut.image(&(0..cut.pending.len()).map(kept).collect::<Vec<_>>()))
    }
}

fn bytes(image: &Image) -> Vec<u8> {
    image.file(LOG).unwrap().to_vec()
}
