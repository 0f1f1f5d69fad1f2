//! The folder beside a store, and the names of what is in it.

use std::{
    fs::DirBuilder,
    io,
    path::{Path, PathBuf},
};

use super::files::{self, refused};
use crate::error::{Error, Result};

/// The folder `<store file name>.d`. It belongs to the store's owner alone: who may write to it may write the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder beside `store` (a canonical path), made where it is missing.
    pub(crate) fn create(store: &Path) -> Result<Self> {
        let folder = Self { path: beside(store)? };
        for path in [folder.path.clone(), folder.sessions(), folder.children()] {
            match of_owner_alone().create(&path) {
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => check(&path, store)?,
                made => made.map_err(|cause| refused("create", &path, cause))?,
            }
        }
        Ok(folder)
    }

    /// The folder beside `store` (a canonical path), `None` where there is none. Makes nothing.
    pub(crate) fn existing(store: &Path) -> Result<Option<Self>> {
        let folder = Self { path: beside(store)? };
        match std::fs::symlink_metadata(&folder.path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(refused("open", &folder.path, cause)),
            Ok(_) => check(&folder.path, store).map(|()| Some(folder)),
        }
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    pub(crate) fn bell(&self) -> PathBuf {
        self.path.join("bell")
    }

    /// The stone's log.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// The stone's socket, where its path is short enough for one.
    #[cfg(unix)]
    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("sock")
    }

    pub(crate) fn turn(&self, name: &str) -> PathBuf {
        self.path.join(format!("turn-{name}"))
    }

    pub(crate) fn wakes(&self) -> PathBuf {
        self.path.join("wakes")
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.path.join("sessions")
    }

    pub(crate) fn children(&self) -> PathBuf {
        self.path.join("children")
    }
}

fn beside(store: &Path) -> Result<PathBuf> {
    let name = store.file_name().ok_or_else(|| {
        Error::invalid(format!("use \"{}\" as a store: it names no file; give the path of a file", store.display()))
    })?;
    let mut name = name.to_owned();
    name.push(".d");
    Ok(store.with_file_name(name))
}

/// A link could lead to another store's folder, and then two stores would share one lock; and what others may write to
/// they may have filled.
fn check(path: &Path, store: &Path) -> Result<()> {
    let metadata = std::fs::symlink_metadata(path).map_err(|cause| refused("open", path, cause))?;
    let what = if metadata.is_symlink() {
        "is a symbolic link"
    } else if !metadata.is_dir() {
        "is not a folder"
    } else if files::is_for_others(&metadata) {
        "may be written to by others"
    } else if files::is_of_a_stranger(&metadata, store) {
        "belongs neither to this user nor to the store's owner"
    } else {
        return Ok(());
    };
    Err(Error::unavailable(format!(
        "use \"{}\" for the store's locks: it {what}; move it away while no process uses the store",
        path.display()
    )))
}

/// Makes folders that are the owner's alone.
#[cfg(unix)]
fn of_owner_alone() -> DirBuilder {
    let mut builder = DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// What a new folder inherits says who may enter it.
#[cfg(not(unix))]
fn of_owner_alone() -> DirBuilder {
    DirBuilder::new()
}
