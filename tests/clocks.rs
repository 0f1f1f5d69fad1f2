//! Clocks that disagree: processes that share a store, some of them an hour or sixty days off. The wall clock orders
//! schedules, and decides nothing about who holds a job. The clocks are shifted by libfaketime; where that is not
//! installed, these tests say so and check nothing.

mod processes;

use std::{
    path::PathBuf,
    sync::{Condvar, Mutex},
    thread,
    time::Duration,
};

use casque::{Job, JobId, JobRequest, Registry, State, Store, TaskError, Timestamp, Worker, hooks::Step};
use processes::{
    Actor, Committer, Scene, argument, assert_sound, await_line, faketime, finish_all, observer_here, options,
    path_here, play, say, say_event, store_here,
};

const HOUR: Duration = Duration::from_hours(1);
/// How much the clock of a shifted process may be off from what was asked for, for what passes meanwhile.
const SLACK: Duration = Duration::from_mins(10);
/// The shortest lease time there may be, in milliseconds.
const LEASE_SHORT: u64 = 500;

#[test]
fn actor() {
    play(&[("worker", worker), ("producer", producer)]);
}

/// Works until told `stop`. While it is told to be `quiet`, no commit of its gets to the lock, and all else goes on.
fn worker() {
    let options = options().label(argument("label")).step_hook(|step| {
        if step == Step::BeforeLock {
            drop(QUIET.1.wait_while(QUIET.0.lock().unwrap(), |quiet| *quiet).unwrap());
        }
    });
    let store = options.open(path_here("app.redb")).unwrap();
    let mut worker = Worker::new(&store).tasks(tasks()).listen(say_event);
    for queue in argument("queues").split(' ') {
        worker = worker.queue(queue);
    }
    let stop = worker.stop_handle();
    thread::spawn(move || {
        await_line("stop");
        stop.stop();
    });
    thread::spawn(|| {
        for (line, quiet) in [("quiet", true), ("loud", false)].into_iter().cycle() {
            await_line(line);
            *QUIET.0.lock().unwrap() = quiet;
            QUIET.1.notify_all();
            say(line);
        }
    });
    say(format!("clock {}", Timestamp::now().as_millis()));
    let report = worker.run().unwrap();
    say(format!("leases-lost {}", report.leases_lost));
    store.close().unwrap();
}

static QUIET: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn tasks() -> Registry {
    let mut tasks = Registry::new();
    let mut add = |id: &str, run: fn(&Job) -> Result<(), TaskError>| {
        let observer = observer_here();
        let run = move |job: &Job, (): ()| {
            observer.note_run(job);
            run(job)
        };
        tasks.register(id, run).unwrap();
    };
    add("note", |_| Ok(()));
    add("hold", |job| {
        say(format!("runs {}", job.id()));
        await_line(&format!("end {}", job.id()));
        Ok(())
    });
    tasks
}

/// Enqueues one job, by its own clock.
fn producer() {
    let store = store_here();
    say(format!("clock {}", Timestamp::now().as_millis()));
    let job = store.queue(&argument("queue")).enqueue(JobRequest::new("note", &()).keep()).unwrap();
    store.close().unwrap();
    say(format!("enqueued {job}"));
}

/// How far a process's clock is off: in the words of libfaketime, and in milliseconds.
#[derive(Clone, Copy)]
struct Shift(&'static str, i64);

impl Shift {
    const HOUR_AHEAD: Self = Self("+1h", 3_600_000);
    const HOUR_BEHIND: Self = Self("-1h", -3_600_000);
    const SIXTY_DAYS_AHEAD: Self = Self("+60d", 60 * 24 * 3_600_000);

    fn name(self) -> &'static str {
        self.0
    }

    fn now(self) -> Timestamp {
        Timestamp::from_millis(Timestamp::now().as_millis().saturating_add_signed(self.1))
    }
}

/// A folder with a store, and what shifts the clocks of the processes that work on it.
struct Clocks {
    scene: Scene,
    store: Store,
    library: PathBuf,
}

impl Clocks {
    /// Nothing where there is no libfaketime.
    fn new() -> Option<Self> {
        let Some(library) = faketime() else {
            eprintln!("SKIPPED: no clock was shifted, since libfaketime is not installed (apt-get install faketime)");
            return None;
        };
        // Each commits by its own clock; where one commits for all, its clock is the only one.
        let scene = Scene::by(Committer::Itself);
        let store = scene.store();
        store.configure("lease", LEASE_SHORT).unwrap();
        Some(Self { scene, store, library })
    }

    /// Starts an actor whose clock is shifted, and asserts that it is.
    fn start(&self, shift: Shift, role: &str, arguments: &[(&str, &str)]) -> Actor {
        let library = self.library.to_str().unwrap();
        let environment = [("LD_PRELOAD", library), ("FAKETIME", shift.name()), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let mut actor = self.scene.actor_in(&environment, role, arguments);
        let clock = Timestamp::from_millis(actor.expect("clock").parse().unwrap());
        let expected = shift.now();
        let off = clock.since(expected).max(expected.since(clock));
        assert!(off < SLACK, "the clock of the {} process is off by {off:?}", shift.name());
        actor
    }

    /// A worker with a shifted clock on a queue named as the shift, and on this one.
    fn shifted_worker(&self, shift: Shift, other_queue: &str) -> Actor {
        let queues = format!("{} {other_queue}", shift.name());
        self.start(shift, "worker", &[("label", shift.name()), ("queues", &queues)])
    }

    /// A worker with the true clock.
    fn worker(&self, queue: &str) -> Actor {
        self.scene.actor("worker", &[("label", queue), ("queues", queue)])
    }

    fn enqueue(&self, queue: &str, task: &str) -> JobId {
        self.store.queue(queue).enqueue(JobRequest::new(task, &()).keep()).unwrap()
    }

    /// Enqueues a job for a worker with a shifted clock, and waits until it has run it, at its first attempt.
    fn run_one(&self, shift: Shift, worker: &mut Actor) -> JobId {
        let job = self.enqueue(shift.name(), "note");
        let (begun, token, attempt) = next_start(worker);
        assert_eq!((begun, attempt), (job.to_string(), 1));
        assert_eq!(worker.expect("completed"), format!("{job} {token}"));
        job
    }

    fn runs_of(&self, job: JobId) -> usize {
        let id = job.to_string();
        self.scene.observer().jobs().iter().filter(|job| **job == id).count()
    }
}

/// The job, token and attempt of the next run that the worker begins.
fn next_start(worker: &mut Actor) -> (String, String, u32) {
    let started = worker.expect("started");
    let mut words = started.split(' ').map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap(), words.next().unwrap().parse().unwrap())
}

/// Tells workers to stop, and waits until they have left without having lost a lease or met any trouble.
fn leave(mut workers: Vec<Actor>) {
    processes::tell_all(&mut workers, "stop");
    let count = workers.len();
    let heard = finish_all(workers);
    assert_eq!(heard.iter().filter(|line| *line == "leases-lost 0").count(), count, "{heard:?}");
    assert!(!heard.iter().any(|line| line.starts_with("lease-lost") || line.starts_with("trouble")), "{heard:?}");
}

/// Tells all workers but one this, and waits until they have heard it.
fn others(one: usize, workers: &mut [Actor], line: &str) {
    for (_, worker) in workers.iter_mut().enumerate().filter(|(number, _)| *number != one) {
        worker.tell(line);
        worker.expect(line);
    }
}

/// S42.
#[test]
fn clocks_that_are_off_take_no_running_job_from_its_worker() {
    const SHIFTS: [Shift; 3] = [Shift::HOUR_AHEAD, Shift::HOUR_BEHIND, Shift::SIXTY_DAYS_AHEAD];
    const ROUNDS: usize = 3;
    let Some(clocks) = Clocks::new() else { return };
    let long = clocks.enqueue("long", "hold");
    let mut owner = clocks.worker("long");
    let (_, token, attempt) = next_start(&mut owner);
    assert_eq!(attempt, 1);
    // All of them would take the long job if they could.
    let mut workers: Vec<Actor> = SHIFTS.map(|shift| clocks.shifted_worker(shift, "long")).into();
    workers.push(owner);
    let owner = SHIFTS.len();

    let crashing = clocks.store.queue("crashing").enqueue(JobRequest::new("hold", &())).unwrap();
    let mut short = Vec::new();
    for _ in 0..ROUNDS {
        for (looker, shift) in SHIFTS.into_iter().enumerate() {
            short.extend((0..5).map(|_| clocks.run_one(shift, &mut workers[looker])));
            let mut killed = clocks.worker("crashing");
            assert_eq!(killed.expect("runs"), crashing.to_string());
            // The only one that can take the job back is this one, which so has looked at all sessions.
            others(looker, &mut workers, "quiet");
            killed.kill();
            assert_eq!(workers[looker].expect("recovered"), crashing.to_string());
            others(looker, &mut workers, "loud");
        }
    }

    let info = clocks.store.job(long).unwrap();
    let (_, holder, held_by) = info.held_by.expect("it is still held");
    assert_eq!((info.state, info.attempt), (State::Running, 0));
    assert_eq!((holder.as_str(), held_by.to_string()), ("long", token.clone()));
    workers[owner].tell(&format!("end {long}"));
    assert_eq!(workers[owner].expect("completed"), format!("{long} {token}"));
    leave(workers);
    let info = clocks.store.job(long).unwrap();
    assert_eq!((info.state, info.attempt, info.errors.len()), (State::Completed, 1, 0));
    for job in short.iter().chain([&long]) {
        assert_eq!(clocks.runs_of(*job), 1, "job {job}");
    }
    assert_eq!(clocks.runs_of(crashing), ROUNDS * SHIFTS.len());
    assert_eq!(short.len() + 1 + ROUNDS * SHIFTS.len(), clocks.scene.observer().jobs().len());
    assert_sound(&clocks.store);
}

/// S27, S42.
#[test]
fn clock_an_hour_behind_runs_nothing_early_and_leaves_nothing_stuck() {
    let Some(clocks) = Clocks::new() else { return };
    let delayed = clocks.store.queue("delayed").enqueue(JobRequest::new("note", &()).keep().delay(HOUR)).unwrap();
    let mut behind = clocks.shifted_worker(Shift::HOUR_BEHIND, "delayed");
    for _ in 0..20 {
        clocks.run_one(Shift::HOUR_BEHIND, &mut behind);
    }
    assert_eq!(clocks.store.job(delayed).unwrap().state, State::Scheduled);
    assert_eq!(clocks.runs_of(delayed), 0);

    // For a process an hour ahead its time has come; with the job's end the store is stamped by that clock.
    behind.tell("quiet");
    behind.expect("quiet");
    let mut ahead = clocks.shifted_worker(Shift::HOUR_AHEAD, "delayed");
    assert_eq!(next_start(&mut ahead).0, delayed.to_string());
    ahead.expect("completed");
    clocks.run_one(Shift::HOUR_AHEAD, &mut ahead);
    leave(vec![ahead]);
    behind.tell("loud");
    behind.expect("loud");

    // What is enqueued after that by the clock behind goes by that clock, and runs at once.
    let queue = Shift::HOUR_BEHIND.name();
    let mut producer = clocks.start(Shift::HOUR_BEHIND, "producer", &[("queue", queue)]);
    let job = producer.expect("enqueued");
    producer.finish();
    let (begun, _, attempt) = next_start(&mut behind);
    assert_eq!((begun, attempt), (job.clone(), 1));
    behind.expect("completed");
    let info = clocks.store.job(job.parse().unwrap()).unwrap();
    assert_eq!(info.state, State::Completed);
    assert!(Timestamp::now().since(info.enqueued_at) > HOUR.saturating_sub(SLACK), "{}", info.enqueued_at);
    clocks.run_one(Shift::HOUR_BEHIND, &mut behind);
    leave(vec![behind]);
    assert_eq!(clocks.runs_of(delayed), 1);
    assert_sound(&clocks.store);
}
