//! The power goes at each moment of a store's life, any part of what was not synced is on the disk, and it may go again
//! while that is recovered; and each operation of the storage fails, once and for good (INV-2, INV-4, INV-5, S31, S32).
//!
//! A life is recorded on a disk in memory (`engine::disk`); then for each moment of it, and for what a power cut may
//! leave there, another life begins on that: it opens the store by the real way, is judged by the model, goes on with
//! direct commits or as the stone, and checks. `CASQUE_SEED` repeats a run, `CASQUE_CRASH_POINTS` says how long it is.

mod faults;
mod life;
mod model;

use std::{
    env, fs,
    panic::{set_hook, take_hook},
    sync::{
        Once,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use self::{
    life::{Ended, LOG, Life, PATIENCE, STORE, World},
    model::History,
};
use crate::{
    clock::monotonic,
    engine::disk::{Disk, image::Image, trace::Trace},
};

/// How many points the short form has.
const POINTS: usize = 8_000;
/// How much memory all of it may take at most.
const MEMORY_MAX_KIB: usize = 256 << 10;

/// What was done so far.
#[derive(Default)]
struct Tally {
    points: usize,
    /// Those of them at which the power went again while the first cut was recovered, or just after.
    again: usize,
    lives: usize,
}

/// A point, told where it fails.
struct Point(String);

impl Drop for Point {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("failed at: {}", self.0);
        }
    }
}

fn seed() -> u64 {
    let seed = env::var("CASQUE_SEED").map_or_else(|_| crate::random::words()[0], |seed| seed.parse().unwrap());
    println!("CASQUE_SEED={seed}");
    seed
}

/// The power goes at each moment, and some of what may be left of it is judged.
fn judge_all(world: &mut World, ended: &Ended, most: usize, depth: usize, tally: &mut Tally) {
    for cut in ended.trace.cuts() {
        let outcomes = cut.outcomes(most, &mut || world.chance());
        for kept in outcomes {
            let told = format!("event {} of {}, of what was pending {kept:?}", cut.at, ended.trace.events.len());
            let _point = Point(told);
            judge(world, cut.image(&kept), ended.history_at(cut.at), depth, tally);
        }
    }
}

/// A life on what a power cut has left.
fn judge(world: &mut World, image: Image, history: &History, depth: usize, tally: &mut Tally) {
    tally.points += 1;
    let begun = Life::begin(world, Disk::of(image), history.clone());
    let mut life = begun.unwrap_or_else(|error| panic!("does not open: {}", error.full_message()));
    life.look(world).unwrap();
    if world.below(32) == 0 {
        life.stand();
        life.overlap(world, 1);
    }
    life.commit(world);
    if world.below(4) == 0 {
        life.check();
        life.look(world).unwrap();
    }
    let ended = if world.below(4) == 0 { life.die() } else { life.close() };
    if depth > 0 && world.below(4) == 0 {
        let cuts = ended.trace.cuts();
        for _ in 0..3 {
            let cut = &cuts[world.below(cuts.len())];
            let mut outcomes = cut.outcomes(4, &mut || world.chance());
            let kept = outcomes.swap_remove(world.below(outcomes.len()));
            let _point = Point(format!("then event {} of {}, {kept:?}", cut.at, ended.trace.events.len()));
            tally.again += 1;
            judge(world, cut.image(&kept), ended.history_at(cut.at), depth - 1, tally);
        }
    }
}

/// A life of a few random steps.
fn live(world: &mut World) -> Ended {
    let mut life = Life::begin(world, Disk::of(world.made.clone()), History::new()).unwrap();
    for _ in 0..4 + world.below(6) {
        match world.below(8) {
            0..=2 => (0..=world.below(3)).for_each(|_| life.commit(world)),
            3 if life.is_stone() => life.step_down(),
            4 => life.look(world).unwrap(),
            5 if life.is_stone() => {
                let between = 1 + world.below(2);
                life.overlap(world, between);
            }
            6 if life.is_stone() => {
                let count = 1 + world.below(3);
                life.crowd(world, count);
            }
            3 | 5 | 6 => drop(life.stand()),
            _ => life.check(),
        }
    }
    if world.below(2) == 0 { life.die() } else { life.close() }
}

/// All that a few changes go through, and each subset of what was pending.
#[test]
fn power_cut_at_each_moment_of_a_small_life_loses_nothing() {
    watch_panics();
    let (mut tally, begun) = (Tally::default(), monotonic());
    let mut world = World::new(1, 4 << 10);
    let mut life = Life::begin(&world, Disk::of(world.made.clone()), History::new()).unwrap();
    life.commit(&mut world);
    life.stand();
    life.commit(&mut world);
    life.overlap(&mut world, 1);
    life.step_down();
    let ended = life.close();
    describe(&ended.trace);
    judge_all(&mut world, &ended, 64, 1, &mut tally);
    tell(&tally, begun);
}

#[test]
fn power_cut_at_any_moment_of_random_lives_loses_nothing() {
    watch_panics();
    let seed = seed();
    let points = env::var("CASQUE_CRASH_POINTS").map_or(POINTS, |points| points.parse().unwrap());
    let (mut tally, begun, mut told) = (Tally::default(), monotonic(), 0);
    for number in 0.. {
        let half_bytes = [64 << 10, 64 << 10, 2 << 10][number % 3];
        let _point = Point(format!("CASQUE_SEED={seed}, life {number}"));
        let mut world = World::new(seed.wrapping_add(number as u64), half_bytes);
        let ended = live(&mut world);
        tally.lives += 1;
        judge_all(&mut world, &ended, 12, 2, &mut tally);
        if tally.points / 50_000 > told {
            told = tally.points / 50_000;
            tell(&tally, begun);
        }
        if tally.points >= points {
            break;
        }
    }
    tell(&tally, begun);
}

fn describe(trace: &Trace) {
    let cuts = trace.cuts();
    let most = cuts.iter().map(|cut| cut.pending.len()).max();
    println!("{} events, {} cuts, at most {most:?} pieces pending", trace.events.len(), cuts.len());
}

fn tell(tally: &Tally, begun: std::time::Instant) {
    let Tally { points, again, lives } = tally;
    println!("{points} points, {again} of them again, in {lives} lives; {:?}", monotonic().duration_since(begun));
    let panics = PANICS.load(Ordering::Relaxed);
    assert_eq!(panics, 0, "a thread of the store panicked");
    if let Some(kib) = peak_kib() {
        println!("{} MiB at most", kib >> 10);
        // Where other tests share the process it is not ours alone.
        assert!(env::var_os("NEXTEST").is_none() || kib <= MEMORY_MAX_KIB, "{kib} KiB");
    }
}

fn peak_kib() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts the panics of the store's own threads, which tell nobody.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |panic| {
            if thread::current().name().is_some_and(|name| name.starts_with("casque-")) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            previous(panic);
        }));
    });
}
