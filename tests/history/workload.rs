//! The processes that make the history: clients that do a random mix of everything by hand, and servers that commit
//! for them, where the mode has such, and keep the store in order.

use std::{
    collections::VecDeque,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use casque::{
    ErrorKind, JobRequest, Lease, Policy, Queue, Result, Store, Transaction, hooks::Step as CommitStep,
    types::LockGuard,
};

use super::{
    processes::{argument, await_line, close_here, die, freeze, number_or, options, path_here},
    record::{Answer, Call, Leased, Peeked, REGISTERS, Recorder, Settle, Step, Value, What},
};

pub const ROLES: [(&str, fn()); 2] = [("client", client), ("server", server)];

/// The queue of all jobs.
pub const QUEUE: &str = "default";
/// A counter beside the registers.
const COUNTER: &str = "counter";
const LOCKS: [&str; 2] = ["north", "south"];
/// How many leases a client has in hand, and how many lost ones it tries again.
const LEASES_MAX: usize = 4;
const STALE_MAX: usize = 4;

/// What the clients do most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    All,
    Root,
    Queue,
}

impl Mix {
    const ALL: [Self; 3] = [Self::All, Self::Root, Self::Queue];

    fn here() -> Self {
        let name = argument("mix");
        Self::ALL.into_iter().find(|mix| format!("{mix:?}") == name).unwrap()
    }

    /// How likely it is, of a hundred, that a client turns to the root, to the queue; else it turns to a lock.
    fn shares(self) -> (u32, u32) {
        match self {
            Self::All => (45, 45),
            Self::Root => (100, 0),
            Self::Queue => (4, 96),
        }
    }
}

fn key(register: usize) -> String {
    format!("register/{register}")
}

/// Opens the store. This process may have the plan to die at the n-th passage of a step of its commits.
fn open_to_die(last_words: impl Fn() + Send + Sync + 'static) -> Store {
    let (point, left) = (argument("point"), AtomicUsize::new(number_or("passages", 0)));
    let hook = move |step: CommitStep| {
        if format!("{step:?}") == point && left.fetch_sub(1, Ordering::SeqCst) == 1 {
            last_words();
            die();
        }
    };
    options().step_hook(hook).open(path_here("app.redb")).unwrap()
}

/// Commits for the others until told to leave.
fn server() {
    let store = open_to_die(|| ());
    let serving = store.serve().unwrap();
    let handing_over = store.clone();
    thread::spawn(move || {
        loop {
            await_line("hand over");
            handing_over.hand_over(freeze);
        }
    });
    await_line("leave");
    drop(serving);
    close_here(store);
}

/// A random mix, one call at a time, until told to stop; then it settles what it has in hand.
fn client() {
    let process = u32::try_from(number_or("process", 0)).unwrap();
    let recorder = Arc::new(Recorder::open(&path_here("history"), process));
    let dying = recorder.clone();
    let store = open_to_die(move || dying.note(process, 0, What::Interrupted));
    let mut client = Client {
        process,
        queue: store.queue(QUEUE),
        recorder,
        random: fastrand::Rng::with_seed(argument("seed").parse().unwrap()),
        made_up: 0,
        leases: Vec::new(),
        stale: VecDeque::new(),
        lock: None,
        store,
    };
    let (root, queue) = Mix::here().shares();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    thread::spawn(move || {
        await_line("stop");
        over.store(true, Ordering::SeqCst);
    });
    while !is_over.load(Ordering::SeqCst) {
        match client.random.u32(..100) {
            turn if turn < root => client.turn_to_root(),
            turn if turn < root + queue => client.turn_to_queue(),
            _ => client.turn_to_lock(),
        }
    }
    client.end();
}

struct Client {
    process: u32,
    store: Store,
    queue: Queue,
    recorder: Arc<Recorder>,
    random: fastrand::Rng,
    made_up: u64,
    leases: Vec<(Lease, u64)>,
    /// Leases that were settled or lost, and are settled once more.
    stale: VecDeque<(Lease, u64)>,
    lock: Option<LockGuard>,
}

impl Client {
    /// A number that no process has made up before.
    fn make_up(&mut self) -> u64 {
        self.made_up += 1;
        (u64::from(self.process) << 32) | self.made_up
    }

    fn turn_to_root(&mut self) {
        match self.random.u8(..10) {
            0..=2 => read_root(&self.store, &self.recorder),
            3 => {
                let (register, value) = (self.random.usize(..REGISTERS), Some(self.make_up()));
                self.blind(register, value);
            }
            4 if self.random.u8(..8) == 0 => {
                let register = self.random.usize(..REGISTERS);
                self.blind(register, None);
            }
            4 | 5 => {
                let step = Step { add: 1, ..Step::default() };
                self.recorder.call(Call::Root(step), |_| match self.store.add(COUNTER, 1) {
                    Ok(version) => Answer::Done(Some(version.0)),
                    Err(error) => Answer::of_error(&error),
                });
            }
            turn => {
                let plan = self.plan(turn == 9);
                self.recorder.call(Call::Root(Step::default()), |tried| {
                    answer(self.store.transaction(|tx| plan.follow(tx, Step::default(), tried)))
                });
            }
        }
    }

    /// What is under a register, whatever was there.
    fn blind(&self, register: usize, value: Value) {
        let step = Step { writes: vec![(register, value)], ..Step::default() };
        self.recorder.call(Call::Root(step), |_| {
            let version = match value {
                Some(value) => self.store.put(&key(register), &value).map(|version| Some(version.0)),
                // Where there is nothing to remove it has no version of its own.
                None => self.store.remove(&key(register)).map(|_| None),
            };
            version.map_or_else(|error| Answer::of_error(&error), Answer::Done)
        });
    }

    /// What a transaction is to read and write.
    fn plan(&mut self, lists: bool) -> Plan {
        let register = || self.random.usize(..REGISTERS);
        let mut registers: Vec<usize> = std::iter::repeat_with(register).take(3).collect();
        registers.dedup();
        let reads = if lists { None } else { Some(registers[..=registers.len() / 2].to_vec()) };
        let first = self.make_up();
        self.made_up += 64;
        Plan { reads, writes: registers.into_iter().take(2).collect(), next: first.into() }
    }

    fn turn_to_queue(&mut self) {
        match self.random.u8(..10) {
            0 | 1 => self.enqueue(),
            2..=4 if self.leases.len() < LEASES_MAX => self.claim(),
            5 if self.random.u8(..4) == 0 => {
                // Whoever has it by now.
                if let Some((lease, payload)) = self.stale.back() {
                    self.recorder.call(Call::Release(*payload), |_| match self.store.release(lease.id(), false) {
                        Err(error) if error.kind() == ErrorKind::Invalid => Answer::Not(error.full_message()),
                        outcome => answer(outcome),
                    });
                }
            }
            5 if !self.stale.is_empty() => {
                // The latest is the likeliest to be of a job that another has by now.
                let (lease, payload) = self.stale.pop_back().expect("it is not empty");
                self.settle(&lease, payload, true);
            }
            _ if !self.leases.is_empty() => {
                let (lease, payload) = self.leases.swap_remove(self.random.usize(..self.leases.len()));
                match self.random.u8(..8) {
                    0 | 1 => self.settle(&lease, payload, false),
                    2 | 3 => self.complete_in(&lease, payload),
                    _ => self.settle(&lease, payload, true),
                }
                self.stale.push_back((lease, payload));
                if self.stale.len() > STALE_MAX {
                    self.stale.pop_front();
                }
            }
            _ => self.claim(),
        }
    }

    fn enqueue(&mut self) {
        let count = if self.random.u8(..4) == 0 { 3 } else { 1 };
        let payloads: Vec<u64> = (0..count).map(|_| self.make_up()).collect();
        let jobs: Vec<JobRequest> =
            payloads.iter().map(|payload| JobRequest::new("by-hand", payload).max_attempts(1_000)).collect();
        self.recorder.call(Call::Enqueue(payloads), |_| match self.queue.enqueue_batch(jobs) {
            Ok(ids) => Answer::Enqueued(ids.iter().map(ToString::to_string).collect()),
            Err(error) => Answer::of_error(&error),
        });
    }

    fn claim(&mut self) {
        let (jobs, wait) = (1 + self.random.usize(..2), Duration::from_millis(self.random.u64(..5)));
        let claimed = if self.random.u8(..4) == 0 {
            claim(&self.recorder, || {
                let snapshot = self.store.snapshot()?;
                let mut view = snapshot.queue(QUEUE);
                Ok(if view.shift()?.is_some() { view.commit(Policy::Strict)? } else { Vec::new() })
            })
        } else {
            claim(&self.recorder, || self.queue.claim(jobs, wait))
        };
        for (lease, _) in &claimed {
            // One that has begun is charged if this process dies, and claimed alone the next time.
            if self.random.u8(..8) == 0 {
                lease.start().unwrap();
            }
        }
        self.leases.extend(claimed);
    }

    fn settle(&mut self, lease: &Lease, payload: u64, completes: bool) {
        let fails = self.random.bool();
        settle(&self.recorder, lease, payload, completes, fails);
    }

    fn complete_in(&mut self, lease: &Lease, payload: u64) {
        let plan = self.plan(false);
        let settled = Settle { payload, token: number(lease.token()), completes: true };
        self.recorder.call(Call::Root(Step { settle: Some(settled.clone()), ..Step::default() }), |tried| {
            let step = Step { settle: Some(settled), ..Step::default() };
            answer(lease.complete_in(|tx| plan.follow(tx, step.clone(), tried)))
        });
    }

    fn turn_to_lock(&mut self) {
        let Some(held) = self.lock.take() else {
            let name = LOCKS[self.random.usize(..LOCKS.len())];
            let patience = Duration::from_millis(20);
            self.recorder.call(Call::Lock(name.to_owned()), |_| match self.store.lock_within(name, patience) {
                Ok(held) => {
                    let fence = held.fence().number();
                    self.lock = Some(held);
                    Answer::Locked(fence)
                }
                Err(error) => Answer::of_error(&error),
            });
            return;
        };
        if self.random.u8(..3) == 0 {
            self.unlock(held);
            return;
        }
        let plan = self.plan(false);
        let guard = Some((held.name().to_owned(), held.fence().number()));
        self.recorder.call(Call::Root(Step { guard: guard.clone(), ..Step::default() }), |tried| {
            let step = Step { guard, ..Step::default() };
            answer(self.store.transaction(|tx| {
                tx.guard(&held);
                plan.follow(tx, step.clone(), tried)
            }))
        });
        self.lock = Some(held);
    }

    fn unlock(&self, held: LockGuard) {
        let call = Call::Unlock { lock: held.name().to_owned(), fence: held.fence().number() };
        self.recorder.call(call, |_| answer(held.unlock()));
    }

    fn end(mut self) {
        for (lease, payload) in std::mem::take(&mut self.leases) {
            self.settle(&lease, payload, true);
        }
        if let Some(held) = self.lock.take() {
            self.unlock(held);
        }
        drop((self.stale, self.queue));
        close_here(self.store);
    }
}

/// What a transaction does; values are made up anew for each try.
struct Plan {
    /// Nothing for all that there are, by a listing.
    reads: Option<Vec<usize>>,
    writes: Vec<usize>,
    next: std::cell::Cell<u64>,
}

impl Plan {
    fn follow(&self, tx: &mut Transaction, mut step: Step, tried: &dyn Fn(Step)) -> Result<()> {
        step.version = Some(tx.version().0);
        if let Some(registers) = &self.reads {
            for register in registers {
                step.reads.push((*register, tx.get(&key(*register))?));
            }
        } else {
            let found = tx.list::<u64>("register/")?;
            for register in 0..REGISTERS {
                let object = found.iter().find(|object| object.key == key(register));
                step.reads.push((register, object.map(|object| object.value)));
            }
        }
        for register in &self.writes {
            let value = self.next.get();
            self.next.set(value + 1);
            tx.put(&key(*register), &value)?;
            // The last of two writes to one register counts.
            step.writes.push((*register, Some(value)));
        }
        tried(step);
        Ok(())
    }
}

fn answer(outcome: Result<()>) -> Answer {
    outcome.map_or_else(|error| Answer::of_error(&error), |()| Answer::Done(None))
}

fn number(token: casque::types::Token) -> u64 {
    token.to_string().parse().unwrap()
}

/// All registers and the counter, on one snapshot.
pub fn read_root(store: &Store, recorder: &Recorder) {
    recorder.call(Call::Root(Step::default()), |tried| {
        let read = || {
            let snapshot = store.snapshot()?;
            let mut step = Step { version: Some(snapshot.version().0), ..Step::default() };
            for register in 0..REGISTERS {
                step.reads.push((register, snapshot.get(&key(register))?));
            }
            step.count = Some(snapshot.get(COUNTER)?.unwrap_or(0));
            tried(step);
            Ok(())
        };
        answer(read())
    });
}

/// Claims; gives the leases with their jobs' arguments.
pub fn claim(recorder: &Recorder, claim: impl FnOnce() -> Result<Vec<Lease>>) -> Vec<(Lease, u64)> {
    let mut leases = Vec::new();
    recorder.call(Call::Claim, |_| match claim() {
        Ok(claimed) => {
            leases = claimed.into_iter().map(|lease| (lease.args::<u64>().unwrap(), lease)).collect();
            let lease_of = |(payload, lease): &(u64, Lease)| Leased {
                payload: *payload,
                id: lease.id().to_string(),
                token: number(lease.token()),
            };
            Answer::Claimed(leases.iter().map(lease_of).collect())
        }
        Err(error) => Answer::of_error(&error),
    });
    leases.into_iter().map(|(payload, lease)| (lease, payload)).collect()
}

/// Looks at the queue as a monitor does, from a process of the command line.
pub fn peek(store: &Path, recorder: &Recorder) {
    let Some(program) = option_env!("CARGO_BIN_EXE_casque") else { return };
    recorder.call(Call::Peek, |_| {
        let output = Command::new(program).arg("--store").arg(store).args(["stats", "--json"]).output().unwrap();
        if !output.status.success() {
            return Answer::Wrong(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        let mut peeked = Peeked::default();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |name: &str| line[name].as_u64().unwrap_or(0);
            let states = ["waiting", "scheduled", "ready", "running", "completed", "dead", "cancelled"];
            peeked.version += number("version");
            peeked.jobs += states.map(number).iter().sum::<u64>();
            peeked.completed += number("completed");
        }
        Answer::Peeked(peeked)
    });
}

/// Ends a lease; what is not completed fails, or is released, and can be claimed at once.
pub fn settle(recorder: &Recorder, lease: &Lease, payload: u64, completes: bool, fails: bool) {
    let call = Call::Settle(Settle { payload, token: number(lease.token()), completes });
    recorder.call(call, |_| {
        answer(match (completes, fails) {
            (true, _) => lease.complete(),
            (false, true) => lease.fail("on purpose", Some(Duration::ZERO)),
            (false, false) => lease.release(),
        })
    });
}
