//! `casque exec`.

use std::path::PathBuf;

use clap::Args;

use super::{
    context::Context,
    exit::Failure,
    options::{JobOptions, pair},
    output::Output,
    submit,
    units::number_from,
};
use crate::{
    codec::Payload,
    queue::JobRequest,
    task::{Task as _, exec::Exec},
};

/// Enqueue a command as a job
#[derive(Debug, Args)]
#[command(after_help = "\
Prints the id of the job. Workers run it only with --allow-exec; its result has exit_code,
stdout and stderr. What follows the command is the command's; -- may stand before it.

Example:
  casque exec --max-attempts 3 -- ffmpeg -i in.mov out.mp4")]
pub(super) struct ExecArgs {
    #[command(flatten)]
    options: JobOptions,
    /// The folder to run it in [default: the present one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// A variable to add to the worker's environment; may be given more than once
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair("NAME=VALUE"))]
    env: Vec<(String, String)>,
    /// Enqueue so many of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number_from::<u64>(1))]
    count: u64,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl ExecArgs {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        self.options.check()?;
        self.options.check_waits()?;
        let cwd = match self.cwd {
            Some(cwd) => std::path::absolute(&cwd)
                .map_err(|error| Failure::usage(format!("--cwd {} can't be used: {error}", cwd.display())))
                .map(Some)?,
            // Without a present folder, as after its removal, the worker's is used.
            None => std::env::current_dir().ok(),
        };
        let exec = Exec { command: self.command, cwd, env: self.env.into_iter().collect() };
        let request = JobRequest::with_payload(Exec::ID, Payload::json(&exec)?);
        let job = submit::checked(context, context.queue()?, self.options.apply_to(request))?;
        submit::enqueue(context, out, &job, self.count, self.options.wait)
    }
}
