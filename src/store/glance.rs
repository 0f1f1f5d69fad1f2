//! A look at a store's rows by who wants to know how things stand: nothing is recovered, and nothing waited for longer
//! than that takes.

use std::{collections::BTreeMap, ops::ControlFlow, path::Path, time::Duration};

use crate::{
    clock::{Timestamp, deadline_after, monotonic},
    codec,
    engine::redb::{Redb, RedbOptions},
    engine::{Engine as _, Rows, SnapshotError},
    error::Result,
    queue::{
        held,
        id::SessionId,
        schedule::{
            ScheduleRecord,
            plan::{MISSED_AFTER, due_schedules},
        },
    },
    store::{
        keys,
        lock::rules::LockRecord,
        object::StoreRecord,
        open::check_format,
        recovery::log_in_use,
        view::{for_each, get_record},
    },
};

/// What there was to see.
pub(crate) struct Glance {
    pub(crate) version: u64,
    /// The log that the store names.
    pub(crate) log: Option<[u8; 16]>,
    /// How many bytes keys and values take.
    pub(crate) row_bytes: u64,
    /// Whether that is all of them: the time may have been too short.
    pub(crate) is_all: bool,
    /// How many jobs each session holds.
    pub(crate) held: BTreeMap<SessionId, u64>,
    /// What the sessions have of named locks, in words.
    pub(crate) locks: BTreeMap<SessionId, String>,
    /// Schedules whose slot nobody has enqueued though its time has passed, and that slot; and whether this program
    /// could.
    pub(crate) overdue: Vec<(String, Timestamp, bool)>,
}

/// Looks; nothing where the last writer died, so that the file has to be recovered first. Rows are counted for about so
/// long, and a process that is stopped in the midst of the file waited for no longer.
pub(crate) fn glance(path: &Path, patience: Duration) -> Result<Option<Glance>> {
    let engine = Redb::open(path, RedbOptions { patience, ..RedbOptions::default() })?;
    let rows = match engine.snapshot() {
        Ok(rows) => rows,
        Err(SnapshotError::NeedsRecovery) => return Ok(None),
        Err(SnapshotError::Failed(error)) => return Err(error),
    };
    check_format(rows.as_ref())?;
    let store: StoreRecord = get_record(rows.as_ref(), keys::STORE)?.unwrap_or_default();
    let mut glance = Glance {
        version: store.version.0,
        log: log_in_use(rows.as_ref())?,
        row_bytes: 0,
        is_all: true,
        held: BTreeMap::new(),
        locks: locks(rows.as_ref())?,
        overdue: overdue(rows.as_ref())?,
    };
    for job in held(rows.as_ref())? {
        *glance.held.entry(job.session).or_default() += 1;
    }
    let deadline = deadline_after(patience);
    // Every key begins with its family's byte, and none is this one.
    rows.visit(&[], &[u8::MAX], &mut |key, value| {
        glance.row_bytes += (key.len() + value.len()) as u64;
        glance.is_all = monotonic() < deadline;
        Ok(if glance.is_all { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    drop(rows);
    engine.close()?;
    Ok(Some(glance))
}

fn locks(rows: &dyn Rows) -> Result<BTreeMap<SessionId, String>> {
    let mut words: BTreeMap<SessionId, Vec<String>> = BTreeMap::new();
    for_each(rows, &keys::locks(), |key, bytes| {
        // One that can't be read is for `check` to tell of.
        let Ok(lock) = codec::decode::<LockRecord>(bytes) else { return Ok(()) };
        let name = keys::lock_name(key).unwrap_or_default();
        words.entry(lock.holder.session).or_default().push(format!("holds the lock \"{name}\""));
        for (waiter, _) in &lock.waiters {
            words.entry(waiter.session).or_default().push(format!("waits for the lock \"{name}\""));
        }
        Ok(())
    })?;
    Ok(words.into_iter().map(|(session, words)| (session, words.join(", "))).collect())
}

fn overdue(rows: &dyn Rows) -> Result<Vec<(String, Timestamp, bool)>> {
    let now = Timestamp::now();
    let mut overdue = Vec::new();
    for name in due_schedules(rows, now)? {
        // One that can't be read is for `check` to tell of.
        let Ok(Some(record)) = get_record::<ScheduleRecord>(rows, &keys::schedule(&name)) else { continue };
        if let Some(slot) = record.slot().filter(|slot| now.since(*slot) > MISSED_AFTER) {
            overdue.push((name, slot, record.spec.is_known()));
        }
    }
    Ok(overdue)
}
