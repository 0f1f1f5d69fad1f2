//! Unique keys: one job that has not ended, whoever enqueues it and how often.

use std::{collections::HashSet, sync::Barrier, thread, time::Duration};

use casque::{ErrorKind, State};

use crate::{Act, claim_one, dead, job, kind, on_each_engine};

/// S23, with threads.
#[test]
fn many_threads_that_enqueue_one_unique_key_at_once_get_one_job() {
    const THREADS: usize = 32;
    on_each_engine(|store| {
        let queue = store.queue("q");
        for round in 0..20u64 {
            let start = Barrier::new(THREADS);
            let ids: HashSet<_> = thread::scope(|scope| {
                let enqueue = || {
                    start.wait();
                    queue.enqueue(job().unique("key")).unwrap()
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(enqueue)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!((ids.len(), queue.stats().unwrap().ready), (1, 1));
            let lease = claim_one(&queue);
            assert!(ids.contains(&lease.id()));
            lease.complete().unwrap();
            assert_eq!(queue.stats().unwrap().completed, round + 1);
        }
    });
}

#[test]
fn unique_key_is_held_through_every_state_before_the_end() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job().unique("key").delay(Duration::from_mins(1))).unwrap();
        let again = || queue.enqueue(job().unique("key")).unwrap();
        assert_eq!(again(), id, "scheduled");
        store.retry(id).unwrap();
        assert_eq!(again(), id, "ready");
        let lease = claim_one(&queue);
        assert_eq!(again(), id, "running");
        lease.fail("no", Some(Duration::from_mins(1))).unwrap();
        assert_eq!(again(), id, "scheduled again");
        assert_eq!(store.jobs(&casque::JobFilter::new(), 10).unwrap().len(), 1);
    });
}

/// S24.
#[test]
fn no_unique_key_outlives_its_job() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let unique = || job().unique("key");
        let ends: [Act<()>; 5] = [
            ("completed", &|lease| lease.complete().unwrap()),
            ("completed with a result", &|lease| lease.complete_with(&1).unwrap()),
            ("dead", &|lease| lease.fail("no", None).unwrap()),
            ("cancelled", &|lease| {
                store.cancel(lease.id()).unwrap();
                lease.release().unwrap();
            }),
            ("completed in a transaction", &|lease| lease.complete_in(|tx| tx.put("done", &())).unwrap()),
        ];
        for (how, end) in ends {
            let id = queue.enqueue(unique()).unwrap();
            let lease = claim_one(&queue);
            assert_eq!(lease.id(), id);
            end(&lease);
            let next = queue.enqueue(unique()).unwrap();
            assert_ne!(next, id, "{how}");
            claim_one(&queue).complete().unwrap();
        }
    });
}

#[test]
fn dead_job_whose_unique_key_another_holds_is_not_retried() {
    on_each_engine(|store| {
        let first = dead(store, job().unique("key"));
        let queue = store.queue("dead");
        let second = queue.enqueue(job().unique("key")).unwrap();
        let error = store.retry(first.id).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(&second.to_string()), "{error}");
        store.cancel(second).unwrap();
        store.retry(first.id).unwrap();
        assert_eq!(queue.enqueue(job().unique("key")).unwrap(), first.id, "it holds its key again");
        assert_eq!(kind(store.retry(second)), ErrorKind::Invalid);
    });
}

#[test]
fn unique_keys_are_of_their_queue() {
    on_each_engine(|store| {
        let ids: HashSet<_> =
            ["a", "b"].iter().map(|queue| store.queue(queue).enqueue(job().unique("key")).unwrap()).collect();
        assert_eq!(ids.len(), 2);
    });
}

#[test]
fn one_unique_key_twice_in_a_batch_is_one_job() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let ids = queue.enqueue_batch([job().unique("key"), job(), job().unique("key")]).unwrap();
        assert_eq!(ids[0], ids[2]);
        assert_ne!(ids[0], ids[1]);
        assert_eq!(queue.stats().unwrap().ready, 2);
        assert_eq!(store.job(ids[0]).unwrap().state, State::Ready);
    });
}
