//! What a worker does while its claim is parked: with claims parked here as another process parks them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::{
    clock::monotonic,
    error::Result,
    queue::{JobRequest, claim::Claim, state::State},
    store::{
        Store,
        change::{Applied, ChangeId, ClientId, Intent, Outcome},
        conflict::Version,
        promise::{Promise, promise},
        ticket::Ticket,
    },
    task::Registry,
    worker::{
        Event, Worker,
        tests::{make_suspect, wait_until_ready},
    },
};

const SOON: Duration = Duration::from_mins(1);
/// Much longer than a commit takes, and much shorter than a claim is parked or waited for.
const PROMPTLY: Duration = Duration::from_secs(10);

/// Answers a claim that finds something at once, and parks any other until it is told to serve it.
#[derive(Default)]
pub(crate) struct Parking {
    parked: Mutex<Vec<(Claim, Promise<Result<Applied>>)>>,
    told: Mutex<Option<mpsc::Sender<()>>>,
    /// Changes with settlements in them.
    settled: AtomicUsize,
}

impl Parking {
    /// A place to park, and what it says of each claim that it parks.
    fn new() -> (Arc<Self>, mpsc::Receiver<()>) {
        let (told, parked) = mpsc::channel();
        (Arc::new(Self { told: Mutex::new(Some(told)), ..Self::default() }), parked)
    }

    pub(crate) fn submit(&self, store: &Store, intents: Vec<Intent>, wait: Duration) -> Result<Ticket> {
        let patience = store.inner.patience;
        if wait.is_zero() {
            let settles = intents.iter().any(|intent| matches!(intent, Intent::SettleEach(_)));
            self.settled.fetch_add(usize::from(settles), Ordering::SeqCst);
            return store.inner.submit_turn(intents, wait);
        }
        let [Intent::Claim(claim)] = intents.as_slice() else { panic!("a change that is more than a claim waits") };
        let applied = store.inner.commit(Vec::new(), intents.clone(), None)?;
        let (answer, receiver) = promise();
        if matches!(&applied.outcomes[0], Outcome::Claimed(claimed) if claimed.jobs.is_empty()) {
            self.parked.lock().unwrap().push((claim.clone(), answer));
            let _ = self.told.lock().unwrap().as_ref().unwrap().send(());
        } else {
            answer.keep(Ok(applied));
        }
        Ok(Ticket::of(
            ChangeId { client: ClientId { born: Version(0), random: 0 }, number: 1 },
            receiver,
            patience + wait,
        ))
    }

    /// Claims for those who wait, and answers them.
    fn serve(&self, store: &Store) {
        self.serve_late(store, || ());
    }

    /// The same; `meanwhile` happens between the claim's commit and its answer.
    fn serve_late(&self, store: &Store, meanwhile: impl Fn()) {
        for (claim, answer) in self.parked.lock().unwrap().drain(..) {
            let claimed = store.inner.commit(Vec::new(), vec![Intent::Claim(claim)], None);
            meanwhile();
            answer.keep(claimed);
        }
    }
}

/// A worker that says which jobs it begins and completes, and whose handlers of `hold` end when they are told to.
fn worker(store: &Store, parking: &Arc<Parking>) -> (Worker, mpsc::Receiver<Event>, mpsc::Sender<()>) {
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let mut tasks = Registry::new();
    tasks.register("note", |_, ()| Ok(())).unwrap();
    tasks
        .register("obey", |job, ()| {
            while !job.is_cancelled() {
                crate::clock::sleep(Duration::from_millis(1)); // waits: as handlers do that look now and then
            }
            Ok(())
        })
        .unwrap();
    tasks
        .register("hold", move |_, ()| {
            may_go_on.lock().unwrap().recv().unwrap();
            Ok(())
        })
        .unwrap();
    let (tell, events) = mpsc::channel();
    let mut worker = Worker::new(store).tasks(tasks).listen(move |event| {
        if matches!(event, Event::Started { .. } | Event::Completed { .. }) {
            let _ = tell.send(event.clone());
        }
    });
    worker.setup.parking = Some(parking.clone());
    (worker, events, go_on)
}

#[test]
fn idle_worker_answers_a_stop_though_its_claim_is_parked() {
    let store = Store::in_memory().unwrap();
    let (parking, parked) = Parking::new();
    let (worker, _events, _go_on) = worker(&store, &parking);
    let stop = worker.stop_handle();
    let run = thread::spawn(move || worker.run().unwrap());
    parked.recv_timeout(SOON).unwrap();
    let asked = monotonic();
    stop.stop();
    assert_eq!(run.join().unwrap().completed, 0);
    assert!(monotonic().duration_since(asked) < PROMPTLY, "the claim was parked for half a minute");

    // What the claim is answered with afterwards goes back, uncharged.
    let id = store.queue("default").enqueue(JobRequest::new("note", &())).unwrap();
    parking.serve(&store);
    wait_until_ready(&store, id);
    assert_eq!(store.job(id).unwrap().attempt, 0);
}

#[test]
fn parked_claim_is_answered_with_the_job_that_came() {
    let store = Store::in_memory().unwrap();
    let (parking, parked) = Parking::new();
    let (worker, events, _go_on) = worker(&store, &parking);
    let stop = worker.stop_handle();
    let run = thread::spawn(move || worker.run().unwrap());
    for _ in 0..3 {
        parked.recv_timeout(SOON).unwrap();
        let id = store.queue("default").enqueue(JobRequest::new("note", &())).unwrap();
        parking.serve(&store);
        assert!(matches!(events.recv_timeout(SOON).unwrap(), Event::Started { job, .. } if job == id));
        assert!(matches!(events.recv_timeout(SOON).unwrap(), Event::Completed { job, .. } if job == id));
    }
    stop.stop();
    assert_eq!(run.join().unwrap().completed, 3);
}

/// P4: the claim was parked by a process that ran nothing, and is answered when it does.
#[test]
fn suspect_job_that_comes_to_a_process_which_has_begun_work_meanwhile_goes_back() {
    let store = Store::in_memory().unwrap();
    let (parking, parked) = Parking::new();
    let (worker, events, _go_on) = worker(&store, &parking);
    let stop = worker.stop_handle();
    let run = thread::spawn(move || worker.run().unwrap());
    parked.recv_timeout(SOON).unwrap();
    let others = store.queue("others");
    others.enqueue(JobRequest::new("note", &())).unwrap();
    let held = others.claim(1, Duration::ZERO).unwrap();
    let id = store.queue("default").enqueue(JobRequest::new("note", &())).unwrap();
    make_suspect(&store);
    parking.serve(&store);
    wait_until_ready(&store, id);
    assert!(store.job(id).unwrap().suspect && events.try_recv().is_err());
    // It asks again, and gets it when it may.
    held[0].complete().unwrap();
    loop {
        parked.recv_timeout(SOON).unwrap();
        parking.serve(&store);
        if let Ok(Event::Started { job, .. }) = events.recv_timeout(Duration::from_millis(50)) {
            assert_eq!(job, id);
            break;
        }
    }
    stop.stop();
    assert_eq!(run.join().unwrap().completed, 1);
}

/// The worker is called when the job is held and it does not know that yet.
#[test]
fn job_that_was_cancelled_while_its_claim_was_answered_is_seen_to_be() {
    let store = Store::in_memory().unwrap();
    let (parking, parked) = Parking::new();
    let (worker, events, _go_on) = worker(&store, &parking);
    let stop = worker.stop_handle();
    let run = thread::spawn(move || worker.run().unwrap());
    for _ in 0..30 {
        parked.recv_timeout(SOON).unwrap();
        let id = store.queue("default").enqueue(JobRequest::new("obey", &())).unwrap();
        parking.serve_late(&store, || {
            assert_eq!(store.cancel(id).unwrap(), State::Running);
            store.inner.call_holders();
            // So that the worker most likely has heard the call, and found nothing that it holds.
            crate::clock::sleep(Duration::from_millis(2)); // waits: for what either order of is right
        });
        assert!(matches!(events.recv_timeout(SOON).unwrap(), Event::Started { job, .. } if job == id));
        assert!(matches!(events.recv_timeout(PROMPTLY).unwrap(), Event::Completed { job, .. } if job == id));
    }
    stop.stop();
    assert_eq!(run.join().unwrap().completed, 30);
}

#[test]
fn endings_do_not_wait_for_a_parked_claim() {
    let store = Store::in_memory().unwrap();
    let queue = store.queue("default");
    let held = queue.enqueue(JobRequest::new("hold", &())).unwrap();
    let (parking, parked) = Parking::new();
    let (worker, events, go_on) = worker(&store, &parking);
    let worker = worker.concurrency(2);
    let stop = worker.stop_handle();
    let run = thread::spawn(move || worker.run().unwrap());
    assert!(matches!(events.recv_timeout(SOON).unwrap(), Event::Started { job, .. } if job == held));
    // The other handler finds nothing more, and lets its claim wait.
    parked.recv_timeout(SOON).unwrap();
    go_on.send(()).unwrap();
    assert!(matches!(events.recv_timeout(PROMPTLY).unwrap(), Event::Completed { job, .. } if job == held));
    assert_eq!(parking.parked.lock().unwrap().len(), 1, "the claim still waits");
    assert_eq!(store.wait_ended(held, SOON).unwrap(), None);

    let id = queue.enqueue(JobRequest::new("note", &())).unwrap();
    parking.serve(&store);
    assert!(matches!(events.recv_timeout(SOON).unwrap(), Event::Started { job, .. } if job == id));
    stop.stop();
    assert_eq!(run.join().unwrap().completed, 2);
}

/// The keeper sleeps until the slow job's time is over, which is no help to what ends before.
#[test]
fn completion_does_not_wait_for_a_slow_job_beside_one_whose_time_is_far_ahead() {
    let store = Store::in_memory().unwrap();
    let queue = store.queue("default");
    let long = queue.enqueue(JobRequest::new("hold", &()).timeout(Duration::from_hours(1))).unwrap();
    let (parking, parked) = Parking::new();
    let (worker, events, go_on) = worker(&store, &parking);
    let worker = worker.concurrency(2).prefetch(1);
    let stop = worker.stop_handle();
    let run = thread::spawn(move || worker.run().unwrap());
    assert!(matches!(events.recv_timeout(SOON).unwrap(), Event::Started { job, .. } if job == long));
    parked.recv_timeout(SOON).unwrap();
    // So that the keeper most likely sleeps until the deadline.
    crate::clock::sleep(Duration::from_millis(30)); // waits: for what either order of is right
    let jobs = queue.enqueue_batch(["note", "hold"].map(|task| JobRequest::new(task, &()))).unwrap();
    parking.serve(&store);
    store.wait_ended(jobs[0], PROMPTLY).unwrap();
    assert_eq!(store.job(jobs[1]).unwrap().state, State::Running);
    go_on.send(()).unwrap();
    go_on.send(()).unwrap();
    stop.stop();
    assert_eq!(run.join().unwrap().completed, 3);
}

#[test]
fn last_completion_and_next_claim_are_one_change() {
    let store = Store::in_memory().unwrap();
    let queue = store.queue("default");
    queue.enqueue_batch((0..10).map(|_| JobRequest::new("note", &()))).unwrap();
    let before = store.version().unwrap().0;
    let (parking, parked) = Parking::new();
    let (worker, events, _go_on) = worker(&store, &parking);
    let worker = worker.prefetch(0);
    let stop = worker.stop_handle();
    let run = thread::spawn(move || worker.run().unwrap());
    parked.recv_timeout(SOON).unwrap();
    stop.stop();
    assert_eq!(run.join().unwrap().completed, 10);
    // The first claim, nine turns that complete one job and claim the next, and the last completion.
    assert_eq!(store.version().unwrap().0 - before, 11);
    assert_eq!(parking.settled.load(Ordering::SeqCst), 10);
    assert_eq!(events.try_iter().count(), 20);
}
