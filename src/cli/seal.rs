//! `casque seal`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output, tend};
use crate::{error::Error, queue::id::JobId};

/// Say that nothing more is added to open batches
#[derive(Debug, Args)]
#[command(after_help = "\
A job that was enqueued with --open waits until it is sealed and all jobs that were
enqueued --before it have ended, however they did. Then it runs, once. One that is not open can't
be sealed: exit code 4.

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
        tend::one_by_one(context, out, &self.ids, |store, id| {
            let is_open = store.job(id)?.awaited.map(|awaited| awaited.is_open);
            // Sealing again what is sealed changes nothing, and who types it is likely to mean another.
            if is_open == Some(false) {
                return Err(Error::invalid(format!("job {id} is not open: it was sealed before, or never was open")));
            }
            store.batch(id).seal()
        })
    }
}
