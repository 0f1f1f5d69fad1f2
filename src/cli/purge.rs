//! `casque purge`.

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
};
use crate::queue::{JobFilter, state::State};

/// Remove jobs of a queue for good
#[derive(Debug, Args)]
#[command(after_help = "\
Without --state those that have not begun: waiting, scheduled and ready ones. What runs is
not touched; cancel it. A job that others wait for is cancelled instead. Prints how many
there were. Asks first, where it runs at a terminal; elsewhere it wants --yes.

Example:
  casque purge --queue media --task resize --yes")]
pub(super) struct Purge {
    /// Only jobs in this state: waiting, scheduled, ready, completed, dead or cancelled
    #[arg(long)]
    state: Option<State>,
    /// Only jobs of this task
    #[arg(long)]
    task: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

impl Purge {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let queue = context.queue()?;
        let mut filter = JobFilter::new().queue(queue);
        let mut what = self.state.map_or("jobs that have not begun".to_owned(), |state| format!("{state} jobs"));
        if let Some(state) = self.state {
            filter = filter.state(state);
        }
        if let Some(task) = &self.task {
            filter = filter.task(task);
            what = format!("{what} of task \"{task}\"");
        }
        let store = context.write()?;
        let absent = context.absent_queues(&store)?;
        if !self.yes && !confirm(context, &format!("remove all {what} in queue \"{queue}\"?"))? {
            return Err(Failure::new(Exit::Failed, "nothing was removed"));
        }
        let purged = store.purge(&filter)?;
        context.say_absent(&absent);
        out.either(&serde_json::json!({ "queue": queue, "purged": purged }), format!("{purged} removed from {queue}"))
    }
}

/// Asks a person; whether the answer is yes.
fn confirm(context: &Context, question: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("nobody can be asked here whether to remove them; say so with --yes"));
    }
    eprint!("{}: {question} [y/N] ", context.program);
    let _ = io::stderr().flush();
    let mut answer = String::new();
    io::stdin()
        .read_line(&mut answer)
        .map_err(|error| Failure::new(Exit::Failed, format!("the answer can't be read: {error}")))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
