//! The committer of a process gathers the changes of its threads while the last write is in flight, and makes one group
//! of them. A direct commit (W3): take the lock, apply, one durable write, bump `wakes`, give the lock back, answer.
//!
//! It has a thread, so that whoever waits for another process's lock can give up (W8): a change that was not yet sealed
//! into a group is withdrawn and nothing of it was written; one that was is `Unknown`. A caller that is alone, and
//! finds the lock free, commits on its own thread instead: two switches of threads cost as much as a third of a
//! commit.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::{
    clock::{Timestamp, deadline_after},
    codec::hex,
    engine::{Basis, RowSet, Rows},
    error::{Error, ErrorKind, Result},
    local,
    store::{
        apply::apply,
        change::{Applied, Change, Intent},
        conflict::Version,
        keys,
        object::{LogRecord, StoreRecord},
        site::{Files, Site},
        view::{Overlay, get_record},
    },
};

/// How many changes one group may hold, and after how many bytes of payloads it is closed.
const GROUP_CHANGES_MAX: usize = 10_000;
const GROUP_BYTES_MAX: usize = 16 << 20;

const WAITING: u8 = 0;
const SEALED: u8 = 1;
const WITHDRAWN: u8 = 2;

/// The steps of a commit, for tests that hold or kill a process at each.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The writer's lock is about to be asked for.
    BeforeLock,
    /// It was taken.
    Locked,
    /// The group's rows are known, and not written.
    Applied,
    /// They are on the disk, and nobody has been woken or answered.
    Written,
}

/// What is called at each [`Step`].
pub(crate) type StepHook = Arc<dyn Fn(Step) + Send + Sync>;

/// What is done under the writer's lock; or without it, where that can't be had, to say so.
type Section = Box<dyn FnOnce(Result<&Site>) + Send>;

enum Work {
    Change(Box<Pending>),
    Section { purpose: &'static str, work: Section },
    Stop,
}

struct Pending {
    change: Change,
    seal: Arc<AtomicU8>,
    answer: Sender<Result<Applied>>,
}

/// A change that was handed in and not answered yet.
pub(crate) struct Ticket {
    id: String,
    seal: Arc<AtomicU8>,
    answer: Receiver<Result<Applied>>,
    deadline: Instant,
    patience: Duration,
    /// The answer was given, or never will be.
    is_over: AtomicBool,
}

pub(crate) struct Committer {
    work: Sender<Work>,
    desk: Arc<Desk>,
    stopped: AtomicBool,
}

/// Where groups are committed, by the thread or by a caller that is alone.
struct Desk {
    site: Arc<Site>,
    hook: Option<StepHook>,
    /// Held for one group; the writer's lock orders processes, this one threads.
    turn: Mutex<()>,
    /// How many changes the last group had: with company, changes are gathered by the thread.
    last_group: AtomicUsize,
    /// How many works are with the thread: nobody overtakes them.
    queued: AtomicUsize,
}

impl Committer {
    pub(crate) fn start(site: Arc<Site>, hook: Option<StepHook>) -> Result<Self> {
        let (work, inbox) = unbounded();
        let desk = Arc::new(Desk {
            site,
            hook,
            turn: Mutex::new(()),
            last_group: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
        });
        let serving = desk.clone();
        thread::Builder::new()
            .name("casque-committer".into())
            .spawn(move || serving.serve(&inbox))
            .map_err(|error| Error::unavailable("the committer's thread can't be started").because(error))?;
        Ok(Self { work, desk, stopped: AtomicBool::new(false) })
    }

    /// Commits a change and waits for its answer.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub(crate) fn commit(&self, change: Change, patience: Duration) -> Result<Applied> {
        if self.stopped.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        match self.desk.commit_alone(change) {
            Ok(answer) => answer,
            Err(change) => self.submit(*change, patience)?.wait(&self.desk.site),
        }
    }

    /// As [`Committer::submit`], and commits on the caller's own thread where it is alone: the ticket is answered then.
    pub(crate) fn submit_from_here(&self, change: Change, patience: Duration) -> Result<Ticket> {
        if self.stopped.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        let id = change.id.to_string();
        match self.desk.commit_alone(change) {
            Ok(answer) => {
                let (sender, receiver) = bounded(1);
                // Its receiver is at hand, and has room.
                let _ = sender.send(answer);
                Ok(Ticket::of(id, receiver, patience))
            }
            Err(change) => self.submit(*change, patience),
        }
    }

    /// Hands a change in; it is on its way when this returns, and its patience begins.
    pub(crate) fn submit(&self, change: Change, patience: Duration) -> Result<Ticket> {
        let (answer, receiver) = bounded(1);
        let seal = Arc::new(AtomicU8::new(WAITING));
        let deadline = deadline_after(patience);
        let ticket = Ticket {
            id: change.id.to_string(),
            seal: seal.clone(),
            answer: receiver,
            deadline,
            patience,
            is_over: AtomicBool::new(false),
        };
        self.send(Work::Change(Box::new(Pending { change, seal, answer })))?;
        Ok(ticket)
    }

    /// Does something under the writer's lock, and waits for it at most so long.
    pub(crate) fn section<T: Send + 'static>(
        &self,
        site: &Site,
        purpose: &'static str,
        patience: Duration,
        work: impl FnOnce(&Site) -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, receiver) = bounded(1);
        let section: Section = Box::new(move |site| {
            // Nobody may be waiting any more; then the answer is of no use.
            let _ = answer.send(site.map(work));
        });
        self.send(Work::Section { purpose, work: section })?;
        receiver.recv_timeout(patience).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => Err(out_of_patience(site.files(), ErrorKind::Unavailable, purpose)),
            RecvTimeoutError::Disconnected => Err(Error::closed()),
        })
    }

    /// Ends the thread after what was handed in so far.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let _ = self.work.send(Work::Stop);
    }

    fn send(&self, work: Work) -> Result<()> {
        if self.stopped.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        self.desk.queued.fetch_add(1, Ordering::AcqRel);
        self.work.send(work).map_err(|_| Error::closed())
    }
}

impl Ticket {
    /// A ticket for an answer that comes by this channel, and that nobody can withdraw.
    pub(crate) fn of(id: String, answer: Receiver<Result<Applied>>, patience: Duration) -> Self {
        let (seal, deadline) = (Arc::new(AtomicU8::new(SEALED)), deadline_after(patience));
        Self { id, seal, answer, deadline, patience, is_over: AtomicBool::new(false) }
    }

    /// Where the answer will come, for who waits for something else as well.
    pub(crate) fn answer(&self) -> &Receiver<Result<Applied>> {
        &self.answer
    }

    /// Takes the change back, where it is not on its way to the disk yet.
    pub(crate) fn withdraw(&self) -> bool {
        self.seal.compare_exchange(WAITING, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether an answer may still come: the change was sealed, or waits to be.
    pub(crate) fn may_be_answered(&self) -> bool {
        self.seal.load(Ordering::Acquire) != WITHDRAWN && !self.is_over.load(Ordering::Relaxed)
    }

    /// What became of the change.
    ///
    /// # Errors
    /// `Unavailable` when the patience ran out before the change was sealed into a group: nothing was written.
    /// `Unknown` when it ran out after that: the change is wholly there or wholly absent, and may still come.
    pub(crate) fn wait(&self, site: &Site) -> Result<Applied> {
        let failure = match self.answer.recv_deadline(self.deadline) {
            Ok(answer) => {
                self.is_over.store(true, Ordering::Relaxed);
                return answer;
            }
            Err(failure) => failure,
        };
        let withdrawn = self.withdraw();
        let change = format!("change {}", self.id);
        match failure {
            RecvTimeoutError::Disconnected if withdrawn => Err(Error::closed()),
            RecvTimeoutError::Disconnected => {
                self.is_over.store(true, Ordering::Relaxed);
                let message = format!("the committer ended before it answered {change}; read the store to find out");
                Err(Error::new(ErrorKind::Unknown, message))
            }
            RecvTimeoutError::Timeout if withdrawn => {
                Err(out_of_patience(site.files(), ErrorKind::Unavailable, &change))
            }
            // It is being written: who gives up now does not know what becomes of it, so it is worth as long again.
            RecvTimeoutError::Timeout => self
                .answer
                .recv_timeout(self.patience)
                .unwrap_or_else(|_| Err(out_of_patience(site.files(), ErrorKind::Unknown, &change))),
        }
    }
}

/// W8: names who holds the writer's lock, and each process known to be stopped.
pub(crate) fn out_of_patience(files: Option<&Files>, kind: ErrorKind, what: &str) -> Error {
    let holder = match files.and_then(|files| local::holder(&files.folder)) {
        // It waits for somebody who reads and was stopped in it: the lock is its own.
        Some(holder) if holder.pid == std::process::id() => "another process was stopped while it read".to_owned(),
        Some(holder) => {
            let state = if local::is_stopped(holder.pid) { " (it is stopped: continue or kill it)" } else { "" };
            format!("process {} ({}) holds the writer's lock to {}{state}", holder.pid, holder.label, holder.purpose)
        }
        None => "the disk did not answer".to_owned(),
    };
    let stopped: Vec<String> = files
        .and_then(|files| local::sessions(&files.folder).ok())
        .unwrap_or_default()
        .into_iter()
        .filter(|seen| seen.alive && local::is_stopped(seen.pid))
        .map(|seen| seen.pid.to_string())
        .collect();
    let stopped =
        if stopped.is_empty() { String::new() } else { format!("; stopped on this store: {}", stopped.join(", ")) };
    let fate = if kind == ErrorKind::Unknown { "it may or may not be committed" } else { "nothing was written" };
    Error::new(kind, format!("{what} timed out: {holder}{stopped}; {fate}"))
}

/// What the engine says of a stopped process, with that process's name.
pub(crate) fn name_who_is_stopped(files: Option<&Files>, what: &str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::TimedOut => out_of_patience(files, ErrorKind::Unavailable, what).because(error),
        _ => error,
    }
}

impl Desk {
    fn serve(&self, inbox: &Receiver<Work>) {
        let mut next = None;
        loop {
            let Some(work) = next.take().or_else(|| inbox.recv().ok()) else { return };
            match work {
                Work::Stop => return,
                Work::Section { purpose, work } => {
                    self.run_section(purpose, work);
                    self.queued.fetch_sub(1, Ordering::AcqRel);
                }
                Work::Change(first) => {
                    let turn = self.take_turn();
                    let mut bytes = first.change.payload_bytes();
                    let mut group = vec![*first];
                    while group.len() < GROUP_CHANGES_MAX && bytes < GROUP_BYTES_MAX {
                        match inbox.try_recv() {
                            Ok(Work::Change(pending)) => {
                                bytes += pending.change.payload_bytes();
                                group.push(*pending);
                            }
                            Ok(other) => {
                                next = Some(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    let changes = group.len();
                    self.commit_group(group);
                    self.queued.fetch_sub(changes, Ordering::AcqRel);
                    drop(turn);
                }
            }
        }
    }

    fn take_turn(&self) -> MutexGuard<'_, ()> {
        // Nothing is kept under it that a panic could have left half done.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_section(&self, purpose: &str, work: Section) {
        let _turn = self.take_turn();
        match self.site.take_lock(purpose) {
            Ok(_guard) => work(Ok(&self.site)),
            Err(error) => work(Err(error)),
        }
    }

    /// Commits a change on the caller's own thread, if nobody else is about to commit; else gives it back.
    fn commit_alone(&self, change: Change) -> Result<Result<Applied>, Box<Change>> {
        if self.last_group.load(Ordering::Relaxed) > 1 || self.queued.load(Ordering::Acquire) > 0 {
            return Err(Box::new(change));
        }
        let Ok(_turn) = self.turn.try_lock() else { return Err(Box::new(change)) };
        self.step(Step::BeforeLock);
        let committed = self.site.try_locked("commit", || self.commit_locked(std::slice::from_ref(&change)).pop());
        match committed {
            Ok(Some(answer)) => Ok(answer.unwrap_or_else(|| Err(Error::closed()))),
            Ok(None) => Err(Box::new(change)),
            Err(error) => Ok(Err(error)),
        }
    }

    fn commit_group(&self, group: Vec<Pending>) {
        self.step(Step::BeforeLock);
        let guard = match self.site.take_lock("commit") {
            Ok(guard) => guard,
            Err(error) => {
                for pending in group {
                    pending.answer(Err(error.for_each_caller()));
                }
                return;
            }
        };
        // A change that its sender has given up on is as if it had never been sent.
        let sealed: Vec<Pending> = group.into_iter().filter(Pending::seal).collect();
        self.last_group.store(sealed.len(), Ordering::Relaxed);
        let (callers, changes): (Vec<_>, Vec<_>) =
            sealed.into_iter().map(|pending| (pending.answer, pending.change)).unzip();
        let answers = self.commit_locked(&changes);
        drop(guard);
        for (caller, answer) in callers.into_iter().zip(answers) {
            // Whoever has stopped waiting was told so by its own time limit.
            let _ = caller.send(answer);
        }
    }

    /// Commits changes as one group, under the writer's lock; an answer for each.
    fn commit_locked(&self, changes: &[Change]) -> Vec<Result<Applied>> {
        self.step(Step::Locked);
        let mut verdicts = Vec::with_capacity(changes.len());
        let mut written = self.apply_and_write(changes, &mut verdicts);
        if is_basis_changed(&written) {
            // A writer died between its commit and the mark that lets others read it: the engine has found it now.
            verdicts.clear();
            written = self.apply_and_write(changes, &mut verdicts);
        }
        if is_basis_changed(&written) {
            written = written.map_err(|error| Error::unavailable(error.full_message()));
        }
        let Err(failure) = written else { return verdicts };
        let failure = name_who_is_stopped(self.site.files(), "commit", failure);
        // The group fails as one. Only what was decided before any change of it had rows to write is true all the same:
        // a later conflict, lost lease or holder of a unique key may tell of rows that are not there.
        let wrote = |verdict: &Result<Applied>| matches!(verdict, Ok(Applied { version: Some(_), .. }));
        let sound = verdicts.iter().position(wrote).unwrap_or(verdicts.len());
        verdicts.truncate(sound);
        verdicts.resize_with(changes.len(), || Err(failure.for_each_caller()));
        verdicts
    }

    fn apply_and_write(&self, changes: &[Change], verdicts: &mut Vec<Result<Applied>>) -> Result<()> {
        let site = &self.site;
        site.verify_store()?;
        let rows = site.engine.latest()?;
        let basis = (keys::STORE.to_vec(), rows.get(keys::STORE)?);
        let before: StoreRecord = get_record(rows.as_ref(), keys::STORE)?.unwrap_or_default();
        refuse_log_in_use(rows.as_ref())?;
        // Schedules go by the clock as it is: one commit by a clock that was ahead must not shift all that come after.
        let now = Timestamp::now();
        let stamp = before.stamp.max(now);
        let mut overlay = Overlay::new(rows.as_ref());
        let mut newest = before.version;
        for change in changes {
            let verdict = drop_stale_reclaim(site, change).and_then(|()| {
                let (applied, rows) = apply(change, &overlay, newest, now)?;
                overlay.absorb(rows);
                Ok(applied)
            });
            if let Ok(Applied { version: Some(version), .. }) = &verdict {
                newest = *version; // INV-2: one more for each committed change
            }
            verdicts.push(verdict);
        }
        self.step(Step::Applied);
        if overlay.is_untouched() {
            return Ok(());
        }
        overlay.put_record(keys::STORE.to_vec(), &StoreRecord { version: newest, stamp })?;
        let group_rows = overlay.into_rows();
        drop(rows);
        write_and_know(site, &basis, &group_rows, (before.version, newest))?;
        self.step(Step::Written);
        if let Err(error) = site.verify_store() {
            let message = format!("{}; what was written last is in the file that was there", error.full_message());
            return Err(Error::new(ErrorKind::Unknown, message));
        }
        site.bump_wakes();
        Ok(())
    }

    fn step(&self, step: Step) {
        if let Some(hook) = &self.hook {
            hook(step);
        }
    }
}

fn is_basis_changed(written: &Result<()>) -> bool {
    written.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict)
}

impl Pending {
    /// Takes the change for a group, unless its sender has withdrawn it.
    fn seal(&self) -> bool {
        self.seal.compare_exchange(WAITING, SEALED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn answer(&self, answer: Result<Applied>) {
        // Whoever has stopped waiting was told so by its own time limit.
        let _ = self.answer.send(answer);
    }
}

/// A log that is in use holds changes which this file lacks; only a build that reads logs may go on from here.
pub(crate) fn refuse_log_in_use(rows: &dyn Rows) -> Result<()> {
    match get_record(rows, keys::LOG)? {
        Some(LogRecord::InUse { log }) => {
            let log = hex(&log);
            Err(Error::unavailable(format!(
                "changes are in log {log}, which this build does not read; use a newer casque"
            )))
        }
        Some(LogRecord::None) | None => Ok(()),
    }
}

/// P3: a session that has beaten since it was found stopped keeps its jobs.
fn drop_stale_reclaim(site: &Site, change: &Change) -> Result<()> {
    for intent in &change.intents {
        let Intent::Reclaim(reclaim) = intent else { continue };
        let Some(files) = site.files() else { continue };
        let seen = local::look(&files.folder, reclaim.session)?;
        let moved = match (seen, reclaim.beat) {
            (Some(seen), Some(beat)) => seen.alive && seen.beat != beat,
            (Some(seen), None) => seen.alive,
            (None, _) => false,
        };
        if moved {
            return Err(Error::unavailable(format!("session {} has gone on; it keeps its jobs", reclaim.session)));
        }
    }
    Ok(())
}

/// Writes, and finds out what a failed write did: the store's version, after a recovery, tells.
fn write_and_know(site: &Site, basis: &Basis, rows: &RowSet, (before, after): (Version, Version)) -> Result<()> {
    let Err(error) = site.engine.write(Some(basis), rows) else { return Ok(()) };
    if error.kind() != ErrorKind::Unknown {
        return Err(error);
    }
    let found = site.engine.recover().and_then(|()| {
        let rows = site.engine.latest()?;
        Ok(get_record::<StoreRecord>(rows.as_ref(), keys::STORE)?.unwrap_or_default().version)
    });
    match found {
        Ok(version) if version == after => Ok(()),
        Ok(version) if version == before => {
            // Its cause says what failed; that the outcome is not known is no longer so.
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Err(Error::unavailable(format!("nothing was written: {cause}")))
        }
        // Not to be known while the disk fails: the caller asks again.
        _ => Err(error),
    }
}

#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod tests;
