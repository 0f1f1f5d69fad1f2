//! `casque pause`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output};
use crate::queue::enqueue::check_name;

/// Keep a queue's jobs from being claimed
#[derive(Debug, Args)]
#[command(after_help = "\
What runs is not interrupted. A queue stays paused, also over restarts, until it is
resumed; it need not exist yet.

Example:
  casque pause media")]
pub(super) struct Pause {
    /// The queue
    #[arg(value_name = "Q")]
    name: String,
}

impl Pause {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        check_name("queue", &self.name)?;
        context.write()?.queue(&self.name).pause()?;
        print(out, &self.name, true)
    }
}

pub(super) fn print(out: &mut Output, queue: &str, paused: bool) -> Result<(), Failure> {
    let state = if paused { "paused" } else { "resumed" };
    out.either(&serde_json::json!({ "queue": queue, "paused": paused }), format!("{queue} {state}"))
}
