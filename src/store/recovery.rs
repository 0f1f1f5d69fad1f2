//! L6: what a stone answered and did not bring into the store's file any more is in its log. Whoever takes the writer's
//! lock and finds the log in use brings it in, before anything else.

use crate::{
    codec::{self, hex},
    engine::Rows,
    error::{Error, Result},
    stone::log::{self, LogId},
    store::{
        desk::write_and_know,
        keys,
        object::{FormatRecord, LogRecord, StoreRecord},
        site::Site,
        view::get_record,
    },
};

/// The log that the rows say is in use.
pub(crate) fn log_in_use(rows: &dyn Rows) -> Result<Option<[u8; 16]>> {
    Ok(match get_record(rows, keys::LOG)? {
        Some(LogRecord::InUse { log }) => Some(log),
        Some(LogRecord::None) | None => None,
    })
}

/// Brings the rows of a log that is in use into the store, in one write; whether there was one. Under the writer's
/// lock, with the engine recovered under it: a handle from before may not show the commit that the last writer died in,
/// and then what is replayed would fall on other rows than those it was chosen for.
///
/// # Errors
/// `Corrupt` where that log is missing, or does not continue what the store has: nothing is changed.
pub(crate) fn recover_log(site: &Site) -> Result<bool> {
    let rows = site.engine.latest()?;
    let Some(log) = log_in_use(rows.as_ref())? else { return Ok(false) };
    let Some(files) = site.files() else {
        return Err(Error::corrupt(format!("a store in memory says that log {} is in use", hex(&log))));
    };
    let basis = (keys::STORE.to_vec(), rows.get(keys::STORE)?);
    let before: StoreRecord = get_record(rows.as_ref(), keys::STORE)?.unwrap_or_default();
    let format: FormatRecord = get_record(rows.as_ref(), keys::FORMAT)?
        .ok_or_else(|| Error::corrupt("the store does not say which store it is; run `casque check`"))?;
    drop(rows);
    let mut replay = log::replay(&files.folder.log(), format.store, LogId(log), before.version, files.hook.clone())?;
    replay.rows.insert(keys::LOG.to_vec(), Some(codec::encode(&LogRecord::None)?));
    write_and_know(site, &basis, &replay.rows, (before.version, replay.version))?;
    site.bump_wakes();
    Ok(true)
}
