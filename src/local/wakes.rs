//! A counter of commits that workers without a socket watch. It lives in memory that processes share, not on the disk:
//! whoever slept through a power cut looks at the store anyway.

use std::{fs::File, path::PathBuf};

use super::{
    files::{self, refused},
    folder::Folder,
};
use crate::error::Result;

/// The open counter.
#[derive(Debug)]
pub(crate) struct Wakes {
    path: PathBuf,
    file: File,
}

impl Wakes {
    pub(crate) fn open(folder: &Folder) -> Result<Self> {
        let path = folder.wakes();
        let file = files::open_or_create(&path)?;
        Ok(Self { path, file })
    }

    /// The counter as it is; `None` where there is none.
    pub(crate) fn existing(folder: &Folder) -> Result<Option<Self>> {
        let path = folder.wakes();
        Ok(files::open_existing(&path)?.map(|file| Self { path, file }))
    }

    /// Counts one commit. Only the holder of the writer's lock calls this, or two counts may become one.
    pub(crate) fn bump(&self) -> Result<()> {
        let next = self.read().wrapping_add(1);
        files::write_at(&self.file, &next.to_le_bytes(), 0).map_err(|cause| refused("write", &self.path, cause))
    }

    /// The count so far; any change of it says that the store has changed.
    pub(crate) fn read(&self) -> u64 {
        let mut bytes = [0; 8];
        match files::read_at(&self.file, &mut bytes, 0) {
            Ok(8) => u64::from_le_bytes(bytes),
            // Nothing counted yet, or unreadable: the reader then relies on its slower looks at the store.
            _ => 0,
        }
    }
}
