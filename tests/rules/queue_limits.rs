//! Limits of a queue: what may run at once, of all its jobs and of one concurrency key, and what may wait in it.

use std::{thread, time::Duration};

use casque::{
    ErrorKind, JobRequest, Policy, State, Store,
    types::{QueueConfig, Rate},
};

use crate::{SOON, claim_one, complete, ids, job, on_each_engine, refused};

fn keyed(key: &str) -> JobRequest {
    job().concurrency_key(key)
}

fn configure(store: &Store, config: &QueueConfig) {
    store.queue("q").configure(config).unwrap();
}

#[test]
fn one_job_of_a_key_is_claimed_at_once_by_whatever_way() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let jobs: Vec<_> = ["a", "a", "b"].map(|key| queue.enqueue(keyed(key)).unwrap()).to_vec();
        let snapshot = store.snapshot().unwrap();
        let mut view = snapshot.queue("q");
        let mut shifted = Vec::new();
        while let Some(job) = view.shift().unwrap() {
            shifted.push(job.id);
        }
        assert_eq!(shifted, [jobs[0], jobs[2]], "a view shows what could be claimed together");
        let held = view.commit(Policy::Strict).unwrap();
        assert_eq!(ids(&held), [jobs[0], jobs[2]]);
        assert!(queue.claim(5, Duration::ZERO).unwrap().is_empty());
        refused(store, || queue.claim_job(jobs[1]), ErrorKind::Invalid, &["at a limit"]);
        complete(&held);
        assert_eq!(claim_one(&queue).id(), jobs[1]);
    });
}

#[test]
fn claim_that_waits_is_served_when_a_key_or_the_queue_lets_one_more_run() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        configure(store, &QueueConfig::new().concurrency(2));
        let jobs: Vec<_> = ["a", "a", "b", "c"].map(|key| queue.enqueue(keyed(key)).unwrap()).to_vec();
        let mut held = queue.claim(5, Duration::ZERO).unwrap();
        assert_eq!(ids(&held), [jobs[0], jobs[2]]);
        for expected in [jobs[1], jobs[3]] {
            thread::scope(|scope| {
                let waits = scope.spawn(|| queue.claim(1, SOON).unwrap());
                complete(&held.drain(..1).collect::<Vec<_>>());
                let served = waits.join().unwrap();
                assert_eq!(ids(&served), [expected]);
                held.extend(served);
            });
        }
        complete(&held);
    });
}

#[test]
fn limits_are_configured_and_read_back_and_none_may_be_zero() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        assert_eq!(queue.config().unwrap(), QueueConfig::default());
        let rate = Rate::new(10, Duration::from_secs(1)).burst(3);
        let config = QueueConfig::new()
            .concurrency(4)
            .concurrency_per_key(2)
            .strict_order_per_key(true)
            .rate(rate)
            .size_max(100)
            .retention_dead(Duration::from_hours(1))
            .keep_completed(true);
        queue.configure(&config).unwrap();
        assert_eq!(queue.config().unwrap(), config);
        assert_eq!(store.queues().unwrap()[0].config, config, "a queue that is configured is a queue");
        for wrong in [
            QueueConfig::new().concurrency(0),
            QueueConfig::new().concurrency_per_key(0),
            QueueConfig::new().size_max(0),
            QueueConfig::new().rate(Rate::new(0, Duration::from_secs(1))),
            QueueConfig::new().rate(Rate::new(1, Duration::ZERO)),
            QueueConfig::new().rate(Rate::new(1, Duration::from_secs(1)).burst(0)),
        ] {
            refused(store, || queue.configure(&wrong), ErrorKind::Invalid, &["\"q\"", "lets no job run"]);
        }
        refused(store, || store.queue("a\nb").configure(&config), ErrorKind::Invalid, &["queue name"]);
        queue.configure(&QueueConfig::new()).unwrap();
        assert_eq!(queue.config().unwrap(), QueueConfig::default());
    });
}

#[test]
fn completed_jobs_are_kept_where_their_queue_says_so() {
    on_each_engine(|store| {
        configure(store, &QueueConfig::new().keep_completed(true).retention_completed(Duration::from_hours(2)));
        let queue = store.queue("q");
        let id = queue.enqueue(job()).unwrap();
        claim_one(&queue).complete().unwrap();
        assert_eq!((store.job(id).unwrap().state, queue.stats().unwrap().kept), (State::Completed, 1));
    });
}

#[test]
fn full_queue_refuses_and_who_waits_gets_in_when_there_is_room() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        configure(store, &QueueConfig::new().size_max(1));
        queue.enqueue(job()).unwrap();
        refused(store, || queue.enqueue(job()), ErrorKind::Full, &["\"q\" is full", "size-max is 1", "wait for room"]);
        refused(store, || queue.enqueue_batch([job()]), ErrorKind::Full, &["\"q\" is full"]);
        let hasty = || queue.enqueue_within(job(), Duration::ZERO);
        refused(store, hasty, ErrorKind::TimedOut, &["\"q\" is full"]);
        thread::scope(|scope| {
            let waits = scope.spawn(|| queue.enqueue_within(job(), SOON).unwrap());
            let held = claim_one(&queue);
            let id = waits.join().unwrap();
            assert_eq!(queue.stats().unwrap().ready, 1);
            held.complete().unwrap();
            assert_eq!(claim_one(&queue).id(), id);
        });
    });
}

#[test]
fn tokens_let_waiting_claims_go_on() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        configure(store, &QueueConfig::new().rate(Rate::new(1, Duration::from_millis(50))));
        let jobs = queue.enqueue_batch((0..4).map(|_| job())).unwrap();
        // A claim that nobody wakes at a stone waits for half a minute.
        let held: Vec<_> = (0..4).flat_map(|_| queue.claim(4, SOON / 3).unwrap()).collect();
        assert_eq!(ids(&held), jobs, "one token at a time");
        complete(&held);
    });
}
