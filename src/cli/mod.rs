//! The command line: `casque`, and the same commands in a user's own binary with the user's tasks known.
//!
//! One file per command; `context` opens stores, `output` prints, `exit` says what each exit code means. The contract
//! that scripts rely on: data goes to stdout, all else to stderr, and `--json` prints one object per line.

mod bench;
mod cancel;
mod check;
mod compact;
mod config;
mod context;
mod doctor;
mod enqueue;
mod exec;
mod exit;
#[cfg(test)]
mod fuzz_tests;
mod import;
mod jobs;
mod limits;
mod list;
mod lock;
mod locks;
mod log;
mod names;
mod options;
mod output;
mod overview;
mod pause;
mod purge;
mod queues;
mod release;
mod requeue;
mod reschedule;
mod resume;
mod retry;
mod root;
mod schedule;
mod seal;
mod serve;
mod sessions;
mod show;
mod signals;
mod stats;
mod submit;
mod table;
mod tend;
mod units;
mod wait;
mod work;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{ArgAction, Args, FromArgMatches as _, Parser, Subcommand};

use self::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
};
use crate::task::Registry;

/// Runs the command that this process's arguments name, and gives the code to exit with. This is the whole `main` of a
/// binary that has the commands of `casque` for its own tasks.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     let mut tasks = casque::Registry::new();
///     let registered = tasks.register("greet", |_, name: String| Ok(format!("hello {name}"))).is_ok();
///     assert!(registered, "the id is given once");
///     casque::cli::run(tasks)
/// }
/// ```
#[must_use]
pub fn run(registry: Registry) -> ExitCode {
    #[cfg(unix)]
    crate::child::run_if_child(&registry);
    run_with(std::env::args_os().collect(), registry).into()
}

#[derive(Debug, Parser)]
#[command(
    name = "casque",
    version,
    about = "Durable background jobs, and a persistent root of objects, in one file without a server",
    help_template = overview::TEMPLATE,
    after_help = overview::GROUPS,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

/// What stands over the global arguments in the help of a command.
const GLOBAL: &str = "Options of all commands";

/// What every command takes.
#[derive(Debug, Args)]
struct Globals {
    /// The store's file
    #[arg(long, global = true, help_heading = GLOBAL, env = "CASQUE_STORE", value_name = "PATH")]
    #[arg(default_value = "casque.redb")]
    store: PathBuf,
    /// The queue, where a command is about one [default: default]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "Q")]
    queue: Vec<String>,
    /// Print one JSON object per line
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Tell more on stderr
    #[arg(short, long, global = true, help_heading = GLOBAL, action = ArgAction::Count)]
    verbose: u8,
    /// How changes get to the disk
    #[arg(long, global = true, hide = true, env = "CASQUE_COMMITS", value_name = "HOW", default_value = "logged")]
    commits: serve::HowToCommit,
}

#[derive(Debug, Subcommand)]
enum Command {
    Enqueue(enqueue::Enqueue),
    Exec(exec::ExecArgs),
    Work(work::Work),
    Show(show::Show),
    Wait(wait::Wait),
    Log(log::Log),
    List(list::List),
    Stats(stats::Stats),
    Queues(queues::Queues),
    Sessions(sessions::Sessions),
    Cancel(cancel::Cancel),
    Retry(retry::Retry),
    Release(release::Release),
    Requeue(requeue::Requeue),
    Seal(seal::Seal),
    Reschedule(reschedule::Reschedule),
    Purge(purge::Purge),
    Pause(pause::Pause),
    Resume(resume::Resume),
    Schedule(schedule::Schedule),
    Config(config::Config),
    Root(root::Root),
    Lock(lock::Lock),
    Locks(locks::Locks),
    Serve(serve::Serve),
    Check(check::Check),
    Doctor(doctor::Doctor),
    Compact(compact::Compact),
    Bench(bench::Bench),
}

impl Command {
    fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Enqueue(command) => command.run(context, out),
            Self::Exec(command) => command.run(context, out),
            Self::Work(command) => command.run(context, out),
            Self::Show(command) => command.run(context, out),
            Self::Wait(command) => command.run(context, out),
            Self::Log(command) => command.run(context, out),
            Self::List(command) => command.run(context, out),
            Self::Stats(command) => command.run(context, out),
            Self::Queues(command) => command.run(context, out),
            Self::Sessions(_) => sessions::Sessions::run(context, out),
            Self::Cancel(command) => command.run(context, out),
            Self::Retry(command) => command.run(context, out),
            Self::Release(command) => command.run(context, out),
            Self::Requeue(command) => command.run(context, out),
            Self::Seal(command) => command.run(context, out),
            Self::Reschedule(command) => command.run(context, out),
            Self::Purge(command) => command.run(context, out),
            Self::Pause(command) => command.run(context, out),
            Self::Resume(command) => command.run(context, out),
            Self::Schedule(command) => command.run(context, out),
            Self::Config(command) => command.run(context, out),
            Self::Root(command) => command.run(context, out),
            Self::Lock(command) => command.run(context, out),
            Self::Locks(command) => command.run(context, out),
            Self::Serve(_) => serve::Serve::run(context, out),
            Self::Check(_) => check::Check::run(context, out),
            Self::Doctor(_) => doctor::Doctor::run(context, out),
            Self::Compact(command) => command.run(context, out),
            Self::Bench(command) => command.run(context, out),
        }
    }
}

fn run_with(args: Vec<OsString>, registry: Registry) -> Exit {
    let program = context::program(args.first());
    let mut command = names::of(&program);
    // What a mistake is about is looked up in the arguments: clap tells it only of some.
    let verb = names::verb(&command, &args).unwrap_or_default();
    let parsed = command.try_get_matches_from_mut(args).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return exit::of_usage(&program, &verb, error),
    };
    let context = Context::new(program, cli.globals, registry);
    context::init_tracing();
    let mut out = Output::new(context.globals.json);
    let done = cli.command.run(&context, &mut out);
    // What a failed command has found so far is printed too.
    let flushed = out.flush();
    match done.and(flushed) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            failure.tell(&context.program);
            failure.exit
        }
    }
}
