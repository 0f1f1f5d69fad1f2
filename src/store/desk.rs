//! Direct commits (W3): take the writer's lock, decide a group on the newest rows, one durable write, bump `wakes`,
//! give the lock back. This alone is correct; a stone is for speed.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{
    clock::{deadline_after, monotonic, sleep},
    engine::{Basis, RowSet, Rows},
    error::{Error, ErrorKind, Result},
    store::{
        change::{Applied, Change},
        conflict::Version,
        group::{Decided, Proposal, committed, decide, fail_unwritten},
        keys,
        object::StoreRecord,
        paths::{Path, Paths},
        recovery::{log_in_use, recover_log},
        site::Site,
        snapshot::version_of,
        ticket::{Pending, name_who_is_stopped},
        verdict::Asked,
        view::get_record,
    },
};

/// How often who wants the turn for a limited time tries to get it.
const TURN_POLL: Duration = Duration::from_millis(1);

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
    /// A stone has appended them to its log, and not synced it.
    Appended,
    /// They are on the disk, and nobody has been woken or answered.
    Written,
    /// A stone has answered, and a window's rows are about to be written to the store's file.
    Flushing,
    /// They were, and the stone has not noticed yet.
    Flushed,
}

/// What is called at each [`Step`].
pub(crate) type StepHook = Arc<dyn Fn(Step) + Send + Sync>;

/// Where this process commits by itself.
pub(crate) struct Desk {
    pub(crate) site: Arc<Site>,
    pub(crate) hook: Option<StepHook>,
    pub(crate) paths: Arc<Paths>,
    /// Held for one group; the writer's lock orders processes, this one threads.
    turn: Mutex<()>,
    /// How many changes the last group had: with company, changes are gathered by the thread.
    last_group: AtomicUsize,
}

impl Desk {
    pub(crate) fn new(site: Arc<Site>, hook: Option<StepHook>, paths: Arc<Paths>) -> Self {
        Self { site, hook, paths, turn: Mutex::new(()), last_group: AtomicUsize::new(0) }
    }

    pub(crate) fn take_turn(&self) -> MutexGuard<'_, ()> {
        // Nothing is kept under it that a panic could have left half done.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn, if it can be had within this time.
    pub(crate) fn take_turn_within(&self, patience: Duration) -> Option<MutexGuard<'_, ()>> {
        let deadline = deadline_after(patience);
        loop {
            match self.turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock) if monotonic() >= deadline => return None,
                Err(TryLockError::WouldBlock) => sleep(TURN_POLL),
            }
        }
    }

    /// Commits a change on the caller's own thread, if nobody else is about to commit; else gives it back.
    pub(crate) fn commit_alone(&self, change: Change) -> Result<Result<Applied>, Box<Change>> {
        if self.last_group.load(Ordering::Relaxed) > 1 {
            return Err(Box::new(change));
        }
        let Ok(_turn) = self.turn.try_lock() else { return Err(Box::new(change)) };
        self.step(Step::BeforeLock);
        let proposals = [Proposal { change: &change, asked: None }];
        let committed = self.site.try_locked("commit", || self.commit_locked(&proposals).pop());
        match committed {
            Ok(Some(answer)) => Ok(answer.unwrap_or_else(|| Err(Error::closed()))),
            Ok(None) => Err(Box::new(change)),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Commits what its senders have not given up on, as one group, and answers. Under the writer's lock, which
    /// `unlock` gives back before the answers go out.
    #[allow(clippy::vec_box, reason = "they come boxed")]
    pub(crate) fn commit_group(&self, group: Vec<Box<Pending>>, unlock: impl FnOnce()) {
        let sealed: Vec<Box<Pending>> = group.into_iter().filter(|pending| pending.replier.seal()).collect();
        self.last_group.store(sealed.len(), Ordering::Relaxed);
        let proposals: Vec<Proposal<'_>> = sealed
            .iter()
            .map(|pending| {
                // A change that a stone may have committed is looked up first. Which other answers are awaited still is
                // not known here, so that none is dropped: the next change of the group may be looked up, too.
                let asked = pending.replier.resent.then(Asked::again);
                Proposal { change: &pending.change, asked }
            })
            .collect();
        let answers = self.commit_locked(&proposals);
        unlock();
        for (pending, answer) in sealed.iter().zip(answers) {
            pending.replier.answer(answer);
        }
    }

    /// Commits changes as one group, under the writer's lock; an answer for each.
    fn commit_locked(&self, proposals: &[Proposal<'_>]) -> Vec<Result<Applied>> {
        self.step(Step::Locked);
        let mut verdicts = Vec::new();
        let mut written = self.decide_and_write(proposals, &mut verdicts);
        if is_basis_changed(&written) {
            // A writer died between its commit and the mark that lets others read it: the engine has found it now.
            written = self.decide_and_write(proposals, &mut verdicts);
        }
        if is_basis_changed(&written) {
            written = written.map_err(|error| Error::unavailable(error.full_message()));
        }
        if let Err(failure) = written {
            let failure = name_who_is_stopped(self.site.files(), "commit", failure);
            verdicts.resize_with(proposals.len(), || Err(failure.for_each_caller()));
            fail_unwritten(verdicts.iter_mut(), &failure);
        }
        verdicts
    }

    fn decide_and_write(&self, proposals: &[Proposal<'_>], verdicts: &mut Vec<Result<Applied>>) -> Result<()> {
        let site = &self.site;
        verdicts.clear();
        site.verify_store()?;
        let is_resent = |proposal: &Proposal<'_>| proposal.asked.as_ref().is_some_and(|asked| asked.resent);
        let has_recovered = proposals.iter().any(is_resent);
        if has_recovered {
            // What a dead stone did last must be seen before it is said that it did not.
            site.engine.recover()?;
        }
        let mut rows = site.engine.latest()?;
        if log_in_use(rows.as_ref())?.is_some() {
            drop(rows);
            if !has_recovered {
                site.engine.recover()?;
            }
            recover_log(site)?;
            rows = site.engine.latest()?;
        }
        let basis = (keys::STORE.to_vec(), rows.get(keys::STORE)?);
        let before: StoreRecord = get_record(rows.as_ref(), keys::STORE)?.unwrap_or_default();
        let decided = decide(site, proposals, rows.as_ref(), before)?;
        let Decided { verdicts: found, rows: group_rows, after } = decided;
        *verdicts = found;
        self.step(Step::Applied);
        if group_rows.is_empty() {
            return Ok(());
        }
        drop(rows);
        site.slow_down();
        write_and_know(site, &basis, &group_rows, (before.version, after.version))?;
        self.step(Step::Written);
        self.paths.add(Path::Direct, committed(before.version, after.version));
        if let Err(error) = site.verify_store() {
            let message = format!("{}; what was written last is in the file that was there", error.full_message());
            return Err(Error::new(ErrorKind::Unknown, message));
        }
        site.bump_wakes();
        Ok(())
    }

    pub(crate) fn step(&self, step: Step) {
        if let Some(hook) = &self.hook {
            hook(step);
        }
    }
}

fn is_basis_changed(written: &Result<()>) -> bool {
    written.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict)
}

/// Writes, and finds out what a failed write did: the store's version, after a recovery, tells. Where it stays as it
/// is, as with the word of a log, the rows do: an answer stands on them, too.
pub(crate) fn write_and_know(
    site: &Site,
    basis: &Basis,
    rows: &RowSet,
    (before, after): (Version, Version),
) -> Result<()> {
    let Err(error) = site.engine.write(Some(basis), rows) else { return Ok(()) };
    if error.kind() != ErrorKind::Unknown {
        return Err(error);
    }
    let found = site.engine.recover().and_then(|()| {
        let found = site.engine.latest()?;
        let version = version_of(found.as_ref())?;
        let is_there = version == after && (before != after || has_all(found.as_ref(), rows)?);
        Ok((version, is_there))
    });
    match found {
        Ok((_, true)) => Ok(()),
        Ok((version, false)) if version == before => {
            // Its cause says what failed; that the outcome is not known is no longer so.
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Err(Error::unavailable(format!("nothing was written: {cause}")))
        }
        // Not to be known while the disk fails: the caller asks again.
        _ => Err(error),
    }
}

fn has_all(found: &dyn Rows, wanted: &RowSet) -> Result<bool> {
    for (key, value) in wanted {
        if found.get(key)? != *value {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod tests;
