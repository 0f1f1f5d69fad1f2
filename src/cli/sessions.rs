//! `casque sessions`.

use clap::Args;
use serde::Serialize;

use super::{context::Context, exit::Failure, output::Output, table::Table, units::relative};
use crate::{clock::Timestamp, sessions::SessionInfo};

/// The processes that work on the store
#[derive(Debug, Args)]
#[command(after_help = "\
A process is present from its first claim to its end. One that died shows until another
has taken its jobs back.

Example:
  casque sessions")]
pub(super) struct Sessions {}

#[derive(Serialize)]
struct Line {
    id: String,
    pid: u32,
    label: String,
    alive: bool,
    stopped: bool,
    started_at: String,
    /// How many jobs it holds.
    held: u64,
    /// Those of them that have begun.
    running: Vec<String>,
}

impl Sessions {
    pub(super) fn run(context: &Context, out: &mut Output) -> Result<(), Failure> {
        let sessions = context.read(|store| Ok(store.sessions()?))?;
        if out.json {
            return sessions.into_iter().try_for_each(|session| out.object(&line(session)));
        }
        let now = Timestamp::now();
        let mut table = Table::with_head(["SESSION", "PID", "LABEL", "STATE", "STARTED", "HELD", "RUNNING"]);
        for session in sessions {
            let state = session.state();
            let running: Vec<String> = session.running.iter().map(ToString::to_string).collect();
            table.row([
                session.id.to_string(),
                session.pid.to_string(),
                session.label,
                state.to_owned(),
                relative(session.started_at, now),
                session.held.to_string(),
                running.join(" "),
            ]);
        }
        table.print(out)
    }
}

fn line(session: SessionInfo) -> Line {
    Line {
        id: session.id.to_string(),
        pid: session.pid,
        label: session.label,
        alive: session.alive,
        stopped: session.is_stopped,
        started_at: session.started_at.to_string(),
        held: session.held,
        running: session.running.iter().map(ToString::to_string).collect(),
    }
}
