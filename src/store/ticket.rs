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

use crate::{
    clock::deadline_after,
    error::{Error, ErrorKind, Result},
    local::{self, Holder},
    store::{
        change::{Applied, Change, ChangeId},
        promise::{Awaited, Missed, Poker, Promise, promise},
        site::{Files, Site},
    },
};

const WAITING: u8 = 0;
const SEALED: u8 = 1;
const WITHDRAWN: u8 = 2;

/// A change that waits to be committed, and where its answer goes. It goes from hand to hand boxed: a move of all of it
/// would cost more than the box.
pub(crate) struct Pending {
    pub(crate) change: Change,
    pub(crate) replier: Replier,
    /// C4: until when a claim that finds nothing may be kept waiting for jobs.
    pub(crate) wait_until: Option<Instant>,
}

/// Where a change's answer goes.
pub(crate) struct Replier {
    seal: Arc<AtomicU8>,
    answer: Promise<Result<Applied>>,
    /// A1: the change was sent to a stone before, and no answer came.
    pub(crate) resent: bool,
}

/// A change that was handed in and not answered yet.
pub(crate) struct Ticket {
    id: ChangeId,
    seal: Arc<AtomicU8>,
    answer: Awaited<Result<Applied>>,
    deadline: Instant,
    patience: Duration,
    /// The answer was given, or never will be.
    is_over: AtomicBool,
}

/// The two sides of a change that is answered within `patience`, or, where its claim may wait for jobs, that much
/// later.
pub(crate) fn hand_in(change: Change, patience: Duration, wait: Duration) -> (Box<Pending>, Ticket) {
    let (answer, awaited) = promise();
    let seal = Arc::new(AtomicU8::new(WAITING));
    let ticket = Ticket {
        id: change.id,
        seal: seal.clone(),
        answer: awaited,
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
                let message = "the process that it was sent to is gone, and nobody can tell now whether it was \
                               committed; read the store to find out";
                Error::new(ErrorKind::Unknown, message).because(error)
            }
            _ => error,
        });
        self.answer.keep(answer);
    }

    /// What brings the answer, or will.
    pub(crate) fn promise(&self) -> &Promise<Result<Applied>> {
        &self.answer
    }
}

impl Ticket {
    /// A ticket for an answer that comes by this channel, and that nobody can withdraw.
    pub(crate) fn of(id: ChangeId, answer: Awaited<Result<Applied>>, patience: Duration) -> Self {
        let (seal, deadline) = (Arc::new(AtomicU8::new(SEALED)), deadline_after(patience));
        Self { id, seal, answer, deadline, patience, is_over: AtomicBool::new(false) }
    }

    /// The change's number among those of its client.
    pub(crate) fn number(&self) -> u64 {
        self.id.number
    }

    /// What has who waits here look up, from another thread.
    pub(crate) fn poker(&self) -> Poker {
        self.answer.poker()
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
        self.wait_or(site, &|| false).unwrap_or_else(|| Err(Error::closed()))
    }

    /// What became of the change; nothing where the caller was called away first, and the answer is still to come.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub(crate) fn wait_or(&self, site: &Site, is_called_away: &dyn Fn() -> bool) -> Option<Result<Applied>> {
        let missed = match self.answer.wait_or(self.deadline, is_called_away) {
            Ok(answer) => {
                self.is_over.store(true, Ordering::Relaxed);
                return Some(answer);
            }
            Err(Missed::CalledAway) => return None,
            Err(missed) => missed,
        };
        let withdrawn = self.withdraw();
        let change = format!("change {}", self.id);
        Some(match missed {
            Missed::Gone | Missed::CalledAway if withdrawn => Err(Error::closed()),
            Missed::Gone | Missed::CalledAway => {
                self.is_over.store(true, Ordering::Relaxed);
                let message = format!("the committer ended before it answered {change}; read the store to find out");
                Err(Error::new(ErrorKind::Unknown, message))
            }
            Missed::Timeout if withdrawn => Err(out_of_patience(site.files(), ErrorKind::Unavailable, &change)),
            // It is being written: who gives up now does not know what becomes of it, so it is worth as long again.
            Missed::Timeout => match self.answer.wait_or(deadline_after(self.patience), is_called_away) {
                Ok(answer) => {
                    self.is_over.store(true, Ordering::Relaxed);
                    answer
                }
                Err(Missed::CalledAway) => return None,
                Err(_) => Err(out_of_patience(site.files(), ErrorKind::Unknown, &change)),
            },
        })
    }

    /// The answer, whenever it comes; nothing where none will.
    pub(crate) fn wait_for_good(&self) -> Option<Result<Applied>> {
        const LONG: Duration = Duration::from_hours(1);
        loop {
            match self.answer.wait_until(deadline_after(LONG)) {
                Ok(answer) => return Some(answer),
                Err(Missed::Timeout) => {}
                Err(_) => return None,
            }
        }
    }
}

/// W8: names who holds the writer's lock, and each process known to be stopped.
pub(crate) fn out_of_patience(files: Option<&Files>, kind: ErrorKind, what: &str) -> Error {
    let holder = match files.and_then(|files| local::holder(&files.folder)) {
        // It waits for somebody who reads and was stopped in it: the lock is its own.
        Some(holder) if holder.pid == std::process::id() => "another process was stopped while it read".to_owned(),
        Some(holder) => {
            let Holder { pid, label, purpose, .. } = &holder;
            let state = if local::is_stopped(*pid) {
                format!(" (it is stopped: continue it with `kill -CONT {pid}`, or kill it)")
            } else if files.is_some_and(|files| files.waits_in_vain_for(&holder)) {
                "; it commits for the others until it ends, and whoever is to commit directly (`--commits direct`, \
                 CASQUE_COMMITS) does not ask it: leave that away, or end that process"
                    .to_owned()
            } else {
                String::new()
            };
            format!("process {pid} ({label}) holds the writer's lock to {purpose}{state}")
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
