//! A run: the processes, what is done to them meanwhile, and the verdict on the history that they leave.

use std::{
    os::unix::process::ExitStatusExt as _,
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use casque::Store;

use super::{
    judge::{Figures, judge},
    processes::{Actor, Committer, Scene, assert_sound, until},
    record::{Reader, Recorder, What},
    workload::{Mix, QUEUE, claim, peek, read_root, settle},
};

/// The lease time of the store.
const LEASE: Duration = Duration::from_secs(1);
/// How long a client is stopped that is to lose what it holds.
const STOP: Duration = Duration::from_millis(1_700);
/// How often a run looks whether it is over.
const TICK: Duration = Duration::from_millis(10);
/// Where a server may die by its plan, and a client, in a commit of its own.
const SERVERS_POINTS: [&str; 5] = ["none", "Applied", "Appended", "Written", "Flushing"];
const CLIENTS_POINTS: [&str; 5] = ["none", "BeforeLock", "Locked", "Applied", "Written"];
/// How many passages of such a step a client lives at most.
const CLIENTS_PASSAGES: usize = 400;

/// What is run, and how much is done to it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub committer: Committer,
    pub seed: u64,
    pub length: Duration,
    pub mix: Mix,
    pub clients: usize,
    pub servers: usize,
    /// About how long a client is left alone, and a server; nothing for ever.
    pub clients_live: Option<Duration>,
    pub servers_live: Option<Duration>,
    /// How many passages of the step that it is to die at a server lives at most.
    pub passages: usize,
    /// Whether the run ends as soon as the history is seen to be wrong.
    pub ends_early: bool,
    pub environment: Vec<(String, String)>,
}

impl Plan {
    pub fn new(committer: Committer, seed: u64, length: Duration) -> Self {
        Self {
            committer,
            seed,
            length,
            mix: Mix::All,
            clients: 4,
            servers: if committer == Committer::Itself { 1 } else { 2 },
            clients_live: Some(Duration::from_millis(400)),
            servers_live: Some(Duration::from_millis(500)),
            passages: 300,
            ends_early: false,
            environment: Vec::new(),
        }
    }
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    pub figures: Figures,
    pub faults: Faults,
    pub wrong: Vec<String>,
    pub took: Duration,
}

/// What was done to the processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub clients_killed: usize,
    /// By their own plan, at a step of a commit.
    pub clients_died: usize,
    pub clients_stopped: usize,
    pub servers_killed: usize,
    /// By their own plan.
    pub servers_died: usize,
    pub servers_stopped: usize,
    pub handed_over: usize,
}

impl std::ops::AddAssign for Faults {
    fn add_assign(&mut self, other: Self) {
        self.clients_killed += other.clients_killed;
        self.clients_died += other.clients_died;
        self.clients_stopped += other.clients_stopped;
        self.servers_killed += other.servers_killed;
        self.servers_died += other.servers_died;
        self.servers_stopped += other.servers_stopped;
        self.handed_over += other.handed_over;
    }
}

struct Run {
    plan: Plan,
    scene: Scene,
    recorder: Recorder,
    is_over: AtomicBool,
    next_process: AtomicU32,
    next_seed: AtomicUsize,
    faults: Mutex<Faults>,
    ends: Mutex<Vec<String>>,
}

/// Runs it to its end, or until it is seen to be wrong where that is enough.
pub fn run(plan: &Plan) -> Outcome {
    let begun = Instant::now();
    let scene = Scene::by(plan.committer);
    let history = scene.path("history");
    let store = scene.store();
    store.configure("lease", LEASE.as_millis().try_into().unwrap()).unwrap();
    let recorder = Recorder::open(&history, 0);
    let run = Run {
        plan: plan.clone(),
        scene,
        recorder,
        is_over: AtomicBool::new(false),
        next_process: AtomicU32::new(1),
        next_seed: AtomicUsize::new(0),
        faults: Mutex::default(),
        ends: Mutex::default(),
    };
    let mut wrong = run.play(&store, &history);
    if run.plan.ends_early {
        // What the store is like after a planted bug is nobody's concern.
        store.close().unwrap();
        let (figures, _) = judge(&Reader::whole(&history), false);
        return Outcome { figures, faults: *run.faults(), wrong, took: begun.elapsed() };
    }
    wrong.append(&mut run.ends());
    run.drain(&store);
    let lines = Reader::whole(&history);
    let (figures, found) = judge(&lines, true);
    wrong.extend(found);
    assert_sound(&store);
    store.close().unwrap();
    if !wrong.is_empty() {
        let kept = std::env::temp_dir().join(format!("casque-history-{}", std::process::id()));
        std::fs::copy(&history, &kept).unwrap();
        println!("the history is kept: {}", kept.display());
    }
    Outcome { figures, faults: *run.faults(), wrong, took: begun.elapsed() }
}

impl Run {
    /// All that happens while clients call; what the history was seen to be wrong in, and what the peeks were.
    fn play(&self, store: &Store, history: &Path) -> Vec<String> {
        let servers: Vec<Actor> = (0..self.plan.servers).map(|_| self.start_server(false)).collect();
        let clients: Vec<(u32, Actor)> = (0..self.plan.clients).map(|_| self.start_client()).collect();
        thread::scope(|scope| {
            let of_clients = scope.spawn(|| self.trouble_clients(clients));
            let of_servers = scope.spawn(|| self.trouble_servers(servers, store));
            let of_peeks = scope.spawn(|| self.peek());
            let wrong = self.watch(history);
            self.is_over.store(true, Ordering::SeqCst);
            let mut clients = of_clients.join().unwrap();
            if wrong.is_empty() {
                clients.iter_mut().for_each(|(_, client)| client.tell("stop"));
                clients.iter_mut().for_each(|(_, client)| self.check_end(client));
            } else {
                drop(clients);
            }
            let mut servers = of_servers.join().unwrap();
            if wrong.is_empty() {
                servers.iter_mut().for_each(|server| server.tell("leave"));
                servers.iter_mut().for_each(|server| self.check_end(server));
            }
            of_peeks.join().unwrap();
            if wrong.is_empty() {
                read_root(store, &self.recorder);
            }
            wrong
        })
    }

    /// Waits for the end; where that is enough, only until the history is wrong.
    fn watch(&self, history: &Path) -> Vec<String> {
        let begun = Instant::now();
        let mut reader = Reader::open(history);
        let mut next = begun;
        while begun.elapsed() < self.plan.length {
            thread::sleep(TICK); // waits: for that much load, which is the point
            if self.plan.ends_early && Instant::now() >= next {
                reader.read_on();
                let looked = Instant::now();
                let (_, mut wrong) = judge(&reader.lines, false);
                wrong.append(&mut self.ends());
                if !wrong.is_empty() {
                    return wrong;
                }
                // It is looked at for a third of the time at most.
                next = Instant::now() + (2 * looked.elapsed()).max(Duration::from_millis(200));
            }
        }
        Vec::new()
    }

    /// Waits until a process has ended, which may be well, or by a kill of ours or its own.
    fn check_end(&self, actor: &mut Actor) {
        until("a process to end", || actor.has_ended().then_some(()));
        let status = actor.wait();
        if !status.success() && status.signal() != Some(9) {
            self.ends().push(format!("process: {} ended with {status}", actor.pid()));
        }
    }

    /// Processes that ended as none should.
    fn ends(&self) -> MutexGuard<'_, Vec<String>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random(&self) -> fastrand::Rng {
        let number = self.next_seed.fetch_add(1, Ordering::SeqCst) as u64;
        fastrand::Rng::with_seed(self.plan.seed.wrapping_mul(1_000_003).wrapping_add(number))
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, role: &str, arguments: &[(&str, &str)]) -> Actor {
        let environment: Vec<(&str, &str)> =
            self.plan.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.scene.actor_in(&environment, role, arguments)
    }

    /// Does not wait until it has begun: that may take until one goes on which is stopped, and holds the writer's lock.
    fn start_client(&self) -> (u32, Actor) {
        let process = self.next_process.fetch_add(1, Ordering::SeqCst);
        let (seed, mix) = (self.random().u64(..).to_string(), format!("{:?}", self.plan.mix));
        let (point, passages) = self.fate(self.plan.clients_live.is_some(), &CLIENTS_POINTS, CLIENTS_PASSAGES);
        let process_named = process.to_string();
        let arguments = [
            ("process", process_named.as_str()),
            ("seed", &seed),
            ("mix", &mix),
            ("point", point),
            ("passages", &passages),
        ];
        (process, self.start("client", &arguments))
    }

    fn start_server(&self, may_die: bool) -> Actor {
        let (point, passages) = self.fate(may_die, &SERVERS_POINTS, self.plan.passages);
        self.start("server", &[("point", point), ("passages", &passages)])
    }

    /// Where a process is to die by its plan, and at which passage.
    fn fate(&self, may_die: bool, points: &[&'static str], passages_max: usize) -> (&'static str, String) {
        let mut random = self.random();
        let point = if may_die { points[random.usize(..points.len())] } else { points[0] };
        (point, (1 + random.usize(..passages_max)).to_string())
    }

    /// Waits about so long; whether the run is over by then.
    fn pause(&self, about: Duration, random: &mut fastrand::Rng) -> bool {
        let until = Instant::now() + about.mul_f64(0.5 + random.f64());
        while Instant::now() < until && !self.is_over.load(Ordering::SeqCst) {
            thread::sleep(TICK); // waits: until the next fault, which comes at a random time
        }
        self.is_over.load(Ordering::SeqCst)
    }

    /// kill -9 of clients, and SIGSTOP for so long that what they hold is taken from them.
    fn trouble_clients(&self, mut clients: Vec<(u32, Actor)>) -> Vec<(u32, Actor)> {
        let Some(live) = self.plan.clients_live else { return clients };
        let mut random = self.random();
        let mut stopped: Option<(usize, Instant)> = None;
        loop {
            let is_over = self.pause(live, &mut random);
            if let Some((at, _)) = stopped.take_if(|(_, since)| is_over || since.elapsed() > STOP) {
                clients[at].1.go_on();
                self.recorder.note(clients[at].0, 0, What::GoesOn);
            }
            for client in &mut clients {
                if client.1.has_ended() {
                    self.check_end(&mut client.1);
                    self.faults().clients_died += 1;
                    *client = self.start_client();
                }
            }
            if is_over {
                return clients;
            }
            let at = random.usize(..clients.len());
            if stopped.is_some_and(|(stopped, _)| stopped == at) {
                continue;
            }
            let (process, client) = &mut clients[at];
            self.recorder.sync();
            self.recorder.note(*process, 0, What::Interrupted);
            if stopped.is_none() && random.u8(..3) == 0 {
                if client.stop_if_there() {
                    stopped = Some((at, Instant::now()));
                }
                self.faults().clients_stopped += 1;
            } else {
                client.kill();
                clients[at] = self.start_client();
                self.faults().clients_killed += 1;
            }
        }
    }

    /// kill -9 of servers, or SIGSTOP and then either; some die by their plan, some leave, some hand over.
    fn trouble_servers(&self, mut servers: Vec<Actor>, store: &Store) -> Vec<Actor> {
        let Some(live) = self.plan.servers_live else { return servers };
        let mut random = self.random();
        while !self.pause(live, &mut random) {
            self.recorder.sync();
            for server in &mut servers {
                if server.has_ended() {
                    self.check_end(server);
                    self.faults().servers_died += 1;
                    *server = self.start_server(true);
                }
            }
            let serving = store.stone();
            let at = servers.iter().position(|server| Some(server.pid()) == serving);
            let at = at.unwrap_or_else(|| random.usize(..servers.len()));
            let server = &mut servers[at];
            match random.u8(..8) {
                0 => {
                    if server.stop_if_there() {
                        self.pause(Duration::from_millis(200), &mut random);
                        self.faults().servers_stopped += 1;
                        server.go_on();
                    }
                    continue;
                }
                1 => {
                    server.stop_if_there();
                    self.pause(Duration::from_millis(200), &mut random);
                    server.kill();
                    self.faults().servers_stopped += 1;
                    self.faults().servers_killed += 1;
                }
                2 | 3 => {
                    server.tell("leave");
                    self.check_end(server);
                    self.faults().handed_over += 1;
                }
                4 => {
                    server.tell("hand over");
                    if server.await_stopped_or_ended() {
                        self.pause(Duration::from_millis(200), &mut random);
                        self.faults().handed_over += 1;
                        server.go_on();
                    }
                    continue;
                }
                _ => {
                    server.kill();
                    self.faults().servers_killed += 1;
                }
            }
            servers[at] = self.start_server(true);
        }
        servers
    }

    /// Looks as a monitor does.
    fn peek(&self) {
        let mut random = self.random();
        while !self.plan.ends_early && !self.pause(Duration::from_millis(200), &mut random) {
            peek(&self.scene.store_path(), &self.recorder);
        }
    }

    /// Completes all that is left, as one more client of the history.
    fn drain(&self, store: &Store) {
        let serving = store.serve().unwrap();
        let queue = store.queue(QUEUE);
        until("all jobs to be completed", || {
            for (lease, payload) in claim(&self.recorder, || queue.claim(100, Duration::ZERO)) {
                settle(&self.recorder, &lease, payload, true, false);
            }
            let stats = queue.stats().unwrap();
            (stats.ready + stats.running + stats.scheduled + stats.waiting == 0).then_some(())
        });
        read_root(store, &self.recorder);
        drop(serving);
    }
}
