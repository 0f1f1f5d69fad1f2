//! What is on the disk, and what only seems to be: the store's file, the log, and what a recovery makes of them.
//!
//! Who reads a file sees what was written, synced or not. A power cut leaves of each write that was not synced all,
//! nothing, or (a record or header) something torn.

use crate::{
    rules::{Bug, Scope},
    state::{CLIENTS, Change, History},
};

pub const SLOTS_PER_HALF: u8 = 2;
const SLOTS: usize = 2 * SLOTS_PER_HALF as usize;
/// The bit of the log's header beside those of the slots.
const HEADER: u8 = 1 << SLOTS;
/// No log: `log: none`, and the header of a file that was never begun.
pub const NO_LOG: u8 = 0;
const TORN_HEADER: u8 = u8::MAX;
/// No record has this checksum.
const TORN_SUM: u32 = 1;

/// All rows of the store at one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Image {
    pub history: History,
    /// The log that is in use, or [`NO_LOG`].
    pub log: u8,
    /// A2: one row per client, the number of its last committed change. Those below it are no longer awaited.
    pub verdicts: [u8; CLIENTS],
}

/// The store's file. redb 4.6 flips its header and marks it as not synced, syncs, and then takes the mark away; others
/// read the commit before it as long as the mark is there. Whoever opens the file for writing syncs first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Redb {
    /// What a power cut leaves at least.
    pub durable: Image,
    /// What a writer finds.
    pub primary: Image,
    /// What a reader finds; also a handle that was open when its last writer died.
    pub published: Image,
}

/// The log's file, as it is read, and as it is on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LogFile {
    pub cached: LogImage,
    pub disk: LogImage,
    /// What the next sync will write: bits of slots and [`HEADER`]. After a failed sync the system takes what it could
    /// not write for written: such a slot differs from the disk, has no bit, and no later sync mends it.
    dirty: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LogImage {
    /// The log's id.
    pub id: u8,
    slots: [Record; SLOTS],
}

/// L2: a group. Its rows are the changes, in order, and (A2) the rows of their clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Record {
    before: u8,
    changes: History,
    pub sum: u32,
}

impl Image {
    /// Puts a change's rows.
    pub fn put(&mut self, change: Change, with_verdict: bool) {
        self.history.push(change);
        if with_verdict {
            self.verdicts[change.client()] = change.number();
        }
    }
}

impl Redb {
    /// Opens for writing: what a dead writer's header names is synced, then shown.
    pub fn open(&mut self) {
        self.durable = self.primary;
        self.published = self.primary;
    }

    /// What a power cut may leave.
    pub fn outcomes(&self) -> Vec<Image> {
        let mut outcomes = vec![self.durable];
        if self.primary != self.durable {
            outcomes.push(self.primary);
        }
        outcomes
    }
}

impl Record {
    /// A record after the one with this checksum; the first of a window comes after none.
    pub fn new(log: u8, before: u8, changes: History, previous: Option<u32>, scope: &Scope) -> Self {
        let seed = match previous {
            _ if scope.has(Bug::NoChain) => 0,
            _ if scope.id_instead_of_chain => mix(0, u32::from(log)),
            Some(previous) => previous,
            None if scope.has(Bug::NoLogId) => mix(0, u32::from(before)),
            None => mix(mix(0, u32::from(log)), u32::from(before)),
        };
        // Never 0 or TORN_SUM.
        let sum = mix(mix(seed, u32::from(before)), changes.bits()) | 2;
        Self { before, changes, sum }
    }

    fn after(self) -> u8 {
        self.before + self.changes.version()
    }

    fn torn() -> Self {
        Self { sum: TORN_SUM, ..Self::default() }
    }
}

impl LogImage {
    /// The records of a half that chain, from its start.
    fn chain(&self, half: u8, scope: &Scope) -> impl Iterator<Item = Record> {
        let start = usize::from(half * SLOTS_PER_HALF);
        let mut previous = None;
        self.slots[start..start + usize::from(SLOTS_PER_HALF)].iter().copied().take_while(move |record| {
            let intact = Record::new(self.id, record.before, record.changes, previous, scope).sum == record.sum;
            previous = Some(record.sum);
            intact && !record.changes.is_empty()
        })
    }
}

impl LogFile {
    pub fn write_header(&mut self, id: u8) {
        self.cached.id = id;
        self.dirty |= HEADER;
    }

    pub fn append(&mut self, half: u8, place: u8, record: Record) {
        let slot = half * SLOTS_PER_HALF + place;
        self.cached.slots[usize::from(slot)] = record;
        self.dirty |= 1 << slot;
    }

    pub fn append_torn(&mut self, half: u8, place: u8) {
        self.append(half, place, Record::torn());
    }

    /// What a sync that begins now will cover.
    pub fn dirty(&self) -> u8 {
        self.dirty
    }

    pub fn sync(&mut self, covered: u8) {
        let written = self.dirty & covered;
        for slot in (0..SLOTS).filter(|slot| written & (1 << slot) != 0) {
            self.disk.slots[slot] = self.cached.slots[slot];
        }
        if written & HEADER != 0 {
            self.disk.id = self.cached.id;
        }
        self.dirty &= !covered;
    }

    /// A sync that failed: written or not, the system has forgotten that it should be.
    pub fn fail_sync(&mut self, covered: u8, written: bool) {
        if written {
            self.sync(covered);
        }
        self.dirty &= !covered;
    }

    /// What a power cut may leave.
    pub fn outcomes(&self) -> Vec<LogImage> {
        let mut outcomes = vec![self.disk];
        for slot in self.dirty_slots() {
            for outcome in outcomes.clone() {
                for record in [self.cached.slots[slot], Record::torn()] {
                    let mut other = outcome;
                    other.slots[slot] = record;
                    outcomes.push(other);
                }
            }
        }
        if self.dirty & HEADER != 0 {
            for outcome in outcomes.clone() {
                for id in [self.cached.id, TORN_HEADER] {
                    outcomes.push(LogImage { id, ..outcome });
                }
            }
        }
        outcomes
    }

    pub fn after_power_cut(image: LogImage) -> Self {
        Self { cached: image, disk: image, dirty: 0 }
    }

    fn dirty_slots(&self) -> impl Iterator<Item = usize> + use<> {
        let dirty = self.dirty;
        (0..SLOTS).filter(move |slot| dirty & (1 << slot) != 0)
    }
}

/// L6: the store as it is with the records of its log; the flag is left as it is.
///
/// # Errors
/// What is `Corrupt`.
pub fn replay(store: Image, log: &LogImage, scope: &Scope) -> Result<Image, &'static str> {
    let mut image = store;
    if store.log == NO_LOG {
        return Ok(image);
    }
    if log.id != store.log {
        return Err("INV-4: the log that is in use is missing");
    }
    let halves = [0, 1].map(|half| log.chain(half, scope).filter(|record| record.after() > store.history.version()));
    let records: Vec<Record> = halves.into_iter().flatten().collect();
    let mut replayed = 0;
    while replayed < records.len() {
        let mut next = records.iter().filter(|record| record.before == image.history.version());
        let Some(record) = next.next() else { return Err("INV-2: a record of the log continues from nothing") };
        if next.next().is_some() {
            return Err("INV-2: two records of the log continue from one version");
        }
        for change in record.changes.iter() {
            image.put(change, !scope.has(Bug::VerdictForgotten));
        }
        replayed += 1;
    }
    Ok(image)
}

/// Any function will do that gives different numbers for the few records there are.
fn mix(seed: u32, value: u32) -> u32 {
    let mixed = (seed ^ value.wrapping_add(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    (mixed ^ (mixed >> 15)).wrapping_mul(0xc2b2_ae35).rotate_left(13)
}
