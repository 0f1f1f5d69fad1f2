//! `casque resume`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output, pause::Paused};

/// Let the jobs of a queue or a task be claimed again
#[derive(Debug, Args)]
#[command(after_help = "\
Workers that wait begin at once. A queue or a task that was never there is not found: exit
code 3.

Examples:
  casque resume media
  casque resume --task charge-card")]
pub(super) struct Resume {
    #[command(flatten)]
    what: Paused,
}

impl Resume {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        self.what.set(context, out, false)
    }
}
