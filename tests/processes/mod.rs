//! Real processes for tests: a test starts its own executable again as an *actor*, and the two talk in lines.
//!
//! A test file has one `#[test] fn actor()`, which calls [`play`]: it returns at once in a normal run, and in an actor
//! it plays the role that the test asked for. Everybody waits for what another says or for what the store shows, with
//! a deadline that only a hang reaches; nothing here relies on how long something takes.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Condvar, Mutex, OnceLock, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use casque::{Event, Job, JobId, Store, StoreOptions, hooks::CommitsByPath, types::Commits};
use rustix::process::{Pid, Signal, getpid, kill_process};

/// How long anything may take before the test gives it up for hung.
pub const DEADLINE: Duration = Duration::from_secs(100);

const ROLE: &str = "CASQUE_TEST_ACTOR";
const ARGUMENT: &str = "CASQUE_TEST_ARG_";
/// What tells an actor that it may go on after it was stopped.
const GO_ON: &str = "go on";
/// What tells an actor's lines from those of the test harness that it runs in.
const MARK: &str = "@ ";
/// Where actors tell by which paths they committed.
const PATHS: &str = "paths";
/// How much of the memory's file system must be free to be used.
const ROOM_BYTES: u64 = 2 << 30;

/// Who commits for the processes of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committer {
    /// Each process for itself.
    Itself,
    /// A worker's process for all, with its log.
    Worker,
    /// The same without the log.
    WorkerWithoutLog,
    /// A process that does nothing else, with its log.
    Server,
}

impl Committer {
    const ALL: [Self; 4] = [Self::Itself, Self::Worker, Self::WorkerWithoutLog, Self::Server];

    /// As the test asked of its actors; else as the name of the test's binary says.
    fn here() -> Self {
        let default = if env!("CARGO_CRATE_NAME") == "direct" { Self::Itself } else { Self::Worker };
        let asked = std::env::var(format!("{ARGUMENT}committer"));
        asked.map_or(default, |asked| Self::ALL.into_iter().find(|one| one.name() == asked).unwrap())
    }

    fn name(self) -> String {
        format!("{self:?}")
    }

    pub fn options(self) -> StoreOptions {
        StoreOptions::new().commits(match self {
            Self::Itself => Commits::DirectOnly,
            Self::Worker | Self::Server => Commits::Logged,
            Self::WorkerWithoutLog => Commits::Unlogged,
        })
    }
}

/// How a test and its actors open a store.
pub fn options() -> StoreOptions {
    Committer::here().options()
}

// What a test does with its actors.

/// A process that plays a role. Dropping it kills it.
pub struct Actor {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    inbox: Receiver<String>,
    unread: Vec<String>,
    errors: Receiver<String>,
}

impl Actor {
    /// Starts this executable again, to play a role with named arguments.
    pub fn start(role: &str, arguments: &[(&str, &str)]) -> Self {
        Self::start_in(&[], role, arguments)
    }

    /// The same, with more in its environment.
    pub fn start_in(environment: &[(&str, &str)], role: &str, arguments: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // This module's path: the test binary's name, perhaps the file that it has in it, and `processes`.
        let (_, path) = module_path!().split_once("::").unwrap();
        let actor = format!("{}actor", path.strip_suffix("processes").unwrap());
        command.args([&actor, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
        for (name, value) in arguments {
            command.env(format!("{ARGUMENT}{name}"), value);
        }
        command.envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let name = format!("{role} {}", child.id());
        let (said, inbox) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some(text) = line.strip_prefix(MARK) {
                    let _ = said.send(text.to_owned());
                }
            }
        });
        let (failed, errors) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let prefix = name.clone();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                eprintln!("[{prefix}] {line}");
                let _ = failed.send(line);
            }
        });
        let stdin = child.stdin.take();
        Self { name, child, stdin, inbox, unread: Vec::new(), errors }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line; an actor that is gone misses it.
    pub fn tell(&mut self, line: &str) {
        let _ = self.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes());
    }

    /// Waits for a line that begins with this word, and gives what follows it. Other lines are kept for later.
    pub fn expect(&mut self, word: &str) -> String {
        let begun = Instant::now();
        loop {
            if let Some(rest) = self.said(word) {
                return rest;
            }
            let heard = self.inbox.recv_timeout(DEADLINE.saturating_sub(begun.elapsed()));
            match heard {
                Ok(line) => self.unread.push(line),
                Err(why) => panic!("{} did not say \"{word}\" ({why}), but {:?}", self.name, self.unread),
            }
        }
    }

    /// The next line, if there is one within this time: `Some(None)` says that there will be no more.
    #[allow(clippy::option_option, reason = "not yet, and never")]
    pub fn line_within(&mut self, patience: Duration) -> Option<Option<String>> {
        match self.inbox.recv_timeout(patience) {
            Ok(line) => Some(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Some(None),
            Err(RecvTimeoutError::Timeout) => None,
        }
    }

    /// A line that begins with this word, if it was said already and nobody has asked for it; gives what follows.
    pub fn said(&mut self, word: &str) -> Option<String> {
        self.unread.extend(self.inbox.try_iter());
        let at = self.unread.iter().position(|line| strip_word(line, word).is_some())?;
        let line = self.unread.remove(at);
        strip_word(&line, word).map(str::to_owned)
    }

    /// Waits until the actor has ended by itself, well; gives the lines that nobody has asked for.
    pub fn finish(self) -> Vec<String> {
        self.finish_with_errors().0
    }

    /// As [`Actor::finish`]; gives all that it wrote to stderr, too.
    pub fn finish_with_errors(mut self) -> (Vec<String>, Vec<String>) {
        let begun = Instant::now();
        let mut lines = std::mem::take(&mut self.unread);
        loop {
            match self.inbox.recv_timeout(DEADLINE.saturating_sub(begun.elapsed())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{} does not end; it said {lines:?}", self.name),
            }
        }
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{} ended with {status}; it said {lines:?}", self.name);
        (lines, self.errors.iter().collect())
    }

    /// Waits until it has ended, however that is.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Whether it has ended, however that is.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// SIGKILL; when this returns, the process is gone and its locks are free.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGSTOP; when this returns, all its threads have stopped.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        self.await_stopped();
    }

    /// As [`Actor::stop`], for one that may end by itself; whether it has not.
    pub fn stop_if_there(&mut self) -> bool {
        if self.has_ended() {
            return false;
        }
        self.signal(Signal::STOP);
        self.await_stopped_or_ended()
    }

    /// Waits until the process has stopped, or has ended by itself; whether it has not ended.
    pub fn await_stopped_or_ended(&mut self) -> bool {
        until("the process to stop or end", || {
            if self.has_ended() { Some(false) } else { is_stopped(self.pid()).then_some(true) }
        })
    }

    /// Waits until the process has stopped itself.
    pub fn await_stopped(&self) {
        until("the process to stop", || is_stopped(self.pid()).then_some(()));
    }

    /// SIGCONT.
    pub fn go_on(&mut self) {
        self.signal(Signal::CONT);
        self.tell(GO_ON);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

/// Waits until each has said a line that begins with this word.
pub fn expect_all(actors: &mut [Actor], word: &str) {
    for actor in actors {
        actor.expect(word);
    }
}

/// Sends each the same line.
pub fn tell_all(actors: &mut [Actor], line: &str) {
    for actor in actors {
        actor.tell(line);
    }
}

/// Waits until each has ended by itself, well; gives the lines that nobody has asked for.
pub fn finish_all(actors: Vec<Actor>) -> Vec<String> {
    actors.into_iter().flat_map(Actor::finish).collect()
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn strip_word<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(word)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(' ') }
}

/// All threads of a process are stopped. A process whose main thread is stopped may have others that still run.
pub fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.filter_map(Result::ok).all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
    })
}

/// Looks again and again until there is something to see.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < DEADLINE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(2)); // waits: for what other processes do
    }
}

// What an actor does.

/// Plays the role that this process was started for, and ends the process; returns where it was started for none.
pub fn play(roles: &[(&str, fn())]) {
    let Ok(role) = std::env::var(ROLE) else { return };
    thread::spawn(|| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            heard().0.lock().unwrap().push(line);
            heard().1.notify_all();
        }
        // Whoever started this process is gone.
        std::process::exit(3);
    });
    let (_, act) = roles.iter().chain(&[("stone", stone as fn())]).find(|(name, _)| *name == role).expect("a role");
    act();
    std::process::exit(0);
}

/// Commits for whoever asks, until told to leave.
fn stone() {
    let store = store_here();
    let serving = store.serve().unwrap();
    until("the seat", || (store.stone()? == std::process::id()).then_some(()));
    say("serves");
    await_line("leave");
    drop(serving);
    close_here(store);
}

/// What the test gave under that name.
pub fn argument(name: &str) -> String {
    std::env::var(format!("{ARGUMENT}{name}")).unwrap_or_else(|_| panic!("the test gives no \"{name}\""))
}

/// The number that the test gave under that name; without one, this.
pub fn number_or(name: &str, default: usize) -> usize {
    std::env::var(format!("{ARGUMENT}{name}")).map_or(default, |value| value.parse().unwrap())
}

/// Says a line to the test.
pub fn say(text: impl AsRef<str>) {
    // The test harness may have left a line begun.
    let line = format!("\n{MARK}{}\n", text.as_ref());
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
}

static HEARD: OnceLock<(Mutex<Vec<String>>, Condvar)> = OnceLock::new();

fn heard() -> &'static (Mutex<Vec<String>>, Condvar) {
    HEARD.get_or_init(Default::default)
}

/// Waits until the test says this line, and takes it.
pub fn await_line(line: &str) {
    let (lines, changed) = heard();
    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(at) = lines.iter().position(|heard| heard == line) {
            lines.remove(at);
            return;
        }
        lines = changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Kills this process by SIGKILL, and never returns.
pub fn die() -> ! {
    kill_process(getpid(), Signal::KILL).unwrap();
    loop {
        thread::park();
    }
}

/// Stops this process by SIGSTOP; returns after [`Actor::go_on`].
pub fn freeze() {
    kill_process(getpid(), Signal::STOP).unwrap();
    // The signal may stop the other threads first: this one does not get any further before it does.
    await_line(GO_ON);
}

/// Says a worker's events, those that tests wait for.
pub fn say_event(event: &Event) {
    match event {
        Event::Claimed { jobs, token } => say(format!("claimed {token} {}", words(jobs))),
        Event::Hijacked(hijack) => {
            let by = hijack.by.as_ref().map(ToString::to_string).unwrap_or_default();
            say(format!("hijacked {} {by}", hijack.job));
        }
        Event::HijackedStrictly(conflict) => say(format!("conflict {conflict}")),
        Event::Started { job, attempt, token, .. } => say(format!("started {job} {token} {attempt}")),
        Event::Completed { job, token } => say(format!("completed {job} {token}")),
        Event::Failed { job, state, message } => say(format!("failed {job} {state} {message}")),
        Event::GivenBack { job, state } => say(format!("given-back {job} {state}")),
        Event::LeaseLost { job, .. } => say(format!("lease-lost {job}")),
        Event::Recovered { jobs, .. } => say(format!("recovered {}", words(jobs))),
        Event::Trouble { doing, message } => say(format!("trouble {doing}: {message}")),
        _ => {}
    }
}

/// Ids with spaces between them.
pub fn words(jobs: &[JobId]) -> String {
    jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

// What both share.

/// A file outside of the store, to which each process appends lines, each by one write.
pub struct Observer {
    file: File,
    path: PathBuf,
}

impl Observer {
    pub fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        Self { file, path: path.to_owned() }
    }

    pub fn note(&self, line: &str) {
        (&self.file).write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Notes that a handler runs: job, token, pid.
    pub fn note_run(&self, job: &Job) {
        self.note(&format!("{} {} {}", job.id(), job.token(), std::process::id()));
    }

    pub fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.path).unwrap().lines().map(str::to_owned).collect()
    }

    /// The jobs of the runs that were noted, in order.
    pub fn jobs(&self) -> Vec<String> {
        self.lines().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }
}

/// A folder for a test, with a store's path and an observer's in it. Dropping it checks by which paths its processes
/// committed.
pub struct Scene {
    committer: Committer,
    server: Mutex<Option<Actor>>,
    folder: tempfile::TempDir,
}

impl Scene {
    pub fn new() -> Self {
        Self::by(Committer::here())
    }

    pub fn by(committer: Committer) -> Self {
        Self::in_folder(committer, tempfile::tempdir().unwrap())
    }

    /// Where a worker would commit for the others a process does that is never stopped: for tests that stop workers.
    pub fn with_server() -> Self {
        Self::by(if Committer::here() == Committer::Itself { Committer::Itself } else { Committer::Server })
    }

    /// On no disk, where there is such a place with enough room: for tests that ask nothing of a disk, whose syncs
    /// would be most of their time.
    pub fn without_disk(committer: Committer) -> Self {
        const MEMORY: &str = "/dev/shm";
        let has_room =
            rustix::fs::statvfs(MEMORY).is_ok_and(|room| room.f_bavail.saturating_mul(room.f_frsize) >= ROOM_BYTES);
        let folder = if has_room { tempfile::tempdir_in(MEMORY) } else { tempfile::tempdir() };
        Self::in_folder(committer, folder.unwrap())
    }

    fn in_folder(committer: Committer, folder: tempfile::TempDir) -> Self {
        let scene = Self { committer, server: Mutex::new(None), folder };
        if committer == Committer::Server {
            let mut server = scene.actor("stone", &[]);
            server.expect("serves");
            *scene.server.lock().unwrap() = Some(server);
        }
        scene
    }

    pub fn committer(&self) -> Committer {
        self.committer
    }

    /// The process that serves, where the scene has one.
    pub fn server(&self) -> Option<u32> {
        self.server.lock().unwrap().as_ref().map(Actor::pid)
    }

    /// How a test opens the store of this scene.
    pub fn options(&self) -> StoreOptions {
        self.committer.options()
    }

    /// Has the process that serves leave, if there is one, and gives the commits of those that told, by path: direct,
    /// own stone, another's stone. Those of processes that were killed are not among them.
    ///
    /// # Panics
    /// If they do not fit who was to commit.
    pub fn check_paths(&self) -> [u64; 3] {
        let server = self.server.lock().unwrap().take();
        if let Some(mut server) = server {
            server.tell("leave");
            server.finish();
        }
        let told = fs::read_to_string(self.path(PATHS)).unwrap_or_default();
        let mut all = [0; 3];
        for line in told.lines() {
            for (sum, count) in all.iter_mut().zip(line.split(' ')) {
                *sum += count.parse::<u64>().unwrap();
            }
        }
        let [direct, own, other] = all;
        println!("{:?}: commits: {direct} direct, {own} as the stone, {other} by another's stone", self.committer);
        match self.committer {
            Committer::Itself => assert_eq!([own, other], [0; 2], "a process asked a stone"),
            Committer::Server => assert_eq!(direct, 0, "a process did not ask the stone"),
            Committer::Worker | Committer::WorkerWithoutLog => {}
        }
        all
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn store_path(&self) -> PathBuf {
        self.path("app.redb")
    }

    pub fn store(&self) -> Store {
        self.options().open(self.store_path()).unwrap()
    }

    pub fn observer(&self) -> Observer {
        Observer::open(&self.path("runs"))
    }

    /// Starts an actor that finds this folder under `folder`.
    pub fn actor(&self, role: &str, arguments: &[(&str, &str)]) -> Actor {
        self.actor_in(&[], role, arguments)
    }

    /// The same, with more in its environment.
    pub fn actor_in(&self, environment: &[(&str, &str)], role: &str, arguments: &[(&str, &str)]) -> Actor {
        let committer = self.committer.name();
        let mut all = vec![("folder", self.folder.path().to_str().unwrap()), ("committer", committer.as_str())];
        all.extend_from_slice(arguments);
        Actor::start_in(environment, role, &all)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("the test's folder is kept: {}", self.folder.path().display());
        } else {
            self.check_paths();
        }
    }
}

/// A path in the folder that the test gave its actor.
pub fn path_here(name: &str) -> PathBuf {
    PathBuf::from(argument("folder")).join(name)
}

/// The store that the test gave its actor.
pub fn store_here() -> Store {
    options().open(path_here("app.redb")).unwrap()
}

/// Closes an actor's store, and tells the scene by which paths this process committed.
pub fn close_here(store: Store) {
    let CommitsByPath { direct, own_stone, stone } = store.commits_by_path();
    store.close().unwrap();
    Observer::open(&path_here(PATHS)).note(&format!("{direct} {own_stone} {stone}"));
}

/// The observer that the test gave its actor.
pub fn observer_here() -> Observer {
    Observer::open(&path_here("runs"))
}

/// What shifts the clocks of processes, where it is installed.
pub fn faketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let folders = folders.chain(["/usr/lib", "/usr/lib64"].map(PathBuf::from));
    folders.map(|folder| folder.join("faketime/libfaketime.so.1")).find(|library| library.is_file())
}

/// Everything that can be checked at rest is in order.
pub fn assert_sound(store: &Store) {
    let findings: Vec<String> = store.check().unwrap().iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{findings:#?}");
}
