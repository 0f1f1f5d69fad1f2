//! What the soak's processes do, each until it is told to stop. What they did is noted outside of the store, before or
//! after the call as the judge needs it.

use std::{
    io,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use casque::{
    CatchUp, Error, ErrorKind, Event, Job, JobFilter, JobRequest, Queue, Registry, Result, Schedule, State, Store,
    TaskError, Timestamp, Worker,
    hooks::{StorageHook, StorageOperation},
    testing::Clock,
};

use crate::processes::{Observer, argument, await_line, number_or, options, path_here, say};

/// What library workers run, what is claimed without a worker, what the binary runs, and what is called off.
pub const QUEUES: [&str; 4] = ["soak", "claims", "commands", "tended"];
/// Between these, one is moved to and fro.
pub const ACCOUNTS: [&str; 6] = ["account/0", "account/1", "account/2", "account/3", "account/4", "account/5"];
/// What each account has at first.
pub const FUNDS: i64 = 1_000;
/// Counters: blind additions, effects of completed jobs, and what is read and written apart under a named lock.
pub const SUM: &str = "sum";
pub const EFFECTS: &str = "effects";
pub const LOCKED: &str = "locked";
/// What jobs of no importance have: nobody dies of attempts here.
const ATTEMPTS: u32 = 1_000_000;
/// How many jobs may be ready before producers wait.
const READY_MAX: u64 = 300;
const HOUR_MS: i64 = 3_600_000;
/// How far the growth of the file may go while a stopped reader pins it: 8 MiB, 0.5 s, then 0.1 s per commit.
const GROWTH: (u64, Duration, Duration) = (8 << 20, Duration::from_millis(500), Duration::from_millis(100));

pub const ROLES: [(&str, fn()); 8] = [
    ("worker", worker),
    ("claimer", claimer),
    ("producer", producer),
    ("caller", caller),
    ("accountant", accountant),
    ("locker", locker),
    ("tender", tender),
    ("reader", reader),
];

/// A process that takes part.
struct Life {
    stopping: Arc<AtomicBool>,
    clock: Option<Clock>,
    delay: Arc<Delay>,
    notes: Arc<Observer>,
    random: fastrand::Rng,
}

/// A disk that is slow at times: each sync takes as long as it was told.
#[derive(Debug, Default)]
struct Delay(AtomicU64);

impl StorageHook for Delay {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        let delay_ms = self.0.load(Ordering::Relaxed);
        if delay_ms > 0 && operation == StorageOperation::Sync {
            thread::sleep(Duration::from_millis(delay_ms)); // waits: for a disk that is slow, which is the point
        }
        Ok(())
    }
}

impl Life {
    fn begin() -> Self {
        let seed = argument("seed").parse().unwrap();
        let shift = Arc::new(AtomicI64::new(0));
        let life = Self {
            stopping: Arc::default(),
            clock: (number_or("moves", 0) == 1).then(|| Clock::manual(Timestamp::now())),
            delay: Arc::default(),
            notes: Arc::new(Observer::open(&path_here("notes"))),
            random: fastrand::Rng::with_seed(seed),
        };
        let on = |line: &'static str, act: Box<dyn Fn() + Send>| {
            thread::spawn(move || {
                loop {
                    await_line(line);
                    act();
                }
            });
        };
        let stopping = life.stopping.clone();
        on("stop", Box::new(move || stopping.store(true, Ordering::SeqCst)));
        for (line, delay_ms) in [("slow", 30), ("quick", 0)] {
            let delay = life.delay.clone();
            on(line, Box::new(move || delay.0.store(delay_ms, Ordering::Relaxed)));
        }
        for (line, shift_ms) in [("ahead", HOUR_MS), ("behind", -HOUR_MS), ("day", 24 * HOUR_MS), ("right", 0)] {
            let shift = shift.clone();
            on(line, Box::new(move || shift.store(shift_ms, Ordering::Relaxed)));
        }
        if let Some(clock) = life.clock.clone() {
            thread::spawn(move || {
                loop {
                    let now = Timestamp::now().as_millis().saturating_add_signed(shift.load(Ordering::Relaxed));
                    clock.set(Timestamp::from_millis(now));
                    thread::sleep(Duration::from_millis(20)); // waits: for the time that this clock shows
                }
            });
        }
        life
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Opens the store, as often as it takes: the disk may be full, or whoever is asked stopped.
    fn open(&self, label: &str) -> Option<Store> {
        let (bytes, age, pause) = GROWTH;
        let mut options = options().label(label).storage_hook(self.delay.clone()).growth_limits(bytes, age, pause);
        options = options.timeout(Duration::from_secs(5));
        if let Some(clock) = &self.clock {
            options = options.clock(clock.clone());
        }
        let mut opened = None;
        while opened.is_none() && !self.is_stopping() {
            opened = self.well("open", options.open(path_here("disk/app.redb")));
        }
        if let Some(store) = &opened {
            say(format!("begun {}", u8::from(store.path().is_some())));
        }
        opened
    }

    /// What went well. What did not is noted for the judge, who knows which kinds may be; then a moment passes.
    fn well<T>(&self, what: &str, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| self.trouble(what, &error)).ok()
    }

    fn trouble(&self, what: &str, error: &Error) {
        let message = error.full_message().replace('\n', " ");
        self.notes.note(&format!("trouble {:?} {what}: {message}", error.kind()));
        thread::sleep(Duration::from_millis(10)); // waits: as whoever tries again should
    }
}

fn close(life: &Life, store: Store) {
    // A disk that is full by now, or a stone that was stopped: the next opener sees to what is left.
    life.well("close", store.close());
}

fn job(task: &str, args: u64) -> JobRequest {
    JobRequest::new(task, &args).max_attempts(ATTEMPTS)
}

/// What library workers run; each run is noted before it does anything.
pub fn tasks(notes: &Arc<Observer>) -> Registry {
    let mut tasks = Registry::new();
    let mut add = |id: &str, run: fn(&Job, u64) -> Result<(), TaskError>| {
        let notes = notes.clone();
        let run = move |job: &Job, args: u64| {
            notes.note(&format!("run {} {} {} {}", job.id(), job.token(), job.task(), std::process::id()));
            run(job, args)
        };
        tasks.register(id, run).unwrap().backoff(|_| Duration::from_millis(20));
    };
    add("note", |_, _| Ok(()));
    add("tended", |_, _| Ok(()));
    add("nap", |job, args| {
        job.progress(0.5, "half")?;
        thread::sleep(Duration::from_millis(args % 40)); // waits: as long as the work takes
        Ok(())
    });
    add("flaky", |job, args| {
        job.log("an attempt")?;
        if job.attempt() == 1 && args % 2 == 0 { Err(TaskError::failed("as planned")) } else { Ok(()) }
    });
    add("effect", |job, _| Ok(job.complete_in(|tx| tx.add(EFFECTS, 1))?));
    add("first", |job, _| Ok(job.enqueue(QUEUES[0], JobRequest::new("second", &job.id().to_string()))?));
    let seconds = notes.clone();
    let second = move |job: &Job, first: String| {
        seconds.note(&format!("run {} {} second {}", job.id(), job.token(), std::process::id()));
        seconds.note(&format!("second {first} {}", job.id()));
        Ok(())
    };
    tasks.register("second", second).unwrap();
    let ticks = notes.clone();
    let tick = move |job: &Job, (): ()| {
        let slot = job.metadata().iter().find(|(key, _)| key == "scheduled_for").map(|(_, slot)| slot.clone());
        ticks.note(&format!("run {} {} tick {}", job.id(), job.token(), std::process::id()));
        ticks.note(&format!("slot {} {}", slot.unwrap_or_default().replace(' ', "_"), job.id()));
        Ok(())
    };
    tasks.register("tick", tick).unwrap();
    tasks
}

/// Notes what a worker settles, and what should not be.
pub fn listen(notes: &Observer, event: &Event) {
    let pid = std::process::id();
    match event {
        Event::Completed { job, token } => notes.note(&format!("completed {job} {token} {pid}")),
        Event::LeaseLost { job, token } => notes.note(&format!("trouble LeaseLost {job} {token}")),
        Event::Failed { job, state, message } if message != "as planned" || *state == State::Dead => {
            notes.note(&format!("trouble Failed {job} {state}: {}", message.replace('\n', " ")));
        }
        Event::Trouble { doing, message } => {
            notes.note(&format!("trouble Worker {doing}: {}", message.replace('\n', " ")));
        }
        _ => {}
    }
}

/// The schedule of a round.
pub fn ticks(round: usize) -> Schedule {
    let tick = JobRequest::new("tick", &()).max_attempts(ATTEMPTS);
    Schedule::every(format!("tick-{round}"), Duration::from_millis(200), tick).queue(QUEUES[0]).catch_up(CatchUp::One)
}

/// A library worker, which stands for stone where somebody may.
fn worker() {
    let life = Life::begin();
    let Some(store) = life.open("worker") else { return };
    while !life.is_stopping() {
        let notes = life.notes.clone();
        let mut worker = Worker::new(&store).tasks(tasks(&notes)).concurrency(2);
        for queue in [QUEUES[0], QUEUES[3]] {
            worker = worker.queue(queue);
        }
        let worker = worker.listen(move |event| listen(&notes, event));
        let stop = worker.stop_handle();
        let stopping = life.stopping.clone();
        thread::spawn(move || {
            while !stopping.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5)); // waits: for the test's word
            }
            stop.stop();
        });
        // It can't begin on a disk that has no room for its session.
        life.well("work", worker.run());
    }
    close(&life, store);
}

/// Claims without a worker, and completes.
fn claimer() {
    let life = Life::begin();
    let Some(store) = life.open("claimer") else { return };
    let queue = store.queue(QUEUES[1]);
    let pid = std::process::id();
    while !life.is_stopping() {
        for lease in life.well("claim", queue.claim(5, Duration::from_millis(50))).unwrap_or_default() {
            if life.well("start", lease.start()).is_none() {
                continue;
            }
            life.notes.note(&format!("run {} {} claimed {pid}", lease.id(), lease.token()));
            if life.well("complete", lease.complete()).is_some() {
                life.notes.note(&format!("completed {} {} {pid}", lease.id(), lease.token()));
            }
        }
    }
    close(&life, store);
}

/// Enqueues in all ways, and notes the ids that were answered.
fn producer() {
    let mut life = Life::begin();
    let Some(store) = life.open("producer") else { return };
    let (soak, claims) = (store.queue(QUEUES[0]), store.queue(QUEUES[1]));
    for round in 0.. {
        if life.is_stopping() {
            break;
        }
        let is_full = |queue: &Queue| queue.stats().is_ok_and(|stats| stats.ready + stats.scheduled > READY_MAX);
        if round % 10 == 0 && (is_full(&soak) || is_full(&claims)) {
            thread::sleep(Duration::from_millis(20)); // waits: for those that claim, which are slower
            continue;
        }
        let number = life.random.u64(..);
        let enqueued = match life.random.u8(..12) {
            0 => soak.enqueue_batch((0..8).map(|_| job("note", number))),
            1 => soak.enqueue(job("nap", number)).map(|id| vec![id]),
            2 => soak.enqueue(job("flaky", number)).map(|id| vec![id]),
            3 => soak.enqueue(job("effect", number)).map(|id| vec![id]),
            4 => soak.enqueue(job("first", number)).map(|id| vec![id]),
            5 => soak.enqueue(job("note", number).delay(Duration::from_millis(number % 300))).map(|id| vec![id]),
            6 => soak.enqueue(job("note", number).priority(3)).map(|id| vec![id]),
            7 => soak.enqueue(job("note", number).unique(format!("only-{}", number % 50))).map(|id| vec![id]),
            8 => {
                soak.enqueue(job("note", number).concurrency_key(format!("customer-{}", number % 5))).map(|id| vec![id])
            }
            9 => claims.enqueue_batch((0..4).map(|_| job("note", number))),
            _ => claims.enqueue(job("note", number)).map(|id| vec![id]),
        };
        if let Some(ids) = life.well("enqueue", enqueued) {
            let lines: Vec<String> = ids.iter().map(|id| format!("acknowledged {id}")).collect();
            life.notes.note(&lines.join("\n"));
        }
        thread::sleep(Duration::from_millis(2)); // waits: so that what all do together is a steady load
    }
    close(&life, store);
}

/// Calls the binary, as shells do.
fn caller() {
    let mut life = Life::begin();
    say("begun 1");
    let path = path_here("disk/app.redb");
    let notes = path_here("notes").display().to_string();
    // The line is one write, as those of all others.
    let script = format!("echo \"run $CASQUE_JOB 0 command $$\" >> '{notes}'");
    while !life.is_stopping() {
        let args: &[&str] = match life.random.u8(..10) {
            0..3 => &["exec", "--queue", QUEUES[2], "--max-attempts", "1000000", "--", "sh", "-c", &script],
            3 | 4 => &["enqueue", "note", "--args", "7", "--queue", QUEUES[0], "--max-attempts", "1000000"],
            5 => &["stats", "--json"],
            6 => &["list", "--queue", QUEUES[0], "--limit", "20"],
            7 => &["sessions"],
            8 if life.random.u8(..8) == 0 => &["compact"],
            _ => &["lock", "shells", "--wait", "10s", "--", "true"],
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_casque"));
        command.args(args).env("CASQUE_STORE", &path).env("CASQUE_COMMITS", argument("commits"));
        let ran = command.stdin(Stdio::null()).output().unwrap();
        let stdout = String::from_utf8_lossy(&ran.stdout).into_owned();
        match ran.status.code() {
            Some(0) if args[0] == "exec" || args[0] == "enqueue" => {
                life.notes.note(&format!("acknowledged {}", stdout.trim()));
            }
            Some(0) => {}
            code => {
                let stderr = String::from_utf8_lossy(&ran.stderr).replace('\n', " ");
                life.notes.note(&format!("trouble Exit{} {}: {stderr}", code.unwrap_or(-1), args[0]));
            }
        }
    }
}

/// Adds blindly, and moves between accounts.
fn accountant() {
    let mut life = Life::begin();
    let Some(store) = life.open("accountant") else { return };
    while !life.is_stopping() {
        life.notes.note("adds");
        if life.well("add", store.add(SUM, 1)).is_some() {
            life.notes.note("added");
        }
        let from = life.random.usize(..ACCOUNTS.len());
        let to = (from + 1) % ACCOUNTS.len();
        let moved = store.transaction(|tx| {
            let (giver, taker): (i64, i64) = (tx.get(ACCOUNTS[from])?.unwrap(), tx.get(ACCOUNTS[to])?.unwrap());
            tx.put(ACCOUNTS[from], &(giver - 1))?;
            tx.put(ACCOUNTS[to], &(taker + 1))
        });
        life.well("move", moved);
        thread::sleep(Duration::from_millis(5)); // waits: so that what all do together is a steady load
    }
    close(&life, store);
}

/// Counts up under a named lock, by a reading and a writing that only the lock holds together.
fn locker() {
    let mut life = Life::begin();
    let Some(store) = life.open("locker") else { return };
    while !life.is_stopping() {
        let Some(held) = life.well("lock", store.lock_within("counting", Duration::from_secs(10))) else { continue };
        life.notes.note(&format!("fence {} {}", held.fence(), std::process::id()));
        if let Some(count) = life.well("read", store.get::<i64>(LOCKED)) {
            life.notes.note("counts");
            let count = count.unwrap_or(0) + 1;
            let counted = store.transaction(|tx| {
                tx.guard(&held);
                tx.put(LOCKED, &count)
            });
            if life.well("count", counted).is_some() {
                life.notes.note("counted");
            }
        }
        life.well("unlock", held.unlock());
        thread::sleep(Duration::from_millis(life.random.u64(..10))); // waits: so that others get the lock
    }
    close(&life, store);
}

/// Tends jobs as an operator does: calls some off, moves others, pauses a queue.
fn tender() {
    let mut life = Life::begin();
    let Some(store) = life.open("tender") else { return };
    let queue = store.queue(QUEUES[3]);
    while !life.is_stopping() {
        // Whoever was here before may have died in between.
        life.well("resume", queue.resume());
        let delay = Duration::from_millis(life.random.u64(..60));
        let Some(id) = life.well("enqueue", queue.enqueue(job("tended", 0).delay(delay))) else { continue };
        life.notes.note(&format!("acknowledged {id}"));
        thread::sleep(Duration::from_millis(life.random.u64(..20))); // waits: so that some have begun
        match life.random.u8(..6) {
            0 | 1 => {
                if life.well("cancel", may_be_over(store.cancel(id))).flatten() == Some(State::Cancelled) {
                    life.notes.note(&format!("cancelled {id}"));
                }
            }
            2 => _ = life.well("requeue", may_be_over(store.requeue(id))),
            3 => _ = life.well("retry", may_be_over(store.retry(id))),
            4 => _ = life.well("reschedule", may_be_over(store.reschedule(id).priority(5).commit())),
            _ => _ = life.well("pause", queue.pause()),
        }
    }
    life.well("resume", queue.resume());
    close(&life, store);
}

/// An operator may come too late.
fn may_be_over<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(error) if [ErrorKind::NotFound, ErrorKind::Conflict, ErrorKind::Invalid].contains(&error.kind()) => {
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}

/// Reads in all ways, and says where what it sees can't be.
fn reader() {
    let mut life = Life::begin();
    let Some(store) = life.open("reader") else { return };
    let mut seen = 0;
    while !life.is_stopping() {
        if let Some(version) = life.well("snapshot", look(&store, &life)) {
            if version < seen {
                life.notes.note(&format!("wrong version {version} is seen after {seen}"));
            }
            seen = version;
        }
        life.well("queues", store.queues());
        life.well("sessions", store.sessions());
        life.well("locks", store.locks());
        let filter = JobFilter::new().queue(QUEUES[0]);
        let last = life.well("list", store.jobs(&filter, 20)).and_then(|jobs| jobs.last().map(|job| job.id));
        if let Some(id) = last {
            life.well("show", may_be_over(store.job(id)));
            match store.wait_ended(id, Duration::from_millis(100)) {
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                outcome => _ = life.well("wait", may_be_over(outcome)),
            }
        }
        thread::sleep(Duration::from_millis(life.random.u64(..20))); // waits: as who polls does
    }
    close(&life, store);
}

/// A snapshot that is read for a while; one whose time is over refuses the rest. Gives its version.
fn look(store: &Store, life: &Life) -> Result<u64> {
    let snapshot = store.snapshot()?;
    let version = snapshot.version().0;
    let total = |kind: &str| -> Result<()> {
        let mut sum = 0;
        for account in ACCOUNTS {
            match snapshot.get::<i64>(account) {
                Err(error) if error.kind() == ErrorKind::Conflict => return Ok(()),
                read => sum += read?.unwrap_or(0),
            }
        }
        if sum != FUNDS * i64::try_from(ACCOUNTS.len()).unwrap() {
            life.notes.note(&format!("wrong {kind} snapshot of version {version} has {sum}"));
        }
        Ok(())
    };
    total("new")?;
    thread::sleep(Duration::from_millis(version % 60)); // waits: for changes that the snapshot must not see
    total("old")?;
    Ok(version)
}
