//! `casque resume`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output, pause};
use crate::queue::enqueue::check_name;

/// Let a queue's jobs be claimed again
#[derive(Debug, Args)]
#[command(after_help = "\
Workers that wait begin at once.

Example:
  casque resume media")]
pub(super) struct Resume {
    /// The queue
    #[arg(value_name = "Q")]
    name: String,
}

impl Resume {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        check_name("queue", &self.name)?;
        context.write()?.queue(&self.name).resume()?;
        pause::print(out, &self.name, false)
    }
}
