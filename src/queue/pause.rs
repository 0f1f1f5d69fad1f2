//! Pause and resume, of a queue and of a task. Reads and writes: the head of the queue; or the rows of the task, and
//! the heads of the queues that have lanes of it, so that strict claims conflict and waiting ones are tried again.

use std::collections::BTreeSet;

use crate::{
    engine::Rows,
    error::Result,
    queue::{
        enqueue::check_name,
        moves,
        record::{HeadRecord, TaskRecord},
    },
    store::{
        Store,
        apply::Context,
        change::{Intent, Outcome},
        keys,
        view::{first_rows, for_each},
    },
};

use super::admin::Admin;

impl Store {
    /// Keeps the jobs of a task from being claimed, in whatever queue, also over restarts, until it is resumed. What
    /// runs is not interrupted; what was claimed and not begun goes back. There need be no such task yet.
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// store.pause_task("charge-card")?;
    /// assert_eq!(store.paused_tasks()?, ["charge-card"]);
    /// store.resume_task("charge-card")?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a bad name.
    pub fn pause_task(&self, task: &str) -> Result<()> {
        self.inner.perform(Intent::Administer(Admin::PauseTask { task: task.to_owned() })).map(|_| ())
    }

    /// Lets the jobs of a task be claimed again.
    ///
    /// # Errors
    /// `Invalid` for a bad name.
    pub fn resume_task(&self, task: &str) -> Result<()> {
        self.inner.perform(Intent::Administer(Admin::ResumeTask { task: task.to_owned() })).map(|_| ())
    }

    #[cfg(feature = "cli")]
    pub(crate) fn knows_task(&self, task: &str) -> Result<bool> {
        is_known(self.inner.rows()?.as_ref(), task)
    }

    /// The tasks whose jobs are not claimed for now, in order of their names.
    ///
    /// # Errors
    /// What reading the store says.
    pub fn paused_tasks(&self) -> Result<Vec<String>> {
        let mut paused = Vec::new();
        for_each(self.inner.look()?.as_ref(), &keys::task_names(), |_, bytes| {
            let task: TaskRecord = crate::codec::decode(bytes)?;
            paused.extend(task.paused.then_some(task.name));
            Ok(())
        })?;
        paused.sort_unstable();
        Ok(paused)
    }
}

pub(crate) fn set_queue(context: &mut Context<'_>, queue: &str, paused: bool) -> Result<Outcome> {
    check_name("queue", queue)?;
    // A queue that is not known has nothing to be resumed, and none is made for that.
    if !paused && context.rows.get(&keys::head(queue))?.is_none() {
        return Ok(Outcome::Done);
    }
    let head = context.head(queue)?;
    if head.paused != paused {
        context.bump_head(queue, HeadRecord { paused, ..head })?;
    }
    context.note_queue(queue)?;
    Ok(Outcome::Done)
}

pub(crate) fn set_task(context: &mut Context<'_>, task: &str, paused: bool) -> Result<Outcome> {
    check_name("task", task)?;
    if !paused && !is_known(&context.rows, task)? {
        return Ok(Outcome::Done);
    }
    let number = context.task_number(task)?;
    let mut record = moves::task(&context.rows, number)?;
    if record.paused == paused {
        return Ok(Outcome::Done);
    }
    record.paused = paused;
    context.put_task(&record)?;
    let lanes = first_rows(&context.rows, &keys::all_lanes(), usize::MAX)?;
    let lanes = lanes.iter().filter_map(|(key, _)| keys::lane_of(key));
    let queues: BTreeSet<String> = lanes.filter(|(_, lane)| lane.task == number).map(|(queue, _)| queue).collect();
    for queue in queues {
        let head = context.head(&queue)?;
        context.bump_head(&queue, head)?;
    }
    Ok(Outcome::Done)
}

/// Whether a job of the task was ever enqueued, or the task paused.
fn is_known(rows: &dyn Rows, task: &str) -> Result<bool> {
    Ok(rows.get(&keys::task_number(task))?.is_some())
}
