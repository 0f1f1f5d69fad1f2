//! `casque cancel`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output, tend};
use crate::queue::{admin::Tend, id::JobId};

/// Call jobs off
#[derive(Debug, Args)]
#[command(after_help = "\
A job that waits is cancelled at once. Of one that runs, its handler is told within a
moment, in whatever process; when it has ended otherwise than well, the job is cancelled.
One that has ended otherwise can't be: exit code 4.

Example:
  casque cancel 1042 1043")]
pub(super) struct Cancel {
    /// The jobs' ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
}

impl Cancel {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        tend::together(context, out, &self.ids, Tend::Cancel)
    }
}
