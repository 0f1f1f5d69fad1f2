//! `casque locks`.

use clap::Args;
use serde::Serialize;

use super::{
    context::{Context, View},
    exit::Failure,
    output::Output,
    table::Table,
    units::relative,
};
use crate::clock::Timestamp;

/// The named locks that are held, and who waits for them
#[derive(Debug, Args)]
#[command(after_help = "\
A lock of a process that died shows until somebody wants it, or a worker has noticed.

Example:
  casque locks")]
pub(super) struct Locks {
    #[command(flatten)]
    view: View,
}

#[derive(Serialize)]
struct Line {
    name: String,
    holder: String,
    pid: Option<u32>,
    since: String,
    fence: u64,
    waiting: usize,
}

impl Locks {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let locks = context.read(|store| {
            self.view.apply(store);
            Ok(store.locks()?)
        })?;
        let now = Timestamp::now();
        let mut table = Table::with_head(["LOCK", "HOLDER", "PID", "SINCE", "FENCE", "WAITING"]);
        for lock in locks {
            if out.json {
                let (since, fence) = (lock.since.to_string(), lock.fence.number());
                let (name, holder, pid, waiting) = (lock.name, lock.holder, lock.pid, lock.waiting);
                out.object(&Line { name, holder, pid, since, fence, waiting })?;
                continue;
            }
            table.row([
                lock.name,
                lock.holder,
                lock.pid.map_or("-".to_owned(), |pid| pid.to_string()),
                relative(lock.since, now),
                lock.fence.to_string(),
                lock.waiting.to_string(),
            ]);
        }
        if out.json { Ok(()) } else { table.print(out) }
    }
}
