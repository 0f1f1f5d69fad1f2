//! How a stone decides a group, with what waits at it: in the same commit, so that nobody comes in between.

use std::collections::HashSet;

use super::{Stone, proposals};
use crate::{
    clock::monotonic,
    engine::RowSet,
    error::{ErrorKind, Result},
    stone::{
        entry::Entry,
        parked::{Served, is_locked, locks_in, queues_with_jobs},
    },
    store::{
        change::Applied,
        committer::Step,
        group::{Decided, decide},
        object::StoreRecord,
        view::Layer,
    },
};

/// What a group came to.
pub(super) struct Group {
    /// One for each of its entries, in order.
    pub(super) verdicts: Vec<Result<Applied>>,
    pub(super) rows: RowSet,
    pub(super) before: StoreRecord,
    /// The store as the rows leave it.
    pub(super) after: StoreRecord,
    /// What had waited, and is answered with the group.
    pub(super) served: Vec<(Entry, Result<Applied>)>,
}

impl Stone<'_> {
    /// Decides a group, where this stone's place is still its own. What is wrong with the group is the inner error.
    ///
    /// # Errors
    /// What ends this stone.
    pub(super) fn decide_in_place(&mut self, entries: &[Entry]) -> Result<Result<Group>> {
        self.ground.desk.step(Step::Locked);
        self.guard.check_place()?;
        self.ground.site.verify_store()?;
        if let Err(error) = self.catch_up() {
            return Ok(Err(error));
        }
        let decided = self.decide_with_parked(entries);
        let is_unreadable = match &decided {
            Ok(group) => group.rows.is_empty() && group.verdicts.iter().any(is_unavailable),
            Err(_) => true,
        };
        if !is_unreadable {
            return Ok(decided);
        }
        if self.window.is_flushing() {
            // A flush that failed has closed the file that is read from: how it ended is to be told, or the group is
            // decided on what it left.
            let flushed = self.flusher.wait();
            self.flushed(flushed)?;
            if let Some((error, _)) = &self.trouble {
                return Ok(Err(error.for_each_caller()));
            }
        } else {
            self.window.thaw(self.ground.site)?;
        }
        Ok(self.decide_with_parked(entries))
    }

    /// Decides a group and, in the same commit, the parked claims that it satisfies (C4).
    fn decide_with_parked(&mut self, entries: &[Entry]) -> Result<Group> {
        let Decided { verdicts, mut rows, mut after } = self.decide(entries)?;
        let mut served = Vec::new();
        if !self.parked.is_empty() && (!rows.is_empty() || !self.unserved.queues.is_empty()) {
            let mut queues = queues_with_jobs(&rows);
            queues.extend(std::mem::take(&mut self.unserved.queues));
            let mut unserved = HashSet::new();
            if !queues.is_empty() {
                let (site, window, connections) = (self.ground.site, &self.window, &self.connections);
                let mut answers = Vec::new();
                let now = monotonic();
                let taken = self.parked.serve(&queues, |parked| {
                    if !connections.shows_life(&parked.origin, now) {
                        unserved.extend(parked.queues().filter(|queue| queues.contains(*queue)).map(str::to_owned));
                        return Served::Not;
                    }
                    let claim = proposals(std::slice::from_ref(parked));
                    // One that can't be decided now waits on; the group stands without it.
                    let Ok(decided) = decide(site, &claim, &Layer::new(window, &rows), after) else {
                        return Served::FoundNothing;
                    };
                    if decided.rows.is_empty() {
                        return Served::FoundNothing;
                    }
                    rows.extend(decided.rows);
                    after = decided.after;
                    answers.extend(decided.verdicts);
                    Served::Yes
                });
                served = taken.into_iter().zip(answers).collect();
                self.unserved.queues = unserved;
            }
        }
        self.serve_locks(&mut rows, &mut after, &mut served);
        let claims = served.iter().map(|(entry, _)| entry);
        let connected = || self.connections.clients();
        self.clients.admit(entries.iter().chain(claims), &mut rows, &self.window, connected)?;
        Ok(Group { verdicts, rows, before: self.window.store, after, served })
    }

    /// Fulfils the wishes for named locks that wait, and whose turn it is by the group's rows.
    fn serve_locks(&mut self, rows: &mut RowSet, after: &mut StoreRecord, served: &mut Vec<(Entry, Result<Applied>)>) {
        if rows.is_empty() || !self.parked.has_locks() {
            return;
        }
        let (site, window, locks) = (self.ground.site, &self.window, locks_in(rows));
        let mut answers = Vec::new();
        let taken = self.parked.serve_locks(&locks, |parked| {
            let wish = proposals(std::slice::from_ref(parked));
            // One that can't be decided now waits on; the group stands without it.
            let Ok(decided) = decide(site, &wish, &Layer::new(window, rows), *after) else { return false };
            let is_served = matches!(&decided.verdicts[0], Ok(applied) if is_locked(applied));
            if is_served {
                rows.extend(decided.rows);
                *after = decided.after;
                answers.extend(decided.verdicts);
            }
            is_served
        });
        served.extend(taken.into_iter().zip(answers));
    }
}

fn is_unavailable(verdict: &Result<Applied>) -> bool {
    verdict.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable)
}
