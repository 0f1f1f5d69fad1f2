//! The rules of named locks, change by change.

use super::rules::{Claimant, FREED_MAX, Fence, FreeLocks, LockRequest, WAITERS_MAX, lock_of};
use crate::{
    error::{ErrorKind, Result},
    queue::{
        id::SessionId,
        rig_tests::{OTHER_SESSION, Rig, SESSION},
    },
    store::{
        change::{Guard, Intent, Outcome},
        keys,
    },
};

const NAME: &str = "report";

fn one(session: SessionId, nonce: u64) -> Claimant {
    Claimant { session, nonce }
}

fn lock(rig: &mut Rig, name: &str, claimant: Claimant, waits: bool) -> Result<Option<u64>> {
    match rig.intent(Intent::Lock(LockRequest { name: name.into(), claimant, waits }))? {
        Outcome::Locked(fence) => Ok(fence.map(Fence::number)),
        other => panic!("no answer to a wish: {other:?}"),
    }
}

fn wish(rig: &mut Rig, claimant: Claimant) -> Option<u64> {
    lock(rig, NAME, claimant, true).unwrap()
}

fn unlock(rig: &mut Rig, claimant: Claimant) -> bool {
    match rig.intent(Intent::Unlock { name: NAME.into(), claimant }).unwrap() {
        Outcome::Unlocked { was_held } => was_held,
        other => panic!("no answer to an unlocking: {other:?}"),
    }
}

fn free(rig: &mut Rig, session: SessionId) -> usize {
    match rig.intent(Intent::FreeLocks(FreeLocks { session, beat: None })).unwrap() {
        Outcome::LocksFreed { locks } => locks,
        other => panic!("no answer to a freeing: {other:?}"),
    }
}

fn guarded(rig: &mut Rig, fence: u64) -> Result<()> {
    let guard = Guard::Lock { name: NAME.into(), fence: Fence(fence) };
    rig.change(vec![guard], vec![Intent::Add { key: "n".into(), delta: 1 }]).map(|_| ())
}

#[test]
fn lock_goes_to_those_who_wait_in_the_order_they_came_and_its_number_grows() {
    let mut rig = Rig::new();
    let all = [one(SESSION, 1), one(OTHER_SESSION, 1), one(SESSION, 2), one(OTHER_SESSION, 2)];
    let mut last = wish(&mut rig, all[0]).unwrap();
    for claimant in &all[1..] {
        assert_eq!(wish(&mut rig, *claimant), None);
    }
    for pair in all.windows(2) {
        assert!(unlock(&mut rig, pair[0]));
        let fence = wish(&mut rig, pair[1]).expect("it is its turn");
        assert!(fence > last, "{fence} after {last}");
        assert_eq!(pair.iter().map(|one| wish(&mut rig, *one).is_some()).collect::<Vec<_>>(), [false, true]);
        assert!(unlock_again(&mut rig, pair[0]), "it waits again, behind the others");
        last = fence;
    }
    assert!(unlock(&mut rig, all[3]));
    assert_eq!(lock_of(&rig.rows, NAME).unwrap(), None, "a lock that is free has no row");
    assert!(wish(&mut rig, all[0]).unwrap() > last, "and its number grows all the same");
}

/// Takes out one who waits; whether it was there, and not the holder.
fn unlock_again(rig: &mut Rig, claimant: Claimant) -> bool {
    let before = rig.version;
    !unlock(rig, claimant) && rig.version != before
}

#[test]
fn wish_that_is_repeated_changes_nothing_and_one_that_does_not_wait_leaves_no_trace() {
    let mut rig = Rig::new();
    let (holder, waiter) = (one(SESSION, 1), one(OTHER_SESSION, 1));
    let fence = wish(&mut rig, holder);
    assert_eq!(wish(&mut rig, waiter), None);
    let (version, rows) = (rig.version, rig.rows.all().clone());
    assert_eq!(wish(&mut rig, holder), fence);
    assert_eq!(wish(&mut rig, waiter), None);
    assert_eq!(lock(&mut rig, NAME, one(OTHER_SESSION, 2), false).unwrap(), None);
    assert!(!unlock(&mut rig, one(OTHER_SESSION, 2)));
    assert_eq!((rig.version, rig.rows.all()), (version, &rows));
}

#[test]
fn change_is_guarded_by_the_very_number_of_a_holding() {
    let mut rig = Rig::new();
    let holder = one(SESSION, 1);
    let first = wish(&mut rig, holder).unwrap();
    guarded(&mut rig, first).unwrap();
    guarded(&mut rig, first).unwrap();
    assert_eq!(wish(&mut rig, one(OTHER_SESSION, 1)), None);
    unlock(&mut rig, holder);
    for fence in [first, first + 1] {
        let rows = rig.rows.all().clone();
        let error = guarded(&mut rig, fence).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LeaseLost);
        assert!(error.to_string().contains("rig holds it"), "{error}");
        assert_eq!(*rig.rows.all(), rows);
    }
    unlock(&mut rig, one(OTHER_SESSION, 1));
    assert!(guarded(&mut rig, first).unwrap_err().to_string().contains("nobody holds it"));
}

#[test]
fn locks_of_a_dead_session_are_freed_where_it_holds_and_where_it_waits() {
    let mut rig = Rig::new();
    rig.is_checked = false;
    let names: Vec<String> = (0..FREED_MAX + 3).map(|number| format!("lock-{number}")).collect();
    for name in &names {
        lock(&mut rig, name, one(SESSION, 1), true).unwrap();
    }
    rig.is_checked = true;
    // It waits twice, and another does in between and behind.
    assert!(wish(&mut rig, one(OTHER_SESSION, 1)).is_some());
    for claimant in [one(SESSION, 2), one(OTHER_SESSION, 2), one(SESSION, 3)] {
        assert_eq!(wish(&mut rig, claimant), None);
    }
    assert_eq!([free(&mut rig, SESSION), free(&mut rig, SESSION), free(&mut rig, SESSION)], [FREED_MAX, 4, 0]);
    for name in &names {
        assert_eq!(lock_of(&rig.rows, name).unwrap(), None);
    }
    let left = lock_of(&rig.rows, NAME).unwrap().unwrap();
    assert_eq!(left.claimants().collect::<Vec<_>>(), [one(OTHER_SESSION, 1), one(OTHER_SESSION, 2)]);
    assert_eq!(free(&mut rig, OTHER_SESSION), 1);
    assert!(rig.rows.all().keys().all(|key| keys::lock_name(key).is_none()));
}

/// P3: what was found of its session is looked at again just before.
#[test]
fn session_that_has_gone_on_since_it_was_found_stopped_keeps_its_locks() {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::Store::open(folder.path().join("app.redb")).unwrap();
    let held = store.lock(NAME).unwrap();
    let session = store.inner.session().unwrap().id;
    for beat in [Some(u64::MAX), None] {
        let error = store.inner.perform(Intent::FreeLocks(FreeLocks { session, beat })).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("has gone on"), "{error}");
    }
    held.check().unwrap();
    held.unlock().unwrap();
    store.close().unwrap();
}

#[test]
fn names_and_crowds_out_of_bounds_are_refused() {
    let mut rig = Rig::new();
    for name in ["", "a\nb", &"x".repeat(200)] {
        assert_eq!(lock(&mut rig, name, one(SESSION, 1), true).unwrap_err().kind(), ErrorKind::Invalid);
    }
    rig.is_checked = false;
    for nonce in 0..=WAITERS_MAX as u64 {
        wish(&mut rig, one(SESSION, nonce));
    }
    let error = lock(&mut rig, NAME, one(OTHER_SESSION, 1), true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(NAME), "{error}");
}
