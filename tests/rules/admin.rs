//! What an operator does: cancel, retry, requeue, release, pause, and the store's settings.

use std::time::Duration;

use casque::{ErrorKind, JobFilter, State, Store};

use crate::{Act, SOON, claim_one, complete, dead, ids, job, kind, on_each_engine, refused};

#[test]
fn job_that_is_not_held_is_cancelled_at_once() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        for request in [job(), job().delay(SOON)] {
            let id = queue.enqueue(request).unwrap();
            assert_eq!(store.cancel(id).unwrap(), State::Cancelled);
            assert_eq!(store.cancel(id).unwrap(), State::Cancelled, "twice is no error");
            assert!(store.job(id).unwrap().finished_at.is_some());
        }
        assert!(queue.claim(5, Duration::ZERO).unwrap().is_empty());
        assert_eq!(queue.stats().unwrap().cancelled, 2);
    });
}

#[test]
fn held_job_that_is_cancelled_is_ended_by_its_holder() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let ends: [Act<()>; 5] = [
            ("release", &|lease| lease.release().unwrap()),
            ("snooze", &|lease| lease.snooze(SOON).unwrap()),
            ("fail", &|lease| lease.fail("no", Some(SOON)).unwrap()),
            ("fail for good", &|lease| lease.fail("no", None).unwrap()),
            ("complete", &|lease| lease.complete().unwrap()),
        ];
        for (how, end) in ends {
            let expected = (how != "complete").then_some(State::Cancelled);
            let id = queue.enqueue(job()).unwrap();
            let lease = claim_one(&queue);
            assert_eq!(store.cancel(id).unwrap(), State::Running);
            let marked = store.job(id).unwrap();
            assert_eq!((marked.state, marked.cancelling), (State::Running, true));
            lease.check().unwrap();
            end(&lease);
            let now = store.job(id).ok();
            assert_eq!(
                now.as_ref().map(|job| (job.state, job.cancelling)),
                expected.map(|state| (state, false)),
                "{how}"
            );
        }
    });
}

#[test]
fn job_that_has_ended_can_not_be_cancelled() {
    on_each_engine(|store| {
        let ended = dead(store, job());
        refused(store, || store.cancel(ended.id), ErrorKind::Invalid, &[&ended.id.to_string(), "dead"]);
        let queue = store.queue("q");
        let kept = queue.enqueue(job().keep()).unwrap();
        claim_one(&queue).complete().unwrap();
        refused(store, || store.cancel(kept), ErrorKind::Invalid, &["completed"]);
        let gone = queue.enqueue(job()).unwrap();
        claim_one(&queue).complete().unwrap();
        refused(store, || store.cancel(gone), ErrorKind::NotFound, &[&gone.to_string(), "gone"]);
        refused(store, || store.cancel("999999".parse().unwrap()), ErrorKind::NotFound, &["no job 999999"]);
    });
}

#[test]
fn retried_job_has_all_its_attempts_again_and_keeps_its_history() {
    on_each_engine(|store| {
        let ended = dead(store, job().max_attempts(2));
        store.retry(ended.id).unwrap();
        let job = store.job(ended.id).unwrap();
        assert_eq!((job.state, job.attempt, job.errors.len()), (State::Ready, 0, 1));
        assert_eq!((job.finished_at, job.run_at), (None, None));
        let queue = store.queue("dead");
        for _ in 0..2 {
            claim_one(&queue).fail("again", Some(Duration::ZERO)).unwrap();
        }
        assert_eq!(store.job(ended.id).unwrap().state, State::Dead);
        assert_eq!(queue.stats().unwrap().dead, 1);
    });
}

#[test]
fn retry_lets_a_cancelled_and_a_scheduled_job_run_now() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let (scheduled, cancelled) = (queue.enqueue(job().delay(SOON)).unwrap(), queue.enqueue(job()).unwrap());
        store.cancel(cancelled).unwrap();
        for id in [scheduled, cancelled] {
            store.retry(id).unwrap();
            store.retry(id).unwrap();
        }
        let leases = queue.claim(5, Duration::ZERO).unwrap();
        assert_eq!(ids(&leases), [scheduled, cancelled]);
        refused(store, || store.retry(scheduled), ErrorKind::Invalid, &["running"]);
    });
}

#[test]
fn requeue_moves_a_waiting_job_and_no_other() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let [first, second] = queue.enqueue_batch([job(), job().delay(SOON)]).unwrap()[..] else { panic!("two") };
        let third = queue.enqueue(job()).unwrap();
        store.requeue(second).unwrap();
        store.requeue(first).unwrap();
        store.requeue(first).unwrap();
        let leases = queue.claim(5, Duration::ZERO).unwrap();
        assert_eq!(ids(&leases), [third, second, first]);
        refused(store, || store.requeue(first), ErrorKind::Invalid, &["running", "release"]);
        let ended = dead(store, job());
        refused(store, || store.requeue(ended.id), ErrorKind::Invalid, &["dead", "retry"]);
        // What was requeued is found, listed and settled as before.
        assert_eq!(store.job(first).unwrap().state, State::Running);
        complete(&leases);
    });
}

#[test]
fn released_job_is_in_front_and_its_holder_is_fenced() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let [first, second] = queue.enqueue_batch([job(), job()]).unwrap()[..] else { panic!("two jobs") };
        let lease = claim_one(&queue);
        store.release(first, false).unwrap();
        assert_eq!(kind(lease.complete()), ErrorKind::LeaseLost);
        refused(store, || store.release(first, false), ErrorKind::Invalid, &["ready", "nobody holds it"]);
        assert_eq!(ids(&queue.claim(5, Duration::ZERO).unwrap()), [first, second]);
    });
}

#[test]
fn paused_queue_gives_nothing_away_and_takes_everything_in() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let before = queue.enqueue(job()).unwrap();
        let lease = claim_one(&queue);
        queue.pause().unwrap();
        queue.pause().unwrap();
        let after = queue.enqueue(job()).unwrap();
        assert!(queue.claim(5, Duration::ZERO).unwrap().is_empty());
        assert!(queue.claim_job(after).is_err());
        assert!(store.snapshot().unwrap().queue("q").shift().unwrap().is_none());
        lease.release().unwrap();
        assert!(queue.stats().unwrap().paused);
        queue.resume().unwrap();
        assert_eq!(ids(&queue.claim(5, Duration::ZERO).unwrap()), [before, after]);
    });
}

#[test]
fn pausing_an_already_paused_queue_is_no_change() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.pause().unwrap();
        let version = store.version().unwrap();
        queue.pause().unwrap();
        assert_eq!(store.version().unwrap(), version);
        let names: Vec<String> = store.queues().unwrap().into_iter().map(|queue| queue.queue).collect();
        assert_eq!(names, ["q"], "it is listed before its first job");
    });
}

/// S22.
#[test]
fn queue_is_still_paused_when_everything_was_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.redb");
    let store = Store::open(&path).unwrap();
    store.queue("q").enqueue(job()).unwrap();
    store.queue("q").pause().unwrap();
    store.close().unwrap();
    let store = Store::open(&path).unwrap();
    assert!(store.queue("q").claim(1, Duration::ZERO).unwrap().is_empty());
    store.queue("q").resume().unwrap();
    claim_one(&store.queue("q")).complete().unwrap();
    store.close().unwrap();
}

/// S22.
#[test]
fn cancel_beside_a_claim_leaves_the_job_cancelled_or_running_and_never_both() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        for _ in 0..20 {
            let id = queue.enqueue(job()).unwrap();
            let (claimed, cancelled) = std::thread::scope(|scope| {
                let cancelled = scope.spawn(|| store.cancel(id).unwrap());
                (queue.claim(1, Duration::ZERO).unwrap().pop(), cancelled.join().unwrap())
            });
            match claimed {
                Some(lease) => {
                    assert_eq!((cancelled, store.job(id).unwrap().cancelling), (State::Running, true));
                    lease.release().unwrap();
                }
                None => assert_eq!(cancelled, State::Cancelled),
            }
            assert_eq!(store.job(id).unwrap().state, State::Cancelled);
        }
    });
}

#[test]
fn counters_agree_with_the_jobs_listed_in_every_state() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        queue.enqueue_batch((0..3).map(|_| job())).unwrap();
        queue.enqueue(job().delay(SOON)).unwrap();
        let cancelled = queue.enqueue(job()).unwrap();
        store.cancel(cancelled).unwrap();
        claim_one(&queue).complete_with(&1).unwrap();
        claim_one(&queue).fail("no", None).unwrap();
        let _held = claim_one(&queue);
        queue.enqueue(job()).unwrap();
        let stats = queue.stats().unwrap();
        let counted = [
            (State::Ready, stats.ready),
            (State::Scheduled, stats.scheduled),
            (State::Running, stats.running),
            (State::Completed, stats.kept),
            (State::Dead, stats.dead),
            (State::Cancelled, stats.cancelled),
            (State::Waiting, stats.waiting),
        ];
        for (state, count) in counted {
            let listed = store.jobs(&JobFilter::new().queue("q").state(state), 100).unwrap();
            assert_eq!(listed.len() as u64, count, "INV-9: {state}");
            assert_eq!(count, u64::from(state != State::Waiting), "{state}");
        }
    });
}

#[test]
fn settings_hold_for_all_and_are_checked() {
    on_each_engine(|store| {
        assert_eq!(store.setting("lease").unwrap(), 30_000);
        store.configure("lease", 60_000).unwrap();
        assert_eq!(store.setting("lease").unwrap(), 60_000);
        refused(store, || store.configure("lease", 1), ErrorKind::Invalid, &["lease = 1 ms", "500"]);
        refused(store, || store.configure("nonsense", 1), ErrorKind::NotFound, &["nonsense", "payload-max"]);
        assert_eq!(kind(store.setting("nonsense")), ErrorKind::NotFound);
    });
}
