//! `casque lock`.

use std::{
    io::{self, IsTerminal as _},
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use clap::Args;

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
    units::parse_duration,
};
use crate::{
    clock::sleep,
    error::ErrorKind,
    store::{Store, lock::LockGuard},
};

/// How often it is looked whether the command has ended, at first and then.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(20);

/// What a shell says of a command that can't be run, and of one that there is not.
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Run a command while holding a named lock
#[derive(Debug, Args)]
#[command(after_help = "\
Waits until nobody else has the lock, in whatever process; the lock need not have been
made. Exits as the command does, by 128 and the signal where one ended it. Signals are
passed on to it. CASQUE_LOCK_FENCE tells it the number of this holding, which grows from
holder to holder. The lock is free when this process has ended, however that was. Stopped
for longer than the lease time it loses the lock: then the command is told by SIGTERM, and
the exit code is 4.

Example:
  casque lock nightly-report --wait 10s -- ./report.sh")]
pub(super) struct Lock {
    /// The lock's name
    name: String,
    /// Wait no longer than that, as 10s; 0 does not wait at all: exit code 7 [default: wait for good]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Lock {
    pub(super) fn run(self, context: &Context, _: &mut Output) -> Result<(), Failure> {
        crate::queue::enqueue::check_name("lock", &self.name)?;
        let store = context.create()?;
        let held = match self.wait {
            Some(wait) => store.lock_within(&self.name, wait)?,
            None => store.lock(&self.name)?,
        };
        let ended = self.run_with(&store, &held);
        let unlocked = held.unlock();
        let closed = store.close();
        let status = ended?;
        match unlocked {
            Err(error) if error.kind() == ErrorKind::LeaseLost => return Err(error.into()),
            // The command has run; that the lock is free shows when this process has ended.
            _ => closed?,
        }
        if status.success() { Ok(()) } else { Err(Failure::told(Exit::Command(code_of(status)))) }
    }

    /// Runs the command to its end.
    fn run_with(&self, store: &Store, held: &LockGuard) -> Result<ExitStatus, Failure> {
        let program = &self.command[0];
        let mut command = Command::new(program);
        command.args(&self.command[1..]).env("CASQUE_LOCK_FENCE", held.fence().to_string());
        if let Some(path) = store.path() {
            command.env("CASQUE_STORE", path);
        }
        let mut signals = Signals::listen(store)?;
        let mut child = command.spawn().map_err(|error| not_started(program, &error))?;
        let (mut look, mut wakes, mut is_lost) = (LOOK_FIRST, store.inner.site.wakes(), false);
        loop {
            signals.pass_on(&child);
            let status = child
                .try_wait()
                .map_err(|error| Failure::new(Exit::Failed, format!("\"{program}\" can't be waited for: {error}")))?;
            if let Some(status) = status {
                return Ok(status);
            }
            let now = store.inner.site.wakes();
            // Only a commit can take the lock over.
            if now != wakes && !is_lost {
                // What could not be read now is looked at again.
                if let Ok(is_seen_lost) = held.is_seen_lost() {
                    wakes = now;
                    is_lost = is_seen_lost;
                }
                if is_lost {
                    end(&mut child);
                }
            }
            sleep(look);
            look = (look * 2).min(LOOK_MAX);
        }
    }
}

fn not_started(program: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(Exit::Command(NOT_FOUND), format!("\"{program}\": command not found")),
        _ => Failure::new(Exit::Command(NOT_RUNNABLE), format!("\"{program}\" can't be run: {error}")),
    }
}

#[cfg(unix)]
fn code_of(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;

    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(not(unix))]
fn code_of(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// The signals that are passed on to the command.
struct Signals {
    listened: signal_hook::iterator::Signals,
    store: Store,
    /// The terminal itself sends Ctrl-C to the command too, which must not hear it twice.
    has_terminal: bool,
}

#[cfg(unix)]
impl Signals {
    fn listen(store: &Store) -> Result<Self, Failure> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

        let listened =
            signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2])
                .map_err(|error| Failure::new(Exit::Failed, format!("signals can't be listened to: {error}")))?;
        Ok(Self { listened, store: store.clone(), has_terminal: io::stdin().is_terminal() })
    }

    fn pass_on(&mut self, child: &Child) {
        use signal_hook::{
            consts::{SIGINT, SIGQUIT, SIGTSTP},
            low_level::emulate_default_handler,
        };

        for signal in self.listened.pending() {
            match signal {
                SIGTSTP => self.store.hand_over(|| {
                    // It returns when the process goes on; where it fails, the process has not stopped.
                    let _ = emulate_default_handler(SIGTSTP);
                }),
                SIGINT | SIGQUIT if self.has_terminal => {}
                signal => send(child, signal),
            }
        }
    }
}

/// Tells the command to end.
#[cfg(unix)]
fn end(child: &mut Child) {
    send(child, signal_hook::consts::SIGTERM);
}

#[cfg(unix)]
fn send(child: &Child, signal: i32) {
    use rustix::process::{Pid, Signal, kill_process};

    // It was not waited for yet, so that its number is not another's.
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _ = kill_process(Pid::from_child(child), signal);
    }
}

#[cfg(not(unix))]
impl Signals {
    fn listen(store: &Store) -> Result<Self, Failure> {
        let listened = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM])
            .map_err(|error| Failure::new(Exit::Failed, format!("signals can't be listened to: {error}")))?;
        Ok(Self { listened, store: store.clone(), has_terminal: io::stdin().is_terminal() })
    }

    fn pass_on(&mut self, _: &Child) {}
}

#[cfg(not(unix))]
fn end(child: &mut Child) {
    let _ = child.kill();
}
