//! P5: the lock of the child process that works on a job, as the handler sees it that starts the child.

use std::{fs::File, time::Duration};

use crate::{
    error::Error,
    local::children,
    task::{Job, TaskError},
};

/// When a job is tried again for which the store, or the system, was not ready.
pub(crate) const NOT_NOW: Duration = Duration::from_secs(1);

/// A locked file for the child that is to work on a job; none for a store in memory. The lock is the child's alone once
/// this process has dropped its copy.
///
/// # Errors
/// `Snooze` where the store is not ready.
pub(crate) fn create(job: &Job) -> Result<Option<File>, TaskError> {
    let store = job.store();
    let folder = store.inner.site.files().map(|files| &files.folder);
    folder.map(|folder| children::create(folder, job.id(), job.token())).transpose().map_err(not_now)
}

/// Removes the file, once the child has ended. Where it left others running that have the lock too, it is removed with
/// what a dead session leaves behind.
pub(crate) fn remove(job: &Job) {
    let store = job.store();
    let Some(files) = store.inner.site.files() else { return };
    if let Err(error) = children::remove(&files.folder, job.id(), job.token()) {
        // The child has ended all the same; the file goes with other leftovers.
        store.inner.site.note_trouble(&error);
    }
}

/// What the store lacks for now is no failure of the job.
pub(crate) fn not_now(_: Error) -> TaskError {
    TaskError::Snooze(NOT_NOW)
}
