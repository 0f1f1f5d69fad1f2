//! `casque check`.

use clap::Args;

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
    units::counted,
};

/// Check that the store is sound
#[derive(Debug, Args)]
#[command(after_help = "\
Checks the file and every invariant that can be read off its rows, and prints each
finding: exit code 6 if there are any. Others wait while the file is checked.

Example:
  casque check")]
pub(super) struct Check {}

impl Check {
    pub(super) fn run(context: &Context, out: &mut Output) -> Result<(), Failure> {
        let store = context.write()?;
        let findings = store.check()?;
        for finding in &findings {
            out.either(&serde_json::json!({ "finding": finding.to_string() }), finding)?;
        }
        if findings.is_empty() {
            let version = store.version()?;
            return out.either(
                &serde_json::json!({ "findings": 0, "version": version.0 }),
                format!("{} is sound at version {version}", context.path().display()),
            );
        }
        let path = context.path().display();
        let count = counted(findings.len() as u64, "finding");
        Err(Failure::new(
            Exit::Damaged,
            format!("{path} is damaged ({count}); stop all processes, keep the file, and restore from a backup"),
        ))
    }
}
