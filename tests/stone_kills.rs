//! kill -9 of the process that commits for the others, at each step of its commits and before each operation on its
//! storage: whoever takes its place has all that was answered, and no client notices.
//!
//! Servers follow each other in two slots; each life has a plan, to die at the n-th passage of a point. The clients are
//! never killed, so each job runs exactly once. `CASQUE_SEED` repeats the plans of a run, though not its schedule;
//! `CASQUE_HITS` says how often each point is hit.

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
};

use casque::hooks::{Step, StorageHook, StorageOperation};
use load::{ROLES, drain, judge_jobs, judge_single_runs, judge_sum, stop_all};
use processes::{
    Actor, Committer, DEADLINE, Scene, argument, await_line, close_here, die, expect_all, number_or, options,
    path_here, play, say, until,
};

/// How often each point is hit at least.
const HITS: usize = 10;
const SLOTS: usize = 2;

const STEPS: [&str; 6] = ["Locked", "Applied", "Appended", "Written", "Flushing", "Flushed"];
/// Between `Applied` and `Written`.
const OF_LOG: [&str; 2] = ["log-write", "log-sync"];
/// The operations of a stone that begins, of a window that goes into the store's file, and of a stone that leaves; the
/// n-th of each is a point.
const STRETCHES: [&str; 3] = ["begin", "flush", "leave"];
/// How far that goes: a stretch has some more operations or fewer, as there is more or less to write.
const OPERATIONS_MAX: [usize; 3] = [22, 12, 14];

#[test]
fn actor() {
    play(&[ROLES.as_slice(), &[("server", server)]].concat());
}

/// The end of this life: it dies at the n-th passage of a point.
#[derive(Debug)]
struct Fate {
    point: String,
    passages_left: AtomicUsize,
    /// How many operations there were in each stretch that goes on.
    operations: [AtomicUsize; 3],
    /// The fewest that a window took.
    least_of_flushes: AtomicUsize,
    has_begun: AtomicBool,
    is_deciding: AtomicBool,
    is_leaving: AtomicBool,
}

impl Fate {
    fn here() -> Arc<Self> {
        Arc::new(Self {
            point: argument("point"),
            passages_left: AtomicUsize::new(number_or("passages", 0)),
            operations: Default::default(),
            least_of_flushes: AtomicUsize::new(usize::MAX),
            has_begun: AtomicBool::new(false),
            is_deciding: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
        })
    }

    fn pass(&self, point: &str) {
        if self.point == point && self.passages_left.fetch_sub(1, Ordering::SeqCst) == 1 {
            say("died");
            die();
        }
    }

    fn step(&self, step: Step) {
        if step == Step::BeforeLock {
            return;
        }
        match step {
            Step::Locked if !self.has_begun.swap(true, Ordering::SeqCst) && self.point.starts_with("begin-") => {
                say("missed");
            }
            Step::Flushing => self.operations[1].store(0, Ordering::SeqCst),
            Step::Flushed if !self.is_leaving.load(Ordering::SeqCst) => {
                self.least_of_flushes.fetch_min(self.operations[1].load(Ordering::SeqCst), Ordering::SeqCst);
            }
            _ => {}
        }
        if is_flusher() || is_stone() || is_sealer() {
            self.pass(&format!("{step:?}"));
            if is_stone() {
                self.is_deciding.store(step == Step::Applied || step == Step::Appended, Ordering::SeqCst);
            }
        }
    }

    fn operation(&self, operation: StorageOperation) {
        if is_sealer() && operation == StorageOperation::Sync {
            return self.pass("log-sync");
        }
        if operation == StorageOperation::Read || !(is_flusher() || is_stone()) {
            return;
        }
        let stretch = if self.is_leaving.load(Ordering::SeqCst) {
            2
        } else if is_flusher() {
            1
        } else if self.is_deciding.load(Ordering::SeqCst) {
            return self.pass(if operation == StorageOperation::Sync { "log-sync" } else { "log-write" });
        } else if self.has_begun.load(Ordering::SeqCst) {
            return;
        } else {
            0
        };
        let number = self.operations[stretch].fetch_add(1, Ordering::SeqCst) + 1;
        self.pass(&format!("{}-{number}", STRETCHES[stretch]));
    }
}

fn is_flusher() -> bool {
    thread::current().name() == Some("casque-flusher")
}

/// The thread that syncs where several ask at once.
fn is_sealer() -> bool {
    thread::current().name() == Some("casque-sealer")
}

fn is_stone() -> bool {
    thread::current().name() == Some("casque-stone")
}

#[derive(Debug)]
struct Storage(Arc<Fate>);

impl StorageHook for Storage {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        self.0.operation(operation);
        Ok(())
    }
}

/// Commits for the others until told to leave, or it dies.
fn server() {
    let fate = Fate::here();
    let steps = fate.clone();
    let options = options().step_hook(move |step| steps.step(step)).storage_hook(Arc::new(Storage(fate.clone())));
    let store = options.open(path_here("app.redb")).unwrap();
    let serving = store.serve().unwrap();
    say("begun");
    await_line("leave");
    let is_stone = store.stone() == Some(std::process::id());
    fate.is_leaving.store(true, Ordering::SeqCst);
    drop(serving);
    if is_stone {
        let [begin, _, leave] = fate.operations.each_ref().map(|count| count.load(Ordering::SeqCst));
        say(format!("operations {begin} {} {leave}", fate.least_of_flushes.load(Ordering::SeqCst)));
    }
    close_here(store);
}

struct Play {
    scene: Scene,
    random: Mutex<fastrand::Rng>,
    hits: Mutex<BTreeMap<String, usize>>,
    wanted: usize,
    lives: AtomicUsize,
}

impl Play {
    fn random(&self, below: usize) -> usize {
        self.random.lock().unwrap().usize(..below)
    }

    /// A point that was hit least, though not often enough.
    fn next_point(&self) -> Option<String> {
        let hits = self.hits.lock().unwrap();
        let least = *hits.values().min()?;
        let candidates: Vec<&String> =
            hits.iter().filter(|(_, hits)| **hits == least).map(|(point, _)| point).collect();
        (least < self.wanted).then(|| candidates[self.random(candidates.len())].clone())
    }

    /// One life of a server, to its planned end or till it has left.
    fn live(&self, point: &str) {
        self.lives.fetch_add(1, Ordering::SeqCst);
        // A stone begins and leaves once.
        let is_once = point.starts_with("begin-") || point.starts_with("leave-");
        let passages = if is_once { 1 } else { 1 + self.random(4) };
        let mut actor = self.scene.actor("server", &[("point", point), ("passages", &passages.to_string())]);
        if point.starts_with("leave-") {
            self.let_serve(&actor);
            actor.tell("leave");
        }
        loop {
            match actor.line_within(DEADLINE).expect("a life ends").as_deref() {
                Some("died") => *self.hits.lock().unwrap().get_mut(point).unwrap() += 1,
                // It had less to do than the one that was counted.
                Some("missed") => actor.tell("leave"),
                Some(_) => {}
                None => break,
            }
        }
        let status = actor.wait();
        assert!(status.signal() == Some(9) || status.success(), "a server with the plan {point} ended with {status}");
    }

    /// Waits until the server is the stone.
    fn let_serve(&self, actor: &Actor) {
        let store = self.scene.store();
        until("the server to be the stone", || (store.stone() == Some(actor.pid())).then_some(()));
    }
}

/// S31, S33, S43.
#[test]
fn stone_that_is_killed_anywhere_loses_nothing_and_does_nothing_twice() {
    let seed = std::env::var("CASQUE_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("CASQUE_SEED={seed}");
    let wanted = std::env::var("CASQUE_HITS").map_or(HITS, |hits| hits.parse().unwrap());
    let play = Play {
        scene: Scene::by(Committer::Worker),
        random: Mutex::new(fastrand::Rng::with_seed(seed)),
        hits: Mutex::default(),
        wanted,
        lives: AtomicUsize::new(0),
    };
    let store = play.scene.store();
    let roles = ["producer", "producer", "claimer", "claimer", "adder"];
    let mut clients: Vec<Actor> = roles.map(|role| play.scene.actor(role, &[])).into();
    expect_all(&mut clients, "begun");

    // The second of two lives recovers from the first, as most do, and tells how many operations there are to die at.
    let mut first = play.scene.actor("server", &[("point", "none")]);
    play.let_serve(&first);
    first.kill();
    let mut second = play.scene.actor("server", &[("point", "none")]);
    play.let_serve(&second);
    let before = store.version().unwrap();
    until("some windows", || (store.version().unwrap().0 > before.0 + 200).then_some(()));
    second.tell("leave");
    let told = second.expect("operations");
    second.finish();
    println!("operations to begin, flush and leave: {told}");
    let counts = told.split(' ').map(|count| count.parse::<usize>().unwrap()).zip(OPERATIONS_MAX);
    let of_stretches = STRETCHES.iter().zip(counts).flat_map(|(stretch, (count, most))| {
        assert!(count > 2, "a stone writes when it is to {stretch}");
        (1..=count.min(most)).map(move |number| format!("{stretch}-{number}"))
    });
    let points = STEPS.iter().chain(&OF_LOG).map(ToString::to_string).chain(of_stretches);
    *play.hits.lock().unwrap() = points.map(|point| (point, 0)).collect();

    thread::scope(|scope| {
        for _ in 0..SLOTS {
            scope.spawn(|| {
                while let Some(point) = play.next_point() {
                    play.live(&point);
                }
            });
        }
    });
    let (told, sum) = stop_all(clients);
    println!("{} lives, kills: {:?}", play.lives.load(Ordering::SeqCst), play.hits.lock().unwrap());
    assert!(told.is_empty(), "{told:#?}");
    drain(&play.scene, &store);
    judge_jobs(&play.scene, &store);
    judge_single_runs(&play.scene);
    judge_sum(&store, sum);
    let [direct, own, other] = play.scene.check_paths();
    // Between two stones whoever comes first commits directly, and many die before they have committed anything.
    assert!(own + other > direct / 4, "a stone commits");
}
