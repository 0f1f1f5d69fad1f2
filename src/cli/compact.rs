//! `casque compact`.

use std::{path::Path, time::Duration};

use clap::Args;

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
    units::about_size,
};
use crate::store::glance::glance;

/// How long the rows are counted, to tell how much there is to move.
const LOOK: Duration = Duration::from_secs(2);
/// About so much is moved in a second.
const BYTES_PER_SECOND: u64 = 64 << 20;

/// Make the file as small as what it holds
#[derive(Debug, Args)]
#[command(after_help = "\
A store uses space again that jobs have left, so its file stays small by itself while jobs
come and go. This is for after a long backlog. Others may have the store open; they wait
while it is done. Where that would be for more than about a second, because much is to be
moved, it is refused unless it is asked for: exit code 4. Whoever reads without end, or is
stopped while it reads, prevents it, and is named: exit code 5.

Example:
  casque compact")]
pub(super) struct Compact {
    /// Also where others have to wait for more than about a second
    #[arg(long)]
    however_long: bool,
}

impl Compact {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let store = context.write()?;
        let path = store.path().unwrap_or(context.path()).to_owned();
        if !self.however_long {
            check_length(&path, &context.program)?;
        }
        let compacted = store.compact()?;
        let (before, after) = (compacted.bytes_before, compacted.bytes_after);
        store.close()?;
        out.either(
            &serde_json::json!({ "bytes_before": before, "bytes_after": after }),
            format!("{}: {} before, {} now", path.display(), about_size(before), about_size(after)),
        )
    }
}

fn check_length(path: &Path, program: &str) -> Result<(), Failure> {
    // What can't be read is not compacted either, and that tells why.
    let Ok(Some(glance)) = glance(path, LOOK) else { return Ok(()) };
    if glance.is_all && glance.row_bytes <= BYTES_PER_SECOND {
        return Ok(());
    }
    let (much, rows) = (if glance.is_all { "" } else { "more than " }, about_size(glance.row_bytes));
    let seconds = glance.row_bytes.div_ceil(BYTES_PER_SECOND);
    Err(Failure::new(
        Exit::Conflict,
        format!(
            "{} holds {much}{rows}; others would have to wait for {much}about {seconds} s; `{program} compact \
             --however-long` does it all the same",
            path.display()
        ),
    ))
}
