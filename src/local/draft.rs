//! A file that is written beside its place and comes to be there only when it is whole, so that a kill or a full disk
//! at any moment leaves nothing under its name.
//!
//! Three names are used beside the place `app.redb`: `.app.redb.part` is locked for as long as somebody writes, so that
//! two who write to one place do not meet, and what a killed one left is told from what a living one needs;
//! `.app.redb.copy` is the file itself; `.app.redb.rows` is there for an instant only.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::files::{self, refused};
use crate::error::{Error, ErrorKind, Result};

/// A file that is being written. Dropping it removes all that there is of it.
#[derive(Debug)]
pub(crate) struct Draft {
    place: PathBuf,
    path: PathBuf,
    lock_path: PathBuf,
    /// Held until all else is removed.
    _lock: File,
}

impl Draft {
    /// Begins to write what is to be at `place`, in a folder that is there.
    ///
    /// # Errors
    /// `Invalid` where something is there; `Unavailable` where another process writes one for the same place, or the
    /// folder can't be written to.
    pub(crate) fn begin(place: &Path) -> Result<Self> {
        check_free(place)?;
        let lock_path = beside(place, "part")?;
        let lock = loop {
            let file = files::open_or_create(&lock_path)?;
            match file.try_lock() {
                // Whoever had it may have removed it since it was opened here.
                Ok(()) if files::is_at(&file, &lock_path) => break file,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let place = place.display();
                    return Err(Error::unavailable(format!("another process writes {place} just now; let it end")));
                }
                Err(TryLockError::Error(cause)) => return Err(refused("lock", &lock_path, cause)),
            }
        };
        let draft = Self { place: place.to_owned(), path: beside(place, "copy")?, lock_path, _lock: lock };
        // What one that was killed has left.
        files::remove(&draft.path)?;
        files::remove(&beside(place, "rows")?)?;
        Ok(draft)
    }

    /// Where the file is to be written.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An empty file on the same disk, for what is needed meanwhile. Where the system can, it has no name.
    pub(crate) fn scratch(&self) -> Result<File> {
        let path = beside(&self.place, "rows")?;
        let file = files::create_new(&path)?;
        if cfg!(unix) {
            files::remove(&path)?;
        }
        Ok(file)
    }

    /// Has the file, which is whole and synced, take its place.
    ///
    /// # Errors
    /// `Invalid` where something has come to be there; `Unknown` where the file is there and may not outlast a power
    /// cut. After any other kind there is no file.
    pub(crate) fn finish(self) -> Result<()> {
        check_free(&self.place)?;
        std::fs::rename(&self.path, &self.place).map_err(|cause| refused("write", &self.place, cause))?;
        files::sync_folder(&self.place).map_err(|cause| {
            let place = self.place.display();
            Error::new(
                ErrorKind::Unknown,
                format!("{place} is whole, but its folder could not be synced: a power cut may still take it"),
            )
            .because(cause)
        })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // What can't be removed is removed by the next one that writes to this place.
        let _ = files::remove(&self.path);
        if !cfg!(unix) {
            let _ = beside(&self.place, "rows").and_then(|path| files::remove(&path));
        }
        let _ = files::remove(&self.lock_path);
    }
}

/// # Errors
/// `Invalid` where something is at `place`, be it a link that leads nowhere.
pub(crate) fn check_free(place: &Path) -> Result<()> {
    match std::fs::symlink_metadata(place) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(refused("look at", place, cause)),
        Ok(_) => Err(Error::invalid(format!(
            "{} is there already, and nothing is overwritten; move it away or name another path",
            place.display()
        ))),
    }
}

fn beside(place: &Path, what: &str) -> Result<PathBuf> {
    let name = place
        .file_name()
        .ok_or_else(|| Error::invalid(format!("\"{}\" names no file; name one, as app.redb", place.display())))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(".");
    beside.push(what);
    Ok(place.with_file_name(beside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        files::entries(folder).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn file_is_at_its_place_when_it_is_finished_and_not_before() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("app.redb");
        let draft = Draft::begin(&place).unwrap();
        std::fs::write(draft.path(), "whole").unwrap();
        let _scratch = draft.scratch().unwrap();
        assert!(!place.exists());
        let other = Draft::begin(&place).unwrap_err();
        assert!(other.kind() == ErrorKind::Unavailable && other.to_string().contains("another process"), "{other}");
        draft.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "whole");
        assert_eq!(names(home.path()), ["app.redb"]);
        assert_eq!(Draft::begin(&place).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn draft_that_is_given_up_or_was_left_by_a_killed_process_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("app.redb");
        for name in [".app.redb.part", ".app.redb.copy", ".app.redb.rows"] {
            std::fs::write(home.path().join(name), "left").unwrap();
        }
        let draft = Draft::begin(&place).unwrap();
        assert!(!draft.path().exists());
        std::fs::write(draft.path(), "half").unwrap();
        drop(draft);
        assert_eq!(names(home.path()), Vec::<String>::new());
    }

    #[test]
    fn what_has_come_to_be_at_the_place_meanwhile_stays() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("app.redb");
        let draft = Draft::begin(&place).unwrap();
        std::fs::write(draft.path(), "late").unwrap();
        std::fs::write(&place, "first").unwrap();
        assert_eq!(draft.finish().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "first");
        assert_eq!(names(home.path()), ["app.redb"]);
    }
}
