//! The engine in a file: one table of redb, shared by any number of processes.
//!
//! Reads open the file read-only and take no lock, until this process has written; then its writable handle serves them
//! too. That handle is opened, used to write and closed only under the writer's lock. Who holds that lock is not known
//! here, and neither are the rows' meaning and the log.

mod backend;
mod compact;
mod create;
mod open;
mod pinned;
mod place;
mod rows;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use redb::{
    Database, Durability, ReadOnlyDatabase, ReadTransaction, ReadableDatabase, ReadableTable, StorageError, Table,
    TableDefinition, TransactionError, WriteTransaction,
};

pub use self::backend::{StorageHook, StorageOperation};
use self::{open::OpenError, place::Place, rows::RedbRows};
pub(crate) use self::{
    open::RedbOptions,
    pinned::{pinned_by, pinned_transactions},
};
use super::{Basis, Engine, RowSet, Rows, SnapshotError, basis_changed};
use crate::error::{Error, ErrorKind, Result};

/// All rows are in one table: each further one would make every commit dearer.
const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");

/// A store's file.
#[derive(Debug)]
pub(crate) struct Redb {
    place: Arc<Place>,
    options: RedbOptions,
    slot: RwLock<Slot>,
    /// Held by what opens, uses or closes a writable handle. The writer's lock orders processes, this one threads.
    /// Taken before `slot`; `slot` is held only to begin a transaction or to exchange the handle, never while rows are
    /// written, so that a commit does not keep snapshots waiting.
    writing: Mutex<()>,
}

/// The handle in use; the number tells it from the ones before, so that a failure discards only the handle that failed.
#[derive(Debug)]
struct Slot {
    number: u64,
    handle: Handle,
}

enum Handle {
    None,
    Reader(ReadOnlyDatabase),
    Writer(Database),
    Closed,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Reader(_) => "Reader",
            Self::Writer(_) => "Writer",
            Self::Closed => "Closed",
        })
    }
}

impl Redb {
    /// An engine on an existing file, which is looked at now and opened when it is needed.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` where something else is at the path, `Unavailable` where permission is lacking.
    pub(crate) fn open(path: &Path, options: RedbOptions) -> Result<Self> {
        open::inspect(path)?;
        Ok(Self {
            place: Arc::new(Place::new(path)),
            options,
            slot: RwLock::new(Slot { number: 0, handle: Handle::None }),
            writing: Mutex::new(()),
        })
    }

    /// Makes a new file with these rows, whole or not at all. Only under the writer's lock.
    ///
    /// # Errors
    /// `Invalid` where something is at the path already; `Unknown` where the file is there and may not outlast a power
    /// cut. After any other kind there is no file.
    pub(crate) fn create(path: &Path, rows: &RowSet, options: &RedbOptions) -> Result<()> {
        create::create(path, rows, options)
    }

    /// Begins to read on the handle there is; nothing if there is none.
    fn begin_read(&self) -> Option<(u64, Result<ReadTransaction, TransactionError>)> {
        let slot = self.slot();
        match &slot.handle {
            Handle::None | Handle::Closed => None,
            Handle::Reader(reader) => Some((slot.number, reader.begin_read())),
            Handle::Writer(writer) => Some((slot.number, writer.begin_read())),
        }
    }

    fn open_reader(&self) -> Result<(), SnapshotError> {
        if matches!(self.slot().handle, Handle::Closed) {
            return Err(SnapshotError::Failed(Error::closed()));
        }
        let reader = self.options.open_reader(&self.place).map_err(|error| match error {
            OpenError::NeedsRecovery => SnapshotError::NeedsRecovery,
            OpenError::Failed(error) => SnapshotError::Failed(error),
        })?;
        let mut slot = self.slot_mut();
        // Another thread may have been quicker, and its handle may be the one that writes.
        if matches!(slot.handle, Handle::None) {
            drop(slot.replace(Handle::Reader(reader)));
        }
        Ok(())
    }

    /// Exchanges the handle for a fresh writable one. Only with `writing` held.
    fn open_writer(&self) -> Result<()> {
        let previous = {
            let mut slot = self.slot_mut();
            match slot.handle {
                Handle::Closed => return Err(Error::closed()),
                // The reader serves snapshots until the writer takes its place; those it has begun keep it afterwards.
                Handle::None | Handle::Reader(_) => Handle::None,
                Handle::Writer(_) => slot.replace(Handle::None),
            }
        };
        // Closed before the file is opened anew, so that the new handle finds what the old one left.
        self.drop_handle(previous);
        let writer = self.options.open_writer(&self.place)?;
        let previous = self.slot_mut().replace(Handle::Writer(writer));
        drop(previous);
        Ok(())
    }

    /// A write transaction, on a fresh handle if the present one has failed before. Only with `writing` held.
    fn begin_write(&self) -> Result<WriteTransaction> {
        // It waits for redb's own lock: only a writer that is just dying can hold it, for the system frees the locks of
        // a process one after the other.
        if let Handle::Writer(writer) = &self.slot().handle {
            let begun = self.place.guarded(WRITE, || writer.begin_write());
            let begun = begun.and_then(|begun| begun.map_err(|error| self.place.of_transaction(WRITE, error)));
            // Whoever waited in vain for a lock has waited enough; a fresh handle would wait for the same.
            if begun.as_ref().map_or_else(|error| error.kind() == ErrorKind::TimedOut, |_| true) {
                return begun;
            }
        }
        self.open_writer()?;
        let begun = match &self.slot().handle {
            Handle::Writer(writer) => self.place.guarded(WRITE, || writer.begin_write()),
            _ => return Err(Error::closed()),
        };
        let begun = begun.and_then(|begun| begun.map_err(|error| self.place.of_transaction(WRITE, error)));
        if begun.is_err() {
            self.discard_writer();
        }
        begun
    }

    /// Drops a writable handle after a failure: redb asks for it to be reopened. Only with `writing` held, and with no
    /// write transaction open, which would keep the file open.
    fn discard_writer(&self) {
        let mut slot = self.slot_mut();
        if matches!(slot.handle, Handle::Writer(_)) {
            let failed = slot.replace(Handle::None);
            drop(slot);
            self.drop_handle(failed);
        }
    }

    /// Drops a handle that redb has shut after a failure of the storage. To drop it writes nothing to the file, so this
    /// needs no lock.
    fn discard_shut(&self, number: u64) {
        let mut slot = self.slot_mut();
        if slot.number == number && matches!(slot.handle, Handle::Reader(_) | Handle::Writer(_)) {
            let shut = slot.replace(Handle::None);
            drop(slot);
            self.drop_handle(shut);
        }
    }

    /// A handle is dropped after a failure, or for a fresh one; what redb could say of its closing is then of no use.
    fn drop_handle(&self, handle: Handle) {
        let _ = self.place.guarded("close", || drop(handle));
    }

    /// Only with `writing` held.
    fn close_handle(&self) -> Result<()> {
        self.place.mark_closed();
        let handle = self.slot_mut().replace(Handle::Closed);
        // A writer commits once more as it closes.
        let closed = self.place.guarded("close", || match handle {
            Handle::None | Handle::Closed => Ok(()),
            Handle::Reader(reader) => reader.close(),
            Handle::Writer(writer) => writer.close(),
        });
        closed?.map_err(|error| self.place.of_database("close", error))
    }

    fn slot(&self) -> RwLockReadGuard<'_, Slot> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot_mut(&self) -> RwLockWriteGuard<'_, Slot> {
        self.slot.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: TransactionError) -> SnapshotError {
        SnapshotError::Failed(self.place.of_transaction("read", error))
    }
}

impl Slot {
    #[must_use]
    fn replace(&mut self, handle: Handle) -> Handle {
        self.number += 1;
        std::mem::replace(&mut self.handle, handle)
    }
}

const WRITE: &str = "write to";

impl Engine for Redb {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send>, SnapshotError> {
        let rows = |transaction: ReadTransaction| -> Result<Box<dyn Rows + Send>, SnapshotError> {
            Ok(Box::new(RedbRows::new(&transaction, &self.place).map_err(SnapshotError::Failed)?))
        };
        match self.begin_read() {
            Some((_, Ok(transaction))) => return rows(transaction),
            // An earlier call failed and redb has shut the handle. Only this error proves it: to drop a writable handle
            // that is well would write to the file, and the writer's lock isn't ours.
            Some((number, Err(TransactionError::Storage(StorageError::PreviousIo)))) => self.discard_shut(number),
            Some((_, Err(error))) => return Err(self.failed(error)),
            None => {}
        }
        self.open_reader()?;
        match self.begin_read() {
            Some((_, Ok(transaction))) => rows(transaction),
            Some((_, Err(error))) => Err(self.failed(error)),
            None => Err(SnapshotError::Failed(Error::closed())),
        }
    }

    fn latest(&self) -> Result<Box<dyn Rows + Send>> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // A file opened for writing is repaired; a handle that was open when another writer died is not, until it
        // writes.
        if !matches!(self.slot().handle, Handle::Writer(_)) {
            self.open_writer()?;
        }
        match self.snapshot() {
            Ok(rows) => Ok(rows),
            Err(SnapshotError::Failed(error)) => Err(error),
            Err(SnapshotError::NeedsRecovery) => {
                self.open_writer()?;
                let (_, begun) = self.begin_read().ok_or_else(Error::closed)?;
                let transaction = begun.map_err(|error| self.place.of_transaction("read", error))?;
                Ok(Box::new(RedbRows::new(&transaction, &self.place)?))
            }
        }
    }

    fn write(&self, basis: Option<&Basis>, rows: &RowSet) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = self.begin_write()?;
        // The transaction ends within the guarded call, whatever happens: before its handle is discarded.
        let written = self.place.guarded(WRITE, || fill(transaction, basis, rows, &self.place)).and_then(|filled| {
            let transaction = filled?;
            let committed = self.place.guarded(WRITE, || transaction.commit());
            committed.map_err(Place::unknown)?.map_err(|error| self.place.of_commit(WRITE, error))
        });
        if written.is_err() {
            self.discard_writer();
        }
        written
    }

    fn recover(&self) -> Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.open_writer()
    }

    fn hold_still(&self, pause: &mut dyn FnMut()) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // Reads begin with it held, and redb's lock on the header is held only while they do.
        let _slot = self.slot_mut();
        pause();
    }

    fn close_if_only_read(&self) -> Result<bool> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(self.slot().handle, Handle::Writer(_)) {
            return Ok(false);
        }
        self.close_handle().map(|()| true)
    }

    fn close(&self) -> Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.close_handle()
    }

    fn compact(&self, patience: Duration) -> Result<bool> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(self.slot().handle, Handle::Closed) {
            return Err(Error::closed());
        }
        // A handle of its own, as for a check. Those that are open stay so: redb sees to it that they forget the pages
        // that were moved.
        compact::compact(&self.options, &self.place, patience)
    }

    fn check(&self) -> Result<Vec<String>> {
        const DOING: &str = "check";
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(self.slot().handle, Handle::Closed) {
            return Err(Error::closed());
        }
        // A handle of its own, for redb checks only one that has no transaction open, and snapshots may be held.
        let checked = self.options.open_writer(&self.place).and_then(|mut database| {
            self.place.guarded(DOING, || {
                let sound = database.check_integrity();
                let closed = database.close();
                sound.and_then(|sound| closed.map(|()| sound)).map_err(|error| self.place.of_database(DOING, error))
            })?
        });
        match checked {
            Ok(true) => Ok(Vec::new()),
            Ok(false) => Ok(vec![format!(
                "'{}': the map of free pages did not match the rows; it was repaired, and no row was lost",
                self.place.path().display()
            )]),
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(vec![error.to_string()]),
            Err(error) => Err(error),
        }
    }
}

/// Gives the transaction back, filled; or ends it.
fn fill(
    mut transaction: WriteTransaction,
    basis: Option<&Basis>,
    rows: &RowSet,
    place: &Place,
) -> Result<WriteTransaction> {
    transaction.set_durability(Durability::Immediate).map_err(|error| {
        place.error(ErrorKind::Unavailable, WRITE, "durability could not be had; try again").because(error)
    })?;
    {
        let mut table = transaction.open_table(TABLE).map_err(|error| place.of_table(WRITE, error))?;
        if let Some((key, presumed)) = basis {
            let found = table.get(key.as_slice()).map_err(|error| place.of_storage(WRITE, error))?;
            if found.as_ref().map(redb::AccessGuard::value) != presumed.as_deref() {
                return Err(basis_changed());
            }
        }
        put(&mut table, rows).map_err(|error| place.of_storage(WRITE, error))?;
    }
    Ok(transaction)
}

fn put(table: &mut Table<'_, &'static [u8], &'static [u8]>, rows: &RowSet) -> Result<(), StorageError> {
    for (key, value) in rows {
        match value {
            Some(value) => table.insert(key.as_slice(), value.as_slice())?,
            None => table.remove(key.as_slice())?,
        };
    }
    Ok(())
}
