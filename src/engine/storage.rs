//! What the bytes of a store's files are on: files, or in tests a disk in memory that loses power. A hook is asked
//! before each operation, and may put something else in a file's place.

use std::{fmt::Debug, io, ops::Bound, path::Path, sync::Arc};

/// What the storage is about to do.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StorageOperation {
    /// Read bytes.
    Read,
    /// Write bytes.
    Write,
    /// Change the file's length; the bytes are the new length.
    SetLen,
    /// Make all that was written durable.
    Sync,
}

/// Is asked before each operation of the storage.
#[doc(hidden)]
pub trait StorageHook: Send + Sync + Debug {
    /// Returns `Ok` to let the operation happen.
    ///
    /// # Errors
    /// The error becomes the operation's, which is then not done.
    fn before(&self, operation: StorageOperation, bytes: u64) -> io::Result<()>;

    /// What keeps the bytes and locks of the file at this path in its place; the file does, where there is nothing.
    fn instead_of(&self, _path: &Path) -> Option<Arc<dyn Storage>> {
        None
    }
}

/// Bytes at positions, of which those are durable that were there when [`Medium::sync`] last returned `Ok`.
#[doc(hidden)]
pub trait Medium: Send + Sync {
    /// Reads from `offset` until `buffer` is full or the bytes end; returns how many were read.
    ///
    /// # Errors
    /// What the storage says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// What the storage says; any part of the bytes may be written then.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes all durable that was written before this was called, the length with it; others may write meanwhile.
    ///
    /// # Errors
    /// What the storage says; any part of what was written may be durable then.
    fn sync(&self) -> io::Result<()>;

    /// Makes durable that the file is there.
    ///
    /// # Errors
    /// What the storage says.
    fn sync_folder(&self) -> io::Result<()>;

    /// How many bytes there are.
    ///
    /// # Errors
    /// What the storage says.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the bytes off, or adds zeros.
    ///
    /// # Errors
    /// What the storage says.
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// A medium with locks on ranges of bytes, which belong to this handle of it and go with it.
#[doc(hidden)]
pub trait Storage: Medium + Debug {
    /// Takes a lock, unless another handle has one that forbids it; whether it was taken.
    ///
    /// # Errors
    /// What the storage says.
    fn try_lock(&self, range: (Bound<u64>, Bound<u64>), is_shared: bool) -> io::Result<bool>;

    /// Gives up the lock on exactly this range.
    ///
    /// # Errors
    /// What the storage says.
    fn unlock(&self, range: (Bound<u64>, Bound<u64>)) -> io::Result<()>;

    /// Whether another handle has a lock in the range.
    ///
    /// # Errors
    /// What the storage says.
    fn is_locked_elsewhere(&self, range: (Bound<u64>, Bound<u64>)) -> io::Result<bool>;

    /// Gives up all locks.
    fn close(&self);
}
