//! Limits of queues and keys across processes: workers that are killed, failures in strict order, and who waits for
//! a limit to be freed, for a token, or for room.

mod processes;

use std::{
    collections::{BTreeMap, HashMap},
    thread,
    time::{Duration, Instant},
};

use casque::{
    ErrorKind, JobRequest, Registry, Store, TaskError, Worker,
    types::{QueueConfig, Rate},
};
use processes::{
    Actor, Committer, Scene, assert_sound, await_line, close_here, die, number_or, observer_here, play, say, say_event,
    store_here, until,
};

const QUEUE: &str = "default";
/// For how long a claim waits; one that nobody wakes gets what there is at its end, and is too late.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn actor() {
    play(&[("worker", worker), ("claimer", claimer), ("producer", producer)]);
}

/// Works until it is told to stop.
fn worker() {
    let store = store_here();
    let worker = Worker::new(&store).tasks(tasks()).concurrency(number_or("concurrency", 2)).listen(say_event);
    let stop = worker.stop_handle();
    thread::spawn(move || {
        await_line("stop");
        stop.stop();
    });
    worker.run().unwrap();
    close_here(store);
}

/// Claims one job, however long that takes, and completes it.
fn claimer() {
    let store = store_here();
    say("begun");
    let begun = Instant::now();
    let leases = store.queue(QUEUE).claim(1, PATIENCE).unwrap();
    let when = if begun.elapsed() < PATIENCE / 2 { "in time" } else { "late" };
    say(format!("claimed {} {when}", leases.len()));
    leases.into_iter().for_each(|lease| lease.complete().unwrap());
    close_here(store);
}

/// Enqueues one job as soon as there is room for it.
fn producer() {
    let store = store_here();
    let patience = Duration::from_millis(number_or("patience", 90_000) as u64);
    say("begun");
    match store.queue(QUEUE).enqueue_within(JobRequest::new("work", &()), patience) {
        Ok(_) => say("enqueued"),
        Err(error) => say(format!("failed {:?} {}", error.kind(), error.full_message())),
    }
    close_here(store);
}

fn tasks() -> Registry {
    let mut tasks = Registry::new();
    let observer = observer_here();
    let pid = std::process::id();
    tasks
        .register("work", move |job, key: String| {
            observer.note(&format!("+ {} {key} {pid}", job.id()));
            if key.starts_with("killer") && job.attempt() == 1 {
                die();
            }
            thread::sleep(Duration::from_millis(3)); // waits: so that what runs at once is seen to
            observer.note(&format!("- {} {key} {pid}", job.id()));
            Ok(())
        })
        .unwrap();
    tasks
        .register("hold", |job, (): ()| {
            await_line(&format!("end {}", job.id()));
            Ok(())
        })
        .unwrap();
    let observer = observer_here();
    tasks
        .register("step", move |job, (key, index, failures): (String, i64, u32)| {
            observer.note(&format!("{key} {index}"));
            if job.attempt() <= failures { Err(TaskError::failed("not yet")) } else { Ok(()) }
        })
        .unwrap()
        .backoff(|_| Duration::from_millis(20));
    tasks
}

fn configured(scene: &Scene, config: &QueueConfig) -> Store {
    let store = scene.store();
    store.queue(QUEUE).configure(config).unwrap();
    store
}

/// Has workers run until nothing of the queue is left; those that have died are replaced. Gives how many died.
fn run_down(scene: &Scene, store: &Store, how_many: usize) -> usize {
    let start = || scene.actor("worker", &[]);
    let mut workers: Vec<Actor> = (0..how_many).map(|_| start()).collect();
    let mut died = 0;
    until("the queue to be empty", || {
        for worker in &mut workers {
            while let Some(line) = worker.line_within(Duration::ZERO) {
                if line.is_none() {
                    died += 1;
                    *worker = start();
                }
            }
        }
        let stats = store.queue(QUEUE).stats().unwrap();
        (stats.ready + stats.running + stats.scheduled == 0).then_some(())
    });
    for mut worker in workers {
        worker.tell("stop");
        worker.finish();
    }
    died
}

/// The most that ran at once, of all and of one key, as far as the lines of processes that were killed tell.
fn most_at_once(lines: &[String]) -> (usize, usize) {
    let last_of: HashMap<&str, usize> =
        lines.iter().enumerate().map(|(at, line)| (line.rsplit(' ').next().unwrap(), at)).collect();
    let mut running: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let (mut of_all, mut of_key) = (0, 0);
    for (at, line) in lines.iter().enumerate() {
        let [sign, job, key, pid] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        if sign == "+" {
            running.insert((job, pid), key);
        } else {
            running.remove(&(job, pid));
        }
        of_all = of_all.max(running.len());
        of_key = of_key.max(running.values().filter(|other| **other == key).count());
        if last_of[pid] == at {
            // It has ended, well or not, and what it ran may be taken over from now on.
            running.retain(|(_, other), _| *other != pid);
        }
    }
    (of_all, of_key)
}

#[test]
fn limits_of_queue_and_keys_hold_across_four_processes_some_of_which_are_killed() {
    let scene = Scene::new();
    let store = configured(&scene, &QueueConfig::new().concurrency(3));
    let keys =
        (0..100).map(|index| if index % 33 == 32 { format!("killer{index}") } else { format!("k{}", index % 5) });
    let jobs = keys.map(|key| JobRequest::new("work", &key).concurrency_key(key.clone()).keep());
    let ids = store.queue(QUEUE).enqueue_batch(jobs).unwrap();

    let died = run_down(&scene, &store, 4);
    assert_eq!(died, 3, "each killer kills one");
    let lines = scene.observer().lines();
    let (of_all, of_key) = most_at_once(&lines);
    assert!(of_all <= 3, "{of_all} jobs ran at once: {lines:#?}");
    assert_eq!(of_key, 1, "{lines:#?}");
    let ended = lines.iter().filter(|line| line.starts_with("- ")).count();
    assert_eq!((ended, store.queue(QUEUE).stats().unwrap().completed), (ids.len(), ids.len() as u64));
    assert_sound(&store);
    store.close().unwrap();
}

#[test]
fn slots_of_a_killed_worker_come_back() {
    let scene = Scene::with_server();
    let store = configured(&scene, &QueueConfig::new().concurrency(2));
    let jobs =
        store.queue(QUEUE).enqueue_batch((0..4).map(|_| JobRequest::new("hold", &()).concurrency_key("a"))).unwrap();
    store.queue(QUEUE).configure(&QueueConfig::new().concurrency(2).concurrency_per_key(2)).unwrap();
    let mut first = scene.actor("worker", &[]);
    first.expect("started");
    first.expect("started");
    let mut second = scene.actor("worker", &[]);
    let stats = store.queue(QUEUE).stats().unwrap();
    assert_eq!((stats.running, stats.ready), (2, 2));
    first.kill();
    // What a killed process ran is run by itself from then on, so the first of the others begin.
    let mut begun = Vec::new();
    for _ in 0..jobs.len() {
        let line = second.expect("started");
        let job = line.split(' ').next().unwrap().to_owned();
        assert!(store.queue(QUEUE).stats().unwrap().running <= 2);
        second.tell(&format!("end {job}"));
        begun.push(job);
    }
    begun.sort();
    let mut all: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    all.sort();
    assert_eq!(begun, all);
    second.tell("stop");
    second.finish();
    assert_sound(&store);
    store.close().unwrap();
}

#[test]
fn jobs_of_a_key_run_in_strict_order_across_processes_though_some_fail() {
    let scene = Scene::new();
    let store = configured(&scene, &QueueConfig::new().strict_order_per_key(true));
    let keys = ["a", "b", "c"];
    let steps = (0..10_i64).flat_map(|index| keys.map(|key| (key, index)));
    let jobs = steps.map(|(key, index)| {
        let failures: u32 = if index % 3 == 1 { 2 } else { 0 };
        JobRequest::new("step", &(key, index, failures)).concurrency_key(key).priority(index)
    });
    store.queue(QUEUE).enqueue_batch(jobs).unwrap();
    run_down(&scene, &store, 4);
    for key in keys {
        let lines = scene.observer().lines();
        let ran: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix(key)).map(str::trim).collect();
        let expected = ["0", "1", "1", "1", "2", "3", "4", "4", "4", "5", "6", "7", "7", "7", "8", "9"];
        assert_eq!(ran, expected, "key {key}");
    }
    assert_sound(&store);
    store.close().unwrap();
}

/// Until a claimer very likely waits; where it does not yet, the test proves less and fails no more.
fn await_waiting(claimer: &mut Actor) {
    claimer.expect("begun");
    thread::sleep(Duration::from_millis(100)); // waits: for its claim to be parked, which nobody can see
}

#[test]
fn claims_that_wait_are_served_when_a_limit_is_freed() {
    for committer in [Committer::Itself, Committer::Server] {
        // The queue's limit stands in the way of another key, or the key's own.
        for (config, key) in [(QueueConfig::new().concurrency(1), "other"), (QueueConfig::new(), "customer")] {
            let scene = Scene::by(committer);
            let store = configured(&scene, &config);
            let queue = store.queue(QUEUE);
            queue.enqueue(JobRequest::new("work", &()).concurrency_key("customer")).unwrap();
            let held = queue.claim(1, Duration::ZERO).unwrap();
            queue.enqueue(JobRequest::new("work", &()).concurrency_key(key)).unwrap();
            assert!(queue.claim(1, Duration::ZERO).unwrap().is_empty());
            let mut claimer = scene.actor("claimer", &[]);
            await_waiting(&mut claimer);
            held.into_iter().for_each(|lease| lease.complete().unwrap());
            assert_eq!(claimer.expect("claimed"), "1 in time");
            claimer.finish();
            store.close().unwrap();
        }
    }
}

#[test]
fn claims_that_wait_are_served_when_a_limit_is_raised() {
    for committer in [Committer::Itself, Committer::Server] {
        let scene = Scene::by(committer);
        let store = configured(&scene, &QueueConfig::new().concurrency(1));
        let queue = store.queue(QUEUE);
        queue.enqueue_batch((0..2).map(|_| JobRequest::new("work", &()))).unwrap();
        let held = queue.claim(2, Duration::ZERO).unwrap();
        assert_eq!(held.len(), 1);
        let mut claimer = scene.actor("claimer", &[]);
        await_waiting(&mut claimer);
        queue.configure(&QueueConfig::new()).unwrap();
        assert_eq!(claimer.expect("claimed"), "1 in time");
        claimer.finish();
        drop(held);
        store.close().unwrap();
    }
}

#[test]
fn jobs_run_at_the_rate_of_their_queue_and_no_worker_sleeps_over_a_token() {
    const JOBS: u32 = 25;
    /// Less than what it takes where two workers only look by themselves, once a second.
    const TOO_LONG: Duration = Duration::from_secs(10);
    for committer in [Committer::Itself, Committer::Worker] {
        let scene = Scene::by(committer);
        let rate = Rate::new(20, Duration::from_secs(1)).burst(1);
        let store = configured(&scene, &QueueConfig::new().rate(rate));
        let jobs = (0..JOBS).map(|index| JobRequest::new("work", &format!("k{index}")));
        store.queue(QUEUE).enqueue_batch(jobs).unwrap();
        let begun = Instant::now();
        run_down(&scene, &store, 2);
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(1_200), "24 tokens came in {took:?}");
        assert!(took < TOO_LONG, "{took:?}");
        assert_eq!(store.queue(QUEUE).stats().unwrap().completed, u64::from(JOBS));
        store.close().unwrap();
    }
}

#[test]
fn enqueue_that_waits_for_room_goes_on_when_a_job_is_claimed() {
    for committer in [Committer::Itself, Committer::Server] {
        let scene = Scene::by(committer);
        let store = configured(&scene, &QueueConfig::new().size_max(2));
        let queue = store.queue(QUEUE);
        queue.enqueue_batch((0..2).map(|_| JobRequest::new("work", &()))).unwrap();
        assert_eq!(queue.enqueue(JobRequest::new("work", &())).unwrap_err().kind(), ErrorKind::Full);

        let mut hasty = scene.actor("producer", &[("patience", "10")]);
        let failed = hasty.expect("failed");
        assert!(failed.starts_with("TimedOut") && failed.contains("size-max is 2"), "{failed}");
        hasty.finish();

        let mut waiting: Vec<Actor> = (0..2).map(|_| scene.actor("producer", &[])).collect();
        processes::expect_all(&mut waiting, "begun");
        for claimed in 1..=2 {
            let lease = queue.claim(1, Duration::ZERO).unwrap().remove(0);
            lease.complete().unwrap();
            until("one more to be enqueued", || {
                let told = waiting.iter_mut().filter_map(|producer| producer.said("enqueued")).count();
                (told > 0).then_some(())
            });
            let stats = queue.stats().unwrap();
            assert_eq!((stats.ready, stats.completed), (2, claimed));
        }
        processes::finish_all(waiting);
        store.close().unwrap();
    }
}
