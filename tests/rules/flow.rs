//! Jobs that have to do with each other: what waits for what, what a run enqueues, and how a transaction refers to a
//! job.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use casque::{
    Error, ErrorKind, JobId, JobRequest, Registry, State, Store, TaskError, Worker,
    flow::{Flow, JobRef, OnFailure},
};

use crate::{SOON, claim_one, job, kind, on_each_engine, refused};

/// Runs what can be run, and gives the labels of what ran, in order.
fn run(store: &Store, queue: &str) -> Vec<String> {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Registry::new();
    let notes = ran.clone();
    let note = move |_: &casque::Job, label: String| {
        let is_bad = label.starts_with("bad");
        notes.lock().unwrap().push(label);
        if is_bad { Err(TaskError::fatal("no")) } else { Ok(()) }
    };
    tasks.register("note", note).unwrap();
    let notes = ran.clone();
    let tell = move |job: &casque::Job, (): ()| {
        let awaited = job.awaited();
        notes.lock().unwrap().push(format!("{} {} {}", awaited.completed, awaited.dead, awaited.cancelled));
        Ok(())
    };
    tasks.register("tell", tell).unwrap();
    Worker::new(store).queue(queue).tasks(tasks).drain(true).run().unwrap();
    ran.lock().unwrap().clone()
}

fn note(label: &str) -> JobRequest {
    JobRequest::new("note", label)
}

#[test]
fn chain_runs_in_order_and_ends_where_one_dies() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let ids = queue.enqueue_chain(["one", "two", "bad three", "four"].map(note)).unwrap();
        assert_eq!(queue.stats().unwrap().waiting, 3);
        assert_eq!(run(store, "q"), ["one", "two", "bad three"]);
        let last = store.job(ids[3]).unwrap();
        assert_eq!(last.state, State::Cancelled);
        assert!(last.errors[0].message.contains(&ids[2].to_string()), "{:?}", last.errors);
        let aborted = store.wait::<()>(ids[3], SOON).unwrap_err();
        assert_eq!(aborted.kind(), ErrorKind::Aborted);
    });
}

#[test]
fn flow_fans_out_and_in() {
    on_each_engine(|store| {
        let mut flow = Flow::new();
        let first = flow.add("q", note("first"));
        let sides = ["left", "bad right"].map(|label| flow.add_after([first], "q", note(label)));
        let last = flow.add_after(sides, "q", JobRequest::new("tell", &()).on_failure(OnFailure::Run));
        let batch = flow.batch("q", ["a", "b"].map(note), JobRequest::new("tell", &()));
        let ids = store.enqueue_flow(flow).unwrap();
        assert_eq!(store.job(ids[last.index()]).unwrap().awaited.unwrap().pending, 2);
        assert_eq!(store.job(ids[batch.index()]).unwrap().state, State::Waiting);
        let mut ran = run(store, "q");
        ran.sort();
        assert_eq!(ran, ["1 1 0", "2 0 0", "a", "b", "bad right", "first", "left"]);
    });
}

#[test]
fn draining_worker_stays_until_all_that_waited_for_a_job_are_told() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let first = queue.enqueue(note("bad")).unwrap();
        queue.enqueue_batch((0..2_500).map(|_| note("other").after(first))).unwrap();
        assert_eq!(run(store, "q"), ["bad"]);
        let stats = queue.stats().unwrap();
        assert_eq!((stats.waiting, stats.cancelled), (0, 2_500));
    });
}

#[test]
fn flow_in_a_transaction_or_a_run_is_numbered_on_its_own() {
    on_each_engine(|store| {
        let chain = || {
            let mut flow = Flow::new();
            flow.chain("q", ["x", "y"].map(note));
            flow
        };
        store
            .transaction(|tx| {
                tx.enqueue("q", note("before"))?;
                tx.enqueue_flow(chain())
            })
            .unwrap();
        assert_eq!((store.queue("q").stats().unwrap().ready, store.queue("q").stats().unwrap().waiting), (2, 1));
        assert_eq!(run(store, "q"), ["before", "x", "y"]);
        store.queue("p").enqueue(job()).unwrap();
        let lease = claim_one(&store.queue("p"));
        lease.enqueue("q", note("before")).unwrap();
        lease.enqueue_flow(chain()).unwrap();
        lease.complete().unwrap();
        assert_eq!(run(store, "q"), ["before", "x", "y"]);
    });
}

#[test]
fn open_batch_ends_once_with_what_its_jobs_added() {
    on_each_engine(|store| {
        let batch = store.queue("q").open_batch(JobRequest::new("tell", &())).unwrap();
        batch.enqueue("q", note("one")).unwrap();
        batch.enqueue_all("q", ["bad two", "three"].map(note)).unwrap();
        assert_eq!(run(store, "q").len(), 3);
        let adding = batch.enqueue("p", job()).unwrap();
        store.batch(batch.id()).seal().unwrap();
        let lease = claim_one(&store.queue("p"));
        assert_eq!(lease.id(), adding);
        lease.enqueue("q", note("four").before(batch.id())).unwrap();
        lease.complete().unwrap();
        assert_eq!(store.job(batch.id()).unwrap().state, State::Waiting);
        assert_eq!(run(store, "q"), ["four", "4 1 0"]);
        refused(store, || batch.enqueue("q", note("late")), ErrorKind::NotFound, &["is gone"]);
        assert_eq!(run(store, "q"), [] as [&str; 0]);
    });
}

#[test]
fn run_enqueues_with_its_completion_or_not_at_all() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let ready = || store.queue("next").stats().unwrap().ready;
        let mut tasks = Registry::new();
        let enqueue = |job: &casque::Job, how: String| {
            job.enqueue("next", note("next"))?;
            match how.as_str() {
                "fail" => Err(TaskError::fatal("no")),
                "snooze" => Err(TaskError::Snooze(Duration::from_hours(1))),
                // A job to wait for that there never was shows only at the commit.
                "refused" => Ok(job.enqueue("next", note("x").after("99999999".parse()?))?),
                _ => Ok(()),
            }
        };
        tasks.register("enqueue", enqueue).unwrap();
        let request = |how: &str| JobRequest::new("enqueue", how).max_attempts(1);
        let ids: Vec<JobId> = ["fail", "snooze", "refused"].map(|how| queue.enqueue(request(how)).unwrap()).into();
        Worker::new(store).queue("q").tasks(tasks.clone()).drain(true).run().unwrap();
        let states = ids.iter().map(|id| store.job(*id).unwrap().state).collect::<Vec<_>>();
        assert_eq!((states.as_slice(), ready()), (&[State::Dead, State::Scheduled, State::Dead][..], 0));
        let errors = store.job(ids[2]).unwrap().errors;
        assert!(errors[0].message.contains("there is no job 99999999"), "{errors:?}");
        queue.enqueue_batch(["well"; 20].map(request)).unwrap();
        Worker::new(store).queue("q").tasks(tasks).drain(true).run().unwrap();
        assert_eq!(ready(), 20);
    });
}

#[test]
fn run_whose_lease_was_lost_enqueues_and_changes_nothing() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let id = queue.enqueue(job()).unwrap();
        let lost = claim_one(&queue);
        lost.enqueue("next", note("next")).unwrap();
        store.release(id, false).unwrap();
        let held = claim_one(&queue);
        assert_eq!(kind(lost.complete()), ErrorKind::LeaseLost);
        let in_transaction = lost.complete_in(|tx| {
            tx.put("effect", &1u32)?;
            tx.enqueue("next", note("next"))
        });
        assert_eq!(kind(in_transaction), ErrorKind::LeaseLost);
        assert_eq!((store.get::<u32>("effect").unwrap(), store.queue("next").stats().unwrap().ready), (None, 0));

        held.enqueue("next", note("of the lease")).unwrap();
        let mut tries = 0;
        let value = held.complete_in(|tx| {
            tries += 1;
            let before: u32 = tx.get("effect")?.unwrap_or(0);
            if tries == 1 {
                store.put("effect", &41u32)?;
            }
            tx.enqueue("next", note("of the transaction"))?;
            tx.put("effect", &(before + 1))?;
            Ok(before)
        });
        assert_eq!((value.unwrap(), tries, store.get::<u32>("effect").unwrap()), (41, 2, Some(42)));
        assert_eq!(store.wait::<u32>(id, SOON).unwrap(), 41, "what the closure returns is the result");
        assert_eq!(store.queue("next").stats().unwrap().ready, 2);
        assert_eq!(kind(held.enqueue("next", note("late"))), ErrorKind::Invalid);
    });
}

#[test]
fn reference_that_was_stored_with_its_job_leads_to_it_while_it_lives() {
    on_each_engine(|store| {
        let mut tries = 0;
        let kept = store
            .transaction(|tx| {
                tries += 1;
                let _: Option<u32> = tx.get("contended")?;
                if tries == 1 {
                    store.put("contended", &1u32)?;
                }
                tx.enqueue("q", job())?;
                let reference = tx.enqueue_ref("q", job())?;
                tx.put("order", &reference)?;
                Ok(reference)
            })
            .unwrap();
        assert_eq!(tries, 2);
        let reference: JobRef = store.get("order").unwrap().unwrap();
        assert_eq!(reference, kept);
        let id = store.resolve(&reference).unwrap();
        assert_eq!(store.job(id).unwrap().state, State::Ready);
        // A unique key gives the job that there is.
        let unique = || store.transaction(|tx| tx.enqueue_ref("u", job().unique("key"))).unwrap();
        let [first, second] = [unique(), unique()];
        assert_ne!(first, second);
        let existing = store.resolve(&first).unwrap();
        assert_eq!(store.resolve(&second).unwrap(), existing);
        claim_one(&store.queue("u")).complete().unwrap();
        for gone in [first, second] {
            refused(store, || store.resolve(&gone), ErrorKind::NotFound, &["no job is found by reference"]);
        }
        crate::complete(&store.queue("q").claim(2, Duration::ZERO).unwrap());
        assert_eq!(kind(store.resolve(&reference)), ErrorKind::NotFound);
        let called_off = store.transaction(|tx| {
            let reference = tx.enqueue_ref("q", job())?;
            Err::<(), _>(Error::abort(serde_json::to_string(&reference).unwrap()))
        });
        let never: JobRef = serde_json::from_str(&called_off.unwrap_err().to_string()).unwrap();
        assert_eq!(kind(store.resolve(&never)), ErrorKind::NotFound);
    });
}

#[test]
fn job_that_runs_at_most_once_is_dead_after_one_failure_or_when_it_is_let_go() {
    on_each_engine(|store| {
        let queue = store.queue("q");
        let once = || queue.enqueue(job().at_most_once()).unwrap();
        let id = once();
        claim_one(&queue).fail("no", Some(Duration::ZERO)).unwrap();
        let failed = store.job(id).unwrap();
        assert_eq!((failed.state, failed.at_most_once, failed.max_attempts), (State::Dead, true, 1));
        refused(store, || store.retry(id), ErrorKind::Invalid, &["at most once"]);

        let unbegun = once();
        drop(claim_one(&queue));
        crate::processes::until("it goes back", || (queue.stats().unwrap().ready == 1).then_some(()));
        let lease = claim_one(&queue);
        assert_eq!(lease.id(), unbegun);
        lease.start().unwrap();
        drop(lease);
        let dead = || (store.job(unbegun).unwrap().state == State::Dead).then(|| store.job(unbegun).unwrap());
        let errors = crate::processes::until("it is dead", dead).errors;
        assert!(errors[0].message.contains("at most once"), "{errors:?}");
    });
}
