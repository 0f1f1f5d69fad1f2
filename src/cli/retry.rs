//! `casque retry`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output, tend};
use crate::queue::{admin::Tend, id::JobId};

/// Put dead or cancelled jobs back, or let scheduled ones run now
#[derive(Debug, Args)]
#[command(after_help = "\
A dead or cancelled job has all its attempts again.

Example:
  casque retry 1042")]
pub(super) struct Retry {
    /// The jobs' ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
}

impl Retry {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        tend::together(context, out, &self.ids, Tend::Retry)
    }
}
