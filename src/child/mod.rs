//! Jobs in processes of their own: children that run the handlers of isolated tasks for a worker, and processes that
//! run one job by themselves.
//!
//! Both are this program again: [`run_if_child`], called first in `main`, is where they begin. `host` keeps a worker's
//! children, `process` is one of them as its worker sees it, `inside` is what one does, `spawn` is for
//! [`Queue::spawn`](crate::Queue::spawn), `wire` is what they say to each other, `memory` is their limit of memory.
//! A child is told apart by its last argument, which, unlike a variable, what it starts itself does not inherit.

mod host;
mod inside;
mod memory;
mod process;
mod spawn;
mod wire;

use std::{
    env, io,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

pub(crate) use self::host::Host;
use crate::{
    error::{Error, Result},
    task::Registry,
};

/// What the last argument of a child begins with.
const MARK: &str = "casque-child:";

/// Whether this process has come to [`run_if_child`].
static IS_REACHED: AtomicBool = AtomicBool::new(false);

/// What a process was started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Runs handlers for a worker, one after the other.
    Serve,
    /// Starts a process that is nobody's child, and ends.
    Launch,
    /// Runs one job as a worker of its own.
    Once,
}

impl Role {
    const ALL: [Self; 3] = [Self::Serve, Self::Launch, Self::Once];

    fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Launch => "launch",
            Self::Once => "once",
        }
    }

    fn of_this_process() -> Option<Self> {
        let last = env::args_os().next_back()?;
        let name = last.to_str()?.strip_prefix(MARK)?.to_owned();
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// Runs what this process was started for, if a worker or [`Queue::spawn`](crate::Queue::spawn) has started it, and
/// then never returns; else it does nothing. Call it first in the `main` of a binary with isolated tasks, or that
/// spawns jobs, with all its tasks. `casque::cli::run` calls it by itself.
///
/// ```
/// use casque::{Isolation, Registry};
///
/// let mut tasks = Registry::new();
/// tasks.register("convert", |_, file: String| Ok(file.len()))?.isolated(Isolation::PROCESS);
/// casque::child::run_if_child(&tasks);
/// // Here begins what the binary does by itself.
/// # Ok::<(), casque::Error>(())
/// ```
pub fn run_if_child(registry: &Registry) {
    IS_REACHED.store(true, Ordering::Release);
    let ended = match Role::of_this_process() {
        None => return,
        Some(Role::Serve) => inside::serve(registry),
        Some(Role::Launch) => spawn::launch(),
        Some(Role::Once) => spawn::run_once(registry),
    };
    if let Err(error) = ended {
        eprintln!("failed to run a job in a process of its own: {}", error.full_message());
        std::process::exit(1);
    }
    std::process::exit(0);
}

/// Keeps a child whose `main` goes its usual way from doing the program's work a second time.
///
/// # Errors
/// `Invalid`, saying what is missing.
pub(crate) fn refuse_unreached() -> Result<()> {
    if Role::of_this_process().is_none() || IS_REACHED.load(Ordering::Acquire) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "this process was started to run jobs for another one, and its main opens a store instead; {REMEDY}"
    )))
}

/// What is missing where a child does not do what it was started for.
const REMEDY: &str = "call casque::child::run_if_child with the registry first in main";

/// This program once more, with the same arguments, to play a role.
fn again(role: Role) -> io::Result<Command> {
    let mut args = env::args_os();
    let name = args.next();
    let mut command = Command::new(program()?);
    command.args(args.filter(|arg| arg.to_str().is_none_or(|arg| !arg.starts_with(MARK))));
    command.arg(format!("{MARK}{}", role.name()));
    if let Some(name) = name {
        command.arg0(name);
    }
    // A Ctrl-C at the terminal asks the worker to stop, which then waits for its children.
    command.process_group(0);
    Ok(command)
}

/// The very program that runs here, also where another was put in its place since.
fn program() -> io::Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { Ok(own) } else { env::current_exe() }
}
