//! `casque retry`.

use clap::Args;

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
    tend,
};
use crate::queue::{JobFilter, admin::Tend, id::JobId, state::State};

/// Put dead or cancelled jobs back, or let scheduled ones run now
#[derive(Debug, Args)]
#[command(after_help = "\
A dead or cancelled job has all its attempts again. With --all those of all queues, or of
the one that --queue names: dead ones, or those that --state says. One whose unique key
another job holds by now stays as it is: exit code 4.

Examples:
  casque retry 1042
  casque retry --all --queue media --task resize")]
pub(super) struct Retry {
    /// The jobs' ids
    #[arg(conflicts_with = "all", value_name = "ID")]
    ids: Vec<JobId>,
    /// All that the options admit
    #[arg(long)]
    all: bool,
    /// Only jobs in this state: dead, cancelled or scheduled [default: dead]
    #[arg(long)]
    state: Option<State>,
    /// Only jobs of this task
    #[arg(long)]
    task: Option<String>,
}

impl Retry {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        if self.all {
            return self.all(context, out);
        }
        if self.ids.is_empty() {
            let state = self.state.unwrap_or(State::Dead);
            return Err(Failure::usage(format!(
                "name the jobs by their ids, <ID>..., or add --all to retry all that are {state}"
            )));
        }
        if self.state.is_some() || self.task.is_some() {
            return Err(Failure::usage("--state and --task choose among all jobs; give them with --all, or no ids"));
        }
        tend::together(context, out, &self.ids, Tend::Retry)
    }

    fn all(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let mut filter = JobFilter::new().state(self.state.unwrap_or(State::Dead));
        if let Some(queue) = context.queue_if_named()? {
            filter = filter.queue(queue);
        }
        if let Some(task) = self.task {
            filter = filter.task(task);
        }
        let store = context.write()?;
        let absent = context.absent_queues(&store)?;
        let swept = store.retry_swept(&filter)?;
        context.say_absent(&absent);
        let (retried, refused) = (swept.jobs, swept.refused);
        out.either(&serde_json::json!({ "retried": retried, "refused": refused }), format!("{retried} retried"))?;
        if refused == 0 {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Conflict,
            format!(
                "{refused} stay as they are: another job holds their unique key now, they run at most once and may \
                 have begun, or not all that waited for them know of their end yet; `{} retry ID` says which",
                context.program
            ),
        ))
    }
}
