//! The storage under redb. A hook is asked before each operation, so that a test can crash or fail the storage from
//! outside; and who waits for a lock of redb's gives up in time (W8).
//!
//! Lock calls are passed on without asking: without them redb could not share the file between processes.

use std::{fmt::Debug, io, ops::Bound, sync::Arc, time::Duration};

use redb::{BackendError, StorageBackend, backends::FileBackend};

use crate::clock::{deadline_after, monotonic, sleep};

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

/// How often a lock is tried that another process holds.
const LOCK_POLL: Duration = Duration::from_micros(50);

/// A store's file: behind a hook where there is one, and with locks that are not waited for without limit.
#[derive(Debug)]
pub(super) struct Backend {
    file: FileBackend,
    hook: Option<Arc<dyn StorageHook>>,
    patience: Duration,
}

impl Backend {
    pub(super) fn new(file: FileBackend, hook: Option<Arc<dyn StorageHook>>, patience: Duration) -> Self {
        Self { file, hook, patience }
    }

    fn ask(&self, operation: StorageOperation, bytes: u64) -> io::Result<()> {
        self.hook.as_ref().map_or(Ok(()), |hook| hook.before(operation, bytes))
    }

    /// redb holds these locks for some microseconds each; who is stopped meanwhile holds them until it goes on.
    fn wait_for(&self, try_lock: impl Fn() -> Result<bool, BackendError>) -> Result<(), BackendError> {
        let mut deadline = None;
        while !try_lock()? {
            if monotonic() >= *deadline.get_or_insert_with(|| deadline_after(self.patience)) {
                return Err(BackendError::Io(io::ErrorKind::TimedOut.into()));
            }
            sleep(LOCK_POLL);
        }
        Ok(())
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.ask(StorageOperation::Read, out.len() as u64)?;
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.ask(StorageOperation::SetLen, len)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.ask(StorageOperation::Sync, 0)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask(StorageOperation::Write, data.len() as u64)?;
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
        self.wait_for(|| self.file.try_lock_range(start, end))
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.wait_for(|| self.file.try_lock_shared_range(start, end))
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
