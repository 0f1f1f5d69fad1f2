//! Backups: one snapshot of a store as a store of its own in one file, taken while others work.
//!
//! All rows are read under one pin: no other view of the file shows one version. So that this is short, they are read
//! into a nameless file beside the destination first, which takes a fraction of the time that it takes to make a store
//! of them; then the pin is given up, and the store is made. A reader whose process is stopped meanwhile is told of,
//! and slows the growth, like any other (R4).

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use crate::{
    engine::redb::{Redb, RedbOptions},
    engine::{RowSet, Rows, Take},
    error::{Error, Result},
    local::{Draft, files::refused},
    store::{Store, conflict::Version, inner::Inner, life::new_life, open::resolve, snapshot::version_of},
};

/// What a backup, or a store that was restored from one, holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// Its file, by a path without links.
    pub path: PathBuf,
    /// The version of the store that it shows.
    pub version: Version,
    /// How large its file is.
    pub bytes: u64,
}

/// Is told how much is done, of how much in all.
pub(crate) type Progress<'a> = dyn FnMut(u64, u64) + 'a;

/// How many bytes of the nameless file are read or written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// After how many rows it is told how much is done.
const TELL_EVERY: u64 = 1_000;
/// The end of the families of keys: every key begins with its family's byte, and none is this one.
const END: &[u8] = &[u8::MAX];

impl Store {
    /// Writes a copy of the store, as it is now, into a new file, while others go on working. It has all that was
    /// answered before this call, and is a store of its own: to be opened, checked, or put in place by
    /// [`Store::restore`].
    ///
    /// The copy's life is a new one: what runs now has no worker there, so a worker of the copy takes it up as what a
    /// crash has left, named locks are free, and ids of jobs enqueued after the backup are given again.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let store = casque::Store::open(folder.path().join("app.redb"))?;
    /// # store.put("answer", &42u32)?;
    /// let backup = store.backup(folder.path().join("app.backup"))?;
    /// let restored = casque::Store::restore(&backup.path, folder.path().join("again.redb"))?;
    /// assert_eq!(restored.version, backup.version);
    /// # let again = casque::Store::open(&restored.path)?;
    /// # assert_eq!(again.get::<u32>("answer")?, Some(42));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` where something is at the path, `NotFound` where its folder is missing, `Unavailable` where space or
    /// permission is lacking, or what was answered can't be read yet. There is no file then, whatever the moment.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<Backup> {
        let rows = self.inner.rows()?;
        back_up(&self.inner, rows, path.as_ref(), &mut |_, _| {})
    }
}

/// Writes a copy of these rows into a new file.
pub(crate) fn back_up(
    inner: &Inner,
    rows: Box<dyn Rows + Send>,
    path: &Path,
    progress: &mut Progress<'_>,
) -> Result<Backup> {
    let path = resolve(path)?;
    let draft = Draft::begin(&path)?;
    let version = version_of(rows.as_ref())?;
    let life = new_life(rows.as_ref())?;
    let kept = Kept::read(rows.as_ref(), &life, draft.scratch()?, &path, progress)?;
    // From here on nobody's pages are pinned.
    drop(rows);
    let hook = inner.site.files().and_then(|files| files.hook.clone());
    let options = RedbOptions { hook, patience: inner.patience, ..RedbOptions::default() };
    let mut write = |take: &mut Take<'_>| {
        kept.each(&path, take, progress)?;
        life.iter().try_for_each(|(key, row)| row.as_ref().map_or(Ok(()), |row| take(key, row)))
    };
    Redb::write_new(draft.path(), &mut write, &options)
        .map_err(|error| error_of(&error, draft.path(), &path, "nothing was written"))?;
    let bytes = size(draft.path())?;
    draft.finish()?;
    Ok(Backup { path, version, bytes })
}

/// An error that tells of a draft, as one that tells of what was to become of it.
pub(crate) fn error_of(error: &Error, draft: &Path, place: &Path, so: &str) -> Error {
    let message = error.full_message().replace(&draft.display().to_string(), &place.display().to_string());
    Error::new(error.kind(), format!("{message}; {so}"))
}

pub(crate) fn size(path: &Path) -> Result<u64> {
    std::fs::metadata(path).map(|found| found.len()).map_err(|cause| refused("look at", path, cause))
}

/// Rows in the order of their keys, in a file that is read from its beginning: two lengths, a key, a value.
struct Kept {
    file: File,
    rows: u64,
}

impl Kept {
    /// Keeps the rows but for those that are replaced.
    fn read(rows: &dyn Rows, replaced: &RowSet, file: File, place: &Path, progress: &mut Progress<'_>) -> Result<Self> {
        let all = rows.count().unwrap_or_default();
        let refused = |cause| refused("write the rows of", place, cause);
        let mut writer = BufWriter::with_capacity(BUFFER_BYTES, &file);
        let mut kept = 0;
        rows.visit(&[], END, &mut |key, value| {
            if !replaced.contains_key(key) {
                write_row(&mut writer, key, value).map_err(refused)?;
                kept += 1;
                if kept % TELL_EVERY == 0 {
                    progress(kept, 2 * all.max(kept));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        writer.flush().map_err(refused)?;
        drop(writer);
        Ok(Self { file, rows: kept })
    }

    fn each(&self, place: &Path, take: &mut Take<'_>, progress: &mut Progress<'_>) -> Result<()> {
        let refused = |cause| refused("read the rows again of", place, cause);
        let mut file = &self.file;
        file.rewind().map_err(refused)?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for row in 1..=self.rows {
            read_row(&mut reader, &mut key, &mut value).map_err(refused)?;
            take(&key, &value)?;
            if row % TELL_EVERY == 0 {
                progress(self.rows + row, 2 * self.rows);
            }
        }
        Ok(())
    }
}

fn write_row(writer: &mut impl Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    for part in [key, value] {
        let length = u32::try_from(part.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        writer.write_all(&length.to_le_bytes())?;
    }
    writer.write_all(key)?;
    writer.write_all(value)
}

fn read_row(reader: &mut impl Read, key: &mut Vec<u8>, value: &mut Vec<u8>) -> io::Result<()> {
    let mut lengths = [[0; 4]; 2];
    for length in &mut lengths {
        reader.read_exact(length)?;
    }
    for (part, length) in [key, value].into_iter().zip(lengths) {
        part.resize(u32::from_le_bytes(length) as usize, 0);
        reader.read_exact(part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
