//! `casque seal`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output, tend};
use crate::queue::id::JobId;

/// Say that nothing more is added to open batches
#[derive(Debug, Args)]
#[command(after_help = "\
A job that was enqueued with --open waits until it is sealed and all jobs that were
enqueued --before it have ended, however they did. Then it runs, once.

Example:
  ID=$(casque enqueue report --open)
  casque enqueue send --args '\"a@example.org\"' --before $ID
  casque seal $ID")]
pub(super) struct Seal {
    /// The ids of the jobs that the batches end with
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
}

impl Seal {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        tend::one_by_one(context, out, &self.ids, |store, id| store.batch(id).seal())
    }
}
