//! Reading a log after its stone died: which rows the store lacks (L6).

use std::{fmt::Display, path::Path, sync::Arc};

use super::{
    Half, LogId,
    format::{Chain, HEADER_BYTES, Header},
    medium::LogFile,
};
use crate::{
    engine::{Medium, RowSet, StorageHook},
    error::{Error, Result},
    local::files,
    store::conflict::Version,
};

const PUT_BACK: &str = "put back the log that belongs to this store";

/// What the store lacks of what its log holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    /// The rows of all records, later ones over earlier ones.
    pub(crate) rows: RowSet,
    /// The version that the store has with these rows.
    pub(crate) version: Version,
    /// How many records were replayed.
    pub(crate) records: usize,
}

/// Replays the log that a store at `version` names as in use: what continues exactly from that version, half after
/// half. What the store already has is skipped. Changes nothing.
///
/// # Errors
/// `Corrupt` where answered changes may be lost: the log is missing, cut short, unreadable or another one, or it holds
/// a record that the store lacks and that does not continue from what comes before. `Unavailable` where it can't be
/// read.
pub(crate) fn replay(
    path: &Path,
    store: [u8; 16],
    log: LogId,
    version: Version,
    hook: Option<Arc<dyn StorageHook>>,
) -> Result<Replay> {
    let wanted = Wanted { path, store, log, version };
    match LogFile::open_existing(path, hook)? {
        Some(file) => replay_on(&file, &wanted),
        None => Err(wanted.damaged("there is no such file", PUT_BACK)),
    }
}

/// The log to replay, and the version to replay it from.
pub(super) struct Wanted<'a> {
    pub(super) path: &'a Path,
    pub(super) store: [u8; 16],
    pub(super) log: LogId,
    pub(super) version: Version,
}

impl Wanted<'_> {
    fn damaged(&self, what: impl Display, remedy: &str) -> Error {
        let Self { path, log, version, .. } = self;
        Error::corrupt(format!(
            "replay the log \"{}\": {what}; the store is at version {version} and needs log {log} to go on, nothing \
             was changed; {remedy}, or keep both files and restore a backup",
            path.display()
        ))
    }
}

/// [`replay`], on any medium.
pub(super) fn replay_on(medium: &dyn Medium, wanted: &Wanted<'_>) -> Result<Replay> {
    let read = |bytes: usize, offset: u64| {
        let mut buffer = vec![0; bytes];
        let count = medium.read_at(&mut buffer, offset).map_err(|cause| files::refused("read", wanted.path, cause))?;
        buffer.truncate(count);
        Ok::<_, Error>(buffer)
    };
    let header =
        Header::decode(&read(HEADER_BYTES, 0)?).map_err(|why| wanted.damaged(format!("it {why}"), PUT_BACK))?;
    if header.store != wanted.store {
        return Err(wanted.damaged("it is the log of another store", PUT_BACK));
    }
    if header.log != wanted.log {
        return Err(wanted.damaged(format!("it is log {}", header.log), PUT_BACK));
    }
    let len = medium.len().map_err(|cause| files::refused("inspect", wanted.path, cause))?;
    if len < header.file_bytes() {
        let what = format!("it has {len} bytes instead of {}", header.file_bytes());
        return Err(wanted.damaged(what, "put back the whole file"));
    }

    let halves =
        [read(header.half_bytes, header.half_at(Half::First))?, read(header.half_bytes, header.half_at(Half::Second))?];
    let mut chains = halves.each_ref().map(|half| Chain::new(header, half).peekable());
    let starts = chains.each_mut().map(|chain| chain.peek().map(|record| record.before));
    if starts[0] > starts[1] {
        chains.reverse();
    }
    let mut replay = Replay { rows: RowSet::new(), version: wanted.version, records: 0 };
    for record in chains.into_iter().flatten().filter(|record| record.after > wanted.version) {
        // A window begins only when all before it is synced: a gap was not left by a crash.
        let what = if record.before != replay.version {
            "does not continue from"
        } else if record.after <= record.before || record.redo(&mut replay.rows).is_none() {
            "holds no sound rows to follow on"
        } else {
            replay.version = record.after;
            replay.records += 1;
            continue;
        };
        let (before, after) = (record.before, record.after);
        let what = format!("its record of versions {before} to {after} {what} version {}", replay.version);
        return Err(wanted.damaged(what, "put back the store that was used with it"));
    }
    Ok(replay)
}
