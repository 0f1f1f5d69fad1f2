//! `casque log`.

use clap::Args;

use super::{context::Context, exit::Failure, output::Output};
use crate::{
    queue::{LogLine, id::JobId},
    store::Store,
};

/// Print what a job's handler wrote to the job's log
#[derive(Debug, Args)]
#[command(after_help = "\
A job's log is kept for as long as the job, its latest 1,000 lines. With --json each line is an
object with `number`, `at`, `attempt` and `text`.

Examples:
  casque log 1042
  casque log 1042 --follow")]
pub(super) struct Log {
    /// The job's id
    id: JobId,
    /// Go on with what is written from now on, until the job has ended
    #[arg(short, long)]
    follow: bool,
}

impl Log {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        // The store may be opened once more in between, and nothing is printed twice.
        let mut next = 0;
        context.read(|store| {
            // A job that is gone has no log, and an id that no job has had yet is told as such.
            store.job(self.id)?;
            self.print(store, out, &mut next)
        })
    }

    fn print(&self, store: &Store, out: &mut Output, next: &mut u32) -> Result<(), Failure> {
        for status in store.watch(self.id) {
            status?;
            for line in store.log(self.id, *next)? {
                print_line(out, &line)?;
                *next = line.number + 1;
            }
            out.flush()?;
            if !self.follow {
                break;
            }
        }
        Ok(())
    }
}

fn print_line(out: &mut Output, line: &LogLine) -> Result<(), Failure> {
    let LogLine { at, attempt, text, number } = line;
    if out.json {
        out.object(&serde_json::json!({ "number": number, "at": at.to_string(), "attempt": attempt, "text": text }))
    } else {
        // What a handler wrote is not to command the terminal.
        let text: String = text.chars().map(|letter| if is_command(letter) { '\u{fffd}' } else { letter }).collect();
        out.line(format!("{at} attempt {attempt}: {text}"))
    }
}

fn is_command(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\t' | '\n')
}
