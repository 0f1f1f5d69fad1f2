//! `casque reschedule`.

use std::time::Duration;

use clap::{ArgGroup, Args};

use super::{
    context::Context,
    exit::Failure,
    output::Output,
    tend,
    units::{parse_duration, parse_time},
};
use crate::{
    clock::Timestamp,
    queue::{id::JobId, lane::check_priority},
};

/// Give jobs that have not begun another priority or time
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["priority", "delay", "at"])))]
#[command(after_help = "\
Ready, scheduled and waiting jobs; --delay 0 lets a scheduled one run now. A job keeps its
place among those of its priority.

Example:
  casque reschedule 1042 --priority 50 --delay 10m")]
pub(super) struct Reschedule {
    /// The jobs' ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
    /// From -100 to 100, higher first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Run no sooner than so long from now, as 30s or 1h30m
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    delay: Option<Duration>,
    /// Run no sooner than then, in RFC 3339, as 2030-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "delay")]
    at: Option<Timestamp>,
}

impl Reschedule {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        self.priority.map(check_priority).transpose()?;
        tend::one_by_one(context, out, &self.ids, |store, id| {
            let mut change = store.reschedule(id);
            if let Some(priority) = self.priority {
                change = change.priority(priority);
            }
            if let Some(delay) = self.delay {
                change = change.delay(delay);
            }
            if let Some(at) = self.at {
                change = change.at(at);
            }
            change.commit().map(|_| ())
        })
    }
}
