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
    queue::{JobFilter, state::State},
};

/// The queues, and how long their oldest job has waited
#[derive(Debug, Args)]
#[command(after_help = "\
Live jobs are those that have not ended; kept ones have, and are still there. The oldest
is the first of the ready jobs in the order of their places, whatever their priorities.

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
        let lines = context.read(|store| {
            self.view.apply(store);
            let mut lines = Vec::new();
            for stats in store.queues()? {
                if only.is_some_and(|only| only != stats.queue) {
                    continue;
                }
                let ready = JobFilter::new().queue(&stats.queue).state(State::Ready);
                let oldest = store.jobs(&ready, 1)?.first().map(|job| job.run_at.unwrap_or(job.enqueued_at));
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
