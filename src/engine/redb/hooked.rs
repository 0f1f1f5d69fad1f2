//! A storage backend that asks a hook before each operation, so that a test can crash or fail the storage from outside.
//!
//! Lock calls are passed on without asking: without them redb could not share the file between processes.

use std::{fmt::Debug, io, ops::Bound, sync::Arc};

use redb::{BackendError, StorageBackend, backends::FileBackend};

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
}

/// A file behind a hook.
#[derive(Debug)]
pub(super) struct Hooked {
    file: FileBackend,
    hook: Arc<dyn StorageHook>,
}

impl Hooked {
    pub(super) fn new(file: FileBackend, hook: Arc<dyn StorageHook>) -> Self {
        Self { file, hook }
    }
}

impl StorageBackend for Hooked {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.hook.before(StorageOperation::Read, out.len() as u64)?;
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.hook.before(StorageOperation::SetLen, len)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.hook.before(StorageOperation::Sync, 0)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.hook.before(StorageOperation::Write, data.len() as u64)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
