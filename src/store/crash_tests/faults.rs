//! The k-th operation of the storage fails, for each k, once and for good; and the disk is full from the k-th write on,
//! until there is space again. What was refused is not there, what was answered is, and once the storage is well the
//! store is.

use std::io;

use super::{Disk, History, LOG, Life, Point, STORE, Tally, World, judge, tell, watch_panics};
use crate::{
    clock::monotonic,
    engine::disk::{Failure, Operation},
    error::ErrorKind,
};

/// A life with all ways to commit, on a storage that may fail; whether it got as far as to open the store.
fn live_through(world: &mut World, disk: &Disk) -> Option<Life> {
    let mut life = match Life::begin(world, disk.clone(), History::new()) {
        Ok(life) => life,
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::Corrupt, "{}", error.full_message());
            return None;
        }
    };
    life.may_fail = true;
    life.commit(world);
    life.stand();
    life.commit(world);
    life.commit(world);
    // What can't be read now is read when the storage is well.
    let _ = life.look(world);
    life.commit(world);
    life.step_down();
    life.commit(world);
    let _ = life.look(world);
    Some(life)
}

/// Fails each operation in turn that may; gives how many points were judged.
fn fail_each(count: u64, may_fail: fn(&str, Operation) -> bool, kind: io::ErrorKind, written: usize, is_over: bool) {
    watch_panics();
    let (mut tally, begun) = (Tally::default(), monotonic());
    let mut world = World::new(7, 64 << 10);
    for first in 0.. {
        let _point = Point(format!("operation {first} fails, {count} times"));
        let disk = Disk::of(world.made.clone());
        disk.fail(Some(Failure { first, count, may_fail, kind, written }));
        let life = live_through(&mut world, &disk);
        let has_failed = disk.failed() > 0;
        let ended = if let Some(mut life) = life {
            if is_over {
                // The storage is well again, and the process goes on.
                disk.fail(None);
                life.commit_in_the_end(&mut world);
                life.may_fail = false;
                life.look(&mut world).unwrap();
                life.stand();
                life.commit_in_the_end(&mut world);
                life.check();
                life.look(&mut world).unwrap();
            }
            Some(life.die())
        } else {
            None
        };
        let (trace, history) = match &ended {
            Some(ended) => (ended.trace.clone(), ended.history.clone()),
            None => (disk.trace(), History::new()),
        };
        let cut = trace.cuts().pop().unwrap();
        for kept in cut.outcomes(4, &mut || world.chance()) {
            judge(&mut world, cut.image(&kept), &history, 0, &mut tally);
        }
        if !has_failed {
            assert!(first > 20, "the life is too short to show anything");
            println!("{first} operations");
            break;
        }
    }
    tell(&tally, begun);
}

#[test]
fn changes_are_whole_or_absent_when_any_operation_fails_once() {
    fail_each(1, |_, _| true, io::ErrorKind::Other, 0, true);
}

#[test]
fn changes_are_whole_or_absent_when_the_storage_fails_for_good_from_any_operation_on() {
    fail_each(u64::MAX, |_, _| true, io::ErrorKind::Other, 0, false);
}

#[test]
fn write_that_fails_in_its_midst_leaves_nothing_of_its_change() {
    let is_write = |_: &str, operation| matches!(operation, Operation::Write | Operation::Sync);
    fail_each(1, is_write, io::ErrorKind::Other, 100, true);
}

#[test]
fn full_disk_refuses_changes_until_there_is_space_again() {
    let takes_space = |_: &str, operation| matches!(operation, Operation::Write | Operation::SetLen);
    fail_each(u64::MAX, takes_space, io::ErrorKind::StorageFull, 512, true);
}

#[test]
fn full_disk_of_the_store_leaves_what_was_answered_in_the_log() {
    let takes_space =
        |file: &str, operation| file == STORE && matches!(operation, Operation::Write | Operation::SetLen);
    fail_each(u64::MAX, takes_space, io::ErrorKind::StorageFull, 0, true);
}

#[test]
fn log_that_is_refused_space_is_done_without() {
    let is_of_log = |file: &str, operation| file == LOG && operation != Operation::Read;
    fail_each(u64::MAX, is_of_log, io::ErrorKind::StorageFull, 0, true);
}
