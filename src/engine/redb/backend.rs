//! The storage under redb: a file, or what a hook puts in its place. The hook is asked before each operation, so that a
//! test can crash or fail the storage from outside; and who waits for a lock of redb's gives up in time (W8).
//!
//! Lock calls are passed on without asking: without them redb could not share the file between processes.

use std::{io, ops::Bound, sync::Arc, time::Duration};

use redb::{BackendError, StorageBackend};

use crate::{
    clock::{deadline_after, monotonic, sleep},
    engine::{Storage, StorageHook, StorageOperation},
};

/// How often a lock is tried that another process holds.
const LOCK_POLL: Duration = Duration::from_micros(50);

/// A store's file: behind a hook where there is one, and with locks that are not waited for without limit.
#[derive(Debug)]
pub(super) struct Backend {
    file: Box<dyn StorageBackend>,
    hook: Option<Arc<dyn StorageHook>>,
    patience: Duration,
}

impl Backend {
    pub(super) fn new(file: Box<dyn StorageBackend>, hook: Option<Arc<dyn StorageHook>>, patience: Duration) -> Self {
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

/// What was put in the place of a file, as redb asks for it. To wait for a lock is [`Backend`]'s.
#[derive(Debug)]
pub(super) struct Instead(pub(super) Arc<dyn Storage>);

impl StorageBackend for Instead {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.0.read_at(out, offset)? == out.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close();
        Ok(())
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock((start, end), false).map_err(BackendError::Io)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock((start, end), true).map_err(BackendError::Io)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.unlock((start, end)).map_err(BackendError::Io)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.is_locked_elsewhere((start, end)).map_err(BackendError::Io)
    }
}
