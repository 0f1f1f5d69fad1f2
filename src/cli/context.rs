//! What a command works with: the global arguments, the tasks that are known, and the store, opened as it needs it.

use std::{ffi::OsString, io::IsTerminal, path::Path};

use clap::Args;

use super::{
    Globals,
    exit::{Exit, Failure},
};
use crate::{
    codec::Payload,
    error::Error,
    local::{self, Folder, Holder},
    queue::{JobInfo, JobRequest},
    store::{Store, open::StoreOptions},
    task::{Registry, exec::Exec},
};

/// The queue that is meant where none is named.
pub(super) const QUEUE_DEFAULT: &str = "default";

/// How many queues are named to whoever named another.
const QUEUES_TOLD: usize = 10;

pub(super) struct Context {
    pub(super) program: String,
    pub(super) globals: Globals,
    /// The tasks of the binary; `casque` itself has none.
    pub(super) tasks: Registry,
    /// Those, and the built-in one.
    known: Registry,
}

/// How new what is shown must be.
#[derive(Debug, Args)]
pub(super) struct View {
    /// Show all that was answered before; else it may be some 20 ms old while a process commits for others
    #[arg(long)]
    fresh: bool,
}

impl View {
    pub(super) fn apply(&self, store: &Store) {
        if !self.fresh {
            store.inner.be_monitor();
        }
    }
}

impl Context {
    pub(super) fn new(program: String, globals: Globals, tasks: Registry) -> Self {
        let mut known = tasks.clone();
        // Where the binary has a task of that id, that is the one that is known.
        let _ = known.task::<Exec>();
        Self { program, globals, tasks, known }
    }

    /// Says something that is no data.
    pub(super) fn say(&self, text: impl std::fmt::Display) {
        eprintln!("{}: {text}", self.program);
    }

    /// The one queue that a command is about.
    pub(super) fn queue(&self) -> Result<&str, Failure> {
        Ok(self.queue_if_named()?.unwrap_or(QUEUE_DEFAULT))
    }

    /// The one queue that a command is about, where one is named.
    pub(super) fn queue_if_named(&self) -> Result<Option<&str>, Failure> {
        match self.globals.queue.as_slice() {
            [] => Ok(None),
            [queue] => Ok(Some(queue)),
            _ => Err(Failure::usage("give --queue once; only work takes several queues")),
        }
    }

    /// What is to be said of the queues that are named, and of which the store knows nothing. That is no failure: a
    /// queue is there from its first job on, and a script may ask before.
    pub(super) fn absent_queues(&self, store: &Store) -> Result<Vec<String>, Failure> {
        if self.globals.queue.is_empty() {
            return Ok(Vec::new());
        }
        let known: Vec<String> = store.queues()?.into_iter().map(|queue| queue.queue).collect();
        let absent = self.globals.queue.iter().filter(|name| !known.contains(name));
        Ok(absent.map(|name| no_queue(name, &known)).collect())
    }

    pub(super) fn say_absent(&self, absent: &[String]) {
        absent.iter().for_each(|text| self.say(text));
    }

    pub(super) fn path(&self) -> &Path {
        &self.globals.store
    }

    pub(super) fn options(&self) -> StoreOptions {
        StoreOptions::new().commits(self.globals.commits.into())
    }

    /// Opens the store to write to it, and makes it if there is none.
    pub(super) fn create(&self) -> Result<Store, Failure> {
        self.options().open(self.path()).map_err(|error| Failure::of_opening(&error))
    }

    /// Makes a store elsewhere, for a while.
    pub(super) fn open_at(&self, path: &Path) -> Result<Store, Failure> {
        self.options().open(path).map_err(|error| Failure::of_opening(&error))
    }

    /// Opens the store to write to it.
    pub(super) fn write(&self) -> Result<Store, Failure> {
        self.check_there()?;
        self.options().create(false).open(self.path()).map_err(|error| Failure::of_opening(&error))
    }

    /// Reads from the store, without a lock or a trace; where the last writer died, it is recovered and read again, so
    /// `body` may be called twice.
    pub(super) fn read<T>(&self, mut body: impl FnMut(&Store) -> Result<T, Failure>) -> Result<T, Failure> {
        self.check_there()?;
        let reading = self.options().create(false).read_only();
        let read = match reading.open(self.path()) {
            Ok(store) => body(&store),
            Err(error) => Err(Failure::of_opening(&error)),
        };
        match read {
            Err(failure) if failure.exit == Exit::Unavailable && self.path().is_file() => {
                self.say_who_is_waited_for();
                body(&self.write()?)
            }
            read => read,
        }
    }

    /// Who waits for a process that is stopped can see to it at once.
    fn say_who_is_waited_for(&self) {
        let folder = std::fs::canonicalize(self.path()).ok().and_then(|path| Folder::existing(&path).ok().flatten());
        let Some(folder) = folder.filter(local::is_lock_held) else { return };
        if let Some(Holder { pid, label, purpose, .. }) =
            local::holder(&folder).filter(|holder| local::is_stopped(holder.pid))
        {
            self.say(format!(
                "process {pid} ({label}) holds the writer's lock to {purpose}, and is stopped; waits for it: continue \
                 it with `kill -CONT {pid}`, or kill it"
            ));
        }
    }

    pub(super) fn check_there(&self) -> Result<(), Failure> {
        if self.path().try_exists().unwrap_or(true) {
            return Ok(());
        }
        let path = self.path().display();
        Err(Failure::new(
            Exit::Unavailable,
            format!(
                "there is no store at {path}; name another with --store or CASQUE_STORE, or enqueue a job to make one"
            ),
        ))
    }

    /// A job's arguments as JSON, where their type is known.
    pub(super) fn args_of(&self, job: &JobInfo) -> serde_json::Value {
        self.describe(&job.task, job.args_version, &job.args)
    }

    /// Arguments of a task as JSON, where their type is known.
    pub(super) fn describe(&self, task: &str, version: u32, args: &Payload) -> serde_json::Value {
        self.known.describe(task, version, args)
    }

    /// Refuses a task that a binary with tasks of its own does not have, and arguments that a known task can't read.
    pub(super) fn check_task(&self, task: &str, args: &Payload) -> Result<(), Error> {
        if self.known.ids().any(|id| id == task) {
            return self.known.check_args(task, args);
        }
        let known: Vec<&str> = self.tasks.ids().collect();
        if known.is_empty() {
            return Ok(());
        }
        let known = known.join(", ");
        Err(Error::invalid(format!(
            "there is no task \"{task}\" here; this program has {known}; use `casque` for another program's"
        )))
    }

    /// A request for a task, as this program knows it.
    pub(super) fn request(&self, task: &str, args: Payload) -> JobRequest {
        let request = JobRequest::with_payload(task, args)
            .args_version(self.known.version(task))
            .max_attempts(self.known.max_attempts(task));
        if self.known.is_at_most_once(task) { request.at_most_once() } else { request }
    }
}

/// That there is no such queue, and which there are.
pub(super) fn no_queue(name: &str, known: &[String]) -> String {
    let there_are = match known {
        [] => "; there is none".to_owned(),
        [only] => format!("; there is {only}"),
        [..] if known.len() <= QUEUES_TOLD => format!("; there are {}", known.join(", ")),
        [..] => format!("; there are {} and {} more", known[..QUEUES_TOLD].join(", "), known.len() - QUEUES_TOLD),
    };
    format!("there is no queue \"{name}\" so far{there_are}")
}

/// Troubles that no caller waits for go to stderr; `CASQUE_LOG` chooses what else does.
pub(super) fn init_tracing() {
    use tracing_subscriber::EnvFilter;

    // What a worker tells is printed by the command itself.
    let filter =
        EnvFilter::try_from_env("CASQUE_LOG").unwrap_or_else(|_| EnvFilter::new("casque=warn,casque::worker=off"));
    // A binary that has a subscriber of its own keeps it.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .try_init();
}

/// What this program is called.
pub(super) fn program(arg: Option<&OsString>) -> String {
    let name = arg.and_then(|arg| Path::new(arg).file_stem()).map(|name| name.to_string_lossy().into_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "casque".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::Cli, error::ErrorKind};
    use clap::Parser as _;

    fn context(tasks: Registry) -> Context {
        let cli = Cli::try_parse_from(["app", "stats"]).unwrap();
        Context::new("app".to_owned(), cli.globals, tasks)
    }

    #[test]
    fn binary_with_tasks_of_its_own_refuses_others_and_arguments_that_they_cannot_read() {
        let mut tasks = Registry::new();
        tasks.register("greet", |_, name: String| Ok(name)).unwrap();
        let context = context(tasks);
        let check = |task: &str, args: &str| context.check_task(task, &Payload::from_json_text(args).unwrap());
        check("greet", "\"you\"").unwrap();
        check("exec", r#"{"command": ["true"]}"#).unwrap();
        for (task, args, says) in
            [("great", "\"you\"", "there is no task \"great\" here"), ("greet", "7", "task \"greet\"")]
        {
            let error = check(task, args).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn binary_without_tasks_enqueues_any() {
        let args = Payload::from_json_text("null").unwrap();
        context(Registry::new()).check_task("whatever", &args).unwrap();
    }

    #[test]
    fn program_is_named_as_it_was_called() {
        assert_eq!(program(Some(&"/usr/bin/app".into())), "app");
        assert_eq!(program(None), "casque");
    }
}
