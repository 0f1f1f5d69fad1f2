//! Making a store's file, so that a kill at any moment leaves either none or a whole one.
//!
//! The file is written under another name, synced, and renamed. The name is fixed: only the holder of the writer's lock
//! creates, so a file of that name is what a killed creation left behind, and is removed.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use redb::Table;

use super::{TABLE, open::RedbOptions, place::Place, put};
use crate::{
    engine::{Fill, RowSet},
    error::{Error, ErrorKind, Result},
};

const DOING: &str = "create store";

pub(super) fn create(path: &Path, rows: &RowSet, options: &RedbOptions) -> Result<()> {
    let place = Place::new(path);
    let draft = draft_path(path)
        .ok_or_else(|| place.error(ErrorKind::Invalid, DOING, "the path names no file; name a file"))?;
    match fs::symlink_metadata(path) {
        Ok(_) => {
            return Err(place.error(ErrorKind::Invalid, DOING, "it exists already; open it or name another path"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(place.of_io(DOING, error)),
    }
    let made = remove_if_there(&draft)
        .map_err(|error| place.of_io(DOING, error))
        .and_then(|()| write_draft(&draft, rows, options, &place))
        .and_then(|()| fs::rename(&draft, path).map_err(|error| place.of_io(DOING, error)));
    if let Err(error) = made {
        // The next creation removes it too; to tell of the first failure matters more.
        let _ = remove_if_there(&draft);
        return Err(of_creation(&place, error));
    }
    sync_folder(path).map_err(|error| {
        place
            .error(ErrorKind::Unknown, DOING, "its folder could not be synced; open it to see if it is there")
            .because(error)
    })
}

/// Makes a new file, durably, of the rows that `fill` hands in; no folder is synced. What a failure leaves of it is the
/// caller's to remove.
pub(super) fn write_new(path: &Path, fill: &mut Fill<'_>, options: &RedbOptions) -> Result<()> {
    let place = Place::new(path);
    let insert = |table: &mut Rows<'_>| {
        fill(&mut |key, value| match table.insert(key, value) {
            Ok(_) => Ok(()),
            Err(error) => Err(place.of_storage(DOING, error)),
        })
    };
    write_file(path, options, &place, insert).map_err(|error| of_creation(&place, error))
}

fn write_draft(draft: &Path, rows: &RowSet, options: &RedbOptions, place: &Place) -> Result<()> {
    write_file(draft, options, place, |table| put(table, rows).map_err(|error| place.of_storage(DOING, error)))
}

type Rows<'a> = Table<'a, &'static [u8], &'static [u8]>;

fn write_file(
    draft: &Path,
    options: &RedbOptions,
    place: &Place,
    fill: impl FnOnce(&mut Rows<'_>) -> Result<()>,
) -> Result<()> {
    let made = new_file(draft).map_err(|error| place.of_io(DOING, error))?;
    let database = options.create(draft, made).map_err(|error| place.of_database(DOING, error))?;
    let transaction = database.begin_write().map_err(|error| place.of_transaction(DOING, error))?;
    fill(&mut transaction.open_table(TABLE).map_err(|error| place.of_table(DOING, error))?)?;
    transaction.commit().map_err(|error| place.of_commit(DOING, error))?;
    database.close().map_err(|error| place.of_database(DOING, error))?;
    // redb syncs the data; the file's length and mode are to last as well.
    File::open(draft).and_then(|file| file.sync_all()).map_err(|error| place.of_io(DOING, error))
}

fn new_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// A failure before the rename is no store, whatever redb could not tell of the draft.
fn of_creation(place: &Place, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unknown => place
            .error(ErrorKind::Unavailable, DOING, "the storage failed and nothing was made; try again")
            .because(error),
        ErrorKind::NotFound => {
            place.error(ErrorKind::NotFound, DOING, "its folder does not exist; make it first").because(error)
        }
        _ => error,
    }
}

/// Where the file is written before it has its name.
pub(super) fn draft_path(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(".new");
    Some(path.with_file_name(name))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Elsewhere a folder cannot be opened to be synced.
#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}
