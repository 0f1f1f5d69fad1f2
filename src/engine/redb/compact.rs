//! Compaction: redb moves the pages in use to the front of the file and cuts the rest off. It does so in place, so that
//! the file stays the one that others have open, and only while nobody reads.

use std::time::{Duration, Instant};

use redb::{CompactionError, Database};

use super::{open::RedbOptions, place::Place};
use crate::{
    clock::{deadline_after, monotonic, sleep},
    error::Result,
};

const DOING: &str = "compact";
/// How often it is tried while somebody reads.
const POLL: Duration = Duration::from_millis(5);

/// Whether it could be done within this time.
pub(super) fn compact(options: &RedbOptions, place: &Place, patience: Duration) -> Result<bool> {
    let deadline = deadline_after(patience);
    let mut database = options.open_writer(place)?;
    let compacted = compact_when_quiet(&mut database, place, deadline);
    let closed = place.guarded(DOING, || database.close())?.map_err(|error| place.of_database(DOING, error));
    let is_done = compacted?;
    closed.map(|()| is_done)
}

fn compact_when_quiet(database: &mut Database, place: &Place, deadline: Instant) -> Result<bool> {
    loop {
        match place.guarded(DOING, || database.compact())? {
            Ok(_) => return Ok(true),
            Err(CompactionError::TransactionInProgress) if monotonic() >= deadline => return Ok(false),
            Err(CompactionError::TransactionInProgress) => sleep(POLL),
            Err(CompactionError::Storage(error)) => return Err(place.of_storage(DOING, error)),
            Err(other) => {
                let kind = crate::error::ErrorKind::Unavailable;
                return Err(place.error(kind, DOING, "redb refused; try again").because(other));
            }
        }
    }
}
