//! The engine: what keeps the rows. It offers snapshots of all rows and one durable, all-or-nothing write of some.
//!
//! Nothing about jobs is here, and nothing about who may write: [`Engine::write`], [`Engine::recover`] and
//! [`Engine::close`] are called only by the holder of the writer's lock. One conformance suite runs on all engines.

#[cfg(test)]
pub(crate) mod conformance;
#[cfg(test)]
pub(crate) mod disk;
pub(crate) mod memory;
pub(crate) mod redb;
mod storage;

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

pub use self::storage::{Medium, Storage, StorageHook, StorageOperation};

use crate::error::Result;

/// Rows to write: new bytes, or none to remove. In key order, each key once.
pub(crate) type RowSet = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A row that a write presumes: its key, and its bytes or none.
pub(crate) type Basis = (Vec<u8>, Option<Vec<u8>>);

/// What [`Rows::visit`] calls with each key and value; `Break` ends the visit.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 'a;

/// Takes a row of a file that is made.
pub(crate) type Take<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Hands in the rows of a file that is made, each key once; quickest in order.
pub(crate) type Fill<'a> = dyn FnMut(&mut Take<'_>) -> Result<()> + 'a;

/// A consistent view of rows, ordered by the bytes of their keys.
pub(crate) trait Rows {
    /// The bytes under a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Visits the rows with `start <= key < end` in order.
    fn visit(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()>;

    /// How many rows there are, where that is known without a look at each.
    fn count(&self) -> Option<u64> {
        None
    }
}

/// What keeps the rows of one store.
pub(crate) trait Engine: Send + Sync {
    /// A view of all that was written before this call, by any process.
    ///
    /// # Errors
    /// [`SnapshotError::NeedsRecovery`] when the last writer died: take the writer's lock, [`Engine::recover`], retry.
    fn snapshot(&self) -> Result<Box<dyn Rows + Send>, SnapshotError>;

    /// A view to base a write on: the newest rows. Where the last writer died it may lack the commit it died in; a
    /// write with a basis is then refused, and [`Engine::recover`] brings that commit to light. Only under the
    /// writer's lock.
    fn latest(&self) -> Result<Box<dyn Rows + Send>>;

    /// Writes all of the rows durably, or none. Only under the writer's lock. `basis` is a row as the rows to write
    /// presume it: the engine's own compare-and-swap, so that what was computed from one state never lands on another.
    ///
    /// # Errors
    /// `TimedOut` where a stopped process holds a lock of the engine's own; nothing was written.
    /// `Conflict` where the basis is another; nothing was written. A writer that died in the last instant of its commit
    /// may have left one that [`Engine::latest`] did not show yet, and shows from then on.
    /// `Unknown` when the rows may or may not be there: [`Engine::recover`], then read to find out. Any other kind
    /// says that nothing was written.
    fn write(&self, basis: Option<&Basis>, rows: &RowSet) -> Result<()>;

    /// Opens anew for writing and repairs what a dead writer left behind. Only under the writer's lock.
    ///
    /// Until then a snapshot may lack a write whose writer died before it was answered, and show it afterwards: who
    /// asks whether an `Unknown` write is there recovers first. Snapshots that are held may end with `Unavailable`.
    fn recover(&self) -> Result<()>;

    /// Calls `pause` while no thread of this process is inside of the engine, but for reads that have begun: whoever is
    /// stopped in it then holds none of the engine's locks.
    fn hold_still(&self, pause: &mut dyn FnMut()) {
        pause();
    }

    /// Closes, unless it holds a handle that only the holder of the writer's lock may close; whether it did.
    fn close_if_only_read(&self) -> Result<bool>;

    /// Gives up all handles. Only under the writer's lock; the engine is not used afterwards.
    fn close(&self) -> Result<()>;

    /// Moves what is kept together and gives the rest of the file back, once nobody reads; whether it came to that
    /// within this time. Reads that begin meanwhile wait until it is done. Only under the writer's lock.
    fn compact(&self, _patience: Duration) -> Result<bool> {
        Ok(true)
    }

    /// Checks the engine's own structure; what it finds wrong is in the list. Only under the writer's lock.
    fn check(&self) -> Result<Vec<String>>;
}

/// The error of a write whose basis is not what it presumed.
pub(crate) fn basis_changed() -> crate::error::Error {
    crate::error::Error::new(
        crate::error::ErrorKind::Conflict,
        "the store was changed by someone who does not hold its lock; nothing was written, retry",
    )
}

/// Why there is no snapshot.
#[derive(Debug)]
pub(crate) enum SnapshotError {
    /// The last writer died in mid-write, and someone has to repair the file under the writer's lock.
    NeedsRecovery,
    /// Anything else.
    Failed(crate::error::Error),
}
