//! The power goes at every write and every sync, and any part of what was not synced may be on the disk (INV-4).
//!
//! A stone in small keeps windows in turn and commits them to a store that is only a version. After each of its steps,
//! recovery must give all that was synced, perhaps more of what was appended, in order, and nothing else: no row of an
//! older window, of an older log, or of half a record.

use proptest::prelude::*;

use super::{
    super::{Half, Log},
    rig::{Chance, Rig, replay_image},
};
use crate::{engine::RowSet, store::conflict::Version};

/// A stone and its store, as far as the log sees them.
struct Stone {
    rig: Rig,
    log: Log,
    half: Half,
    half_bytes: usize,
    life: u8,
    /// All records of this log: the version before, the version after, the rows.
    appended: Vec<(Version, Version, RowSet)>,
    synced: Version,
    /// The version that the store has for certain.
    stored: Version,
    /// The end of the window that the other half holds.
    closed: Version,
}

impl Stone {
    fn start(rig: Rig, half_bytes: usize, life: u8, stored: Version) -> Self {
        let mut log = rig.create([life; 16], half_bytes).unwrap();
        log.begin(Half::First, stored);
        let appended = Vec::new();
        Self { rig, log, half: Half::First, half_bytes, life, appended, synced: stored, stored, closed: stored }
    }

    fn version(&self) -> Version {
        self.appended.last().map_or(self.synced, |(_, after, _)| *after)
    }

    /// Each key with a value of this length or none; the values tell log and version.
    fn append(&mut self, changes: u64, lengths: &[(u8, Option<usize>)]) {
        let before = self.version();
        let after = Version(before.0 + changes);
        let value = |length: usize| format!("{} {after} {}", self.life, "x".repeat(length)).into_bytes();
        let rows: RowSet = lengths.iter().map(|(key, length)| (vec![b'k', *key], length.map(value))).collect();
        if !self.log.fits(Log::record_bytes(&rows)) {
            self.turn();
        }
        if self.log.fits(Log::record_bytes(&rows)) {
            self.log.append(before, after, &rows).unwrap();
            self.appended.push((before, after, rows));
        }
    }

    fn sync(&mut self) {
        self.log.sync().unwrap();
        self.synced = self.version();
    }

    /// L3: the other half is free once the window it holds is in the store.
    fn turn(&mut self) {
        self.sync();
        self.commit();
        self.closed = self.version();
        self.half = self.half.other();
        self.log.begin(self.half, self.closed);
    }

    fn commit(&mut self) {
        self.stored = self.closed;
    }

    /// Recovery from what is on the disk now. The store may have any version up to what is synced: a commit that had
    /// not returned may have come to be.
    fn check(&self, image: &[u8]) {
        let ends = self.appended.iter().map(|(_, after, _)| *after);
        let versions = ends.filter(|end| *end > self.stored && *end <= self.synced).chain([self.stored]);
        for version in versions {
            let replayed = replay_image(image, self.log.id(), version).unwrap();
            assert!(replayed.version >= self.synced, "lost {} to {}", replayed.version, self.synced);
            let came =
                |(before, after, _): &&(Version, Version, RowSet)| *before >= version && *after <= replayed.version;
            let mut rows = RowSet::new();
            self.appended.iter().filter(came).for_each(|(_, _, more)| rows.extend(more.clone()));
            assert_eq!(replayed.rows, rows);
            assert_eq!(replayed.records, self.appended.iter().filter(came).count());
            let last = self.appended.iter().rfind(came).map_or(version, |(_, after, _)| *after);
            assert_eq!(replayed.version, last);
        }
    }

    /// All subsets of the unsynced pieces where they are few, else some of them, and all that are cut off somewhere.
    fn check_cuts(&self, chance: &mut Chance, exhaustive: usize) {
        let pieces = self.rig.unsynced();
        if pieces <= exhaustive {
            (0..1_u64 << pieces).for_each(|mask| self.check(&self.rig.after_cut(|index| mask >> index & 1 == 1)));
            return;
        }
        for _ in 0..4 {
            let seed = chance.next();
            self.check(&self.rig.after_cut(|index| is_kept(seed, index)));
        }
        for kept in 0..=pieces {
            self.check(&self.rig.after_cut(|index| index < kept));
        }
    }

    /// The power goes, and the next stone takes over the file, whatever of it is on the disk.
    fn lose_power(self, chance: &mut Chance) -> Self {
        let seed = chance.next();
        let image = self.rig.after_cut(|index| is_kept(seed, index));
        let replayed = replay_image(&image, self.log.id(), self.stored).unwrap();
        let sector = 1 << (5 + chance.next() % 5);
        let rig = Rig::new(&image, sector);
        Self::start(rig, self.half_bytes, self.life + 1, replayed.version)
    }
}

/// One half of all pieces, another one for each seed.
fn is_kept(seed: u64, index: usize) -> bool {
    Chance(seed ^ index as u64).next() & 1 == 1
}

/// Three lives of a log, with windows as long as each other's so that old records stand right behind new ones.
#[test]
fn every_part_of_what_was_not_synced_may_be_on_the_disk() {
    let mut chance = Chance(1);
    let mut checked = 0;
    let rows = [(1, Some(20)), (2, None)];
    let mut version = Version(0);
    let mut image = Vec::new();
    for life in 1..4 {
        let rig = Rig::new(&image, 32);
        let mut stone = Stone::start(rig.clone(), 512, life, version);
        for window in 0..4 {
            for group in 0..4 {
                stone.append(1, &rows);
                checked += 1 << rig.unsynced();
                stone.check_cuts(&mut chance, 12);
                if group % 2 == window % 2 {
                    stone.sync();
                    stone.check_cuts(&mut chance, 12);
                }
            }
            stone.turn();
            stone.check_cuts(&mut chance, 12);
            if window == 1 {
                stone.commit();
            }
        }
        version = stone.version();
        image = rig.after_cut(|index| index % 3 == 0);
    }
    assert!(checked > 1000, "{checked} images are too few to show anything");
}

/// A cut while a file is laid out or taken over leaves what the next one can take over.
#[test]
fn file_whose_making_was_cut_short_is_taken_over() {
    let mut old = Stone::start(Rig::new(&[], 512), 512, 1, Version(0));
    old.append(1, &[(1, Some(9))]);
    old.sync();
    let whole = old.rig.live();
    for image in [Vec::new(), whole.clone(), whole[..4500].to_vec(), [&whole[..], &[7; 900]].concat()] {
        for first in 0.. {
            let rig = Rig::new(&image, 16);
            rig.fail(Some(super::rig::Failure { first, once: false, sectors: 2 }));
            let made = rig.create([2; 16], 512);
            let pieces = rig.unsynced();
            for kept in 0..=pieces {
                let rig = Rig::new(&rig.after_cut(|index| index < kept), 512);
                let mut stone = Stone::start(rig, 512, 3, Version(1));
                stone.append(1, &[(1, Some(9))]);
                stone.check_cuts(&mut Chance(first), 12);
            }
            if made.is_ok() {
                break;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(u64, Vec<(u8, Option<usize>)>),
    Sync,
    Turn,
    Commit,
    LosePower,
}

fn step() -> impl Strategy<Value = Step> {
    let row = (0_u8..6, prop::option::weighted(0.8, 0_usize..120));
    prop_oneof![
        8 => (1_u64..4, prop::collection::vec(row, 0..5)).prop_map(|(changes, rows)| Step::Append(changes, rows)),
        // Rows that are often as long as others, so that new records end where old ones did.
        4 => Just(Step::Append(1, vec![(1, Some(30))])),
        4 => Just(Step::Sync),
        2 => Just(Step::Turn),
        2 => Just(Step::Commit),
        1 => Just(Step::LosePower),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn recovery_gives_all_that_was_synced_and_only_what_was_appended(
        half_bytes in 200_usize..2000,
        sector in prop::sample::select(vec![16_usize, 64, 512, 4096]),
        seed: u64,
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut chance = Chance(seed);
        let mut stone = Stone::start(Rig::new(&[], sector), half_bytes, 1, Version(0));
        for step in steps {
            match step {
                Step::Append(changes, rows) => stone.append(changes, &rows),
                Step::Sync => stone.sync(),
                Step::Turn => stone.turn(),
                Step::Commit => stone.commit(),
                Step::LosePower => stone = stone.lose_power(&mut chance),
            }
            stone.check_cuts(&mut chance, 4);
        }
    }
}
