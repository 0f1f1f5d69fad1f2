//! A change on its way: the side that waits for its answer, and the side that gives it.
//!
//! Until it is sealed its sender may take it back, and then nothing of it was written; from then on nobody but the
//! committer knows what becomes of it (A1).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::{
    clock::deadline_after,
    error::{Error, ErrorKind, Result},
    local,
    store::{
        change::{Applied, Change},
        site::{Files, Site},
    },
};

const WAITING: u8 = 0;
const SEALED: u8 = 1;
const WITHDRAWN: u8 = 2;

/// A change that waits to be committed, and where its answer goes.
pub(crate) struct Pending {
    pub(crate) change: Change,
    pub(crate) replier: Replier,
    /// C4: until when a claim that finds nothing may be kept waiting for jobs.
    pub(crate) wait_until: Option<Instant>,
}

/// Where a change's answer goes.
pub(crate) struct Replier {
    seal: Arc<AtomicU8>,
    answer: Sender<Result<Applied>>,
    /// A1: the change was sent to a stone before, and no answer came.
    pub(crate) resent: bool,
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

/// The two sides of a change that is answered within `patience`, or, where its claim may wait for jobs, that much
/// later.
pub(crate) fn hand_in(change: Change, patience: Duration, wait: Duration) -> (Box<Pending>, Ticket) {
    let (answer, receiver) = bounded(1);
    let seal = Arc::new(AtomicU8::new(WAITING));
    let ticket = Ticket {
        id: change.id.to_string(),
        seal: seal.clone(),
        answer: receiver,
        deadline: deadline_after(patience.saturating_add(wait)),
        patience,
        is_over: AtomicBool::new(false),
    };
    let wait_until = (!wait.is_zero()).then(|| deadline_after(wait));
    (Box::new(Pending { change, replier: Replier { seal, answer, resent: false }, wait_until }), ticket)
}

impl Replier {
    /// Takes the change for a group or sends it off, unless its sender has withdrawn it. Once sealed it stays so.
    pub(crate) fn seal(&self) -> bool {
        match self.seal.compare_exchange(WAITING, SEALED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(found) => found == SEALED,
        }
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.seal.load(Ordering::Acquire) == WITHDRAWN
    }

    pub(crate) fn answer(&self, answer: Result<Applied>) {
        // A1: that it could not be written now says nothing of the time before.
        let answer = answer.map_err(|error| match error.kind() {
            ErrorKind::Unavailable if self.resent => {
                let message = "the process that it was sent to is gone, and whether it was committed can't be found out \
                               now; read the store to find out";
                Error::new(ErrorKind::Unknown, message).because(error)
            }
            _ => error,
        });
        // Whoever has stopped waiting was told so by its own time limit.
        let _ = self.answer.send(answer);
    }
}

impl Ticket {
    /// Where the answer will come, for who waits for something else too; it is to be read by [`Ticket::wait`].
    pub(crate) fn receiver(&self) -> &Receiver<Result<Applied>> {
        &self.answer
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
        let withdrawn = self.seal.compare_exchange(WAITING, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok();
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
