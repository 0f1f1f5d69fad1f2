//! What a child does: runs one handler after the other on its main thread, and asks its parent for all that concerns
//! the store. When the parent is gone it ends at once, as a handler's thread ends with its worker: what it would bring
//! could not be delivered, and the job is to run again without delay.

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Signal, getpgid, getpgrp, getpid, getppid, kill_current_process_group, kill_process, setpgid, setsid},
    stdio::{dup2_stdin, stdin},
};

use super::{
    memory,
    wire::{Ended, Listener, Order, Run, Speaker, StorePlace, VERSION, Word},
};
use crate::{
    clock::monotonic,
    error::{Error, ErrorKind, Result},
    queue::{Lease, reach::Parent},
    store::{
        Store,
        change::{Applied, Guard, Intent},
        open::StoreOptions,
    },
    task::{Job, Registry, RunOutput, StopFlag, StopReason, TaskError},
};

/// How old the parent's word may be on whether to stop: a handler may ask in each turn of a loop.
const STOP_KNOWN_FOR: Duration = Duration::from_millis(10);

/// Runs the jobs that the parent sends, until that is gone.
pub(super) fn serve(registry: &Registry) -> Result<()> {
    leave_session();
    let socket = take_socket()?;
    let link = Arc::new(Link::begin(socket)?);
    link.lock().speaker.say(&Word::Hello { version: VERSION.to_owned() })?;
    loop {
        // The line is free while the handler runs.
        let next = link.lock().next_job()?;
        let Some((run, lock)) = next else { return Ok(()) };
        let ended = run_one(registry, &link, *run, lock);
        let said = link.lock().speaker.say(&Word::Ended(ended));
        if let Err(error) = said {
            // A result that no message holds is the handler's failure; a parent that is gone ends this process.
            let outcome = Err(TaskError::Failed(error.full_message()));
            let ended = Ended { outcome, enqueues: Vec::new(), is_completed_in_transaction: false, is_worn: false };
            link.lock().speaker.say(&Word::Ended(ended))?;
        }
    }
}

/// Begins a session of its own, for which this process gives up leading a process group. In the worker's session it
/// would be hung up on when it is stopped and the worker dies; and nothing but its worker's end is to end it.
fn leave_session() {
    // Where it can't, it remains in a group that a Ctrl-C at the terminal does not reach, which is what matters.
    if let Some(group) = getppid().and_then(|parent| getpgid(Some(parent)).ok()) {
        let _ = setpgid(None, Some(group)).and_then(|()| setsid());
    }
}

fn run_one(registry: &Registry, link: &Arc<Link>, run: Run, lock: Option<OwnedFd>) -> Ended {
    if let Err(error) = memory::limit(run.memory_max) {
        return Ended::failed(error.full_message());
    }
    if !registry.knows(&run.job.task) {
        let task = &run.job.task;
        return Ended::failed(format!(
            "the child process knows no task \"{task}\"; give casque::child::run_if_child the worker's registry"
        ));
    }
    let parent =
        OneJob { link: link.clone(), place: run.place, stop: Mutex::default(), is_over: AtomicBool::new(false) };
    let parent = Arc::new(parent);
    let lease = Lease::in_child(parent.clone(), run.job, run.token, run.started_at);
    let outcome = registry.run(&Job::new(lease.clone(), StopFlag::default()));
    let is_completed_in_transaction = lease.is_completed_in_transaction();
    parent.end();
    // P5: what is left to do is the parent's.
    drop(lock);
    let is_worn = run.memory_max.is_some_and(memory::is_worn);
    let enqueues = if outcome.is_ok() && !is_completed_in_transaction { lease.outbox().to_vec() } else { Vec::new() };
    Ended { outcome, enqueues, is_completed_in_transaction, is_worn }
}

impl Ended {
    fn failed(message: String) -> Self {
        Self {
            outcome: Err::<RunOutput, _>(TaskError::Failed(message)),
            enqueues: Vec::new(),
            is_completed_in_transaction: false,
            is_worn: false,
        }
    }
}

/// The socket that this process was started with as its stdin, which from then on is empty: neither the handler nor
/// what it starts has the socket.
pub(super) fn take_socket() -> Result<UnixStream> {
    let socket = UnixStream::from(stdin().try_clone_to_owned().map_err(|error| no_socket(&error))?);
    // Whoever starts this process by hand has none.
    socket.local_addr().map_err(|error| no_socket(&error))?;
    let nothing = File::open("/dev/null").map_err(|error| no_socket(&error))?;
    dup2_stdin(nothing).map_err(|error| no_socket(&error.into()))?;
    Ok(socket)
}

pub(super) fn no_socket(error: &std::io::Error) -> Error {
    Error::unavailable(format!("the worker that should have started this process can't be reached: {error}"))
}

/// The connection to the parent.
struct Link {
    line: Mutex<Line>,
    store: Mutex<Option<Store>>,
}

struct Line {
    speaker: Speaker,
    listener: Listener,
}

impl Link {
    /// Has a thread wait for the parent's end, also while a handler runs.
    fn begin(socket: UnixStream) -> Result<Self> {
        let copy = || socket.try_clone().map_err(|error| no_socket(&error));
        let (heard, watched) = (copy()?, copy()?);
        let watch = move || {
            // Only the end of the connection is waited for: what comes over it is read by who expects it.
            let mut poll_end = [PollFd::new(&watched, PollFlags::empty())];
            while !poll(&mut poll_end, None).is_ok_and(|ready| ready > 0) {}
            die();
        };
        thread::Builder::new()
            .name("casque-parent".into())
            .spawn(watch)
            .map_err(|error| Error::unavailable("a thread can't be started").because(error))?;
        let line = Mutex::new(Line { speaker: Speaker::new(socket), listener: Listener::new(heard) });
        Ok(Self { line, store: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // A question and its answer are one step, which no handler's code is part of.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The next job, waited for, and the file of its lock; nothing when the parent is gone.
    fn next_job(&mut self) -> Result<Option<(Box<Run>, Option<OwnedFd>)>> {
        let Some(Order::Run(run)) = self.listener.next()? else { return Ok(None) };
        let lock = if run.has_lock { self.listener.take_file() } else { None };
        Ok(Some((run, lock)))
    }
}

/// The parent, as one job sees it.
struct OneJob {
    link: Arc<Link>,
    place: Option<StorePlace>,
    /// Whether to stop, and when that was so.
    stop: Mutex<Option<(Instant, Option<StopReason>)>>,
    /// Its handler has ended; what that left running has nothing to ask any more.
    is_over: AtomicBool,
}

impl OneJob {
    fn ask(&self, word: &Word) -> Result<Order> {
        let mut line = self.link.lock();
        if self.is_over.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::LeaseLost, "the job's handler has ended already"));
        }
        line.speaker.say(word)?;
        line.listener.next()?.ok_or_else(Error::closed)
    }

    fn end(&self) {
        // No question is out while the line is held.
        let _line = self.link.lock();
        self.is_over.store(true, Ordering::Release);
    }
}

impl Parent for OneJob {
    fn commit(&self, guards: Vec<Guard>, intents: Vec<Intent>) -> Result<Applied> {
        match self.ask(&Word::Commit { guards, intents })? {
            Order::Committed(answer) => answer.map_err(Error::from),
            _ => Err(Error::closed()),
        }
    }

    fn stop_reason(&self) -> Option<StopReason> {
        let mut known = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic();
        if let Some((at, reason)) = *known
            && (reason.is_some() || now.duration_since(at) < STOP_KNOWN_FOR)
        {
            return reason;
        }
        let Ok(Order::Stop(reason)) = self.ask(&Word::Stop) else { return Some(StopReason::LeaseLost) };
        *known = Some((now, reason));
        reason
    }

    fn store(&self) -> Result<Store> {
        let Some(place) = &self.place else {
            return Err(Error::invalid(
                "a store in memory can't be reached from a child process; run this task on a thread",
            ));
        };
        let mut store = self.link.store.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = &*store {
            return Ok(store.clone());
        }
        let opened = StoreOptions::new().create(false).commits(place.commits).open(&place.path)?;
        Ok(store.insert(opened).clone())
    }
}

/// Ends this process, and what its handler has started.
fn die() -> ! {
    // Its own group, not the worker's.
    if getpgrp() == getpid() {
        let _ = kill_current_process_group(Signal::KILL);
    }
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::exit(1);
}
