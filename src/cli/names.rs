//! The command line under the name that a program was called by: the help of a user's own binary names that binary.

use std::ffi::OsString;

use clap::{Command, CommandFactory as _};

use super::Cli;

/// The name that the texts in this crate are written with.
const OWN: &str = "casque";

/// The commands, with `program` in their help and usage.
pub(super) fn of(program: &str) -> Command {
    let command = Cli::command().bin_name(program).mut_subcommands(|command| renamed(command, program));
    let command = renamed(command, program);
    // The version is that of this crate.
    if program == OWN { command } else { command.display_name(format!("{program}, with {OWN}")) }
}

fn renamed(command: Command, program: &str) -> Command {
    let Some(help) = command.get_after_help().map(ToString::to_string) else { return command };
    command.after_help(help.replace(&format!("{OWN} "), &format!("{program} ")))
}

/// The command that the arguments name.
pub(super) fn verb(command: &Command, args: &[OsString]) -> Option<String> {
    let mut args = args.iter().skip(1).filter_map(|arg| arg.to_str());
    args.find(|arg| command.find_subcommand(arg).is_some()).map(str::to_owned)
}
