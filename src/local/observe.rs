//! The sessions as others see them. Files here may be cut short, damaged or not ours: they are read with a bound, and
//! what can't be understood reads as absent.

#[cfg(feature = "cli")]
use std::path::PathBuf;
use std::{fs::File, io, time::Duration};

use super::{
    children,
    files::{self, refused},
    folder::Folder,
    record::{self, FILE_BYTES, Header, Note},
    session::path,
};
use crate::{error::Result, queue::id::SessionId};

/// One look at a session file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: SessionId,
    /// 0 where the header can't be read.
    pub(crate) pid: u32,
    /// Empty, and so of no boot, where the header can't be read: after a power cut.
    pub(crate) boot_id: String,
    pub(crate) label: String,
    pub(crate) started_ms: u64,
    pub(crate) beat: u64,
    /// Within which time it said that it would beat again.
    pub(crate) beat_interval: Duration,
    /// Whether its process holds the file's lock.
    pub(crate) alive: bool,
    pub(crate) notes: Vec<Note>,
    /// Whether this user may read its file; else nothing here is known but the id.
    pub(crate) is_readable: bool,
}

/// All sessions that have a file, dead or alive, in the order of their ids.
pub(crate) fn sessions(folder: &Folder) -> Result<Vec<Seen>> {
    // One that can't be read is somebody's all the same.
    let look = |id| look(folder, id).unwrap_or_else(|_| Some(unreadable(id)));
    Ok(session_ids(folder)?.into_iter().filter_map(look).collect())
}

/// The ids of all sessions that have a file.
pub(crate) fn session_ids(folder: &Folder) -> Result<Vec<SessionId>> {
    // Only the one spelling that sessions are created under: another would be a second name of the same id.
    let id = |name: &str| name.parse::<SessionId>().ok().filter(|id| id.to_string() == name);
    Ok(files::entries(&folder.sessions())?.into_iter().filter_map(|(name, _)| id(&name)).collect())
}

/// One session; `None` where it has no file, and so is dead.
pub(crate) fn look(folder: &Folder, id: SessionId) -> Result<Option<Seen>> {
    let path = path(folder, id);
    let Some(file) = files::open_existing(&path)? else { return Ok(None) };
    see(id, &file).map(Some).map_err(|cause| refused("read", &path, cause))
}

/// Removes a session's file, dead or alive: no file, no session. Only under the writer's lock.
pub(crate) fn remove(folder: &Folder, id: SessionId) -> Result<()> {
    files::remove(&path(folder, id))
}

/// Removes what processes left behind that died while they made a session or a child's lock, and the locks of children
/// that have ended. Only under the writer's lock.
pub(crate) fn remove_leftovers(folder: &Folder) -> Result<()> {
    files::remove_unfinished(&folder.sessions())?;
    files::remove_unfinished(&folder.children())?;
    for child in children::list(folder)?.into_iter().filter(|child| !child.busy) {
        children::remove(folder, child.job, child.token)?;
    }
    Ok(())
}

/// What processes left behind that died, and that nobody needs.
#[cfg(feature = "cli")]
pub(crate) fn leftovers(folder: &Folder) -> Vec<PathBuf> {
    let mut paths = files::unfinished(&folder.sessions());
    paths.extend(files::unfinished(&folder.children()));
    let children = children::list(folder).unwrap_or_default();
    paths.extend(children.into_iter().filter(|child| !child.busy).map(|child| child.path));
    paths
}

fn unreadable(id: SessionId) -> Seen {
    let Header { pid, boot_id, label: _, started_ms } = Header::default();
    let label = "not readable by this user".to_owned();
    Seen {
        id,
        pid,
        boot_id,
        label,
        started_ms,
        beat: 0,
        beat_interval: Duration::ZERO,
        alive: true,
        notes: Vec::new(),
        is_readable: false,
    }
}

fn see(id: SessionId, file: &File) -> io::Result<Seen> {
    // In this order: what is read after the lock was found free is what the process wrote last.
    let alive = files::is_locked(file)?;
    let bytes = files::read_start(file, FILE_BYTES)?;
    let header = Header::decode(&bytes);
    // Without a header of this format the rest may be of any.
    let ((beat, interval_ms), notes) =
        if header.is_some() { (record::beat(&bytes), record::notes(&bytes)) } else { ((0, 0), Vec::new()) };
    let beat_interval = Duration::from_millis(interval_ms);
    let Header { pid, boot_id, label, started_ms } = header.unwrap_or_default();
    Ok(Seen { id, pid, boot_id, label, started_ms, beat, beat_interval, alive, notes, is_readable: true })
}
