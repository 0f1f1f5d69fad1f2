//! What a job tells while it runs: its progress, its log, and how that is followed from outside.

use std::{thread, time::Duration};

use casque::{ErrorKind, Registry, State, Store, TaskError, Worker};

use crate::{SOON, claim_one, job, kind, on_each_engine};

fn texts(store: &Store, id: casque::JobId, from: u32) -> Vec<(u32, u32, String)> {
    let lines = store.log(id, from).unwrap();
    lines.into_iter().map(|line| (line.number, line.attempt, line.text)).collect()
}

#[test]
fn log_goes_on_over_attempts_and_ends_with_its_job() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job()).unwrap();
        let first = claim_one(&queue);
        first.start().unwrap();
        first.log("one").unwrap();
        first.log("two").unwrap();
        first.fail("not yet", Some(Duration::ZERO)).unwrap();
        assert_eq!(kind(first.log("late")), ErrorKind::LeaseLost);
        let second = claim_one(&queue);
        assert_eq!(kind(second.log("x".repeat(4097))), ErrorKind::Invalid);
        second.log("three").unwrap();
        let all = [(0, 1, "one".to_owned()), (1, 1, "two".to_owned()), (2, 2, "three".to_owned())];
        assert_eq!(texts(store, id, 0), all);
        assert_eq!(texts(store, id, 2), all[2..]);
        assert_eq!(store.check().unwrap(), []);
        second.complete().unwrap();
        assert_eq!(texts(store, id, 0), [], "the job is gone, and so is its log");
        assert_eq!(store.check().unwrap(), []);
    });
}

#[test]
fn only_the_latest_thousand_lines_are_kept() {
    let store = Store::in_memory().unwrap();
    let queue = store.queue("q");
    let id = queue.enqueue(job().keep()).unwrap();
    let lease = claim_one(&queue);
    for number in 0..1_003 {
        lease.log(number.to_string()).unwrap();
    }
    let lines = texts(&store, id, 0);
    assert_eq!((lines.len(), &lines[0], &lines[999]), (1_000, &(3, 1, "3".into()), &(1_002, 1, "1002".into())));
    lease.complete().unwrap();
    assert_eq!(texts(&store, id, 1_001).len(), 2, "the job is kept, and so is its log");
    assert_eq!(store.check().unwrap(), []);
}

/// Each step waits for the watcher to have seen the one before, so that no two of them are told as one.
#[test]
fn watch_tells_each_change_until_the_job_has_ended() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job()).unwrap();
        let (tell, told) = crossbeam_channel::unbounded();
        let watch = store.watch(id);
        let watcher = thread::spawn(move || {
            for status in watch {
                tell.send(status.unwrap()).unwrap();
            }
        });
        let next = || told.recv_timeout(SOON).unwrap();
        let ready = next();
        assert_eq!((ready.state, ready.fraction, ready.is_ended()), (Some(State::Ready), None, false));
        let lease = claim_one(&queue);
        assert_eq!(next().state, Some(State::Running));
        lease.progress(0.5, "half").unwrap();
        let half = next();
        assert_eq!((half.fraction, half.message.as_deref()), (Some(0.5), Some("half")));
        lease.log("a line").unwrap();
        assert_eq!(next().log_lines, 1);
        lease.fail("broken", None).unwrap();
        let dead = next();
        assert_eq!((dead.state, dead.error.as_deref(), dead.attempt), (Some(State::Dead), Some("broken"), 1));
        watcher.join().unwrap();
        assert!(told.try_recv().is_err(), "nothing follows the end");
    });
}

#[test]
fn watch_of_a_job_that_is_gone_ends_and_one_that_stands_still_times_out() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job()).unwrap();
        let mut watch = store.watch(id);
        assert!(watch.next_within(SOON).unwrap().is_some());
        assert_eq!(kind(watch.next_within(Duration::from_millis(20))), ErrorKind::TimedOut);
        claim_one(&queue).complete().unwrap();
        let gone = watch.next_within(SOON).unwrap().unwrap();
        assert_eq!((gone.state, gone.is_ended()), (None, true));
        assert_eq!(watch.next_within(SOON).unwrap(), None);
        let later = "999999".parse().unwrap();
        assert_eq!(kind(store.status(later)), ErrorKind::NotFound);
        let told: Vec<_> = store.watch(later).collect();
        assert_eq!(told.len(), 1, "an error is told once");
        assert_eq!(kind(told.into_iter().next().unwrap()), ErrorKind::NotFound);
    });
}

#[test]
fn handler_writes_its_log_as_it_runs() {
    on_each_engine(|store| {
        let mut tasks = Registry::new();
        let run = |job: &casque::Job, ()| {
            job.log("begun")?;
            job.progress(1.0, "all")?;
            Err::<(), _>(TaskError::fatal("no"))
        };
        tasks.register("task", run).unwrap();
        let id = store.queue("q").enqueue(job()).unwrap();
        Worker::new(store).tasks(tasks).queue("q").drain(true).run().unwrap();
        assert_eq!(texts(store, id, 0), [(0, 1, "begun".to_owned())]);
        assert_eq!(store.status(id).unwrap().state, Some(State::Dead));
    });
}
