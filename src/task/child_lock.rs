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
/// `Snooze` where the store is not ready; the job has not begun then.
pub(crate) fn create(job: &Job) -> Result<Option<File>, TaskError> {
    let store = job.store();
    let folder = store.inner.site.files().map(|files| &files.folder);
    let create = |folder| children::create(folder, job.id(), job.token());
    folder.map(create).transpose().map_err(|error| not_now(job, &error))
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

/// What the store or the system lacks for now is no failure of the job, which has not begun then.
pub(crate) fn not_now(job: &Job, error: &Error) -> TaskError {
    job.store().inner.site.note_trouble(error);
    job.lease().note_not_begun();
    TaskError::Snooze(NOT_NOW)
}

#[cfg(all(test, feature = "exec"))]
mod tests {
    use std::{fs, time::Duration};

    use crate::{Event, JobRequest, Registry, State, Store, Worker, types::Exec};

    #[test]
    fn job_that_runs_at_most_once_and_whose_process_could_not_be_started_yet_runs_later() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("app.redb")).unwrap();
        let exec = Exec { command: vec!["true".into()], cwd: None, env: std::collections::BTreeMap::new() };
        let id = store.queue("default").enqueue(JobRequest::new("exec", &exec).at_most_once()).unwrap();
        let children = folder.path().join("app.redb.d/children");
        // Where no lock can be made no process is started.
        fs::remove_dir(&children).unwrap();
        fs::write(&children, "").unwrap();
        let mut tasks = Registry::new();
        tasks.task::<Exec>().unwrap();
        let worker = Worker::new(&store).tasks(tasks).drain_with_scheduled().listen(move |event| {
            if let Event::GivenBack { job, state } = event {
                assert_eq!((*job, *state), (id, State::Scheduled));
                fs::remove_file(&children).unwrap();
                fs::create_dir(&children).unwrap();
            }
        });
        let report = worker.run().unwrap();
        assert_eq!((report.given_back, report.completed), (1, 1));
        store.wait_ended(id, Duration::ZERO).unwrap();
    }
}
