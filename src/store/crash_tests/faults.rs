//! The k-th operation of the storage fails, for each k, once and for good; and the disk is full from the k-th write on,
//! until there is space again. What was refused is not there, what was answered is, and once the storage is well the
//! store is.

use std::{io, time::Duration};

use super::{Disk, History, LOG, Life, PATIENCE, Point, STORE, Tally, World, judge, tell, watch_panics};
use crate::{
    clock::{deadline_after, monotonic},
    engine::disk::{Failure, Operation},
    error::ErrorKind,
};

/// A life with all ways to commit, on a storage that may fail; whether it got as far as to open the store.
fn live_through(world: &mut World, disk: &Disk, is_passing: bool) -> Option<Life> {
    let mut life = match Life::begin(world, disk.clone(), History::new()) {
        Ok(life) => life,
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::Corrupt, "{}", error.full_message());
            return None;
        }
    };
    life.may_fail = true;
    // Whoever could not be the stone tries again after a tenth of a second.
    life.tries_for = Duration::from_millis(if is_passing { 250 } else { 10 });
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
        let life = live_through(&mut world, &disk, count == 1);
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
            assert!(first > 8, "the life is too short to show anything");
            println!("{first} operations");
            break;
        }
    }
    tell(&tally, begun);
}

#[test]
fn changes_are_whole_or_absent_when_any_operation_fails_once() {
    // The system refuses nobody to give up a lock; what redb does then is to keep it until the handle is closed, below.
    fail_each(1, |_, operation| operation != Operation::Unlock, io::ErrorKind::Other, 0, true);
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

/// The window is in the file then, and the stone has to see that.
#[test]
fn read_that_fails_behind_the_commit_of_a_window_does_not_hang_the_stone() {
    let mut world = World::new(3, 64 << 10);
    let mut life = Life::begin(&world, Disk::of(world.made.clone()), History::new()).unwrap();
    life.stand();
    let closed = life.end_window(&mut world);
    life.disk.let_one_pass();
    life.disk.await_held();
    let may_fail = |file: &str, operation| file == STORE && operation == Operation::Read;
    life.disk.fail(Some(Failure { first: 0, count: 1, may_fail, kind: io::ErrorKind::Other, written: 0 }));
    life.disk.open_gate();
    assert!(closed.wait_until(deadline_after(PATIENCE)).ok().unwrap().is_err(), "nothing was read");
    assert_eq!(life.disk.failed(), 1);
    life.may_fail = true;
    life.commit_in_the_end(&mut world);
    life.may_fail = false;
    life.look(&mut world).unwrap();
    life.close();
}

/// What could not be given up is held until the handle is closed; and who writes waits for it.
#[test]
fn reader_that_could_not_give_up_a_lock_is_closed_before_the_file_is_opened_for_writing() {
    let mut world = World::new(3, 64 << 10);
    let mut life = Life::begin(&world, Disk::of(world.made.clone()), History::new()).unwrap();
    life.may_fail = true;
    let may_fail = |_: &str, operation| operation == Operation::Unlock;
    for first in 0.. {
        let begun = monotonic();
        life.disk.fail(Some(Failure { first, count: 1, may_fail, kind: io::ErrorKind::Other, written: 0 }));
        let _ = life.look(&mut world);
        if life.disk.failed() == 0 {
            assert!(first > 0);
            break;
        }
        life.disk.fail(None);
        life.commit_in_the_end(&mut world);
        assert!(monotonic().duration_since(begun) < PATIENCE / 2, "the writer waited for the reader");
        life.close();
        life = Life::begin(&world, Disk::of(world.made.clone()), History::new()).unwrap();
        life.may_fail = true;
    }
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
