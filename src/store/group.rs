//! A group: changes that are decided one after the other and written together. It tells what becomes of each, and gives
//! the one list of rows that all who commit write, directly or through the log.

use crate::{
    clock::Timestamp,
    engine::{RowSet, Rows},
    error::{Error, ErrorKind, Result},
    local,
    store::{
        apply::apply,
        change::{Applied, Change, ChangeId, Intent},
        conflict::Version,
        keys,
        object::StoreRecord,
        site::Site,
        verdict::{Asked, Recalled, recall, remember},
        view::Overlay,
    },
};

/// A change that waits to be decided.
pub(crate) struct Proposal<'a> {
    pub(crate) change: &'a Change,
    /// A2: what its sender says of the answers that it awaits; none of a change that its own process commits.
    pub(crate) asked: Option<Asked>,
}

/// What became of a group's changes, and the rows that they ask for.
pub(crate) struct Decided {
    /// One for each change, in order.
    pub(crate) verdicts: Vec<Result<Applied>>,
    /// What is to be written; empty where nothing committed.
    pub(crate) rows: RowSet,
    /// The store as the rows leave it.
    pub(crate) after: StoreRecord,
}

/// Decides changes one after the other, on rows whose store record is `before`. Writes nothing.
///
/// # Errors
/// What reading the rows says; what is wrong with one change is its own verdict.
pub(crate) fn decide(site: &Site, proposals: &[Proposal<'_>], rows: &dyn Rows, before: StoreRecord) -> Result<Decided> {
    // Schedules go by the clock as it is: one commit by a clock that was ahead must not shift all that come after.
    let now = site.now();
    let mut after = StoreRecord { version: before.version, stamp: before.stamp.max(now) };
    let mut overlay = Overlay::new(rows);
    let mut verdicts = Vec::with_capacity(proposals.len());
    for proposal in proposals {
        let verdict = decide_one(site, proposal, &mut overlay, after, now);
        if let Ok(Applied { version: Some(version), .. }) = &verdict
            && *version > after.version
        {
            after.version = *version; // INV-2: one more for each committed change
        }
        verdicts.push(verdict);
    }
    if !overlay.is_untouched() {
        overlay.put_record(keys::STORE.to_vec(), &after)?;
    }
    Ok(Decided { verdicts, rows: overlay.into_rows(), after })
}

fn decide_one(
    site: &Site,
    proposal: &Proposal<'_>,
    overlay: &mut Overlay<'_>,
    newest: StoreRecord,
    now: Timestamp,
) -> Result<Applied> {
    let change = proposal.change;
    if let Some(asked) = &proposal.asked
        && asked.resent
    {
        match recall(overlay, change)? {
            Recalled::Applied(applied) => return Ok(applied),
            Recalled::Never => {}
            Recalled::Unknown => return Err(forgotten(change.id)),
        }
    }
    drop_stale_reclaim(site, change)?;
    let (applied, mut rows) = apply(change, overlay, newest.version, now)?;
    if let (Some(asked), Some(version)) = (&proposal.asked, applied.version) {
        let (key, row) = remember(overlay, change.id, asked, version, &applied)?;
        rows.insert(key, Some(row));
    }
    overlay.absorb(rows);
    Ok(applied)
}

/// What of the verdicts of a group, or of several in a row, stands though their write failed: only what was decided
/// before any change of it had rows to write. A later conflict, lost lease or holder of a unique key may tell of rows
/// that are not there.
pub(crate) fn fail_unwritten<'a>(verdicts: impl Iterator<Item = &'a mut Result<Applied>>, failure: &Error) {
    let wrote = |verdict: &Result<Applied>| matches!(verdict, Ok(Applied { version: Some(_), .. }));
    for verdict in verdicts.skip_while(|verdict| !wrote(verdict)) {
        *verdict = Err(failure.for_each_caller());
    }
}

/// P3: a session that has beaten since it was found stopped keeps its jobs and locks.
fn drop_stale_reclaim(site: &Site, change: &Change) -> Result<()> {
    for intent in &change.intents {
        let (session, found) = match intent {
            Intent::Reclaim(reclaim) => (reclaim.session, reclaim.beat),
            Intent::FreeLocks(free) => (free.session, free.beat),
            _ => continue,
        };
        let Some(files) = site.files() else { continue };
        let seen = local::look(&files.folder, session)?;
        let moved = match (seen, found) {
            (Some(seen), Some(beat)) => seen.alive && seen.beat != beat,
            (Some(seen), None) => seen.alive,
            (None, _) => false,
        };
        if moved {
            return Err(Error::unavailable(format!("session {session} has gone on; it keeps what it holds")));
        }
    }
    Ok(())
}

fn forgotten(id: ChangeId) -> Error {
    let message = format!(
        "what became of change {id} is no longer known: too many other clients left theirs behind since; read the \
         store to find out"
    );
    Error::new(ErrorKind::Unknown, message)
}

/// The number of changes that a group has committed.
pub(crate) fn committed(before: Version, after: Version) -> u64 {
    after.0 - before.0
}
