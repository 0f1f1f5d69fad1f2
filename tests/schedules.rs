//! Schedules served by real processes that are killed, at each step of a commit and at random: each slot is enqueued
//! once.

mod processes;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use casque::{CatchUp, Event, JobFilter, JobRequest, Registry, Schedule, Worker, hooks::Step};
use processes::{
    Committer, Scene, argument, assert_sound, await_line, close_here, die, number_or, options, path_here, play, say,
    until,
};

const EVERY: Duration = Duration::from_millis(100);
const WORKERS: usize = 3;
/// How many lives each worker's place sees.
const LIVES: usize = 14;
/// How long a life lasts that its plan does not end.
const LIFE: Duration = Duration::from_millis(900);
/// The steps of a commit that is made directly, and of one by a stone.
const POINTS: [Step; 7] =
    [Step::BeforeLock, Step::Locked, Step::Applied, Step::Written, Step::Appended, Step::Flushing, Step::Flushed];

#[test]
fn actor() {
    play(&[("worker", worker)]);
}

/// Works until told to stop; or dies at the n-th passage of a point after it has begun to enqueue slots.
fn worker() {
    let point = number_or("point", POINTS.len());
    let passages = Arc::new(AtomicUsize::new(number_or("passages", 0)));
    let options = options().step_hook(move |step| {
        if POINTS.get(point) == Some(&step) && passages.fetch_sub(1, Ordering::SeqCst) == 1 {
            die();
        }
    });
    let store = options.open(path_here("app.redb")).unwrap();
    let mut tasks = Registry::new();
    tasks.register("tick", |_, (): ()| Ok(())).unwrap();
    let worker = Worker::new(&store).tasks(tasks).schedule(tick()).listen(|event| {
        if let Event::Scheduled { jobs, .. } = event {
            say(format!("scheduled {}", jobs.len()));
        }
    });
    let stop = worker.stop_handle();
    thread::spawn(move || {
        await_line("stop");
        stop.stop();
    });
    say(format!("works {}", argument("committer")));
    worker.run().unwrap();
    close_here(store);
}

fn tick() -> Schedule {
    Schedule::every("tick", EVERY, JobRequest::new("tick", &()).keep()).catch_up(CatchUp::All(1_000))
}

fn each_slot_is_enqueued_once(committer: Committer) {
    let seed: u64 = std::env::var("CASQUE_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("CASQUE_SEED={seed}");
    let scene = Scene::without_disk(committer);
    let store = scene.store();
    store.schedule(tick()).unwrap();
    let first = store.schedule_named("tick").unwrap().next.unwrap();
    let died: usize = thread::scope(|scope| {
        let places: Vec<_> = (0..WORKERS)
            .map(|place| {
                let (scene, mut random) = (&scene, fastrand::Rng::with_seed(seed + place as u64));
                scope.spawn(move || (0..LIVES).map(|_| usize::from(live(scene, &mut random))).sum::<usize>())
            })
            .collect();
        places.into_iter().map(|place| place.join().unwrap()).sum()
    });
    println!("{died} of {} died as planned, the others at random", WORKERS * LIVES);
    assert!(died > WORKERS * LIVES / 4, "too few died at a step of a commit: {died}");

    let mut last = scene.actor("worker", &[]);
    last.expect("works");
    let now = casque::Timestamp::now();
    until("the slots to catch up", || (store.schedule_named("tick").unwrap().next? > now).then_some(()));
    last.tell("stop");
    last.finish();

    let jobs = store.jobs(&JobFilter::new(), usize::MAX).unwrap();
    let slots: Vec<&str> = jobs
        .iter()
        .map(|job| &job.metadata.iter().find(|(key, _)| key == "scheduled_for").expect("it is of a slot").1)
        .map(String::as_str)
        .collect();
    let distinct: BTreeSet<&str> = slots.iter().copied().collect();
    assert_eq!(distinct.len(), slots.len(), "a slot was enqueued twice");
    assert!(slots.len() > LIVES, "{} slots", slots.len());
    let last_slot = store.schedule_named("tick").unwrap().last.unwrap();
    let expected = last_slot.since(first).as_millis() / EVERY.as_millis() + 1;
    assert_eq!(slots.len() as u128, expected, "a slot was lost");
    assert_sound(&store);
    store.close().unwrap();
}

/// One worker from its start to its death; tells whether it died as planned.
fn live(scene: &Scene, random: &mut fastrand::Rng) -> bool {
    let point = random.usize(..POINTS.len()).to_string();
    let passages = random.usize(1..12).to_string();
    let mut actor = scene.actor("worker", &[("point", &point), ("passages", &passages)]);
    let begun = Instant::now();
    while let Some(left) = LIFE.checked_sub(begun.elapsed()) {
        if actor.line_within(left) == Some(None) {
            actor.wait();
            return true;
        }
    }
    actor.kill();
    false
}

#[test]
fn each_slot_is_enqueued_once_by_workers_that_are_killed_where_one_commits_for_all() {
    each_slot_is_enqueued_once(Committer::Worker);
}

#[test]
fn each_slot_is_enqueued_once_by_workers_that_are_killed_where_each_commits_for_itself() {
    each_slot_is_enqueued_once(Committer::Itself);
}
