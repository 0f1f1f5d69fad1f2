//! The committer of a process: one thread that gathers the changes of all others while the last write is in flight, and
//! makes one group of them. A direct commit (W3): take the lock, apply, one durable write, bump `wakes`, give the lock
//! back, answer.
//!
//! It is a thread so that whoever waits for another process's lock can give up (W8): a change that was not yet sealed
//! into a group is withdrawn and nothing of it was written; one that was is `Unknown`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::{
    clock::Timestamp,
    engine::{Basis, RowSet, Rows},
    error::{Error, ErrorKind, Result},
    local,
    store::{
        apply::apply,
        change::{Applied, Change, Intent},
        conflict::Version,
        keys,
        object::{LogRecord, StoreRecord},
        site::Site,
        view::{Overlay, get_record},
    },
};

/// How many changes one group may hold.
const GROUP_CHANGES_MAX: usize = 10_000;

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
    /// They are on the disk, and nobody has been answered.
    Written,
}

/// What is called at each [`Step`].
pub(crate) type StepHook = Arc<dyn Fn(Step) + Send + Sync>;

/// What is done under the writer's lock.
type Section = Box<dyn FnOnce(&Site) + Send>;

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
}

pub(crate) struct Committer {
    work: Sender<Work>,
    stopped: AtomicBool,
}

impl Committer {
    pub(crate) fn start(site: Arc<Site>, hook: Option<StepHook>) -> Result<Self> {
        let (work, inbox) = unbounded();
        thread::Builder::new()
            .name("casque-committer".into())
            .spawn(move || run(&site, &inbox, hook.as_ref()))
            .map_err(|error| Error::unavailable("the committer's thread can't be started").because(error))?;
        Ok(Self { work, stopped: AtomicBool::new(false) })
    }

    /// Hands a change in; it is on its way when this returns.
    pub(crate) fn submit(&self, change: Change) -> Result<Ticket> {
        let (answer, receiver) = bounded(1);
        let seal = Arc::new(AtomicU8::new(WAITING));
        let ticket = Ticket { id: change.id.to_string(), seal: seal.clone(), answer: receiver };
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
            let _ = answer.send(work(site));
        });
        self.send(Work::Section { purpose, work: section })?;
        receiver.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => out_of_patience(site, ErrorKind::Unavailable, purpose),
            RecvTimeoutError::Disconnected => Error::closed(),
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
        self.work.send(work).map_err(|_| Error::closed())
    }
}

impl Ticket {
    /// What became of the change.
    ///
    /// # Errors
    /// `Unavailable` when the patience ran out before the change was sealed into a group: nothing was written.
    /// `Unknown` when it ran out after that: the change is wholly there or wholly absent, and may still come.
    pub(crate) fn wait(self, site: &Site, patience: Duration) -> Result<Applied> {
        match self.answer.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Err(Error::new(
                ErrorKind::Unknown,
                format!("the committer ended before it answered change {}; read the store to find out", self.id),
            )),
            Err(RecvTimeoutError::Timeout) => {
                let withdrawn =
                    self.seal.compare_exchange(WAITING, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok();
                if withdrawn {
                    return Err(out_of_patience(site, ErrorKind::Unavailable, &format!("change {}", self.id)));
                }
                // It was sealed in this very moment, or the write is slow: the answer may be there already.
                self.answer
                    .try_recv()
                    .unwrap_or_else(|_| Err(out_of_patience(site, ErrorKind::Unknown, &format!("change {}", self.id))))
            }
        }
    }
}

/// W8: names who holds the writer's lock, and whether that process is stopped.
fn out_of_patience(site: &Site, kind: ErrorKind, what: &str) -> Error {
    let holder = match site.files().and_then(|files| files.lock.holder()) {
        Some(holder) => {
            let state = if local::is_stopped(holder.pid) { " (it is stopped: continue or kill it)" } else { "" };
            format!("process {} ({}) holds the writer's lock to {}{state}", holder.pid, holder.label, holder.purpose)
        }
        None => "the disk did not answer".to_owned(),
    };
    let fate = if kind == ErrorKind::Unknown { "it may or may not be committed" } else { "nothing was written" };
    Error::new(kind, format!("{what} timed out: {holder}; {fate}"))
}

fn run(site: &Site, inbox: &Receiver<Work>, hook: Option<&StepHook>) {
    let mut next = None;
    loop {
        let Some(work) = next.take().or_else(|| inbox.recv().ok()) else { return };
        match work {
            Work::Stop => return,
            Work::Section { purpose, work } => run_section(site, purpose, work),
            Work::Change(first) => {
                let mut group = vec![*first];
                while group.len() < GROUP_CHANGES_MAX {
                    match inbox.try_recv() {
                        Ok(Work::Change(pending)) => group.push(*pending),
                        Ok(other) => {
                            next = Some(other);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                commit_group(site, group, hook);
            }
        }
    }
}

fn run_section(site: &Site, purpose: &str, work: Section) {
    let guard = site.take_lock(purpose);
    if let Err(error) = &guard {
        site.note_trouble(error);
    }
    // Without the lock nothing may be done; dropping the work tells whoever waits.
    if guard.is_ok() {
        work(site);
    }
}

fn commit_group(site: &Site, group: Vec<Pending>, hook: Option<&StepHook>) {
    let step = |step| {
        if let Some(hook) = hook {
            hook(step);
        }
    };
    step(Step::BeforeLock);
    let mut sealed: Vec<(Pending, Option<Result<Applied>>)> = Vec::with_capacity(group.len());
    let mut unsealed = group.into_iter();
    let written = (|| {
        let guard = site.take_lock("commit")?;
        step(Step::Locked);
        let rows = site.engine.latest()?;
        let basis = (keys::STORE.to_vec(), rows.get(keys::STORE)?);
        let before: StoreRecord = get_record(rows.as_ref(), keys::STORE)?.unwrap_or_default();
        refuse_log_in_use(rows.as_ref())?;
        let stamp = before.stamp.max(Timestamp::now());
        let mut overlay = Overlay::new(rows.as_ref());
        let mut newest = before.version;
        for pending in unsealed.by_ref() {
            // A change that its sender has given up on is as if it had never been sent.
            if pending.seal.compare_exchange(WAITING, SEALED, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            let verdict = drop_stale_reclaim(site, &pending.change).and_then(|()| {
                let (applied, rows) = apply(&pending.change, &overlay, newest, stamp)?;
                overlay.absorb(rows);
                Ok(applied)
            });
            if let Ok(Applied { version: Some(version), .. }) = &verdict {
                newest = *version; // INV-2: one more for each committed change
            }
            sealed.push((pending, Some(verdict)));
        }
        step(Step::Applied);
        if !overlay.is_untouched() {
            overlay.put_record(keys::STORE.to_vec(), &StoreRecord { version: newest, stamp })?;
            let group_rows = overlay.into_rows();
            drop(rows);
            write_and_know(site, &basis, &group_rows, (before.version, newest))?;
            site.bump_wakes();
        }
        step(Step::Written);
        drop(guard);
        Ok(())
    })();
    // What was not come to, since the lock or the rows could not be had, has failed like the group.
    sealed.extend(unsealed.map(|pending| (pending, None)));
    answer(sealed, written);
}

fn answer(sealed: Vec<(Pending, Option<Result<Applied>>)>, written: Result<()>) {
    let failure = written.err();
    for (pending, verdict) in sealed {
        let committed = matches!(&verdict, Some(Ok(Applied { version: Some(_), .. })));
        let answer = match (&failure, verdict) {
            (Some(failure), verdict) if committed || verdict.is_none() => Err(failure.for_each_caller()),
            (_, Some(verdict)) => verdict,
            (_, None) => Err(Error::closed()),
        };
        // Whoever has stopped waiting was told so by its own time limit.
        let _ = pending.answer.send(answer);
    }
}

/// A log that is in use holds changes which this file lacks; only a build that reads logs may go on from here.
fn refuse_log_in_use(rows: &dyn Rows) -> Result<()> {
    match get_record(rows, keys::LOG)? {
        Some(LogRecord::InUse { log }) => {
            let log: String = log.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
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
