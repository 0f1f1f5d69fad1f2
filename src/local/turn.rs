//! Turns: what one process at a time does for all. A turn is a locked file, so that it ends with its process; whoever
//! does not get it goes on without.

use std::fs::{File, TryLockError};

use super::{
    files::{self, refused},
    folder::Folder,
};
use crate::error::Result;

/// Takes a turn if nobody has it; dropping the file ends it.
pub(crate) fn try_turn(folder: &Folder, name: &str) -> Result<Option<File>> {
    let path = folder.turn(name);
    let file = files::open_or_create(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(cause)) => Err(refused("lock", &path, cause)),
    }
}

/// Whether somebody has the turn.
pub(crate) fn is_turn_taken(folder: &Folder, name: &str) -> bool {
    // What can't be looked at is nobody's: a turn is a courtesy.
    let file = files::open_existing(&folder.turn(name)).ok().flatten();
    file.is_some_and(|file| files::is_locked(&file).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::{super::Folder, is_turn_taken, try_turn};

    #[test]
    fn one_at_a_time_has_the_turn() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::create(&home.path().join("app.redb")).unwrap();
        assert!(!is_turn_taken(&folder, "test"));
        let turn = try_turn(&folder, "test").unwrap();
        assert!(turn.is_some() && is_turn_taken(&folder, "test"));
        assert!(try_turn(&folder, "test").unwrap().is_none());
        drop(turn);
        assert!(try_turn(&folder, "test").unwrap().is_some());
    }
}
