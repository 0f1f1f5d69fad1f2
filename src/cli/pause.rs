//! `casque pause`.

use clap::Args;

use super::{
    context::{Context, no_queue},
    exit::{Exit, Failure},
    output::Output,
};
use crate::{queue::enqueue::check_name, store::Store};

/// Keep the jobs of a queue or a task from being claimed
#[derive(Debug, Args)]
#[command(after_help = "\
What runs is not interrupted; what was claimed and not begun goes back. A queue or a task
stays paused, also over restarts, until it is resumed; it need not exist yet.

Examples:
  casque pause media
  casque pause --task charge-card")]
pub(super) struct Pause {
    #[command(flatten)]
    what: Paused,
}

/// What is paused or resumed.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Paused {
    /// The queue
    #[arg(value_name = "Q")]
    name: Option<String>,
    /// The task, in whatever queue
    #[arg(long)]
    task: Option<String>,
}

impl Pause {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        self.what.set(context, out, true)
    }
}

impl Paused {
    pub(super) fn set(self, context: &Context, out: &mut Output, paused: bool) -> Result<(), Failure> {
        let (kind, name) = match (self.name, self.task) {
            (Some(queue), _) => ("queue", queue),
            (None, Some(task)) => ("task", task),
            (None, None) => return Err(Failure::usage("name a queue, or a task with --task")),
        };
        if let Some(other) = context.queue_if_named()? {
            let why = format!("a {kind} is paused and resumed as such; leave `--queue {other}` out");
            return Err(Failure::usage(why));
        }
        check_name(kind, &name)?;
        let store = context.write()?;
        if !paused {
            check_known(context, &store, kind, &name)?;
        }
        match (kind, paused) {
            ("queue", true) => store.queue(&name).pause(),
            ("queue", false) => store.queue(&name).resume(),
            (_, true) => store.pause_task(&name),
            (_, false) => store.resume_task(&name),
        }?;
        let state = if paused { "paused" } else { "resumed" };
        out.either(&serde_json::json!({ kind: name, "paused": paused }), format!("{name} {state}"))
    }
}

/// # Errors
/// What was never there can't have been paused: a name that was mistyped.
fn check_known(context: &Context, store: &Store, kind: &str, name: &str) -> Result<(), Failure> {
    match kind {
        "queue" => {
            let known: Vec<String> = store.queues()?.into_iter().map(|queue| queue.queue).collect();
            if known.iter().any(|known| known == name) {
                return Ok(());
            }
            Err(Failure::new(Exit::NotFound, no_queue(name, &known)))
        }
        _ if store.knows_task(name)? => Ok(()),
        _ => {
            let list = format!("`{} stats` lists those that are paused", context.program);
            Err(Failure::new(Exit::NotFound, format!("there is no task \"{name}\" so far; {list}")))
        }
    }
}
