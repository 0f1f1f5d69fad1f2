//! Workers that claim ahead, each as much as it dares, share what there is.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use casque::{Event, JobId, JobRequest, Registry, State, Store, Worker};

const WORKERS: usize = 8;
const JOBS: usize = 400;
const SOON: Duration = Duration::from_mins(1);

/// What the workers did, in order: who, and what.
type Told = Arc<Mutex<Vec<(usize, Event)>>>;

fn worker(store: &Store, number: usize, told: &Told) -> Worker {
    let mut tasks = Registry::new();
    tasks
        .register("work", |_, millis: u64| {
            thread::sleep(Duration::from_millis(millis)); // waits: this is the work, whose length is what is shared out
            Ok(())
        })
        .unwrap();
    let told = told.clone();
    Worker::new(store).tasks(tasks).drain(true).listen(move |event| told.lock().unwrap().push((number, event.clone())))
}

/// How long the jobs are that each worker has claimed and not begun when the last job is claimed.
fn held_at_the_end(told: &[(usize, Event)], lengths: &HashMap<JobId, u64>) -> Vec<Vec<u64>> {
    let last_claim = told.iter().rposition(|(_, event)| matches!(event, Event::Claimed { .. })).unwrap();
    let mut held = vec![HashSet::new(); WORKERS];
    for (number, event) in &told[..=last_claim] {
        match event {
            Event::Claimed { jobs, .. } => held[*number].extend(jobs),
            Event::Started { job, .. } | Event::GivenBack { job, .. } => {
                held[*number].remove(job);
            }
            _ => {}
        }
    }
    held.iter().map(|jobs| jobs.iter().map(|job| lengths[job]).collect()).collect()
}

#[test]
fn no_worker_hoards_what_another_could_do() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("app.redb")).unwrap();
    let seed = std::env::var("CASQUE_TEST_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("seed {seed}: CASQUE_TEST_SEED={seed} plays the same jobs again");
    let mut random = fastrand::Rng::with_seed(seed);
    let lengths: Vec<u64> = (0..JOBS).map(|_| random.u64(0..=100)).collect();
    let jobs =
        store.queue("default").enqueue_batch(lengths.iter().map(|length| JobRequest::new("work", length))).unwrap();
    let lengths: HashMap<JobId, u64> = jobs.into_iter().zip(lengths).collect();

    let told = Told::default();
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..WORKERS {
            let worker = worker(&store, number, &told);
            scope.spawn(move || worker.run().unwrap());
        }
    });
    let took = begun.elapsed();
    let ideal = Duration::from_millis(lengths.values().sum::<u64>() / WORKERS as u64);
    let held = held_at_the_end(&told.lock().unwrap(), &lengths);
    println!("{took:.3?}, ideal {ideal:.3?}; held when the last job was claimed: {held:?}");
    assert_eq!(store.queue("default").stats().unwrap().completed, JOBS as u64);
    // A tenth of the ideal is left for what is held then, and for the longest job that runs meanwhile. How long all of
    // it took is printed, and not looked at: it would tell of the machine as well.
    let most = held.iter().map(|lengths| lengths.iter().sum::<u64>()).max().unwrap();
    assert!(Duration::from_millis(most + 100) <= ideal / 10, "a worker held {most} ms of work that others could do");
}

#[test]
fn jobs_that_take_no_time_are_claimed_by_the_hundred() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("app.redb")).unwrap();
    let jobs = (0..4_000).map(|_| JobRequest::new("work", &0u64));
    store.queue("default").enqueue_batch(jobs).unwrap();
    let before = store.version().unwrap().0;
    let mut tasks = Registry::new();
    tasks.register("work", |_, _: u64| Ok(())).unwrap();
    let report = Worker::new(&store).tasks(tasks).drain(true).run().unwrap();
    let commits = store.version().unwrap().0 - before;
    assert_eq!(report.completed, 4_000);
    println!("{commits} commits for 4,000 jobs");
    assert!(commits < 4_000 / 64, "{commits} commits");
}

/// A job that looked as quick as those before it, and is not: its worker gives back what it had claimed with it.
#[test]
fn worker_with_a_slow_job_gives_back_what_it_had_claimed_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("app.redb")).unwrap();
    let queue = store.queue("default");
    let quick = |how_many: usize| (0..how_many).map(|_| JobRequest::new("work", &false));
    queue.enqueue_batch(quick(1_000)).unwrap();
    let slow = queue.enqueue(JobRequest::new("work", &true)).unwrap();
    let behind = queue.enqueue_batch(quick(100)).unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Arc::new(Mutex::new(may_go_on));
    let start = || {
        let (begun, may_go_on) = (begun.clone(), may_go_on.clone());
        let mut tasks = Registry::new();
        tasks
            .register("work", move |_, is_slow: bool| {
                if is_slow {
                    begun.send(()).unwrap();
                    may_go_on.lock().unwrap().recv().unwrap();
                }
                Ok(())
            })
            .unwrap();
        let worker = Worker::new(&store).tasks(tasks);
        let stop = worker.stop_handle();
        (stop, thread::spawn(move || worker.run().unwrap()))
    };
    let (first_stop, first) = start();
    has_begun.recv_timeout(SOON).unwrap();
    let (second_stop, second) = start();
    for job in behind {
        assert_eq!(store.wait_ended(job, SOON).unwrap(), None);
    }
    assert_eq!(store.job(slow).unwrap().state, State::Running);
    go_on.send(()).unwrap();
    assert_eq!(store.wait_ended(slow, SOON).unwrap(), None);
    first_stop.stop();
    second_stop.stop();
    let (first, second) = (first.join().unwrap(), second.join().unwrap());
    assert_eq!(first.completed + second.completed, 1_101);
    println!("the first gave {} back", first.given_back);
}
