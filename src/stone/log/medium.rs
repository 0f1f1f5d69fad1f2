//! The file that a log is written on, or what a hook puts in its place.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    engine::{Medium, Storage, StorageHook, StorageOperation},
    error::{Error, Result},
    local::files,
    planted::{Bug, Unsynced, planted},
};

/// A file, behind a hook where there is one.
pub(super) struct LogFile {
    file: File,
    path: PathBuf,
    hook: Option<Arc<dyn StorageHook>>,
    instead: Option<Arc<dyn Storage>>,
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
        Ok(Self::new(file, path, hook))
    }

    /// The file at `path`, for reading; `None` where there is no plain file.
    pub(super) fn open_existing(path: &Path, hook: Option<Arc<dyn StorageHook>>) -> Result<Option<Self>> {
        Ok(files::open_existing(path)?.map(|file| Self::new(file, path, hook)))
    }

    fn new(file: File, path: &Path, hook: Option<Arc<dyn StorageHook>>) -> Self {
        let instead = hook.as_ref().and_then(|hook| hook.instead_of(path));
        Self { file, path: path.into(), hook, instead, unsynced: Unsynced::default() }
    }

    fn ask(&self, operation: StorageOperation, bytes: u64) -> io::Result<()> {
        self.hook.as_ref().map_or(Ok(()), |hook| hook.before(operation, bytes))
    }
}

impl Medium for LogFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.ask(StorageOperation::Read, buffer.len() as u64)?;
        match &self.instead {
            Some(storage) => storage.read_at(buffer, offset),
            None => files::read_at(&self.file, buffer, offset),
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.ask(StorageOperation::Write, bytes.len() as u64)?;
        if planted(Bug::UnsyncedIsLost) {
            self.unsynced.keep(offset, bytes);
            return Ok(());
        }
        match &self.instead {
            Some(storage) => storage.write_all_at(bytes, offset),
            None => files::write_at(&self.file, bytes, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.ask(StorageOperation::Sync, 0)?;
        self.unsynced.release(|offset, bytes| files::write_at(&self.file, bytes, offset))?;
        match &self.instead {
            Some(storage) => storage.sync()?,
            None => self.file.sync_data()?,
        }
        // What is in a file that was removed or replaced is lost to who recovers: it is not durable.
        if files::is_at(&self.file, &self.path) {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed or replaced"))
        }
    }

    fn sync_folder(&self) -> io::Result<()> {
        match &self.instead {
            Some(storage) => storage.sync_folder(),
            None => files::sync_folder(&self.path),
        }
    }

    fn len(&self) -> io::Result<u64> {
        match &self.instead {
            Some(storage) => storage.len(),
            None => Ok(self.file.metadata()?.len()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.ask(StorageOperation::SetLen, len)?;
        match &self.instead {
            Some(storage) => storage.set_len(len),
            None => self.file.set_len(len),
        }
    }
}
