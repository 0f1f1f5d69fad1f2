//! One lock per child process that runs a job, in `children/<job>-<token>`: it outlives the process that started the
//! child, so that the job is not given to a second one while the first still runs.

use std::{fs::File, path::PathBuf};

use super::{
    files::{self, refused},
    folder::Folder,
};
use crate::{
    error::{Error, Result},
    queue::id::{JobId, Token},
};

/// A child's lock as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) job: JobId,
    pub(crate) token: Token,
    /// The process that started the child, where its file tells.
    pub(crate) parent_pid: Option<u32>,
    /// Whether the child, or the start of it, still holds the lock.
    pub(crate) busy: bool,
    pub(crate) path: PathBuf,
}

/// A new, locked file whose descriptor is for the child to inherit. The lock is free when the last copy of it is
/// closed: drop this one once the child has its own, and never call `unlock`, which would free the child's too.
#[cfg_attr(not(feature = "exec"), allow(dead_code, reason = "only commands are run in children"))]
pub(crate) fn create(folder: &Folder, job: JobId, token: Token) -> Result<File> {
    if is_busy(folder, job, token) {
        return Err(Error::unavailable(format!(
            "start a process for job {job}: an earlier one of the same attempt holds \"{}\"; wait until it ends",
            path(folder, job, token).display()
        )));
    }
    files::create_locked(&path(folder, job, token), std::process::id().to_string().as_bytes())
}

/// Whether the child started for this attempt may still run. A file that can't be examined counts as busy: a job that
/// waits can be released by force, one that ran twice can't be undone.
pub(crate) fn is_busy(folder: &Folder, job: JobId, token: Token) -> bool {
    match files::open_existing(&path(folder, job, token)) {
        Ok(Some(file)) => files::is_locked(&file).unwrap_or(true),
        Ok(None) => false,
        Err(_) => true,
    }
}

/// Removes the file if nothing holds it; says whether it is gone.
pub(crate) fn remove(folder: &Folder, job: JobId, token: Token) -> Result<bool> {
    files::remove_if_free(&path(folder, job, token))
}

/// All children's locks, held or free.
pub(crate) fn list(folder: &Folder) -> Result<Vec<Child>> {
    let mut children = Vec::new();
    for (name, path) in files::entries(&folder.children())? {
        let Some((job, token)) = parse(&name) else { continue };
        let Some(file) = files::open_existing(&path)? else { continue };
        let busy = files::is_locked(&file).map_err(|cause| refused("probe the lock of", &path, cause))?;
        let text = files::read_start(&file, 16).map_err(|cause| refused("read", &path, cause))?;
        let parent_pid = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
        children.push(Child { job, token, parent_pid, busy, path });
    }
    Ok(children)
}

fn path(folder: &Folder, job: JobId, token: Token) -> PathBuf {
    folder.children().join(name(job, token))
}

fn name(job: JobId, token: Token) -> String {
    format!("{job}-{token}")
}

/// A job id may itself hold a dash; the token is what follows the last one.
fn parse(text: &str) -> Option<(JobId, Token)> {
    let (job, token) = text.rsplit_once('-')?;
    let (job, token) = (job.parse().ok()?, Token(token.parse().ok()?));
    (name(job, token) == text).then_some((job, token))
}
