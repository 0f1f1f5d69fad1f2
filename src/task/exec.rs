//! The built-in task that runs a command in a child process.
//!
//! P5: the child inherits, as descriptor 3, a locked file of its own. The lock lives as long as the child does, also
//! when the worker is killed, and keeps the job from being given to another worker meanwhile.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, bounded};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind, Result},
    task::{
        Job, Task, TaskError,
        child_lock::{self, not_now},
    },
};
#[cfg(unix)]
use crate::{queue::lease::StopHook, task::killer::Killer};

/// The most bytes of each output stream that are kept: its last ones.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Two streams whose bytes take up to six letters each in JSON fit into a result when each is this part of its limit.
const OUTPUT_PART: usize = 16;
/// The most bytes of stderr that the message of a failed attempt quotes.
const MESSAGE_BYTES_MAX: usize = 1 << 10;
/// How long the output is waited for once the child has ended: what it left running may hold its pipes open.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(1);
/// The descriptor on which a child finds its lock.
#[cfg(unix)]
const LOCK_DESCRIPTOR: std::os::fd::RawFd = 3;

/// A command to run as a job, without a shell. It finds `CASQUE_JOB` (the job's id), `CASQUE_ATTEMPT` and
/// `CASQUE_STORE` (the store's path) in its environment; descriptor 3 is the job's lock, to be left open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The folder to run it in; the worker's own where there is none.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Variables to add to the worker's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// What came of a command that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExecOutput {
    /// Always 0: any other is a failed attempt.
    pub exit_code: i32,
    /// The last 64 KiB of what it wrote to stdout; less where the store's limit on results is low.
    pub stdout: String,
    /// The same of stderr.
    pub stderr: String,
}

impl Task for Exec {
    const ID: &'static str = "exec";
    type Output = ExecOutput;

    fn run(self, job: &Job) -> Result<ExecOutput, TaskError> {
        let store = job.store();
        let payload_max = store.setting("payload-max").map_err(|error| not_now(job, &error))?;
        let limit = usize::try_from(payload_max).unwrap_or(usize::MAX) / OUTPUT_PART;
        let mut command = self.command(job)?;
        let lock = child_lock::create(job)?;
        // Whoever takes the job back looks for the lock; so the lease is looked at once the lock is there.
        if let Err(error) = job.check() {
            child_lock::remove(job);
            let is_lost = error.kind() == ErrorKind::LeaseLost;
            return Err(if is_lost { TaskError::Release } else { not_now(job, &error) });
        }
        let child = start(&mut command, lock);
        // The command holds this process's copy of the lock, which is to be the child's alone.
        drop(command);
        let ended = child
            .map_err(|error| self.not_started(&error))
            .and_then(|child| finish(job, child, limit.min(OUTPUT_BYTES_MAX)));
        child_lock::remove(job);
        let (status, stdout, stderr) = ended?;
        match status.code() {
            Some(0) => Ok(ExecOutput { exit_code: 0, stdout, stderr }),
            _ => Err(TaskError::Failed(self.failure(status, &stderr))),
        }
    }
}

impl Exec {
    fn command(&self, job: &Job) -> Result<Command, TaskError> {
        let Some((program, args)) = self.command.split_first() else {
            return Err(TaskError::fatal("there is no command to run: \"command\" is an empty list"));
        };
        let mut command = Command::new(program);
        command.args(args).envs(&self.env).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("CASQUE_JOB", job.id().to_string()).env("CASQUE_ATTEMPT", job.attempt().to_string());
        if let Some(path) = job.store().path() {
            command.env("CASQUE_STORE", path);
        }
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        // A Ctrl-C at the worker's terminal asks the worker to stop, which then waits for the child.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(command)
    }

    /// What can't be started now won't start later either, unless the system lacks something.
    fn not_started(&self, error: &io::Error) -> TaskError {
        let program = self.command.first().map_or("", String::as_str);
        if let Some(cwd) = self.cwd.as_deref().filter(|cwd| !Path::is_dir(cwd)) {
            return TaskError::fatal(format!(
                "\"{program}\" can't be run in {}: there is no such folder",
                cwd.display()
            ));
        }
        match error.kind() {
            io::ErrorKind::NotFound => TaskError::fatal(format!("\"{program}\": command not found")),
            io::ErrorKind::PermissionDenied => {
                TaskError::fatal(format!("\"{program}\" can't be run: permission denied; make it executable"))
            }
            _ => TaskError::failed(format!("\"{program}\" can't be started: {error}")),
        }
    }

    fn failure(&self, status: ExitStatus, stderr: &str) -> String {
        let program = self.command.first().map_or("", String::as_str);
        let stderr = stderr.trim_end();
        let tail = &stderr[stderr.ceil_char_boundary(stderr.len().saturating_sub(MESSAGE_BYTES_MAX))..];
        let said = if tail.is_empty() { "; it wrote nothing to stderr".to_owned() } else { format!(": {tail}") };
        // A status says "exit status: 3" or "signal: 9 (SIGKILL)" by itself.
        format!("\"{program}\" ended with {status}{said}")
    }
}

#[cfg(unix)]
fn start(command: &mut Command, lock: Option<File>) -> io::Result<Child> {
    use command_fds::{CommandFdExt as _, FdMapping};

    if let Some(lock) = lock {
        let mapping = FdMapping { parent_fd: lock.into(), child_fd: LOCK_DESCRIPTOR };
        command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
    }
    command.spawn()
}

/// Elsewhere a child can't inherit the lock: its worker holds it, and it ends with the worker.
#[cfg(not(unix))]
fn start(command: &mut Command, _lock: Option<File>) -> io::Result<Child> {
    command.spawn()
}

/// Waits for the child, draining its output all the while so that it never blocks on it.
fn finish(job: &Job, mut child: Child, limit: usize) -> Result<(ExitStatus, String, String), TaskError> {
    let stdout = child.stdout.take().map(|stream| Tail::follow(stream, limit)).transpose();
    let stderr = child.stderr.take().map(|stream| Tail::follow(stream, limit)).transpose();
    // Waited for first, whatever else failed: an unawaited child stays as a zombie.
    let status = wait(job, &mut child)?;
    let text = |tail: Option<Tail>| tail.map(Tail::text).unwrap_or_default();
    Ok((status, text(stdout?), text(stderr?)))
}

/// Waits for the child, which is killed with all that it started when the run is called off.
#[cfg(unix)]
fn wait(job: &Job, child: &mut Child) -> io::Result<ExitStatus> {
    let killer = Killer::of(child);
    let kill = killer.clone();
    let kill: Arc<StopHook> = Arc::new(move |_| kill.kill());
    job.on_call_off(&kill);
    killer.reap(child)
}

#[cfg(not(unix))]
fn wait(_job: &Job, child: &mut Child) -> io::Result<ExitStatus> {
    child.wait()
}

/// The last bytes of a stream that a thread of its own reads to the end.
struct Tail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    ended: Receiver<()>,
}

impl Tail {
    fn follow(mut stream: impl Read + Send + 'static, limit: usize) -> Result<Self> {
        let bytes = Arc::new(Mutex::new(VecDeque::new()));
        let (end, ended) = bounded::<()>(0);
        let kept = bytes.clone();
        let read = move || {
            let _end = end;
            let mut chunk = [0; 8 << 10];
            loop {
                let length = match stream.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // What was read until then is what there is.
                    Err(_) => return,
                };
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&chunk[..length]);
                let over = kept.len().saturating_sub(limit);
                kept.drain(..over);
            }
        };
        thread::Builder::new()
            .name("casque-exec-output".into())
            .spawn(read)
            .map_err(|error| Error::unavailable("a thread for a command's output can't be started").because(error))?;
        Ok(Self { bytes, ended })
    }

    fn text(self) -> String {
        // Nothing is ever sent: the channel ends with the stream, or the patience does.
        let _ = self.ended.recv_timeout(OUTPUT_PATIENCE);
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(bytes.make_contiguous()).into_owned()
    }
}
