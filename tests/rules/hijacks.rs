//! The count of hijacks: strict conflicts, told by the next claim that commits, and candidates lost.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use casque::{Event, JobId, Policy, Registry, State, Store, Worker, types::Subject};

use crate::{LABEL, claim_one, ids, job, on_each_engine};

/// A worker that loses the first `losses` jobs that it wants to another, between its snapshot and its commit.
fn robbed(store: &Store, policy: Policy, losses: u32) -> (Worker, Arc<Mutex<Vec<Event>>>) {
    let mut tasks = Registry::new();
    tasks.register("task", |_, ()| Ok(())).unwrap();
    let (queue, pauses) = (store.queue("q"), AtomicU32::new(0));
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let worker = Worker::new(store)
        .tasks(tasks)
        .queue("q")
        .policy(policy)
        .backoff(false)
        .drain(true)
        .pause_before_commit(move || {
            if pauses.fetch_add(1, Ordering::SeqCst) < losses {
                claim_one(&queue).complete().unwrap();
            }
        })
        .listen(move |event| heard.lock().unwrap().push(event.clone()));
    (worker, events)
}

#[test]
fn strict_conflicts_travel_in_the_next_claim_that_commits() {
    on_each_engine(|store| {
        let jobs = store.queue("q").enqueue_batch((0..6).map(|_| job())).unwrap();
        let (worker, events) = robbed(store, Policy::Strict, 2);
        let report = worker.run().unwrap();
        assert_eq!((report.completed, report.hijacks), (4, 2));
        let stats = store.queue("q").stats().unwrap();
        assert_eq!((stats.completed, stats.hijacks), (6, 2));
        let lost: Vec<JobId> = events
            .lock()
            .unwrap()
            .iter()
            .filter_map(|event| match event {
                Event::HijackedStrictly(conflict) => match &conflict.subject {
                    Subject::Hijack { job, .. } => Some(*job),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        assert_eq!(lost, jobs[..2]);
    });
}

#[test]
fn rebase_takes_the_next_job_in_the_same_commit_and_counts_the_one_that_it_lost() {
    on_each_engine(|store| {
        let jobs = store.queue("q").enqueue_batch((0..4).map(|_| job())).unwrap();
        let (worker, events) = robbed(store, Policy::Rebase, 1);
        let report = worker.run().unwrap();
        assert_eq!((report.completed, report.hijacks), (3, 1));
        assert_eq!(store.queue("q").stats().unwrap().hijacks, 1);
        let events = events.lock().unwrap();
        let (mut hijacked, mut claimed) = (Vec::new(), Vec::new());
        for event in events.iter() {
            match event {
                Event::Hijacked(hijack) => hijacked.push(hijack.job),
                Event::Claimed { jobs, .. } => claimed.extend(jobs),
                _ => {}
            }
        }
        assert_eq!((hijacked.as_slice(), claimed.as_slice()), (&jobs[..1], &jobs[1..]));
    });
}

#[test]
fn view_that_lost_its_job_gets_the_next_one_in_the_same_commit() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let jobs = queue.enqueue_batch([job(), job(), job()]).unwrap();
        let snapshot = store.snapshot().unwrap();
        let (mut one, mut two) = (snapshot.queue("q"), snapshot.queue("q"));
        one.shift().unwrap();
        two.shift().unwrap();
        let first = one.commit(Policy::Rebase).unwrap();
        assert_eq!(ids(&first), jobs[..1]);
        let before = store.version().unwrap();
        let second = two.commit(Policy::Rebase).unwrap();
        assert_eq!(ids(&second), jobs[1..2]);
        assert_eq!(store.version().unwrap().0, before.0 + 1, "no second round");
        assert_eq!(queue.stats().unwrap().hijacks, 1);
    });
}

#[test]
fn claims_without_a_rival_count_no_hijacks() {
    on_each_engine(|store| {
        store.queue("q").enqueue_batch((0..5).map(|_| job())).unwrap();
        for policy in [Policy::Strict, Policy::Rebase] {
            let (worker, _) = robbed(store, policy, 0);
            assert_eq!(worker.run().unwrap().hijacks, 0);
        }
        assert_eq!(store.queue("q").stats().unwrap().hijacks, 0);
    });
}

#[test]
fn strict_commit_conflicts_with_any_other_claim_on_the_queue() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let jobs = queue.enqueue_batch([job(), job()]).unwrap();
        let snapshot = store.snapshot().unwrap();
        let mut view = snapshot.queue("q");
        assert_eq!(view.shift().unwrap().unwrap().id, jobs[0]);
        let other = queue.claim_job(jobs[1]).unwrap();
        let error = view.commit(Policy::Strict).unwrap_err();
        assert!(error.is_hijacked(), "{error}");
        assert_eq!(error.conflict().unwrap().by.as_ref().unwrap().label, LABEL);
        assert_eq!(store.job(jobs[0]).unwrap().state, State::Ready);
        other.complete().unwrap();
    });
}

#[test]
fn strict_commit_of_a_job_that_was_called_off_blames_no_claimer() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue(job()).unwrap();
        claim_one(&queue).complete().unwrap();
        let id = queue.enqueue(job()).unwrap();
        let snapshot = store.snapshot().unwrap();
        let mut view = snapshot.queue("q");
        view.shift().unwrap();
        store.cancel(id).unwrap();
        let error = view.commit(Policy::Strict).unwrap_err();
        let conflict = error.conflict().unwrap();
        assert_eq!(conflict.subject, Subject::Hijack { queue: "q".into(), job: id });
        assert_eq!((conflict.read, conflict.by.clone()), (conflict.found, None), "nobody has claimed since");
    });
}

#[test]
fn strict_commit_passes_by_enqueues_and_settlements() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue_batch([job(), job()]).unwrap();
        let held = claim_one(&queue);
        let snapshot = store.snapshot().unwrap();
        let mut view = snapshot.queue("q");
        let shifted = view.shift().unwrap().unwrap().id;
        queue.enqueue(job()).unwrap();
        held.fail("no", Some(Duration::from_mins(1))).unwrap();
        assert_eq!(ids(&view.commit(Policy::Strict).unwrap()), [shifted]);
    });
}
