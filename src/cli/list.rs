//! `casque list`.

use clap::Args;

use super::{
    context::{Context, View},
    exit::Failure,
    jobs::{Begun, JobLine},
    output::Output,
    table::{Table, brief},
    units::{number_from, relative},
};
use crate::{
    clock::Timestamp,
    queue::{JobFilter, JobInfo, id::JobId, state::State},
};

/// How many jobs are read at once.
const PAGE: usize = 500;
/// How much of a job's arguments is shown.
const ARGS_LETTERS: usize = 40;

/// List jobs
#[derive(Debug, Args)]
#[command(after_help = "\
Jobs come in the order of their ids, a requeued one where it stands in its queue. For the
next page, give the last id to --after.

Example:
  casque list --queue media --state dead --limit 20")]
pub(super) struct List {
    /// Only jobs in this state: waiting, scheduled, ready, running, completed, dead or cancelled
    #[arg(long)]
    state: Option<State>,
    /// Only jobs of this task
    #[arg(long)]
    task: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = number_from::<usize>(0))]
    limit: usize,
    /// Only jobs behind this one
    #[arg(long, value_name = "ID")]
    after: Option<JobId>,
    #[command(flatten)]
    view: View,
}

impl List {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let mut filter = JobFilter::new();
        if let Some(queue) = context.queue_if_named()? {
            filter = filter.queue(queue);
        }
        if let Some(state) = self.state {
            filter = filter.state(state);
        }
        if let Some(task) = self.task {
            filter = filter.task(task);
        }
        // They outlive one call of the closure, so that one that is called again goes on where it was.
        let (mut last, mut left, mut is_first) = (self.after, self.limit, true);
        let mut absent = Vec::new();
        let more = context.read(|store| {
            self.view.apply(store);
            absent = context.absent_queues(store)?;
            loop {
                let page = last.map_or(filter.clone(), |last| filter.clone().after(last));
                let mut jobs = store.jobs(&page, left.min(PAGE).saturating_add(1))?;
                let more = jobs.len() > left.min(PAGE);
                jobs.truncate(left.min(PAGE));
                let mut begun = Begun::default();
                jobs.iter_mut().try_for_each(|job| begun.complete(store, job))?;
                print(context, out, &jobs, is_first)?;
                is_first = false;
                left -= jobs.len();
                last = jobs.last().map(|job| job.id).or(last);
                if !more || left == 0 {
                    return Ok(more);
                }
            }
        })?;
        context.say_absent(&absent);
        if let Some(last) = last.filter(|_| more && !out.json) {
            context.say(format!("there are more; go on with --after {last}"));
        }
        Ok(())
    }
}

fn print(context: &Context, out: &mut Output, jobs: &[JobInfo], with_head: bool) -> Result<(), Failure> {
    if out.json {
        return jobs.iter().try_for_each(|job| out.object(&JobLine::new(context, job)));
    }
    let now = Timestamp::now();
    let mut table = if with_head {
        Table::with_head(["ID", "TASK", "QUEUE", "STATE", "PRIORITY", "ATTEMPT", "WHEN", "ARGS"])
    } else {
        Table::new()
    };
    for job in jobs {
        let when = match job.state {
            State::Scheduled => job.run_at,
            State::Running => job.started_at,
            _ => job.finished_at,
        };
        table.row([
            job.id.to_string(),
            job.task.clone(),
            job.queue.clone(),
            job.state.to_string(),
            job.priority.to_string(),
            format!("{}/{}", job.attempt, job.max_attempts),
            relative(when.unwrap_or(job.enqueued_at), now),
            brief(&context.args_of(job).to_string(), ARGS_LETTERS),
        ]);
    }
    table.print(out)
}
