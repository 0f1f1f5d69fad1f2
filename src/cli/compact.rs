//! `casque compact`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output, units::about_size};

/// Make the file as small as what it holds
#[derive(Debug, Args)]
#[command(after_help = "\
A store uses space again that jobs have left, so its file stays small by itself while jobs
come and go. This is for after a long backlog. Others may go on using the store: they wait
while it is done, which takes about a second for each GiB that is moved. Whoever reads
without end, or is stopped while it reads, prevents it, and is named: exit code 5.

Example:
  casque compact")]
pub(super) struct Compact {}

impl Compact {
    pub(super) fn run(context: &Context, out: &mut Output) -> Result<(), Failure> {
        let store = context.write()?;
        let compacted = store.compact()?;
        let path = store.path().unwrap_or(context.path()).display().to_string();
        let (before, after) = (compacted.bytes_before, compacted.bytes_after);
        store.close()?;
        out.either(
            &serde_json::json!({ "bytes_before": before, "bytes_after": after }),
            format!("{path}: {} before, {} now", about_size(before), about_size(after)),
        )
    }
}
