//! `casque queues`.

use clap::Args;
use serde::Serialize;

use super::{
    context::{Context, View},
    exit::Failure,
    limits,
    output::Output,
    table::Table,
    units::about,
};
use crate::{
    clock::Timestamp,
    queue::{JobFilter, JobInfo, state::State},
};

/// The queues, and how long their oldest job has waited
#[derive(Debug, Args)]
#[command(after_help = "\
Live jobs are those that have not ended; kept ones have, and are still there. The oldest
is the first of the ready jobs in the order of their places, whatever their priorities; it
has been ready since it was enqueued, or since its time came.

Example:
  casque queues")]
pub(super) struct Queues {
    #[command(flatten)]
    view: View,
}

#[derive(Serialize)]
struct Line {
    queue: String,
    paused: bool,
    live: u64,
    kept: u64,
    oldest_ready_at: Option<String>,
    /// What is configured for it, where anything is.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Queues {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let only = context.queue_if_named()?;
        let mut absent = Vec::new();
        let lines = context.read(|store| {
            self.view.apply(store);
            absent = context.absent_queues(store)?;
            let mut lines = Vec::new();
            for stats in store.queues()? {
                if only.is_some_and(|only| only != stats.queue) {
                    continue;
                }
                let ready = JobFilter::new().queue(&stats.queue).state(State::Ready);
                let oldest = store.jobs(&ready, 1)?.first().map(ready_since);
                let notes = limits::notes(stats.paused, &stats.config);
                let line = Line {
                    limits: limits::as_json(&stats.config),
                    live: stats.waiting + stats.scheduled + stats.ready + stats.running,
                    kept: stats.kept + stats.dead + stats.cancelled,
                    paused: stats.paused,
                    queue: stats.queue,
                    oldest_ready_at: oldest.map(|at| at.to_string()),
                };
                lines.push((line, oldest, notes));
            }
            Ok(lines)
        })?;
        context.say_absent(&absent);
        if out.json {
            return lines.iter().try_for_each(|(line, ..)| out.object(line));
        }
        let now = Timestamp::now();
        let mut table = Table::with_head(["QUEUE", "LIVE", "KEPT", "OLDEST READY", ""]);
        for (line, oldest, notes) in lines {
            table.row([
                line.queue,
                line.live.to_string(),
                line.kept.to_string(),
                oldest.map_or("-".to_owned(), |at| about(now.since(at))),
                notes,
            ]);
        }
        table.print(out)
    }
}

/// Since when a ready job could run: a time that was over when it was enqueued is not.
fn ready_since(job: &JobInfo) -> Timestamp {
    job.run_at.map_or(job.enqueued_at, |at| at.max(job.enqueued_at))
}
