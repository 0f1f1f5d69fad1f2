//! Opening the file, for reading and for writing, and telling what else a path may lead to.

use std::{
    fs::{File, OpenOptions},
    path::Path,
    sync::Arc,
    time::Duration,
};

use redb::{
    Builder, ConcurrencyMode, Database, DatabaseError, ReadOnlyDatabase, StorageBackend, backends::FileBackend,
};

use super::{
    backend::{Backend, Instead},
    place::Place,
};
use crate::{
    engine::StorageHook,
    error::{Error, Result},
};

/// How a store's file is opened.
#[derive(Clone, Debug)]
pub(crate) struct RedbOptions {
    /// How many bytes of pages a handle keeps in memory.
    pub(crate) cache_bytes: usize,
    /// What is asked before each operation of the storage.
    pub(crate) hook: Option<Arc<dyn StorageHook>>,
    /// How long a call waits for a lock of redb's.
    pub(crate) patience: Duration,
}

impl Default for RedbOptions {
    fn default() -> Self {
        // redb's own default is 1 GiB per handle, too much for a library that many processes use at once. More than
        // this made the stone no faster in a store of ten million jobs: new jobs come at one place and claims at
        // another.
        Self { cache_bytes: 16 << 20, hook: None, patience: Duration::from_secs(10) }
    }
}

impl RedbOptions {
    fn builder(&self) -> Builder {
        let mut builder = Builder::new();
        builder.set_cache_size(self.cache_bytes).set_concurrency_mode(ConcurrencyMode::MultiWriter);
        builder
    }

    /// Makes a database in a file that is empty.
    pub(super) fn create(&self, path: &Path, file: File) -> Result<Database, DatabaseError> {
        self.builder().create_with_backend(self.backend(path, file)?)
    }

    fn backend(&self, path: &Path, file: File) -> Result<Backend, DatabaseError> {
        let instead = self.hook.as_ref().and_then(|hook| hook.instead_of(path));
        let file: Box<dyn StorageBackend> = match instead {
            Some(storage) => Box::new(Instead(storage)),
            None => Box::new(FileBackend::new(file)?),
        };
        Ok(Backend::new(file, self.hook.clone(), self.patience))
    }

    /// Opens for writing; waits for a writer of redb's, and repairs what a dead one left behind.
    pub(super) fn open_writer(&self, place: &Place) -> Result<Database> {
        const DOING: &str = "open for writing";
        let file = open_file(place, DOING, OpenOptions::new().read(true).write(true))?;
        // The file was seen not to be empty, so redb makes no database in it.
        let opened = place.guarded(DOING, || self.builder().create_with_backend(self.backend(place.path(), file)?))?;
        opened.map_err(|error| place.of_database(DOING, error))
    }

    /// Opens for reading; takes none of the locks that a writer waits for.
    pub(super) fn open_reader(&self, place: &Place) -> Result<ReadOnlyDatabase, OpenError> {
        const DOING: &str = "open for reading";
        let file = open_file(place, DOING, OpenOptions::new().read(true)).map_err(OpenError::Failed)?;
        let opened =
            place.guarded(DOING, || self.builder().open_read_only_with_backend(self.backend(place.path(), file)?));
        opened.map_err(OpenError::Failed)?.map_err(|error| match error {
            DatabaseError::RepairAborted => OpenError::NeedsRecovery,
            other => OpenError::Failed(place.of_database(DOING, other)),
        })
    }
}

/// Why the file could not be opened for reading.
pub(super) enum OpenError {
    NeedsRecovery,
    Failed(Error),
}

/// Sees whether a store may be at this path.
pub(super) fn inspect(path: &Path) -> Result<()> {
    open_file(&Place::new(path), "open", OpenOptions::new().read(true)).map(drop)
}

fn open_file(place: &Place, doing: &str, options: &OpenOptions) -> Result<File> {
    // Asked before it is opened: to open a pipe would block, and to open a folder tells little.
    let found = std::fs::metadata(place.path()).map_err(|error| place.of_io(doing, error))?;
    if found.is_dir() {
        return Err(place.not_a_store(doing, "it is a folder"));
    }
    if !found.is_file() {
        return Err(place.not_a_store(doing, "it is not a regular file"));
    }
    if found.len() == 0 {
        return Err(place.not_a_store(doing, "the file is empty"));
    }
    options.open(place.path()).map_err(|error| place.of_io(doing, error))
}
