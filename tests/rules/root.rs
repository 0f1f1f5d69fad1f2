//! Transactions on the root: strictly serializable, and a conflict that says what, at which versions, and who.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use casque::{ErrorKind, Result, Store, Transaction, types::Subject};

use crate::{LABEL, SOON, job, kind, on_each_engine};

/// Runs a transaction in which another one commits after its reads, in the first run only. Gives how often it ran.
fn with_a_rival<T>(
    store: &Store,
    mut body: impl FnMut(&mut Transaction) -> Result<T>,
    rival: impl Fn(&Store) -> Result<()>,
    mut write: impl FnMut(&mut Transaction, T) -> Result<()>,
) -> u32 {
    let mut runs = 0;
    store
        .transaction(|tx| {
            let read = body(tx)?;
            runs += 1;
            if runs == 1 {
                rival(store)?;
            }
            write(tx, read)
        })
        .unwrap();
    runs
}

#[test]
fn of_two_transactions_that_each_read_what_the_other_writes_one_runs_again() {
    on_each_engine(|store| {
        // Two doctors on call, of whom one may leave: the classic write skew.
        for doctor in ["a", "b"] {
            store.put(doctor, &true).unwrap();
        }
        let leave = |tx: &mut Transaction, me: &str, other: &str| match tx.get::<bool>(other)? {
            Some(true) => tx.put(me, &false),
            _ => Ok(()),
        };
        let runs = with_a_rival(
            store,
            |tx| tx.get::<bool>("b"),
            |store| store.transaction(|tx| leave(tx, "b", "a")),
            |tx, on_call| if on_call == Some(true) { tx.put("a", &false) } else { Ok(()) },
        );
        assert_eq!(runs, 2);
        assert_eq!((store.get("a").unwrap(), store.get("b").unwrap()), (Some(true), Some(false)));
    });
}

#[test]
fn write_skew_of_two_threads_never_gets_through() {
    on_each_engine(|store| {
        for round in 0..20 {
            store.transaction(|tx| tx.put("a", &1u32).and_then(|()| tx.put("b", &1u32))).unwrap();
            let start = std::sync::Barrier::new(2);
            let take = |mine: &'static str, other: &'static str| {
                let mut first = true;
                store
                    .transaction(|tx| {
                        let sum = tx.get::<u32>(mine)?.unwrap() + tx.get::<u32>(other)?.unwrap();
                        if std::mem::take(&mut first) {
                            start.wait();
                        }
                        if sum == 2 { tx.put(mine, &0u32) } else { Ok(()) }
                    })
                    .unwrap();
            };
            thread::scope(|scope| {
                scope.spawn(|| take("a", "b"));
                scope.spawn(|| take("b", "a"));
            });
            let left = store.get::<u32>("a").unwrap().unwrap() + store.get::<u32>("b").unwrap().unwrap();
            assert_eq!(left, 1, "round {round}");
        }
    });
}

#[test]
fn key_that_appears_or_goes_in_a_listed_range_is_a_conflict() {
    on_each_engine(|store| {
        store.put("list/b", &1u32).unwrap();
        let count = |rival: &dyn Fn(&Store) -> Result<()>| {
            with_a_rival(
                store,
                |tx| Ok(tx.list::<u32>("list/")?.len()),
                rival,
                |tx, found| tx.put("count", &u32::try_from(found).unwrap()),
            )
        };
        let counted = || store.get::<u32>("count").unwrap();
        assert_eq!((count(&|store| store.put("list/a", &1u32).map(|_| ())), counted()), (2, Some(2)), "a phantom");
        assert_eq!((count(&|store| store.remove("list/a").map(|_| ())), counted()), (2, Some(1)), "a removal");
        assert_eq!((count(&|store| store.put("list/b", &2u32).map(|_| ())), counted()), (2, Some(1)), "a new value");
        assert_eq!((count(&|store| store.put("list", &2u32).map(|_| ())), counted()), (1, Some(1)), "outside of it");
        assert_eq!((count(&|store| store.put("list0", &2u32).map(|_| ())), counted()), (1, Some(1)), "behind it");
    });
}

#[test]
fn key_that_was_read_as_absent_is_guarded_too() {
    on_each_engine(|store| {
        let runs = with_a_rival(
            store,
            |tx| tx.get::<u32>("key"),
            |store| store.put("key", &7u32).map(|_| ()),
            |tx, found| tx.put("key", &(found.unwrap_or(0) + 1)),
        );
        assert_eq!((runs, store.get::<u32>("key").unwrap()), (2, Some(8)));
    });
}

#[test]
fn blind_writes_and_writes_elsewhere_conflict_with_nobody() {
    on_each_engine(|store| {
        let runs = with_a_rival(
            store,
            |tx| tx.get::<u32>("read"),
            |store| store.put("written", &1u32).and_then(|_| store.put("elsewhere", &1u32)).map(|_| ()),
            |tx, _| tx.put("written", &2u32),
        );
        assert_eq!((runs, store.get::<u32>("written").unwrap()), (1, Some(2)));
    });
}

#[test]
fn counters_add_without_conflict() {
    on_each_engine(|store| {
        let runs =
            with_a_rival(store, |_| Ok(()), |store| store.add("hits", 5).map(|_| ()), |tx, ()| tx.add("hits", 2));
        assert_eq!((runs, store.get::<i64>("hits").unwrap()), (1, Some(7)));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..25).try_for_each(|_| store.add("hits", 1).map(|_| ())).unwrap());
            }
        });
        assert_eq!(store.get::<u64>("hits").unwrap(), Some(107));
        assert_eq!(kind(store.add("hits", i64::MAX)), ErrorKind::Invalid);
        store.put("plain", &1u32).unwrap();
        assert_eq!(kind(store.add("plain", 1)), ErrorKind::Invalid);
        store.add("negative", -3).unwrap();
        assert_eq!(store.get::<i64>("negative").unwrap(), Some(-3));
    });
}

#[test]
fn counter_that_was_read_conflicts_as_any_other_key() {
    on_each_engine(|store| {
        store.add("hits", 1).unwrap();
        let runs = with_a_rival(
            store,
            |tx| tx.get::<i64>("hits"),
            |store| store.add("hits", 1).map(|_| ()),
            |tx, hits| tx.put("copy", &hits),
        );
        assert_eq!((runs, store.get::<Option<i64>>("copy").unwrap()), (2, Some(Some(2))));
    });
}

#[test]
fn transaction_that_always_loses_ends_in_a_conflict_that_tells_all() {
    on_each_engine(|store| {
        store.put("key", &0u32).unwrap();
        let (mut runs, mut read, mut won) = (0, None, None);
        let error = store
            .transaction(|tx| {
                runs += 1;
                tx.get::<u32>("key")?;
                read = Some(tx.version());
                won = Some(store.put("key", &runs)?);
                tx.put("other", &1u32)
            })
            .unwrap_err();
        assert_eq!((error.kind(), error.is_hijacked()), (ErrorKind::Conflict, false));
        assert!((2..100).contains(&runs), "{runs}");
        let conflict = error.conflict().unwrap();
        assert_eq!(conflict.subject, Subject::Key("key".into()));
        assert_eq!((conflict.read, conflict.found), (read, won));
        let by = conflict.by.as_ref().unwrap();
        assert_eq!((by.label.as_str(), by.job), (LABEL, None));
        let message = error.to_string();
        let parts = ["\"key\"", &read.unwrap().to_string(), &won.unwrap().to_string(), LABEL];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(store.get::<u32>("other").unwrap(), None);
    });
}

/// The conflict of a transaction that loses each time to what `rival` does.
fn lost(
    store: &Store,
    read: impl Fn(&mut Transaction, u32) -> Result<()>,
    rival: impl Fn(u32) -> Result<()>,
) -> casque::Conflict {
    let runs = AtomicU32::new(0);
    let error = store
        .transaction(|tx| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            read(tx, run)?;
            rival(run)?;
            tx.put("other", &1u32)
        })
        .unwrap_err();
    error.conflict().unwrap().clone()
}

#[test]
fn conflict_on_a_key_that_was_absent_or_is_gone_says_so() {
    on_each_engine(|store| {
        let absent = lost(
            store,
            |tx, run| tx.get::<u32>(&format!("new-{run}")).map(|_| ()),
            |run| store.put(&format!("new-{run}"), &1u32).map(|_| ()),
        );
        assert!(matches!(&absent.subject, Subject::Key(key) if key.starts_with("new-")), "{absent}");
        assert_eq!((absent.read, absent.found, absent.by.is_some()), (None, Some(store.version().unwrap()), true));
        assert!(absent.to_string().contains("read as absent"), "{absent}");

        let gone = lost(
            store,
            |tx, run| tx.get::<u32>(&format!("new-{run}")).map(|_| ()),
            |run| store.remove(&format!("new-{run}")).map(|_| ()),
        );
        assert_eq!((gone.read.is_some(), gone.found, gone.by.clone()), (true, None, None));
        assert!(gone.to_string().contains("found gone"), "{gone}");
    });
}

#[test]
fn conflict_on_a_listing_names_the_key_that_came_or_the_listing() {
    on_each_engine(|store| {
        let list = |tx: &mut Transaction, _| tx.list::<u32>("range/").map(|_| ());
        let phantom = lost(store, list, |run| store.put(&format!("range/{run}"), &1u32).map(|_| ()));
        assert!(matches!(&phantom.subject, Subject::Key(key) if key.starts_with("range/")), "{phantom}");
        assert_eq!(phantom.by.unwrap().label, LABEL);
        let removal = lost(store, list, |run| store.remove(&format!("range/{run}")).map(|_| ()));
        assert_eq!((removal.subject, removal.by), (Subject::Range("range/".into()), None));
    });
}

#[test]
fn snapshot_shows_one_version_whatever_commits_after_it() {
    on_each_engine(|store| {
        store.put("a", &1u32).unwrap();
        store.put("gone", &1u32).unwrap();
        let id = store.queue("q").enqueue(job()).unwrap();
        let snapshot = store.snapshot().unwrap();
        let version = store.version().unwrap();
        assert_eq!(snapshot.version(), version);
        store.put("a", &2u32).unwrap();
        store.put("b", &2u32).unwrap();
        store.remove("gone").unwrap();
        store.cancel(id).unwrap();
        assert_eq!(snapshot.get::<u32>("a").unwrap(), Some(1));
        assert_eq!(snapshot.get::<u32>("b").unwrap(), None);
        assert_eq!(snapshot.list::<u32>("").unwrap().len(), 2);
        assert_eq!(snapshot.job(id).unwrap().state, casque::State::Ready);
        assert_eq!((snapshot.version(), store.version().unwrap().0), (version, version.0 + 4));
        assert_eq!(store.snapshot().unwrap().get::<u32>("a").unwrap(), Some(2));
    });
}

/// S18, in part: no job changes its queue here.
#[test]
fn readers_never_see_half_of_a_transaction() {
    on_each_engine(|store| {
        let write = |number: u32| {
            store
                .transaction(|tx| {
                    tx.put("a", &number)?;
                    tx.put("b", &number)?;
                    tx.add("count", 1)?;
                    tx.enqueue("q", job())
                })
                .unwrap();
        };
        write(1);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::SeqCst) {
                        let snapshot = store.snapshot().unwrap();
                        let (a, b) = (snapshot.get::<u32>("a").unwrap(), snapshot.get::<u32>("b").unwrap());
                        assert_eq!((a, snapshot.get::<u32>("count").unwrap()), (b, a), "INV-8");
                    }
                });
            }
            (2..100).for_each(write);
            is_done.store(true, Ordering::SeqCst);
        });
        assert_eq!(store.queue("q").stats().unwrap().ready, 99);
    });
}

#[test]
fn transaction_that_only_reads_or_changes_nothing_commits_nothing() {
    on_each_engine(|store| {
        store.put("a", &1u32).unwrap();
        let version = store.version().unwrap();
        let (value, seen) = store.transaction(|tx| Ok((tx.get::<u32>("a")?, tx.version()))).unwrap();
        assert_eq!((value, seen), (Some(1), version));
        assert_eq!(store.remove("none").unwrap(), version);
        assert_eq!(store.version().unwrap(), version);
    });
}

#[test]
fn each_change_raises_the_version_by_one_and_a_refused_one_by_none() {
    on_each_engine(|store| {
        let before = store.version().unwrap().0;
        assert_eq!(store.put("a", &1u32).unwrap().0, before + 1);
        store.transaction(|tx| (0..5).try_for_each(|index| tx.put(&format!("k{index}"), &index))).unwrap();
        assert_eq!(kind(store.add("a", 1)), ErrorKind::Invalid);
        let refused = store.transaction(|tx| {
            tx.put("b", &1u32)?;
            tx.add("a", 1)
        });
        assert_eq!(kind(refused), ErrorKind::Invalid);
        assert_eq!(store.get::<u32>("b").unwrap(), None, "all or nothing");
        assert_eq!(store.queue("q").enqueue(job()).unwrap().to_string(), (before + 3).to_string());
        assert_eq!(store.version().unwrap().0, before + 3);
    });
}

#[test]
fn transaction_reads_its_own_writes() {
    on_each_engine(|store| {
        store.put("a", &1u32).unwrap();
        store.put("b", &2u32).unwrap();
        store.add("n", 10).unwrap();
        store
            .transaction(|tx| {
                tx.put("a", &5u32)?;
                tx.remove("b")?;
                tx.put("c", &7u32)?;
                tx.add("n", 1)?;
                tx.add("m", 4)?;
                assert_eq!((tx.get::<u32>("a")?, tx.get::<u32>("b")?, tx.get::<u32>("c")?), (Some(5), None, Some(7)));
                assert_eq!((tx.get::<i64>("n")?, tx.get::<i64>("m")?), (Some(11), Some(4)));
                let listed: Vec<_> = tx.list::<u32>("")?.into_iter().map(|object| (object.key, object.value)).collect();
                let named = [("a", 5), ("c", 7), ("m", 4), ("n", 11)];
                assert_eq!(listed, named.map(|(key, value)| (key.to_owned(), value)));
                tx.put("b", &9u32)?;
                assert_eq!(tx.get::<u32>("b")?, Some(9));
                tx.remove("c")
            })
            .unwrap();
        let listed: Vec<_> =
            store.list::<u32>("").unwrap().into_iter().map(|object| (object.key, object.value)).collect();
        assert_eq!(listed, [("a", 5), ("b", 9), ("m", 4), ("n", 11)].map(|(key, value)| (key.to_owned(), value)));
    });
}

#[test]
fn listing_is_ordered_and_of_the_prefix_only() {
    on_each_engine(|store| {
        for key in ["b", "a/2", "a/1", "a/10", "a", "aa", "c/1", "\u{10ffff}"] {
            store.put(key, &0u32).unwrap();
        }
        let keys = |prefix: &str| -> Vec<String> {
            store.list::<u32>(prefix).unwrap().into_iter().map(|object| object.key).collect()
        };
        assert_eq!(keys("a/"), ["a/1", "a/10", "a/2"]);
        assert_eq!(keys("a"), ["a", "a/1", "a/10", "a/2", "aa"]);
        assert_eq!(keys("\u{10ffff}"), ["\u{10ffff}"]);
        assert_eq!((keys("").len(), keys("x").len()), (8, 0));
    });
}

#[test]
fn version_of_an_object_is_that_of_the_change_that_wrote_it() {
    on_each_engine(|store| {
        let first = store.put("a", &1u32).unwrap();
        let second = store.put("b", &2u32).unwrap();
        let object = |key: &str| store.snapshot().unwrap().object::<u32>(key).unwrap().unwrap();
        assert_eq!((object("a").version, object("b").version), (first, second));
        assert_eq!(store.put("a", &1u32).unwrap(), object("a").version);
    });
}

#[test]
fn watch_tells_what_is_new_and_gives_up_in_time() {
    on_each_engine(|store| {
        let first = store.put("a", &1u32).unwrap();
        // What has changed already is told at once.
        assert_eq!(store.watch_key::<u32>("a", None, Duration::ZERO).unwrap().unwrap().value, 1);
        let error = store.watch_key::<u32>("a", Some(first), Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(kind(store.watch_key::<u32>("none", None, Duration::ZERO)), ErrorKind::TimedOut);
        thread::scope(|scope| {
            let watcher = scope.spawn(|| store.watch_key::<u32>("a", Some(first), SOON).unwrap());
            store.put("other", &1u32).unwrap();
            store.put("a", &2u32).unwrap();
            assert_eq!(watcher.join().unwrap().unwrap().value, 2);
        });
        let second = store.snapshot().unwrap().object::<u32>("a").unwrap().unwrap().version;
        store.remove("a").unwrap();
        assert_eq!(store.watch_key::<u32>("a", Some(second), Duration::ZERO).unwrap(), None);
    });
}

#[test]
fn value_of_another_type_is_told_with_its_key() {
    on_each_engine(|store| {
        store.put("text", &"not a number of sixteen bytes").unwrap();
        let error = store.get::<(u64, u64)>("text").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("text"), "{error}");
    });
}
