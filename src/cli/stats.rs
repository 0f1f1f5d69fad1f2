//! `casque stats`.

use clap::Args;
use serde::Serialize;

use super::{
    context::{Context, View},
    exit::Failure,
    limits,
    output::Output,
    table::Table,
    units::{counted, format_size},
};
use crate::queue::QueueStats;

/// The queues in numbers, and the store's figures
#[derive(Debug, Args)]
#[command(after_help = "\
One line per queue: its jobs in each state (completed counts all that ever were), and
hijacks, the claims that lost a job to another. Then one line of the store.

Example:
  casque stats --json")]
pub(super) struct Stats {
    #[command(flatten)]
    view: View,
}

/// A queue in JSON.
#[derive(Serialize)]
pub(super) struct QueueLine<'a> {
    queue: &'a str,
    paused: bool,
    waiting: u64,
    scheduled: u64,
    ready: u64,
    running: u64,
    completed: u64,
    dead: u64,
    cancelled: u64,
    hijacks: u64,
    /// What is configured for it, where anything is.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<serde_json::Map<String, serde_json::Value>>,
}

impl<'a> QueueLine<'a> {
    pub(super) fn new(stats: &'a QueueStats) -> Self {
        Self {
            queue: &stats.queue,
            paused: stats.paused,
            waiting: stats.waiting,
            scheduled: stats.scheduled,
            ready: stats.ready,
            running: stats.running,
            completed: stats.completed,
            dead: stats.dead,
            cancelled: stats.cancelled,
            hijacks: stats.hijacks,
            limits: limits::as_json(&stats.config),
        }
    }
}

#[derive(Serialize)]
struct StoreLine {
    version: u64,
    path: String,
    file_bytes: u64,
    sessions: usize,
    paused_tasks: Vec<String>,
}

impl Stats {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let only = context.queue_if_named()?;
        let (queues, store, absent) = context.read(|store| {
            self.view.apply(store);
            let mut queues = store.queues()?;
            queues.retain(|stats| only.is_none_or(|only| only == stats.queue));
            let path = store.path().unwrap_or(context.path());
            let line = StoreLine {
                version: store.inner.newest_seen()?.0,
                path: path.display().to_string(),
                file_bytes: std::fs::metadata(path).map(|found| found.len()).unwrap_or_default(),
                sessions: store.sessions()?.iter().filter(|session| session.alive).count(),
                paused_tasks: store.paused_tasks()?,
            };
            Ok((queues, line, context.absent_queues(store)?))
        })?;
        context.say_absent(&absent);
        if out.json {
            queues.iter().try_for_each(|stats| out.object(&QueueLine::new(stats)))?;
            return out.object(&store);
        }
        print_queues(out, &queues)?;
        let StoreLine { version, path, file_bytes, sessions, paused_tasks } = store;
        if !paused_tasks.is_empty() {
            out.line(format!("paused tasks: {}", paused_tasks.join(", ")))?;
        }
        out.line(format!(
            "{path}: version {version}, {}, {}",
            format_size(file_bytes),
            counted(sessions as u64, "session")
        ))
    }
}

/// Queues as a table for people.
pub(super) fn print_queues(out: &mut Output, queues: &[QueueStats]) -> Result<(), Failure> {
    let head = ["QUEUE", "READY", "RUNNING", "SCHEDULED", "WAITING", "COMPLETED", "DEAD", "CANCELLED", "HIJACKS", ""];
    let mut table = Table::with_head(head);
    for stats in queues {
        let number = |count: u64| count.to_string();
        table.row([
            stats.queue.clone(),
            number(stats.ready),
            number(stats.running),
            number(stats.scheduled),
            number(stats.waiting),
            number(stats.completed),
            number(stats.dead),
            number(stats.cancelled),
            number(stats.hijacks),
            limits::notes(stats.paused, &stats.config),
        ]);
    }
    table.print(out)
}
