//! What the other files of this folder need from a file system and std offers only in parts: opening for the owner
//! only, bounded reads, positional writes, and telling whether a path still names an open file.

use std::{
    fs::{File, Metadata, OpenOptions, TryLockError},
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// What every unfinished file's name ends in; nobody but its maker and the cleaner opens it.
const UNFINISHED: &str = ".new";

/// The error for a file operation that the system refused, with what to do about it.
pub(crate) fn refused(action: &str, path: &Path, cause: io::Error) -> Error {
    let remedy = match cause.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "run as the owner of the store, or give this user write access to it"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some disk space",
        io::ErrorKind::NotFound => "check that its folder exists, and reopen the store",
        io::ErrorKind::InvalidFilename => "give the store a shorter name: what is beside it has a longer one",
        _ => "check the disk and its mount, then try again",
    };
    Error::unavailable(format!("{action} \"{}\": {cause}; {remedy}", path.display())).because(cause)
}

/// Opens a file for reading and writing, making it, empty and for the owner only, where it is missing.
pub(crate) fn open_or_create(path: &Path) -> Result<File> {
    if std::fs::symlink_metadata(path).is_ok_and(|named| named.is_symlink()) {
        let path = path.display();
        return Err(Error::unavailable(format!(
            "use \"{path}\": it is a symbolic link, and what it leads to would be overwritten; remove it"
        )));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = owner_only(&mut options).open(path).map_err(|cause| refused("open", path, cause))?;
    let metadata = file.metadata().map_err(|cause| refused("inspect", path, cause))?;
    if metadata.is_file() {
        give_to_owner(&file, path);
        Ok(file)
    } else {
        Err(Error::unavailable(format!("use \"{}\": it is not a plain file; move it away", path.display())))
    }
}

/// Gives a file to the owner of its folder, where this user may: what root makes is to serve the store's owner too.
#[cfg(unix)]
fn give_to_owner(file: &File, path: &Path) {
    use std::os::unix::fs::{MetadataExt, fchown};
    if let (Ok(made), Some(Ok(folder))) = (file.metadata(), path.parent().map(std::fs::metadata))
        && made.uid() != folder.uid()
    {
        // Who may not is not root, and then the folder is not his either.
        let _ = fchown(file, Some(folder.uid()), Some(folder.gid()));
    }
}

#[cfg(not(unix))]
fn give_to_owner(_: &File, _: &Path) {}

/// Whether a folder may be written to by others than its owner.
#[cfg(unix)]
pub(crate) fn is_for_others(folder: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::mode(folder) & 0o022 != 0
}

/// Whether a folder belongs to somebody who is neither this user, nor the owner of `store`, nor root; as far as that
/// can be told.
#[cfg(unix)]
pub(crate) fn is_of_a_stranger(folder: &Metadata, store: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    const ROOT: u32 = 0;
    let of = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.uid());
    // Where there is no such place, only the store's owner is known.
    let known = [of(Path::new("/proc/self")), of(store)];
    known != [None, None] && folder.uid() != ROOT && !known.contains(&Some(folder.uid()))
}

/// Who may enter a folder is for the system to say.
#[cfg(not(unix))]
pub(crate) fn is_for_others(_: &Metadata) -> bool {
    false
}

#[cfg(not(unix))]
pub(crate) fn is_of_a_stranger(_: &Metadata, _: &Path) -> bool {
    false
}

/// Opens a plain file for reading; `None` where there is none, or something else than a plain file.
pub(crate) fn open_existing(path: &Path) -> Result<Option<File>> {
    // Looking first keeps an open from hanging on a pipe that somebody left here.
    let opened = std::fs::symlink_metadata(path)
        .and_then(|metadata| if metadata.is_file() { File::open(path).map(Some) } else { Ok(None) });
    match opened {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map_err(|cause| refused("open", path, cause)),
    }
}

/// Makes `path` appear as a new file that holds `contents` and that the returned handle has locked exclusively from
/// before its appearance, so that nobody can ever find it unlocked while its maker lives.
pub(super) fn create_locked(path: &Path, contents: &[u8]) -> Result<File> {
    let mut tries = 0;
    loop {
        tries += 1;
        let unfinished = unfinished_name(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = owner_only(&mut options).open(&unfinished).map_err(|cause| refused("create", &unfinished, cause))?;
        match finish(&file, contents, &unfinished, path) {
            Ok(()) => return Ok(file),
            // A cleaner that met the file in the instant before it was locked took it for a dead process's.
            Err(cause)
                if tries < 100 && matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock) => {}
            Err(cause) => {
                // What cannot be removed is left to the cleaner: its lock is free once the handle is dropped.
                let _ = std::fs::remove_file(&unfinished);
                return Err(refused("create", path, cause));
            }
        }
    }
}

fn finish(file: &File, contents: &[u8], unfinished: &Path, path: &Path) -> io::Result<()> {
    file.try_lock().map_err(io::Error::from)?;
    give_to_owner(file, path);
    write_at(file, contents, 0)?;
    std::fs::rename(unfinished, path)
}

fn unfinished_name(path: &Path) -> PathBuf {
    use std::fmt::Write;
    let mut suffix = String::from(".");
    for byte in crate::random::bytes() {
        let _ = write!(suffix, "{byte:02x}");
    }
    suffix.push_str(UNFINISHED);
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes the unfinished files in `folder` whose makers are gone.
pub(super) fn remove_unfinished(folder: &Path) -> Result<()> {
    for (name, path) in entries(folder)? {
        if name.ends_with(UNFINISHED) {
            remove_if_free(&path)?;
        }
    }
    Ok(())
}

/// The unfinished files in `folder` whose makers are gone.
#[cfg(feature = "cli")]
pub(super) fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let is_free = |path: &PathBuf| {
        let file = open_existing(path).ok().flatten();
        file.is_some_and(|file| !is_locked(&file).unwrap_or(true))
    };
    let all = entries(folder).unwrap_or_default().into_iter();
    all.filter(|(name, path)| name.ends_with(UNFINISHED) && is_free(path)).map(|(_, path)| path).collect()
}

/// Removes a file unless somebody holds a lock of it; says whether it is gone.
pub(super) fn remove_if_free(path: &Path) -> Result<bool> {
    let Some(file) = open_existing(path)? else { return Ok(true) };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(cause)) => Err(refused("lock", path, cause)),
        Ok(()) => {
            let removed = if is_at(&file, path) { remove(path).map(|()| true) } else { Ok(false) };
            unlock(&file);
            removed
        }
    }
}

/// Removes a file that may be gone already.
pub(super) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(refused("remove", path, cause)),
        _ => Ok(()),
    }
}

/// The UTF-8 names in a folder and their paths, in order; none where the folder is missing.
pub(super) fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let listed = match std::fs::read_dir(folder) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(|cause| refused("list", folder, cause))?,
    };
    let mut entries = Vec::new();
    for entry in listed {
        let entry = entry.map_err(|cause| refused("list", folder, cause))?;
        if let Ok(name) = entry.file_name().into_string() {
            entries.push((name, entry.path()));
        }
    }
    entries.sort();
    Ok(entries)
}

/// Makes durable that the file at `path` is in its folder. Where the system opens no folders there is nothing to do.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Whether an open file has names besides the one it was opened by. Never where the system has no inodes.
pub(crate) fn has_other_names(file: &File) -> io::Result<bool> {
    #[cfg(unix)]
    let names = std::os::unix::fs::MetadataExt::nlink(&file.metadata()?);
    #[cfg(not(unix))]
    let names = file.metadata().map(|_| 1)?;
    Ok(names > 1)
}

/// Whether somebody holds `file`'s lock exclusively. The probe is a shared lock, so that two who probe at once do not
/// take each other for the owner.
pub(super) fn is_locked(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => {
            unlock(file);
            Ok(false)
        }
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(cause)) => Err(cause),
    }
}

/// Gives a lock back at once: closing would not while a process that is just being started has inherited the handle.
pub(super) fn unlock(file: &File) {
    // Fails only for a handle that is not open, and then there is no lock either.
    let _ = file.unlock();
}

/// Up to `most` bytes from the start of an open file.
pub(super) fn read_start(mut file: &File, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.by_ref().take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Up to `most` bytes from the start of the file at `path`.
pub(super) fn read_at_most(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    read_start(&File::open(path)?, most)
}

fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Whether `path` still names the file that is open here. Always true where the system has no inodes.
#[cfg(unix)]
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
pub(crate) fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

#[cfg(unix)]
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

/// Reads from `offset` until `buffer` is full or the file ends; returns how much was read.
#[cfg(unix)]
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match std::os::unix::fs::FileExt::read_at(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(done)
}

/// Keeps seek and transfer together where the system has no positional calls that std offers everywhere.
#[cfg(not(unix))]
static CURSOR: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(not(unix))]
pub(crate) fn write_at(mut file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    use std::io::{Seek, Write};
    let _cursor = CURSOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    file.seek(io::SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

#[cfg(not(unix))]
pub(crate) fn read_at(mut file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    use std::io::Seek;
    let _cursor = CURSOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    file.seek(io::SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.by_ref().take(buffer.len() as u64).read_to_end(&mut bytes)?;
    buffer[..bytes.len()].copy_from_slice(&bytes);
    Ok(bytes.len())
}
