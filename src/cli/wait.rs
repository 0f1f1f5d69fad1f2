//! `casque wait`.

use std::time::Duration;

use clap::Args;

use super::{
    context::Context,
    exit::{Exit, Failure},
    jobs::JobLine,
    output::Output,
    units::{DURATION_MAX, look_until, parse_duration},
};
use crate::{
    clock::monotonic,
    error::ErrorKind,
    queue::{JobInfo, id::JobId, state::State},
};

/// All that is known of a job that has no row.
const GONE: &str = "it has completed and was not kept, or was pruned, or there never was one of that id";

/// Wait until a job has ended, and print its result
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 completed or gone, 1 dead or cancelled, 3 not enqueued yet, 7 not ended in
time. Of a job that is gone there is no result to print, and nothing to tell whether it has
completed and was not kept, or was pruned, or there never was one of that id.

Example:
  casque wait 1042 --timeout 30s")]
pub(super) struct Wait {
    /// The job's id
    id: JobId,
    /// Wait no longer than this, as 30s [default: without end]
    #[arg(long, value_name = "DUR", value_parser = parse_duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
}

impl Wait {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let deadline = monotonic() + self.timeout.unwrap_or(DURATION_MAX);
        let ended = context.read(|store| Ok(look_until(deadline, |patience| store.wait_ended(self.id, patience))))?;
        match ended {
            Ok(Some(job)) => print(context, out, &job),
            Ok(None) if out.json => {
                out.object(&serde_json::json!({ "id": self.id.to_string(), "state": "gone", "result": null }))
            }
            Ok(None) => {
                context.say(format!("job {} is gone: {GONE}", self.id));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let waited = self.timeout.unwrap_or(DURATION_MAX);
                Err(Failure::new(Exit::TimedOut, format!("job {} has not ended after {waited:?}", self.id)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn print(context: &Context, out: &mut Output, job: &JobInfo) -> Result<(), Failure> {
    if out.json {
        out.object(&JobLine::new(context, job))?;
    } else if let Some(result) = &job.result {
        out.line(result.to_json())?;
    }
    if job.state == State::Completed {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, job.fate()))
}
