//! `casque release`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output, tend};
use crate::queue::id::JobId;

/// Take jobs from whoever holds them, and put them back
#[derive(Debug, Args)]
#[command(after_help = "\
They go to the front of their queue, uncharged. What their handlers bring is refused from
then on.

Example:
  casque release 1042")]
pub(super) struct Release {
    /// Also while a child process works on the job, which may then run twice
    #[arg(long)]
    force: bool,
    /// The jobs' ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
}

impl Release {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        tend::one_by_one(context, out, &self.ids, |store, id| store.release(id, self.force))
    }
}
