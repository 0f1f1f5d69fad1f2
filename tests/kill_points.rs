//! kill -9 at each named point of a job's way, and at random: nothing acknowledged is lost, nothing completed runs
//! again.
//!
//! Slots of producers and workers run side by side; each life of a process has a plan, to die at the n-th passage of a
//! point, and whoever dies is followed by another. `CASQUE_SEED` repeats the plans of a run, though not its schedule.

mod load;
mod processes;

use std::{
    collections::BTreeMap,
    io,
    os::unix::process::ExitStatusExt as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use casque::{
    Event, JobRequest, Registry, Store, Worker,
    hooks::{Step, StorageHook, StorageOperation},
};
use load::judge_jobs;
use processes::{
    Committer, Observer, Scene, argument, await_line, close_here, die, number_or, observer_here, options, path_here,
    play, say, until,
};

/// How many jobs are acknowledged at least, and how often each point is hit.
const JOBS: usize = 4_000;
const HITS: usize = 20;
const PRODUCERS: usize = 2;
const WORKERS: usize = 3;
const BATCH: usize = 10;

/// Where a process that commits for itself can be killed.
const OF_COMMITS: [&str; 5] = ["before-lock", "locked", "applied", "inside-write", "written"];
/// Where a worker that is the stone can.
const OF_STONES: [&str; 7] = ["locked", "applied", "appended", "inside-write", "written", "flushing", "flushed"];
/// Where any worker can: between its claims and settlements.
const OF_JOBS: [&str; 3] = ["claimed", "in-handler", "before-settle"];
/// At any moment, by the test.
const AT_RANDOM: &str = "at-random";

#[test]
fn actor() {
    play(&[("producer", producer), ("worker", worker)]);
}

/// The end of this life: it dies at the n-th passage of a point.
struct Fate {
    point: String,
    passages_left: AtomicUsize,
    /// Between `applied` and `written`.
    is_writing: AtomicBool,
}

impl Fate {
    fn here() -> Arc<Self> {
        let passages_left = AtomicUsize::new(number_or("passages", 0));
        Arc::new(Self { point: argument("point"), passages_left, is_writing: AtomicBool::new(false) })
    }

    fn pass(&self, point: &str) {
        if self.point == point && self.passages_left.fetch_sub(1, Ordering::SeqCst) == 1 {
            say("died");
            die();
        }
    }

    fn step(&self, step: Step) {
        self.is_writing.store(step == Step::Applied, Ordering::SeqCst);
        self.pass(match step {
            Step::BeforeLock => "before-lock",
            Step::Locked => "locked",
            Step::Applied => "applied",
            Step::Written => "written",
            Step::Appended => "appended",
            Step::Flushing => "flushing",
            Step::Flushed => "flushed",
        });
    }
}

/// Dies before one of the writes and syncs of a commit.
struct Storage(Arc<Fate>);

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Storage")
    }
}

impl StorageHook for Storage {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        if operation != StorageOperation::Read && self.0.is_writing.load(Ordering::SeqCst) {
            self.0.pass("inside-write");
        }
        Ok(())
    }
}

fn open(fate: &Arc<Fate>) -> Store {
    let (steps, storage) = (fate.clone(), Storage(fate.clone()));
    let options = options().step_hook(move |step| steps.step(step)).storage_hook(Arc::new(storage));
    options.open(path_here("app.redb")).unwrap()
}

/// Enqueues batches, and notes the ids that were answered, until enough were or it dies.
fn producer() {
    let store = open(&Fate::here());
    let answered = Observer::open(&path_here("answered"));
    say("begun");
    for _ in 0..number_or("batches", 0) {
        let jobs = (0..BATCH).map(|_| JobRequest::new("note", &()).keep().max_attempts(1_000));
        for id in store.queue("default").enqueue_batch(jobs).unwrap() {
            answered.note(&id.to_string());
        }
    }
    close_here(store);
}

/// Notes each run, and each completion that it was told of, until told to stop or it dies.
fn worker() {
    let fate = Fate::here();
    let store = open(&fate);
    let (runs, completions) = (observer_here(), observer_here());
    let (in_handler, in_events) = (fate.clone(), fate);
    let mut tasks = Registry::new();
    tasks
        .register("note", move |job, (): ()| {
            runs.note(&format!("run {} {} {}", job.id(), job.token(), std::process::id()));
            in_handler.pass("in-handler");
            Ok(())
        })
        .unwrap();
    let listen = move |event: &Event| match event {
        Event::Claimed { .. } => in_events.pass("claimed"),
        Event::Ended { .. } => in_events.pass("before-settle"),
        Event::Completed { job, token } => {
            completions.note(&format!("completed {job} {token} {}", std::process::id()));
        }
        Event::LeaseLost { job, .. } => say(format!("wrong: lost job {job}")),
        Event::Failed { job, message, .. } => say(format!("wrong: job {job} failed: {message}")),
        Event::Trouble { doing, message } => say(format!("trouble {doing}: {message}")),
        _ => {}
    };
    let worker = Worker::new(&store).tasks(tasks).concurrency(2).prefetch(10).listen(listen);
    let stop = worker.stop_handle();
    thread::spawn(move || {
        await_line("stop");
        stop.stop();
    });
    say("begun");
    worker.run().unwrap();
    close_here(store);
}

/// What the slots share.
struct Play {
    scene: Scene,
    random: Mutex<fastrand::Rng>,
    hits: Mutex<BTreeMap<&'static str, usize>>,
    troubles: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Play {
    fn answered(&self) -> usize {
        Observer::open(&self.scene.path("answered")).lines().len()
    }

    fn random(&self, below: usize) -> usize {
        self.random.lock().unwrap().usize(..below)
    }

    /// The point of these that was hit least; none where all were hit often enough.
    fn next_point(&self, points: &[&'static str]) -> Option<&'static str> {
        let hits = self.hits.lock().unwrap();
        let least = points.iter().map(|point| hits[point]).min()?;
        let candidates: Vec<_> = points.iter().filter(|point| hits[*point] == least).collect();
        (least < HITS).then(|| *candidates[self.random(candidates.len())])
    }

    fn all_hit(&self) -> bool {
        self.hits.lock().unwrap().values().all(|hits| *hits >= HITS)
    }

    /// One life of a process, to its planned end or, without a plan, until it has done its work.
    fn live(&self, role: &str, points: &[&'static str], batches: usize) {
        let point = self.next_point(points);
        // A commit has some dozens of writes; a life has few claims, and more handlers.
        let most = match point {
            Some("inside-write") => 40,
            Some("in-handler" | "before-settle") => 15,
            _ => 5,
        };
        let passages = (1 + self.random(most)).to_string();
        let batches = batches.to_string();
        let arguments =
            [("point", point.unwrap_or("none")), ("passages", passages.as_str()), ("batches", batches.as_str())];
        let mut actor = self.scene.actor(role, &arguments);
        if point == Some(AT_RANDOM) {
            if self.random(4) > 0 {
                actor.expect("begun");
            }
            let pause = Duration::from_micros(self.random(20_000) as u64);
            thread::sleep(pause); // waits: for a random moment
            actor.kill();
        }
        let mut told_to_stop = false;
        let mut died = false;
        loop {
            if self.is_over.load(Ordering::SeqCst) && !told_to_stop {
                // Whatever its plan is: there is nothing left to do that would bring it to its point.
                told_to_stop = true;
                actor.tell("stop");
            }
            let Some(line) = actor.line_within(Duration::from_millis(50)) else { continue };
            match line.as_deref() {
                None => break,
                Some("died") => died = true,
                Some("begun") => {}
                Some(line) => self.troubles.lock().unwrap().push(line.to_owned()),
            }
        }
        let status = actor.wait();
        let killed = status.signal() == Some(9);
        assert!(killed || status.success(), "{role} with the plan {point:?} ended with {status}");
        if let Some(point) = point
            && killed
            && (died || point == AT_RANDOM)
        {
            *self.hits.lock().unwrap().get_mut(point).unwrap() += 1;
        }
    }
}

/// S31, S33.
#[test]
fn nothing_acknowledged_is_lost_and_nothing_completed_runs_again() {
    let seed = std::env::var("CASQUE_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("CASQUE_SEED={seed}");
    let scene = Scene::new();
    let is_direct = scene.committer() == Committer::Itself;
    let of_commits: &[&'static str] = if is_direct { &OF_COMMITS } else { &OF_STONES };
    let points: Vec<&'static str> = of_commits.iter().copied().chain(OF_JOBS).chain([AT_RANDOM]).collect();
    // Where there is a stone, a producer does not get to where a commit is made.
    let of_producers = if is_direct { [of_commits, &[AT_RANDOM]].concat() } else { vec![AT_RANDOM] };
    let play = Play {
        scene,
        random: Mutex::new(fastrand::Rng::with_seed(seed)),
        hits: Mutex::new(points.iter().map(|point| (*point, 0)).collect()),
        troubles: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    let store = play.scene.store();
    thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| {
                while play.answered() < JOBS || !play.all_hit() {
                    play.live("producer", &of_producers, 30);
                }
            });
        }
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while !play.is_over.load(Ordering::SeqCst) {
                    play.live("worker", &points, 0);
                }
            });
        }
        let stats = || store.queue("default").stats().unwrap();
        until("all acknowledged jobs to end", || {
            let (enough, stats) = (play.answered() >= JOBS && play.all_hit(), stats());
            (enough && stats.ready + stats.running + stats.scheduled == 0).then_some(())
        });
        play.is_over.store(true, Ordering::SeqCst);
    });
    judge(&play, &store);
}

fn judge(play: &Play, store: &Store) {
    let hits = play.hits.lock().unwrap();
    println!("kills: {hits:?}");
    let mut troubles: BTreeMap<&str, usize> = BTreeMap::new();
    let told = play.troubles.lock().unwrap();
    told.iter().for_each(|trouble| *troubles.entry(trouble).or_default() += 1);
    println!("troubles: {troubles:#?}");
    assert!(hits.values().all(|hits| *hits >= HITS));
    assert!(!told.iter().any(|trouble| trouble.starts_with("wrong")), "{told:?}");

    judge_jobs(&play.scene, store);
}
