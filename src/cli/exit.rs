//! How a command ends: the exit codes that scripts rely on, and what is said on stderr.

use std::{fmt, io, process::ExitCode};

use clap::error::{ContextKind, ContextValue};

use crate::error::{Error, ErrorKind};

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Done,
    Failed,
    Usage,
    NotFound,
    /// Lost to another: a conflict, a lease, or a state that forbids the command.
    Conflict,
    Unavailable,
    Damaged,
    TimedOut,
    /// As a command that was run ended.
    Command(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NotFound => 3,
            Exit::Conflict => 4,
            Exit::Unavailable => 5,
            Exit::Damaged => 6,
            Exit::TimedOut => 7,
            Exit::Command(code) => code,
        })
    }
}

/// Why a command stopped early.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) exit: Exit,
    /// Nothing where all was said already, or there is nothing to say.
    message: Option<String>,
    /// What was asked for may have been done all the same.
    pub(super) is_unknown: bool,
}

impl Failure {
    pub(super) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: Some(message.to_string()), is_unknown: false }
    }

    pub(super) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The command's output says it all.
    pub(super) fn told(exit: Exit) -> Self {
        Self { exit, message: None, is_unknown: false }
    }

    /// The store can't be used as it is; that its path was wrong is no other matter to a script.
    pub(super) fn of_opening(error: &Error) -> Self {
        let exit = if error.kind() == ErrorKind::Corrupt { Exit::Damaged } else { Exit::Unavailable };
        Self::new(exit, error.full_message())
    }

    /// A job whose state does not allow what was asked: somebody was quicker.
    pub(super) fn of_job(error: &Error) -> Self {
        let exit = if error.kind() == ErrorKind::Invalid { Exit::Conflict } else { Self::from(error).exit };
        Self::new(exit, error.full_message())
    }

    /// What could not be printed. Who closes our pipe wants no more, and no complaint.
    pub(super) fn of_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::told(Exit::Done);
        }
        Self::new(Exit::Failed, format!("the output can't be written: {error}"))
    }

    /// The same failure, its message followed by what else to know.
    pub(super) fn and(mut self, more: &str) -> Self {
        if let Some(message) = &mut self.message {
            message.push_str(more);
        }
        self
    }

    /// The same failure, its message led by what it is about.
    pub(super) fn about(mut self, what: &str) -> Self {
        if let Some(message) = &mut self.message {
            *message = format!("{what}: {message}");
        }
        self
    }

    pub(super) fn tell(&self, program: &str) {
        if let Some(message) = &self.message {
            eprintln!("{program}: {message}");
        }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::Invalid => Exit::Usage,
            ErrorKind::NotFound => Exit::NotFound,
            ErrorKind::Conflict | ErrorKind::LeaseLost => Exit::Conflict,
            ErrorKind::Unavailable | ErrorKind::Closed => Exit::Unavailable,
            ErrorKind::Corrupt => Exit::Damaged,
            ErrorKind::TimedOut => Exit::TimedOut,
            ErrorKind::Unknown | ErrorKind::Aborted | ErrorKind::Full => Exit::Failed,
        };
        Self { is_unknown: error.kind() == ErrorKind::Unknown, ..Self::new(exit, error.full_message()) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// What clap has to say: help and version are data, all else is wrong usage.
pub(super) fn of_usage(program: &str, verb: &str, mut error: clap::Error) -> Exit {
    if !error.use_stderr() {
        // Who closes our pipe wants no more help.
        let _ = error.print();
        return Exit::Done;
    }
    if let Some(ContextValue::Strings(verbs)) = error.get(ContextKind::SuggestedSubcommand) {
        // clap has the closest last.
        let closest_first = verbs.iter().rev().cloned().collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(closest_first));
    }
    let help = format!("'{}'", format!("{program} help {verb}").trim_end());
    let text = error.render().to_string().replace("'--help'", &help);
    match text.strip_prefix("error: ") {
        Some(text) => eprint!("{program}: {text}"),
        // The help, where no command was given.
        None => eprint!("{text}"),
    }
    Exit::Usage
}
