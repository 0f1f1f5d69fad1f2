//! `casque enqueue`.

use std::{io::Read as _, path::PathBuf};

use clap::Args;

use super::{
    context::Context,
    exit::{Exit, Failure},
    import::Import,
    options::JobOptions,
    output::Output,
    submit,
    units::number_from,
};
use crate::codec::Payload;

/// Enqueue a job, many of the same, or one per line of a file
#[derive(Debug, Args)]
#[command(after_help = "\
Prints the id of each job, once it is on the disk; of one whose unique key another has,
that one's id, with --json as \"new\": false.

Each line of a file is a JSON object, of which only the arguments are usual:
  {\"args\": ..., \"task\": ..., \"queue\": ..., \"priority\": ..., \"delay\": \"30s\",
   \"run_at\": \"2030-01-31T12:00:00Z\", \"unique\": ..., \"key\": ...,
   \"max_attempts\": ..., \"timeout\": \"5m\", \"metadata\": {...}, \"keep\": true,
   \"after\": [\"1042\"], \"at_most_once\": true}
What a line does not say is taken from the command. Lines are committed in batches.

Examples:
  casque enqueue resize --args '[\"cat.png\", 640]' --priority 10
  casque enqueue publish --after 1042 --after 1043 --on-failure run
  casque enqueue resize --from jobs.jsonl --queue media")]
pub(super) struct Enqueue {
    /// The id of the task
    task: String,
    /// Its arguments as JSON; - reads them from stdin [default: null]
    #[arg(long, value_name = "JSON|-", allow_hyphen_values = true)]
    args: Option<String>,
    #[command(flatten)]
    options: JobOptions,
    /// Enqueue so many of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number_from::<u64>(1))]
    count: u64,
    /// Enqueue one job for each line of a file; - reads stdin
    #[arg(long, value_name = "FILE.jsonl", conflicts_with_all = ["args", "count"])]
    from: Option<PathBuf>,
    /// Go on behind so many lines of the file
    #[arg(long, value_name = "LINES", default_value_t = 0, requires = "from")]
    skip: u64,
}

impl Enqueue {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let queue = context.queue()?;
        if self.from.is_none() {
            self.options.check()?;
            self.options.check_waits()?;
        }
        if let Some(path) = self.from {
            return Import { context, task: self.task, queue, options: self.options, path, skip: self.skip }.run(out);
        }
        let args = match self.args.as_deref() {
            None => "null".to_owned(),
            Some("-") => stdin_text("the arguments")?,
            Some(args) => args.to_owned(),
        };
        let args = payload(&args, "the arguments")?;
        let request = context.request(&self.task, args);
        let job = submit::checked(context, queue, self.options.apply_to(request))?;
        submit::enqueue(context, out, &job, self.count, self.options.wait)
    }
}

/// What a JSON text says. A word without quotes is what a shell makes of a string.
pub(super) fn payload(text: &str, what: &str) -> Result<Payload, Failure> {
    Payload::from_json_text(text).map_err(|error| {
        let failure = Failure::from(error).about(what);
        if text.is_empty() || text.contains(['"', '\'', '{', '[', '\n']) {
            return failure;
        }
        failure.and(&format!("; a string needs quotes: '\"{text}\"'"))
    })
}

/// All of stdin as text.
pub(super) fn stdin_text(what: &str) -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::new(Exit::Failed, format!("{what} can't be read from stdin: {error}")))?;
    Ok(text)
}
