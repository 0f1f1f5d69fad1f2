//! The rules of named locks. A lock that is held is a row: who holds it, under which number, and who waits for it, in
//! the order they came. One that is free has no row. Reads and writes: the lock's row, and an index entry by session,
//! so that what a dead process held is found.
//!
//! A lock's number is the version of the change that gave it: it grows for ever, also over the times in which the lock
//! has no row.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    codec::Record,
    engine::Rows,
    error::{Error, ErrorKind, Result},
    queue::{enqueue::check_name, id::SessionId},
    store::{
        apply::Context,
        change::Outcome,
        keys,
        view::{first_rows, get_record, inconsistent},
    },
};

/// How many may wait for one lock.
pub(crate) const WAITERS_MAX: usize = 1_000;
/// How many locks of a session one change frees.
pub(crate) const FREED_MAX: usize = 500;

/// The fencing number of one holding of a named lock: of two holders of a lock, the later has the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fence(pub(crate) u64);

impl Fence {
    /// The number, for what is fenced outside of the store: it refuses whatever comes with a smaller one than it knows.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Who wants a lock: one guard, or one that is to be, of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Claimant {
    pub(crate) session: SessionId,
    pub(crate) nonce: u64,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockRecord {
    pub(crate) holder: Claimant,
    /// What the holder's process calls itself.
    pub(crate) label: String,
    pub(crate) fence: Fence,
    pub(crate) since: Timestamp,
    /// Who gets it next, in this order.
    pub(crate) waiters: Vec<(Claimant, String)>,
}

impl Record for LockRecord {
    const NAME: &'static str = "named lock";
}

impl LockRecord {
    /// Everybody in it.
    pub(crate) fn claimants(&self) -> impl Iterator<Item = Claimant> {
        std::iter::once(self.holder).chain(self.waiters.iter().map(|(waiter, _)| *waiter))
    }
}

/// A wish for a lock, as it travels in a change. Asked again by the same claimant it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockRequest {
    pub(crate) name: String,
    pub(crate) claimant: Claimant,
    /// Whether it waits for its turn where another holds the lock.
    pub(crate) waits: bool,
}

/// Frees what a session holds, and takes it out of where it waits: it is dead, has stopped, or ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FreeLocks {
    pub(crate) session: SessionId,
    /// P2: the beat that was seen unchanged; `None` for a session that has no file.
    pub(crate) beat: Option<u64>,
}

/// The lock of that name, where somebody holds it.
pub(crate) fn lock_of(rows: &dyn Rows, name: &str) -> Result<Option<LockRecord>> {
    get_record(rows, &keys::lock(name))
}

pub(crate) fn lock(context: &mut Context<'_>, request: &LockRequest) -> Result<Outcome> {
    let LockRequest { name, claimant, waits } = request;
    check_name("lock", name)?;
    let label = context.change.writer.label.clone();
    let Some(mut record) = lock_of(&context.rows, name)? else {
        let fence = Fence(context.version.0);
        let record = LockRecord { holder: *claimant, label, fence, since: context.now, waiters: Vec::new() };
        context.rows.put_record(keys::lock(name), &record)?;
        context.rows.put(keys::lock_session(claimant.session, name), Vec::new());
        return Ok(Outcome::Locked(Some(fence)));
    };
    if record.holder == *claimant {
        return Ok(Outcome::Locked(Some(record.fence)));
    }
    if *waits && record.claimants().all(|other| other != *claimant) {
        if record.waiters.len() >= WAITERS_MAX {
            return Err(Error::unavailable(format!(
                "{WAITERS_MAX} wait for the lock \"{name}\" already; try again later"
            )));
        }
        record.waiters.push((*claimant, label));
        context.rows.put_record(keys::lock(name), &record)?;
        context.rows.put(keys::lock_session(claimant.session, name), Vec::new());
    }
    Ok(Outcome::Locked(None))
}

pub(crate) fn unlock(context: &mut Context<'_>, name: &str, claimant: Claimant) -> Result<Outcome> {
    let Some(record) = lock_of(&context.rows, name)? else { return Ok(Outcome::Unlocked { was_held: false }) };
    let was_held = record.holder == claimant;
    if record.claimants().any(|other| other == claimant) {
        leave(context, name, &record, |other| other == claimant)?;
    }
    Ok(Outcome::Unlocked { was_held })
}

pub(crate) fn free_locks(context: &mut Context<'_>, free: &FreeLocks) -> Result<Outcome> {
    let mut locks = 0;
    for (key, _) in first_rows(&context.rows, &keys::lock_sessions_of(free.session), FREED_MAX)? {
        let (_, name) = keys::lock_session_parts(&key)
            .ok_or_else(|| inconsistent("an entry of the index of locks names no lock"))?;
        match lock_of(&context.rows, &name)? {
            Some(record) => leave(context, &name, &record, |other| other.session == free.session)?,
            None => context.rows.remove(key),
        }
        locks += 1;
    }
    Ok(Outcome::LocksFreed { locks })
}

/// Takes claimants out of a lock; where its holder is among them, the first of those who wait has it.
fn leave(context: &mut Context<'_>, name: &str, before: &LockRecord, leaves: impl Fn(Claimant) -> bool) -> Result<()> {
    let mut after = before.clone();
    after.waiters.retain(|(waiter, _)| !leaves(*waiter));
    let is_free = leaves(after.holder);
    if is_free && after.waiters.is_empty() {
        context.rows.remove(keys::lock(name));
    } else {
        if is_free {
            (after.holder, after.label) = after.waiters.remove(0);
            (after.fence, after.since) = (Fence(context.version.0), context.now);
        }
        context.rows.put_record(keys::lock(name), &after)?;
    }
    for gone in before.claimants().filter(|claimant| leaves(*claimant)) {
        if !before.claimants().any(|other| other.session == gone.session && !leaves(other)) {
            context.rows.remove(keys::lock_session(gone.session, name));
        }
    }
    Ok(())
}

/// That a lock is still held under a number.
///
/// # Errors
/// `LeaseLost`, naming who holds it now.
pub(crate) fn check_fence(rows: &dyn Rows, name: &str, fence: Fence) -> Result<()> {
    let now = match lock_of(rows, name)? {
        Some(record) if record.fence == fence => return Ok(()),
        Some(record) => format!("{} holds it under {}", record.label, record.fence),
        None => "nobody holds it".to_owned(),
    };
    Err(Error::new(
        ErrorKind::LeaseLost,
        format!("the lock \"{name}\" held under {fence} is lost ({now}); what it guarded was not written"),
    ))
}
