//! P4 and P7 at the level of the worker.

use std::{
    sync::{Arc, Mutex, atomic::Ordering, mpsc},
    time::Duration,
};

use crate::{
    clock::{Timestamp, deadline_after, monotonic},
    queue::{
        JobRequest,
        claim::Claim,
        id::{JobId, SessionId},
        reclaim::Reclaim,
        select::{Tasks, Wanted},
        state::State,
    },
    store::{
        Store,
        change::{Intent, Outcome},
    },
    task::Registry,
    worker::{Event, Worker},
};

/// Makes the next ready job suspect: claimed and begun by a session that is gone.
pub(super) fn make_suspect(store: &Store) {
    let session = SessionId::random();
    let claim = Claim::new(session, vec!["default".to_owned()], Wanted { tasks: Tasks::Any, jobs_max: 1, idle: true });
    let Outcome::Claimed(claimed) = store.inner.perform(Intent::Claim(claim)).unwrap() else { unreachable!() };
    let started = vec![(claimed.jobs[0].record.id, claimed.token.unwrap(), Timestamp::now())];
    store.inner.perform(Intent::Reclaim(Reclaim { started, ..Reclaim::of_all(session, None) })).unwrap();
}

/// Waits until a job that was held is back in its queue.
pub(super) fn wait_until_ready(store: &Store, job: JobId) {
    let (since, deadline) = (monotonic(), deadline_after(Duration::from_mins(1)));
    loop {
        let seen = store.inner.site.wakes();
        if store.job(job).unwrap().state == State::Ready {
            return;
        }
        assert!(monotonic() < deadline, "job {job} is still held");
        store.inner.wait_for_commit(seen, since, deadline);
    }
}

#[test]
fn suspect_job_gets_its_turn_beside_steady_work() {
    let store = Store::in_memory().unwrap();
    let queue = store.queue("default");
    let ran = Arc::new(Mutex::new(Vec::new()));
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let mut tasks = Registry::new();
    let (order, gate) = (ran.clone(), Mutex::new(may_go_on));
    tasks
        .register("note", move |_, name: String| {
            if name == "first" {
                begun.send(()).unwrap();
                gate.lock().unwrap().recv().unwrap();
            }
            order.lock().unwrap().push(name);
            Ok(())
        })
        .unwrap();
    queue.enqueue(JobRequest::new("note", &"first")).unwrap();
    let worker = Worker::new(&store).tasks(tasks).drain(true);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| worker.run().unwrap());
        has_begun.recv().unwrap();
        queue.enqueue(JobRequest::new("note", &"suspect")).unwrap();
        make_suspect(&store);
        let steady = (0..200).map(|number| JobRequest::new("note", &format!("steady {number}")));
        queue.enqueue_batch(steady).unwrap();
        go_on.send(()).unwrap();
        assert_eq!(running.join().unwrap().completed, 202);
    });
    let ran = ran.lock().unwrap();
    let turn = ran.iter().position(|name| name == "suspect").unwrap();
    // One more may have been claimed before the worker learned of it.
    assert!(turn <= 2, "it ran as number {turn}: {:?}", &ran[..5]);
}

/// P4: alone in its process, not only among its worker's handlers.
#[test]
fn nothing_of_another_worker_or_of_the_program_runs_beside_a_suspect_job() {
    let store = Store::in_memory().unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let gate = Mutex::new(may_go_on);
    let mut tasks = Registry::new();
    tasks
        .register("hold", move |_, ()| {
            begun.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            Ok(())
        })
        .unwrap();
    let queue = store.queue("default");
    let suspect = queue.enqueue(JobRequest::new("hold", &())).unwrap();
    make_suspect(&store);
    let first = Worker::new(&store).tasks(tasks.clone()).drain(true);
    let second = Worker::new(&store).tasks(tasks);
    let stop = second.stop_handle();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| first.run().unwrap());
        has_begun.recv().unwrap();
        let other = queue.enqueue(JobRequest::new("hold", &())).unwrap();
        let second = scope.spawn(|| second.run().unwrap());
        let more = queue.enqueue(JobRequest::new("hold", &())).unwrap();
        assert!(queue.claim(1, Duration::from_millis(30)).unwrap().is_empty());
        assert!(queue.claim_job(more).unwrap_err().to_string().contains("runs nothing beside it"));
        assert!(store.snapshot().unwrap().queue("default").shift().unwrap().is_none());
        assert_eq!([other, more].map(|job| store.job(job).unwrap().state), [State::Ready; 2]);
        go_on.send(()).unwrap();
        store.wait_ended(suspect, Duration::from_mins(1)).unwrap();
        go_on.send(()).unwrap();
        go_on.send(()).unwrap();
        for job in [other, more] {
            store.wait_ended(job, Duration::from_mins(1)).unwrap();
        }
        stop.stop();
        assert_eq!(first.join().unwrap().completed + second.join().unwrap().completed, 3);
    });
}

#[test]
fn cancelled_job_that_was_claimed_ahead_is_settled_while_the_worker_is_busy() {
    let store = Store::in_memory().unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let gate = Mutex::new(may_go_on);
    let mut tasks = Registry::new();
    tasks
        .register("wait", move |_, (): ()| {
            begun.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            Ok(())
        })
        .unwrap();
    let jobs = store.queue("default").enqueue_batch((0..3).map(|_| JobRequest::new("wait", &()))).unwrap();
    let worker = Worker::new(&store).tasks(tasks).prefetch(5).drain(true);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| worker.run().unwrap());
        has_begun.recv().unwrap();
        assert_eq!(store.cancel(jobs[1]).unwrap(), State::Running, "it is claimed, and not begun");
        let ended = store.wait_ended(jobs[1], Duration::from_mins(1)).unwrap().unwrap();
        assert_eq!((ended.state, ended.attempt), (State::Cancelled, 0));
        assert_eq!(store.job(jobs[0]).unwrap().state, State::Running, "the handler before it has not ended");
        go_on.send(()).unwrap();
        go_on.send(()).unwrap();
        assert_eq!(running.join().unwrap().completed, 2);
    });
}

#[test]
fn worker_that_does_not_maintain_the_store_gives_its_lost_leases_back_and_takes_over_when_rung_for() {
    let store = Store::in_memory().unwrap();
    let soon = Duration::from_mins(1);
    store.inner.is_maintained_elsewhere.store(true, Ordering::Release);
    let mut tasks = Registry::new();
    tasks.register("note", |_, ()| Ok(())).unwrap();
    let worker = Worker::new(&store).tasks(tasks);
    let stop = worker.stop_handle();
    let running = std::thread::spawn(move || worker.run().unwrap());
    let due = store.queue("default").enqueue(JobRequest::new("note", &()).delay(Duration::from_millis(1))).unwrap();
    // As if the answer of a claim had been lost.
    let other = store.queue("other");
    let lost = other.enqueue(JobRequest::new("note", &())).unwrap();
    let claim = Claim::new(
        store.inner.session().unwrap().id,
        vec!["other".to_owned()],
        Wanted { tasks: Tasks::Any, jobs_max: 1, idle: true },
    );
    store.inner.perform(Intent::Claim(claim)).unwrap();
    store.inner.doubt_leases();
    wait_until_ready(&store, lost);
    assert_eq!(store.job(due).unwrap().state, State::Scheduled, "two looks long, nobody has promoted it");

    store.inner.is_maintained_elsewhere.store(false, Ordering::Release);
    store.inner.ring_maintainers();
    assert_eq!(store.wait_ended(due, soon).unwrap(), None);
    stop.stop();
    assert_eq!(running.join().unwrap().completed, 1);
}

#[test]
fn job_that_its_transaction_completed_as_its_time_was_over_is_told_and_counted_as_completed() {
    let store = Store::in_memory().unwrap();
    let mut tasks = Registry::new();
    tasks
        .register("pay", |job, ()| {
            // As the keeper does when the time is over.
            assert!(job.lease().time_out());
            job.complete_in(|tx| tx.put("paid", &1))?;
            Ok(())
        })
        .unwrap();
    let id = store.queue("default").enqueue(JobRequest::new("pay", &())).unwrap();
    let (tell, told) = mpsc::channel();
    let worker = Worker::new(&store).tasks(tasks).drain(true).listen(move |event| {
        if let Event::Completed { job, .. } = event {
            tell.send(*job).unwrap();
        }
    });
    let report = worker.run().unwrap();
    assert_eq!((report.completed, report.failed, report.leases_lost), (1, 0, 0));
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [id]);
}

#[test]
fn work_does_not_begin_whose_time_was_over_before_its_thread_came_to_it() {
    let store = Store::in_memory().unwrap();
    let queue = store.queue("default");
    queue.enqueue(JobRequest::new("task", &())).unwrap();
    let lease = queue.claim(1, Duration::ZERO).unwrap().remove(0);
    assert!(lease.time_out());
    assert!(!lease.start_unless_withdrawn().unwrap());
}

#[test]
fn completion_does_not_wait_for_the_slow_job_behind_it() {
    let store = Store::in_memory().unwrap();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let gate = Mutex::new(may_go_on);
    let mut tasks = Registry::new();
    tasks
        .register("work", move |_, is_slow: bool| {
            if is_slow {
                gate.lock().unwrap().recv().unwrap();
            }
            Ok(())
        })
        .unwrap();
    let jobs = [false, true].map(|is_slow| JobRequest::new("work", &is_slow));
    let jobs = store.queue("default").enqueue_batch(jobs).unwrap();
    let worker = Worker::new(&store).tasks(tasks).prefetch(1).drain(true);
    let running = std::thread::spawn(move || worker.run().unwrap());
    assert_eq!(store.wait_ended(jobs[0], Duration::from_mins(1)).unwrap(), None);
    assert_eq!(store.job(jobs[1]).unwrap().state, State::Running);
    go_on.send(()).unwrap();
    assert_eq!(running.join().unwrap().completed, 2);
}
