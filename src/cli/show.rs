//! `casque show`.

use clap::Args;

use super::{
    context::Context,
    exit::Failure,
    jobs::{self, Begun, JobLine},
    output::Output,
};
use crate::queue::id::JobId;

/// Show a job
#[derive(Debug, Args)]
#[command(after_help = "\
Of the jobs that it still waits for, and of those that wait for it, up to 100 are named.
A job that was completed and not kept is gone, as is one that was pruned: exit code 3.

Example:
  casque show 1042")]
pub(super) struct Show {
    /// The job's id
    id: JobId,
}

impl Show {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let (job, neighbours) = context.read(|store| {
            let mut job = store.job(self.id)?;
            Begun::default().complete(store, &mut job)?;
            Ok((job, store.neighbours(self.id)?))
        })?;
        if out.json {
            return out.object(&JobLine::new(context, &job).with_neighbours(&neighbours));
        }
        jobs::print_page(context, out, &job, &neighbours)
    }
}
