//! Claims and conflicts: who gets which job, and what the others hear of it.

use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use casque::{ErrorKind, JobId, JobRequest, Policy, State, types::Subject};

use crate::{LABEL, SOON, claim_one, complete, ids, job, kind, on_each_engine};

const NOW: Duration = Duration::ZERO;

/// S10.
#[test]
fn second_strict_commit_names_job_versions_and_winner_and_then_gets_the_next_job() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let (first, second) = (queue.enqueue(job()).unwrap(), queue.enqueue(job()).unwrap());
        let snapshots = [store.snapshot().unwrap(), store.snapshot().unwrap()];
        let [mut winner, mut loser] = snapshots.each_ref().map(|snapshot| snapshot.queue("q"));
        let read = loser.version().unwrap();
        assert_eq!(winner.shift().unwrap().unwrap().id, first);
        assert_eq!(loser.shift().unwrap().unwrap().id, first);
        let won = winner.commit(Policy::Strict).unwrap();
        assert_eq!(ids(&won), [first]);
        let after_the_winner = store.version().unwrap();

        let error = loser.commit(Policy::Strict).unwrap_err();
        assert!(error.is_hijacked());
        let conflict = error.conflict().unwrap();
        assert_eq!(conflict.subject, Subject::Hijack { queue: "q".into(), job: first });
        assert_eq!((conflict.read, conflict.found), (Some(read), Some(after_the_winner)));
        assert_eq!(conflict.by.as_ref().unwrap().label, LABEL);
        assert_eq!(store.version().unwrap(), after_the_winner, "a conflict changes nothing");

        let fresh = store.snapshot().unwrap();
        let mut view = fresh.queue("q");
        assert_eq!(view.shift().unwrap().unwrap().id, second);
        let lease = view.commit(Policy::Strict).unwrap().pop().unwrap();
        assert_eq!(lease.id(), second);
        assert_ne!(lease.token(), won[0].token());
    });
}

/// S11.
#[test]
fn enqueue_beside_a_claim_conflicts_with_nobody() {
    for claim_commits_first in [true, false] {
        for policy in [Policy::Rebase, Policy::Strict] {
            on_each_engine(|store| {
                let queue = store.queue("q");
                let only = queue.enqueue(job()).unwrap();
                let snapshot = store.snapshot().unwrap();
                let mut view = snapshot.queue("q");
                assert_eq!(view.shift().unwrap().unwrap().id, only);
                let (leases, added) = if claim_commits_first {
                    let leases = view.commit(policy).unwrap();
                    (leases, queue.enqueue(job()).unwrap())
                } else {
                    let added = queue.enqueue(job()).unwrap();
                    (view.commit(policy).unwrap(), added)
                };
                assert_eq!(ids(&leases), [only]);
                assert_eq!(store.job(added).unwrap().state, State::Ready);
                let stats = queue.stats().unwrap();
                assert_eq!((stats.running, stats.ready, stats.hijacks), (1, 1, 0));
            });
        }
    }
}

/// S12.
#[test]
fn identical_jobs_of_many_threads_have_distinct_ids_and_are_each_delivered_once() {
    const JOBS: usize = 1_000;
    on_each_engine(|store| {
        let enqueued = Mutex::new(HashSet::new());
        let claimed = Mutex::new(Vec::new());
        let left = AtomicUsize::new(JOBS);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..JOBS / 8 {
                        let id = store.queue("q").enqueue(JobRequest::new("task", &"the same")).unwrap();
                        assert!(enqueued.lock().unwrap().insert(id));
                    }
                });
                scope.spawn(|| {
                    while left.load(Ordering::SeqCst) > 0 {
                        for lease in store.queue("q").claim(5, Duration::from_millis(20)).unwrap() {
                            claimed.lock().unwrap().push(lease.id());
                            lease.complete().unwrap();
                            left.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        let claimed = claimed.into_inner().unwrap();
        assert_eq!((claimed.len(), enqueued.lock().unwrap().len()), (JOBS, JOBS));
        assert_eq!(claimed.into_iter().collect::<HashSet<JobId>>(), *enqueued.lock().unwrap());
        assert_eq!(store.queue("q").stats().unwrap().completed, 1_000);
    });
}

/// S13.
#[test]
fn batches_stand_in_the_order_of_their_commits_and_are_never_interleaved() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let named = |name: &str| JobRequest::new(name, &());
        store
            .transaction(|first| {
                first.enqueue("q", named("a"))?;
                // The second producer began at the same version, and commits before the first.
                store.transaction(|second| {
                    assert_eq!(second.version(), first.version());
                    second.enqueue("q", named("c"))?;
                    second.enqueue("q", named("d"))
                })?;
                first.enqueue("q", named("b"))
            })
            .unwrap();
        let claimed = queue.claim(10, NOW).unwrap();
        assert_eq!(claimed.iter().map(casque::Lease::task).collect::<Vec<_>>(), ["c", "d", "a", "b"]);
    });
}

/// S13.
#[test]
fn batches_of_many_threads_are_never_interleaved() {
    on_each_engine(|store| {
        thread::scope(|scope| {
            for producer in 0..4u32 {
                scope.spawn(move || {
                    for batch in 0..10u32 {
                        let jobs = (0..5u32).map(|index| JobRequest::new("task", &(producer, batch, index)));
                        let ids = store.queue("q").enqueue_batch(jobs).unwrap();
                        assert!(ids.is_sorted());
                    }
                });
            }
        });
        let claimed = store.queue("q").claim(1_000, NOW).unwrap();
        assert_eq!(claimed.len(), 200);
        for batch in claimed.chunks(5) {
            let args: Vec<(u32, u32, u32)> = batch.iter().map(|lease| lease.args().unwrap()).collect();
            let (producer, number, _) = args[0];
            assert_eq!(args, [0, 1, 2, 3, 4].map(|index| (producer, number, index)));
        }
    });
}

/// S14.
#[test]
fn view_that_was_committed_refuses_to_be_used_again() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue_batch([job(), job(), job()]).unwrap();
        let snapshot = store.snapshot().unwrap();
        let (mut lost, mut won) = (snapshot.queue("q"), snapshot.queue("q"));
        lost.shift().unwrap();
        won.shift().unwrap();
        let won_leases = won.commit(Policy::Strict).unwrap();
        assert_eq!(won_leases.len(), 1);
        assert_eq!(kind(lost.commit(Policy::Strict)), ErrorKind::Conflict);
        for mut view in [lost, won] {
            assert_eq!(kind(view.shift()), ErrorKind::Closed);
            assert_eq!(kind(view.commit(Policy::Strict)), ErrorKind::Closed);
            assert_eq!(kind(view.commit(Policy::Rebase)), ErrorKind::Closed);
        }
        assert_eq!(queue.stats().unwrap().running, 1, "the stale shift was never applied");
    });
}

/// S15.
#[test]
fn claims_of_different_jobs_from_one_snapshot_both_win() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let jobs = queue.enqueue_batch([job(), job(), job()]).unwrap();
        let snapshot = store.snapshot().unwrap();
        let (mut one, mut two) = (snapshot.queue("q"), snapshot.queue("q"));
        one.shift().unwrap();
        two.shift().unwrap();
        two.shift().unwrap();
        // By id, and by rebase.
        let third = queue.claim_job(jobs[2]).unwrap();
        let first = one.commit(Policy::Rebase).unwrap();
        assert_eq!((third.id(), ids(&first)), (jobs[2], vec![jobs[0]]));
        // The first of its two was taken, and nothing is left in its place; the other one it gets.
        let second = two.commit(Policy::Rebase).unwrap();
        assert_eq!(ids(&second), [jobs[1]]);
        assert_eq!(queue.stats().unwrap().hijacks, 1);
    });
}

/// S16.
#[test]
fn job_appended_while_the_last_one_is_claimed_is_not_lost() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        for round in 0..20 {
            let last = queue.enqueue(job()).unwrap();
            let appended = thread::scope(|scope| {
                let appended = scope.spawn(|| queue.enqueue(job()).unwrap());
                let lease = claim_one(&queue);
                assert_eq!(lease.id(), last, "round {round}");
                lease.complete().unwrap();
                appended.join().unwrap()
            });
            let lease = claim_one(&queue);
            assert_eq!(lease.id(), appended, "round {round}");
            lease.complete().unwrap();
        }
    });
}

/// S17.
#[test]
fn requeued_job_goes_behind_what_was_appended_before_and_release_puts_it_in_front() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        for requeue_first in [true, false] {
            let [a, b] = queue.enqueue_batch([job(), job()]).unwrap()[..] else { panic!("two jobs") };
            let c = if requeue_first {
                store.requeue(a).unwrap();
                queue.enqueue(job()).unwrap()
            } else {
                let c = queue.enqueue(job()).unwrap();
                store.requeue(a).unwrap();
                c
            };
            let claimed = queue.claim(10, NOW).unwrap();
            assert_eq!(ids(&claimed), if requeue_first { [b, a, c] } else { [b, c, a] });
            complete(&claimed);
        }
        let [a, b] = queue.enqueue_batch([job(), job()]).unwrap()[..] else { panic!("two jobs") };
        let held = claim_one(&queue);
        let c = queue.enqueue(job()).unwrap();
        held.release().unwrap();
        assert_eq!(ids(&queue.claim(10, NOW).unwrap()), [a, b, c]);
    });
}

/// S17.
#[test]
fn requeue_beside_an_append_never_leaves_the_job_in_front() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        for _ in 0..10 {
            let [a, b] = queue.enqueue_batch([job(), job()]).unwrap()[..] else { panic!("two jobs") };
            let c = thread::scope(|scope| {
                let appended = scope.spawn(|| queue.enqueue(job()).unwrap());
                store.requeue(a).unwrap();
                appended.join().unwrap()
            });
            let claimed = queue.claim(10, NOW).unwrap();
            assert!([[b, c, a], [b, a, c]].contains(&ids(&claimed).try_into().unwrap()));
            complete(&claimed);
        }
    });
}

#[test]
fn only_claims_and_administration_give_the_queue_object_a_new_version() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let version = || store.snapshot().unwrap().queue("q").version().unwrap();
        let same = |what: &str, act: &dyn Fn()| {
            let before = version();
            act();
            assert_eq!(version(), before, "{what}");
        };
        same("enqueue", &|| drop(queue.enqueue_batch([job(), job(), job(), job()]).unwrap()));
        let before = version();
        let leases = queue.claim(4, NOW).unwrap();
        assert_eq!(version(), store.version().unwrap(), "a claim");
        assert!(version() > before);
        same("progress", &|| leases[0].progress(0.5, "half").unwrap());
        same("complete", &|| leases[0].complete().unwrap());
        same("fail", &|| leases[1].fail("no", Some(NOW)).unwrap());
        same("snooze", &|| leases[2].snooze(SOON).unwrap());
        same("release", &|| leases[3].release().unwrap());
        same("an empty claim", &|| assert!(store.queue("none").claim(1, NOW).unwrap().is_empty()));
        let before = version();
        queue.pause().unwrap();
        assert!(version() > before, "pause");
        same("another queue", &|| {
            store.queue("other").enqueue(job()).unwrap();
            claim_one(&store.queue("other"));
        });
    });
}

#[test]
fn claim_that_finds_nothing_writes_nothing() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue(job().delay(SOON)).unwrap();
        let paused = store.queue("paused");
        paused.enqueue(job()).unwrap();
        paused.pause().unwrap();
        let before = store.version().unwrap();
        for queue in [&queue, &paused, &store.queue("none")] {
            assert!(queue.claim(5, NOW).unwrap().is_empty());
            let snapshot = store.snapshot().unwrap();
            let mut view = snapshot.queue(queue.name());
            assert!(view.shift().unwrap().is_none());
            assert!(view.commit(Policy::Strict).unwrap().is_empty());
        }
        assert_eq!(store.version().unwrap(), before);
        assert_eq!(store.queues().unwrap().len(), 2, "claiming from a queue that there is not makes none");
    });
}

#[test]
fn higher_priorities_go_first_and_equal_ones_in_order_of_commit() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let [low, first, high, second] =
            [-100, 0, 100, 0].map(|priority| queue.enqueue(job().priority(priority)).unwrap());
        assert_eq!(ids(&queue.claim(10, NOW).unwrap()), [high, first, second, low]);
    });
}

#[test]
fn claim_waits_for_a_job_that_another_enqueues() {
    on_each_engine(|store| {
        thread::scope(|scope| {
            let claimed = scope.spawn(|| store.queue("q").claim(1, SOON).unwrap().pop().unwrap().id());
            let id = store.queue("q").enqueue(job()).unwrap();
            assert_eq!(claimed.join().unwrap(), id);
        });
    });
}

#[test]
fn job_is_claimed_by_its_id_only_while_it_is_ready() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let [_, second] = queue.enqueue_batch([job(), job()]).unwrap()[..] else { panic!("two jobs") };
        let lease = queue.claim_job(second).unwrap();
        assert_eq!(kind(queue.claim_job(second)), ErrorKind::Invalid);
        lease.complete().unwrap();
        assert_eq!(kind(queue.claim_job(second)), ErrorKind::NotFound);
        let delayed = queue.enqueue(job().delay(SOON)).unwrap();
        assert_eq!(kind(queue.claim_job(delayed)), ErrorKind::Invalid);
    });
}

#[test]
fn token_is_the_version_of_the_claim_and_never_comes_back() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue(job()).unwrap();
        let mut tokens = HashSet::new();
        for _ in 0..5 {
            let lease = claim_one(&queue);
            assert_eq!(lease.token().to_string(), store.version().unwrap().to_string());
            assert_eq!(lease.attempt(), 1, "what is released is not charged");
            assert!(tokens.insert(lease.token()));
            lease.release().unwrap();
        }
    });
}

#[test]
fn lease_that_is_dropped_unsettled_gives_its_job_back_uncharged() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job()).unwrap();
        let lease = claim_one(&queue);
        let copy = lease.clone();
        drop(lease);
        copy.check().unwrap();
        copy.start().unwrap();
        drop(copy);
        let again = queue.claim(1, SOON).unwrap();
        assert_eq!((ids(&again), again[0].attempt()), (vec![id], 1));
    });
}

#[test]
fn answer_to_a_claim_stays_below_eight_mebibytes() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let mebibyte = "x".repeat((1 << 20) - 16);
        for _ in 0..15 {
            queue.enqueue(JobRequest::new("task", &mebibyte)).unwrap();
        }
        store.configure("payload-max", 4 << 20).unwrap();
        let large = "x".repeat((4 << 20) - 16);
        for _ in 0..5 {
            queue.enqueue(JobRequest::new("task", &large)).unwrap();
        }
        let bytes: Vec<usize> = std::iter::from_fn(|| {
            let leases = queue.claim(1_000, NOW).unwrap();
            let bytes = leases.iter().map(|lease| lease.payload().as_bytes().len()).sum();
            complete(&leases);
            (!leases.is_empty()).then_some(bytes)
        })
        .collect();
        assert!(bytes.iter().all(|bytes| *bytes <= 8 << 20), "{bytes:?}");
        assert_eq!(queue.stats().unwrap().completed, 20);
    });
}
