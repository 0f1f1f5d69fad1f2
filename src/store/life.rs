//! What makes a copy of a store a store of its own, with a life that begins: nothing that the processes and files of
//! the old one still say may be taken for something that is said of the copy (S44).
//!
//! It has another id, so no log and no socket of the old one is its own, and it names no log. What runs is held by a
//! session that never was, so that whatever session files lie beside it, each such job goes back as that of a session
//! without a file: suspect, uncharged (P3). Named locks are free. What a stone would answer again is gone, and the
//! horizon says so (A2): a client of the old life that asks for a change which the copy may have gets `Unknown`, and no
//! second effect. Versions go on from those of the copy, so that tokens, fences and ids of jobs never return within it.

use crate::{
    codec,
    engine::{RowSet, Rows},
    error::{Error, Result},
    queue::{id::SessionId, record::JobRecord},
    store::{
        keys::{self, ById},
        object::{FormatRecord, LogRecord, StoreRecord},
        verdict::HorizonRecord,
        view::{for_each, get_record},
    },
};

/// The rows that are to be others in a copy of these rows, or not to be there. They are few: a row per job that runs,
/// per named lock and per client.
pub(crate) fn new_life(rows: &dyn Rows) -> Result<RowSet> {
    let store: StoreRecord = get_record(rows, keys::STORE)?.unwrap_or_default();
    let format: FormatRecord = get_record(rows, keys::FORMAT)?
        .ok_or_else(|| Error::corrupt("the store does not say which format it has; run `casque check`"))?;
    let format = FormatRecord { store: crate::random::bytes(), ..format };
    let mut life = RowSet::from([
        (keys::FORMAT.to_vec(), Some(codec::encode(&format)?)),
        (keys::LOG.to_vec(), Some(codec::encode(&LogRecord::None)?)),
        (keys::CLIENT_HORIZON.to_vec(), Some(codec::encode(&HorizonRecord { born: store.version })?)),
    ]);
    for range in [keys::clients(), keys::locks(), keys::lock_sessions()] {
        for_each(rows, &range, |key, _| {
            life.insert(key.to_vec(), None);
            Ok(())
        })?;
    }
    let nobody = SessionId::random();
    for_each(rows, &ById::Held.all(), |key, bytes| {
        // One that this build can't read is somebody else's to take back, and may stay that of its session.
        if let Ok(mut job) = codec::decode::<JobRecord>(bytes)
            && let Some(lease) = &mut job.lease
        {
            lease.session = nobody;
            life.insert(key.to_vec(), Some(codec::encode(&job)?));
        }
        Ok(())
    })?;
    Ok(life)
}
