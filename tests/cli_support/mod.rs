//! The real `casque` binary on a store of its own.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// How long something that must happen is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// A folder with a store in it, or none yet.
pub struct Cli {
    folder: TempDir,
    store: PathBuf,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Cli {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("app.redb");
        Self { folder, store }
    }

    /// The same folder, with its store elsewhere in it.
    pub fn at(mut self, store: &str) -> Self {
        self.store = self.folder.path().join(store);
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn store(&self) -> &Path {
        &self.store
    }

    /// Writes a file beside the store.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_casque"));
        command.args(args).env("CASQUE_STORE", &self.store).env_remove("CASQUE_LOG").current_dir(self.folder.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).stdin(Stdio::null()).output().unwrap())
    }

    pub fn run_with_stdin(&self, args: &[&str], stdin: &str) -> Ran {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that refuses its arguments does not read on.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        Ran::of(child.wait_with_output().unwrap())
    }

    /// Runs a command that must succeed, with `--json`, and gives its lines.
    pub fn json(&self, args: &[&str]) -> Vec<Value> {
        let mut all = vec!["--json"];
        all.extend(args);
        self.run(&all).succeeds().json()
    }

    /// The one line of such a command.
    pub fn one(&self, args: &[&str]) -> Value {
        let mut lines = self.json(args);
        assert_eq!(lines.len(), 1, "{args:?} printed {lines:?}");
        lines.remove(0)
    }

    /// Enqueues, or does what prints an id.
    pub fn id(&self, args: &[&str]) -> String {
        self.run(args).succeeds().stdout.trim().to_owned()
    }

    /// Starts a command that is killed when this is dropped.
    pub fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().unwrap()))
    }

    pub fn state(&self, id: &str) -> String {
        self.one(&["show", id])["state"].as_str().unwrap().to_owned()
    }

    /// What the store says of itself: its version and its queues.
    pub fn figures(&self) -> Vec<Value> {
        let mut lines = self.json(&["stats"]);
        lines.last_mut().unwrap().as_object_mut().unwrap().remove("file_bytes");
        lines
    }
}

impl Ran {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().expect("it was not killed"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn succeeds(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Asserts the exit code, and that the error is one of ours and names all of this; nothing was printed as data.
    pub fn fails(self, code: i32, names: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains("casque: "), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        for name in names {
            assert!(self.stderr.contains(name), "the error does not name {name:?}: {self:?}");
        }
        self
    }

    pub fn json(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).expect("a line is one JSON object")).collect()
    }
}

/// A command that runs.
pub struct Running(Option<Child>);

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([format!("-{signal}"), self.pid().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Kills it with SIGKILL, and reaps it.
    pub fn kill(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// How it ended, which is waited for.
    pub fn status(&mut self) -> ExitStatus {
        until("the command ends", || (!self.runs()).then_some(()));
        self.0.as_mut().unwrap().wait().unwrap()
    }

    pub fn end(mut self) -> Ran {
        until("the command ends", || (!self.runs()).then_some(()));
        Ran::of(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Polls until there is something.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        // waits: for another process, which has no way to signal this one
        std::thread::sleep(Duration::from_millis(10));
    }
}
