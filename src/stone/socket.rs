//! Where the stone's socket is, and getting to both ends of it.

use std::{
    ffi::OsStr,
    fs, io,
    os::fd::AsRawFd as _,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

pub(super) use mio::net::{UnixListener as Listener, UnixStream as Accepted};
use mio::{Interest, Registry, Token, unix::SourceFd};

use crate::{
    error::{Error, Result},
    local::files,
    store::site::Files,
};

/// A client's end of a connection.
pub(crate) type Stream = std::os::unix::net::UnixStream;

/// The longest path that an address of a local socket can hold everywhere: 104 bytes, the last one a zero.
const PATH_BYTES_MAX: usize = 103;

/// The socket's path: in the folder beside the store or, where that is too long, in the user's runtime folder, named by
/// the store's device and inode.
pub(super) fn path(files: &Files) -> Result<PathBuf> {
    let beside = files.folder.socket();
    if beside.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
        return Ok(beside);
    }
    let store = fs::metadata(&files.store)
        .map_err(|error| Error::unavailable(format!("look at {}", files.store.display())).because(error))?;
    Ok(runtime_folder(store.uid()).join(format!("{}-{}.sock", store.dev(), store.ino())))
}

/// `/run/user/<uid>/casque`, or where there is no such place a folder for temporary files; of the store's owner, as the
/// socket is.
fn runtime_folder(owner: u32) -> PathBuf {
    let of_user = PathBuf::from(format!("/run/user/{owner}"));
    if of_user.is_dir() { of_user.join("casque") } else { Path::new("/tmp").join(format!("casque-{owner}")) }
}

/// Connects to the stone of a store; nothing where nobody answers, or whoever answers may be a stranger.
pub(super) fn connect(path: &Path, store: &Path) -> Option<Stream> {
    let is_trusted = beyond(path).is_none_or(|folder| check_private(folder, store).is_ok());
    is_trusted.then(|| Stream::connect(path).ok()).flatten()
}

/// Has other events of a connection told than were so far.
pub(super) fn watch(registry: &Registry, stream: &Accepted, token: Token, interest: Interest) -> io::Result<()> {
    registry.reregister(&mut SourceFd(&stream.as_raw_fd()), token, interest)
}

/// Has no events of a connection told any more.
pub(super) fn unwatch(registry: &Registry, stream: &Accepted) -> io::Result<()> {
    registry.deregister(&mut SourceFd(&stream.as_raw_fd()))
}

/// Binds the socket anew, for its owner only. Under the writer's lock: what is there is a dead stone's.
pub(super) fn bind(path: &Path, store: &Path) -> Result<Listener> {
    let refused = |cause: io::Error| {
        Error::unavailable(format!("bind the socket \"{}\"; check that folder", path.display())).because(cause)
    };
    if let Some(folder) = beyond(path) {
        make_private(folder, store).map_err(refused)?;
    }
    unlink(path);
    let listener = Listener::bind(path).map_err(refused)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(refused)?;
    Ok(listener)
}

/// Removes the socket. Under the writer's lock.
pub(super) fn unlink(path: &Path) {
    // One that is not there needs no removing; one that can't be removed refuses connections, as it should.
    let _ = fs::remove_file(path);
}

/// The folder of a socket that is not in the one beside the store, which was looked at when that was opened.
fn beyond(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| folder.extension() != Some(OsStr::new("d")))
}

fn make_private(folder: &Path, store: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_private(folder, store),
        made => made,
    }
}

/// A folder for temporary files is everybody's: ours must be nobody else's.
fn check_private(folder: &Path, store: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    // No bit for the group or for others.
    let is_private = found.is_dir() && found.mode().trailing_zeros() >= 6;
    if is_private && !files::is_of_a_stranger(&found, store) {
        Ok(())
    } else {
        Err(io::Error::other(format!("\"{}\" is not a folder of this user alone", folder.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store's path is too long for a socket beside it, and somebody was faster to make the folder in the common one.
    #[test]
    fn folder_that_others_have_or_may_enter_is_neither_served_in_nor_believed() {
        let common = tempfile::tempdir().unwrap();
        let store = common.path().join("app.redb");
        fs::write(&store, "").unwrap();
        let folder = common.path().join("casque-1");
        let path = folder.join("1-2.sock");
        let _listener = bind(&path, &store).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(connect(&path, &store).is_some());

        let is_refused = || connect(&path, &store).is_none() && bind(&path, &store).is_err();
        for mode in [0o701, 0o710, 0o777] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert!(is_refused(), "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        if std::os::unix::fs::chown(&folder, Some(65_534), None).is_ok() {
            assert!(is_refused(), "it is somebody else's");
            std::os::unix::fs::chown(&store, Some(65_534), None).unwrap();
            assert!(!is_refused(), "it is the store's owner's");
        }
    }
}
