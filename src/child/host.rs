//! A worker's children: at most one for each of its handlers, kept warm between jobs, and none left when it ends.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    process::{Heard, Process},
    wire::{Ended, Order, Run, StorePlace, Word},
};
use crate::{
    clock::{deadline_after, monotonic, sleep},
    error::{Error, Result},
    queue::{
        Lease,
        log::{LOG_LINE_BYTES_MAX, LOG_LINES_MAX},
        record::ERROR_BYTES_MAX,
    },
    store::{Store, alarm::Alarm, change::Intent},
    task::{Job, Registry, RunOutput, TaskError, child_lock, killer::Killer},
    worker::timed_out,
};

/// The least memory that a child can be limited to: it has threads and buffers before the handler begins.
const MEMORY_MAX_LEAST: u64 = 16 << 20;
/// After so many jobs a child is replaced by a fresh one: what handlers leak ends with it.
const JOBS_MAX: u32 = 1000;
/// For how long a child that has nothing to do is kept.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// How long children that were killed are waited for when the worker stops at once.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// The children of one worker.
#[derive(Default)]
pub(crate) struct Host {
    idle: Arc<Mutex<Idle>>,
    /// Ends children that were idle for too long; there is one once a child was idle.
    alarm: Mutex<Option<Alarm>>,
    /// All children that were not reaped when the last one was started, and that one.
    all: Mutex<Vec<Killer>>,
    is_closing: AtomicBool,
}

#[derive(Default)]
struct Idle {
    /// The last one was used last.
    children: Vec<(Process, Instant)>,
    /// The alarm does not sleep for good.
    is_watched: bool,
}

/// How a run in a child ended.
enum Ran {
    Ended(Ended),
    /// The child is of no more use.
    Gone,
    TimedOut(Duration),
}

impl Host {
    /// Checks what the registry asks for, and that a child can be started, where it asks for one.
    ///
    /// # Errors
    /// `Invalid` for a limit of memory that is too low, and where the program's `main` does not take part.
    pub(crate) fn check(&self, registry: &Registry) -> Result<()> {
        let Some((task, memory_max)) = registry.first_isolated() else { return Ok(()) };
        if let Some(bytes) = memory_max.filter(|bytes| *bytes < MEMORY_MAX_LEAST) {
            return Err(Error::invalid(format!(
                "a memory_max of {bytes} bytes for task \"{task}\" is too little for a process; give it at least \
                 {MEMORY_MAX_LEAST}"
            )));
        }
        let child = self.take().map_err(|error| error.during(&format!("start a process for task \"{task}\"")))?;
        self.put_back(child);
        Ok(())
    }

    /// Runs a job in a child, and kills that when the time is over.
    pub(crate) fn run(
        &self,
        job: &Job,
        timeout: Option<Duration>,
        memory_max: Option<u64>,
    ) -> Result<RunOutput, TaskError> {
        let mut child = match self.take() {
            Ok(child) => child,
            Err(_) if self.is_closing() => {
                job.lease().note_not_begun();
                return Err(TaskError::Release);
            }
            Err(error) => return Err(child_lock::not_now(job, &error)),
        };
        let lock = match child_lock::create(job) {
            Ok(lock) => lock,
            Err(error) => {
                self.put_back(child);
                return Err(error);
            }
        };
        child.begin_stderr();
        child.jobs += 1;
        let order = Order::Run(Box::new(order(job, memory_max, lock.is_some())));
        let told = child.tell(&order, lock.as_ref());
        // From here on the lock is the child's alone.
        drop(lock);
        let ran = told.map_or(Ran::Gone, |()| attend(&mut child, job, timeout));
        match ran {
            Ran::Ended(ended) => {
                child_lock::remove(job);
                let said = child.said();
                if ended.is_worn || child.jobs >= JOBS_MAX {
                    drop(child);
                } else {
                    self.put_back(child);
                }
                if ended.is_completed_in_transaction {
                    job.lease().note_completed_in_transaction();
                }
                // Whoever has completed the job in a transaction holds it no more, and its log is closed.
                keep_in_log(job, said.as_deref());
                job.lease().enqueue_for_child(ended.enqueues)?;
                ended.outcome.map_err(|error| with_stderr(error, said.as_deref()))
            }
            Ran::TimedOut(timeout) => {
                let ended = child.end();
                child_lock::remove(job);
                ended?;
                let said = child.said();
                keep_in_log(job, said.as_deref());
                Err(TaskError::Failed(message(timed_out(timeout), said.as_deref())))
            }
            Ran::Gone => {
                let status = child.end();
                child_lock::remove(job);
                if self.is_closing() {
                    return Err(TaskError::Release);
                }
                let said = child.said();
                keep_in_log(job, said.as_deref());
                let limit = memory_max.filter(|_| said.as_ref().is_some_and(|said| said.contains(OUT_OF_MEMORY)));
                let why =
                    limit.map_or(String::new(), |limit| format!(", having asked for more memory than {limit} bytes"));
                let what = format!("the handler's process ended with {}{why}", status?);
                Err(TaskError::Failed(message(what, said.as_deref())))
            }
        }
    }

    /// Ends all children, also those that work. What they had begun is given back by the worker.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.alarm().take();
        let idle = std::mem::take(&mut locked(&self.idle).children);
        let all = std::mem::take(&mut *self.all());
        all.iter().for_each(Killer::kill);
        drop(idle);
        // Each that worked is reaped by the thread that waits for it.
        let deadline = deadline_after(CLOSE_PATIENCE);
        while !all.iter().all(Killer::is_reaped) && monotonic() < deadline {
            sleep(Duration::from_millis(1));
        }
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// A warm child, or a fresh one.
    fn take(&self) -> Result<Process> {
        loop {
            let warm = locked(&self.idle).children.pop();
            let Some((mut child, _)) = warm else { break };
            if child.is_idle() {
                return Ok(child);
            }
        }
        if self.is_closing() {
            return Err(Error::closed());
        }
        let child = Process::start()?;
        let mut all = self.all();
        all.retain(|known| !known.is_reaped());
        all.push(child.killer());
        drop(all);
        // Whoever closed meanwhile has not seen it.
        if self.is_closing() { Err(Error::closed()) } else { Ok(child) }
    }

    fn put_back(&self, child: Process) {
        let mut idle = locked(&self.idle);
        // Looked at under the lock that whoever closes takes next: after that nobody ends this child but here.
        if self.is_closing() {
            drop(idle);
            return;
        }
        idle.children.push((child, monotonic()));
        if std::mem::replace(&mut idle.is_watched, true) {
            return;
        }
        drop(idle);
        let mut alarm = self.alarm();
        if let Some(alarm) = &*alarm {
            alarm.ringer().ring();
        } else {
            let idle = self.idle.clone();
            // Without its thread the children end with the worker.
            *alarm = Alarm::paced("casque-children", IDLE_MAX, move || end_old(&idle)).ok();
        }
    }

    fn alarm(&self) -> MutexGuard<'_, Option<Alarm>> {
        locked(&self.alarm)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Killer>> {
        locked(&self.all)
    }
}

/// What the standard library writes when an allocation fails.
const OUT_OF_MEMORY: &str = "memory allocation of";

fn order(job: &Job, memory_max: Option<u64>, has_lock: bool) -> Run {
    let (claimed, started_at) = job.lease().for_child();
    let place = place_of(&job.store());
    Run { job: claimed, token: job.token(), started_at, place, memory_max, has_lock }
}

/// Where another process finds a store; nothing for one in memory.
pub(super) fn place_of(store: &Store) -> Option<StorePlace> {
    let path = store.path()?.to_owned();
    Some(StorePlace { path, commits: store.inner.commits() })
}

/// Does what a child asks for, until its handler has ended or its time is over.
fn attend(child: &mut Process, job: &Job, timeout: Option<Duration>) -> Ran {
    let deadline = timeout.map(deadline_after);
    loop {
        let heard = match child.next(deadline) {
            Heard::Word(Word::Ended(ended)) => return Ran::Ended(ended),
            // A handler that asks and asks is never silent.
            Heard::Word(_) if deadline.is_some_and(|deadline| monotonic() >= deadline) => Heard::TimeOver,
            heard => heard,
        };
        let answer = match (heard, timeout) {
            (Heard::Word(Word::Commit { guards, intents }), _) => {
                let settles = intents.iter().any(|intent| is_settlement_of(intent, job.lease()));
                let answer = job.store().inner.commit(guards, intents, Some(job.id()));
                if settles && answer.is_ok() {
                    job.lease().note_settled();
                }
                Order::Committed(answer.map_err(Into::into))
            }
            (Heard::Word(Word::Stop), _) => Order::Stop(job.stop_reason()),
            (Heard::TimeOver, Some(timeout)) => return Ran::TimedOut(timeout),
            (Heard::Word(_) | Heard::Gone | Heard::TimeOver, _) => return Ran::Gone,
        };
        if child.tell(&answer, None).is_err() {
            return Ran::Gone;
        }
    }
}

/// Adds the end of what a run wrote to stderr to its job's log.
fn keep_in_log(job: &Job, said: Option<&str>) {
    let Some(said) = said.filter(|_| !job.is_settled()) else { return };
    let fits = |line: &str| line[..line.floor_char_boundary(LOG_LINE_BYTES_MAX)].to_owned();
    let mut lines: Vec<String> = said.lines().filter(|line| !line.is_empty()).map(fits).collect();
    let over = lines.len().saturating_sub(LOG_LINES_MAX as usize);
    if let Err(error) = job.lease().log_all(lines.split_off(over)) {
        job.store().inner.site.note_trouble(&error);
    }
}

fn is_settlement_of(intent: &Intent, lease: &Lease) -> bool {
    matches!(intent, Intent::Settle(settle) if settle.job == lease.id() && settle.token == lease.token())
}

fn with_stderr(error: TaskError, said: Option<&str>) -> TaskError {
    match error {
        TaskError::Failed(what) => TaskError::Failed(message(what, said)),
        TaskError::Fatal(what) => TaskError::Fatal(message(what, said)),
        error => error,
    }
}

/// What failed, and as much of the end of stderr as fits into a job's history.
fn message(what: String, said: Option<&str>) -> String {
    const SAID: &str = "; it wrote to stderr: ";
    let Some(said) = said else { return what };
    let room = ERROR_BYTES_MAX.saturating_sub(what.len() + SAID.len());
    let tail = &said[said.ceil_char_boundary(said.len().saturating_sub(room))..];
    if tail.is_empty() { what } else { format!("{what}{SAID}{tail}") }
}

/// Ends children that were idle for too long; after how long to look again, if there are others.
fn end_old(idle: &Mutex<Idle>) -> Option<Duration> {
    let now = monotonic();
    let mut known = locked(idle);
    let is_old = |since: &Instant| now.duration_since(*since) >= IDLE_MAX;
    let fresh = known.children.partition_point(|(_, since)| is_old(since));
    let old: Vec<_> = known.children.drain(..fresh).collect();
    let next = known.children.first().map(|(_, since)| IDLE_MAX.saturating_sub(now.duration_since(*since)));
    known.is_watched = next.is_some();
    drop(known);
    drop(old);
    next
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change to what is behind these is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
