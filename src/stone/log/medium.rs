//! What a log is written on: a file, or in tests something that loses power.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    engine::{StorageHook, StorageOperation},
    error::{Error, Result},
    local::files,
    planted::{Bug, Unsynced, planted},
};

/// Bytes at positions, of which those are durable that were there when [`Medium::sync`] last returned `Ok`.
pub(crate) trait Medium: Send + Sync {
    /// Reads from `offset` until `buffer` is full or the bytes end; returns how many were read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`. After an error any part of them may be written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes all durable that was written before this was called, the length with it; others may write meanwhile. After
    /// an error any part of it may be.
    fn sync(&self) -> io::Result<()>;

    /// How many bytes there are.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the bytes off, or adds zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// A file, behind a hook where there is one.
pub(super) struct LogFile {
    file: File,
    path: PathBuf,
    hook: Option<Arc<dyn StorageHook>>,
    unsynced: Unsynced,
}

impl LogFile {
    /// The file at `path`, made for its owner only where it is missing.
    ///
    /// # Errors
    /// `Unavailable` for a link, for a file with several names, and for what is no plain file: it might be another
    /// store's.
    pub(super) fn open_or_create(path: &Path, hook: Option<Arc<dyn StorageHook>>) -> Result<Self> {
        let file = files::open_or_create(path)?;
        if files::has_other_names(&file).map_err(|cause| files::refused("inspect", path, cause))? {
            return Err(Error::unavailable(format!(
                "use \"{}\": it has several names (hard links), and another store's log may be one; remove this one \
                 while no process uses the store",
                path.display()
            )));
        }
        Ok(Self { file, path: path.into(), hook, unsynced: Unsynced::default() })
    }

    /// The file at `path`, for reading; `None` where there is no plain file.
    pub(super) fn open_existing(path: &Path, hook: Option<Arc<dyn StorageHook>>) -> Result<Option<Self>> {
        let file = files::open_existing(path)?;
        Ok(file.map(|file| Self { file, path: path.into(), hook, unsynced: Unsynced::default() }))
    }

    fn ask(&self, operation: StorageOperation, bytes: u64) -> io::Result<()> {
        self.hook.as_ref().map_or(Ok(()), |hook| hook.before(operation, bytes))
    }
}

impl Medium for LogFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.ask(StorageOperation::Read, buffer.len() as u64)?;
        files::read_at(&self.file, buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.ask(StorageOperation::Write, bytes.len() as u64)?;
        if planted(Bug::UnsyncedIsLost) {
            self.unsynced.keep(offset, bytes);
            return Ok(());
        }
        files::write_at(&self.file, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.ask(StorageOperation::Sync, 0)?;
        self.unsynced.release(|offset, bytes| files::write_at(&self.file, bytes, offset))?;
        self.file.sync_data()?;
        // What is in a file that was removed or replaced is lost to who recovers: it is not durable.
        if files::is_at(&self.file, &self.path) {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed or replaced"))
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.ask(StorageOperation::SetLen, len)?;
        self.file.set_len(len)
    }
}
