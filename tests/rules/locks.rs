//! Named locks as the threads of one process have them.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use casque::{ErrorKind, Store};

use super::{LABEL, SOON, kind, on_each_engine, until};

const LOCK: &str = "ledger";

/// How many wait.
fn waiting(store: &Store) -> usize {
    store.locks().unwrap().first().map_or(0, |lock| lock.waiting)
}

#[test]
fn lock_is_held_by_one_until_its_guard_is_dropped() {
    on_each_engine(|store| {
        let held = store.lock(LOCK).unwrap();
        assert!(store.try_lock(LOCK).unwrap().is_none());
        let other = store.try_lock("another").unwrap().expect("it has another name");
        let error = store.lock_within(LOCK, Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains(LOCK) && error.to_string().contains(LABEL), "{error}");
        let locks: BTreeMap<String, u64> =
            store.locks().unwrap().into_iter().map(|lock| (lock.name, lock.fence.number())).collect();
        assert_eq!(locks[LOCK], held.fence().number());
        assert_eq!(locks["another"], other.fence().number());
        let first = held.fence();
        drop(held);
        let held = store.try_lock(LOCK).unwrap().expect("it is free when its guard is dropped");
        assert!(held.fence() > first);
        held.check().unwrap();
        held.unlock().unwrap();
        other.unlock().unwrap();
        assert!(store.locks().unwrap().is_empty());
    });
}

#[test]
fn threads_that_wait_get_the_lock_in_the_order_they_came_and_never_two_at_once() {
    on_each_engine(|store| {
        let (inside, order) = (AtomicU64::new(0), std::sync::Mutex::new(Vec::new()));
        let held = store.lock(LOCK).unwrap();
        thread::scope(|scope| {
            for number in 0..8 {
                let (inside, order) = (&inside, &order);
                scope.spawn(move || {
                    let held = store.lock_within(LOCK, SOON).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody else is in");
                    order.lock().unwrap().push(number);
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    held.unlock().unwrap();
                });
                until("it to wait", || (waiting(store) == number + 1).then_some(()));
            }
            held.unlock().unwrap();
        });
        assert_eq!(order.into_inner().unwrap(), (0..8).collect::<Vec<_>>());
    });
}

#[test]
fn who_gives_up_waiting_is_passed_over() {
    on_each_engine(|store| {
        let held = store.lock(LOCK).unwrap();
        thread::scope(|scope| {
            let gives_up = scope.spawn(|| store.lock_within(LOCK, Duration::from_millis(30)).map(|_| ()));
            until("it to wait", || (waiting(store) == 1).then_some(()));
            let stays = scope.spawn(|| store.lock(LOCK).unwrap().fence());
            assert_eq!(kind(gives_up.join().unwrap()), ErrorKind::TimedOut);
            until("one to wait", || (waiting(store) == 1).then_some(()));
            let fence = held.fence();
            held.unlock().unwrap();
            assert!(stays.join().unwrap() > fence);
        });
    });
}

#[test]
fn transaction_may_be_guarded_again_and_again_while_the_lock_is_held() {
    on_each_engine(|store| {
        let held = store.lock(LOCK).unwrap();
        for value in 0..3u64 {
            store
                .transaction(|tx| {
                    tx.guard(&held);
                    tx.put("k", &value)
                })
                .unwrap();
        }
        let version = store.version().unwrap();
        store
            .transaction(|tx| {
                tx.guard(&held);
                Ok(())
            })
            .unwrap();
        held.check().unwrap();
        assert_eq!(store.version().unwrap(), version, "asking writes nothing");
        assert_eq!(store.get::<u64>("k").unwrap(), Some(2));
        held.unlock().unwrap();
    });
}
