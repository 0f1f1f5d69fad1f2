//! `casque requeue`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output, tend};
use crate::queue::{admin::Tend, id::JobId};

/// Put jobs to the back of their queue
#[derive(Debug, Args)]
#[command(after_help = "\
Ready and scheduled jobs; a scheduled one is then ready.

Example:
  casque requeue 1042")]
pub(super) struct Requeue {
    /// The jobs' ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
}

impl Requeue {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        tend::together(context, out, &self.ids, Tend::Requeue)
    }
}
