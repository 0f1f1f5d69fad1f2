//! Which file an error is about, and what redb's errors mean to a caller: the only place that maps them.

use std::{
    cell::Cell,
    io,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    path::{Path, PathBuf},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use redb::{CommitError, DatabaseError, StorageError, TableError, TransactionError};

use crate::error::{Error, ErrorKind, Result};

thread_local! {
    /// This thread is in a call whose panic becomes an error.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// A store's file, shared by its engine and its snapshots.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    closed: AtomicBool,
}

impl Place {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), closed: AtomicBool::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn mark_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// An error that names the file, what was done to it, and what is wrong and helps.
    pub(super) fn error(&self, kind: ErrorKind, doing: &str, what: &str) -> Error {
        Error::new(kind, format!("{doing} '{}': {what}", self.path.display()))
    }

    pub(super) fn not_a_store(&self, doing: &str, why: &str) -> Error {
        self.error(ErrorKind::Invalid, doing, &format!("not a casque store: {why}; name another path"))
    }

    fn corrupt(&self, doing: &str, what: &str) -> Error {
        self.error(
            ErrorKind::Corrupt,
            doing,
            &format!("{what}; stop all processes, keep the file, and restore from a backup"),
        )
    }

    /// Calls into redb, which panics on some damage, such as a page of zeros: the caller is to hear of the file, and a
    /// worker is to stop in order.
    pub(super) fn guarded<T>(&self, doing: &str, call: impl FnOnce() -> T) -> Result<T> {
        quieten_guarded_panics();
        let was_guarded = IS_GUARDED.replace(true);
        // What the call leaves half done is in redb's handle, which marks itself as unfit to write.
        let called = catch_unwind(AssertUnwindSafe(call));
        IS_GUARDED.set(was_guarded);
        called.map_err(|panic| {
            let said = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no reason was given");
            self.corrupt(doing, &format!("the file is damaged, redb gave up: {said}"))
        })
    }

    pub(super) fn of_io(&self, doing: &str, error: io::Error) -> Error {
        let made = match error.kind() {
            io::ErrorKind::NotFound => {
                self.error(ErrorKind::NotFound, doing, "there is no such file; create the store or name another path")
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => self.error(
                ErrorKind::Unavailable,
                doing,
                "permission is lacking; run as the file's owner or have it granted",
            ),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.error(ErrorKind::Unavailable, doing, "the disk is full; free some space, then try again")
            }
            io::ErrorKind::TimedOut => self.error(
                ErrorKind::TimedOut,
                doing,
                "a process that is stopped holds a lock of it; continue or end that process, then try again",
            ),
            io::ErrorKind::UnexpectedEof => self.corrupt(doing, "the file is truncated"),
            // redb says so where the magic number is missing.
            io::ErrorKind::InvalidData => self.not_a_store(doing, "its first bytes are not a store's"),
            _ => self.error(
                ErrorKind::Unavailable,
                doing,
                "the storage failed; see that the disk is well, then try again",
            ),
        };
        made.because(error)
    }

    pub(super) fn of_storage(&self, doing: &str, error: StorageError) -> Error {
        match error {
            StorageError::Io(error) => self.of_io(doing, error),
            StorageError::Corrupted(what) => self.corrupt(doing, &format!("the file is damaged: {what}")),
            StorageError::ValueTooLarge(bytes) => {
                self.error(ErrorKind::Invalid, doing, &format!("a row of {bytes} bytes is too large; make it smaller"))
            }
            StorageError::DatabaseClosed if self.closed.load(Ordering::Acquire) => Error::closed(),
            StorageError::DatabaseClosed | StorageError::PreviousIo => self.error(
                ErrorKind::Unavailable,
                doing,
                "the file was reopened after a failure; try again on a fresh snapshot",
            ),
            StorageError::Unsupported => self.error(
                ErrorKind::Unavailable,
                doing,
                "the file system has no byte-range locks; move the store to a local one",
            ),
            other => self
                .error(ErrorKind::Unavailable, doing, "the storage failed; see that the disk is well, then try again")
                .because(other),
        }
    }

    pub(super) fn of_database(&self, doing: &str, error: DatabaseError) -> Error {
        match error {
            DatabaseError::Storage(error) => self.of_storage(doing, error),
            DatabaseError::DatabaseAlreadyOpen => self.error(
                ErrorKind::Unavailable,
                doing,
                "a program that does not share it has the file open; end that program, then try again",
            ),
            DatabaseError::LockProtocolMismatch => self.error(
                ErrorKind::Unavailable,
                doing,
                "a program with another version of redb has the file open; use one version for all",
            ),
            DatabaseError::UpgradeRequired(version) => {
                self.not_a_store(doing, &format!("it is a redb file of the old format {version}"))
            }
            DatabaseError::TransactionInProgress => {
                self.error(ErrorKind::Unavailable, doing, "a transaction is still open; let it end, then try again")
            }
            DatabaseError::RepairAborted => self.error(
                ErrorKind::Unavailable,
                doing,
                "the last writer died; open the store with permission to write, so that it is repaired",
            ),
            other => self
                .error(ErrorKind::Unavailable, doing, "the storage failed; see that the disk is well, then try again")
                .because(other),
        }
    }

    pub(super) fn of_transaction(&self, doing: &str, error: TransactionError) -> Error {
        match error {
            TransactionError::Storage(error) => self.of_storage(doing, error),
            other => {
                self.error(ErrorKind::Unavailable, doing, "no transaction could be begun; try again").because(other)
            }
        }
    }

    pub(super) fn of_table(&self, doing: &str, error: TableError) -> Error {
        match error {
            TableError::Storage(error) => self.of_storage(doing, error),
            other => self.not_a_store(doing, "it is a redb file without its table of rows").because(other),
        }
    }

    pub(super) fn of_commit(&self, doing: &str, error: CommitError) -> Error {
        match error {
            // redb has rolled back: an operation in the transaction had failed before.
            CommitError::TransactionPoisoned => {
                self.error(ErrorKind::Unavailable, doing, "the transaction was rolled back; try again")
            }
            CommitError::Storage(error) => Self::unknown(self.of_storage(doing, error)),
            other => self
                .error(ErrorKind::Unknown, doing, "the commit failed; the write may or may not be there")
                .because(other),
        }
    }

    /// What failed was the commit itself.
    pub(super) fn unknown(cause: Error) -> Error {
        let message = format!("{cause}; whether the rows are there is not known");
        Error::new(ErrorKind::Unknown, message).because(cause)
    }
}

/// A panic that becomes an error is told as that; any other goes to the hook that was there before.
fn quieten_guarded_panics() {
    static ONCE: Once = Once::new();
    // A thread that panics, and closes a store while it unwinds, may not change the hook.
    if thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                previous(panic);
            }
        }));
    });
}
