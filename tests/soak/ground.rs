//! Where a soak happens: a small disk for the store, a larger one for the notes, and the processes that take part.

use std::{
    fs,
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    disk::Disk,
    processes::{Actor, Committer, faketime},
};

/// Of the disk that is filled up.
const DISK: &str = "256m";

/// A folder, with a disk of its own in it where that may be mounted.
pub struct Ground {
    /// Dropped before its folder.
    disk: Option<Disk>,
    folder: tempfile::TempDir,
}

/// A process that takes part. Dropping it kills it.
pub struct Part {
    pub role: &'static str,
    process: Process,
    /// Until when it is stopped.
    pub stopped_until: Option<Instant>,
}

enum Process {
    Actor(Actor),
    Binary(Child),
}

impl Ground {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("disk");
        let disk = Disk::mount(&place, DISK);
        fs::create_dir_all(place).unwrap();
        Self { disk, folder }
    }

    /// The disk can be filled up.
    pub fn is_small(&self) -> bool {
        self.disk.is_some()
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("disk/app.redb")
    }

    pub fn notes(&self) -> PathBuf {
        self.folder.path().join("notes")
    }

    /// Takes all space that is left on the disk.
    pub fn fill(&self) {
        let mut filler = fs::File::create(self.filler()).unwrap();
        for size in [1 << 20, 4 << 10] {
            let block = vec![7; size];
            while filler.write_all(&block).is_ok() {}
        }
    }

    pub fn free(&self) {
        let _ = fs::remove_file(self.filler());
    }

    fn filler(&self) -> PathBuf {
        self.folder.path().join("disk/filler")
    }

    /// Starts a library process in a role of `roles`, or the binary for the roles `serve` and `work`.
    pub fn start(&self, role: &'static str, committer: Committer, random: &mut fastrand::Rng) -> Part {
        let process = match role {
            "serve" => self.binary(&["serve"], committer, random),
            "work" => {
                self.binary(&["work", "--queue", "commands", "--concurrency", "2", "--allow-exec"], committer, random)
            }
            role => {
                let (seed, moves) = (random.u64(..).to_string(), random.u8(..2).to_string());
                let committer_name = format!("{committer:?}");
                let arguments = [
                    ("folder", self.folder.path().to_str().unwrap()),
                    ("committer", committer_name.as_str()),
                    ("commits", commits(committer)),
                    ("seed", seed.as_str()),
                    ("moves", moves.as_str()),
                ];
                Process::Actor(Actor::start(role, &arguments))
            }
        };
        Part { role, process, stopped_until: None }
    }

    /// Starts the binary; one in three has a clock that is off, where clocks can be shifted.
    fn binary(&self, args: &[&str], committer: Committer, random: &mut fastrand::Rng) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_casque"));
        command.env("CASQUE_STORE", self.store()).env("CASQUE_COMMITS", commits(committer));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let shift = random.choice(["+1h", "-1h", "", "", "", ""]).unwrap();
        if let Some(library) = faketime().filter(|_| !shift.is_empty()) {
            command.env("LD_PRELOAD", library).env("FAKETIME", shift).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        Process::Binary(command.spawn().unwrap())
    }

    /// Keeps a copy of all for who looks into it.
    pub fn keep(mut self) -> PathBuf {
        self.free();
        let kept = self.folder.path().with_extension("kept");
        let _ = Command::new("cp").arg("-a").arg(self.folder.path()).arg(&kept).status();
        drop(self.disk.take());
        kept
    }
}

fn commits(committer: Committer) -> &'static str {
    match committer {
        Committer::Itself => "direct",
        Committer::WorkerWithoutLog => "unlogged",
        Committer::Worker | Committer::Server => "logged",
    }
}

impl Part {
    pub fn pid(&self) -> u32 {
        match &self.process {
            Process::Actor(actor) => actor.pid(),
            Process::Binary(child) => child.id(),
        }
    }

    /// Waits until it takes part; gives up on who has ended.
    pub fn await_begun(&mut self) {
        if let Process::Actor(actor) = &mut self.process {
            actor.expect("begun");
        }
    }

    /// Tells a library process a line; the binary hears none.
    pub fn tell(&mut self, line: &str) {
        if let Process::Actor(actor) = &mut self.process {
            actor.tell(line);
        }
    }

    /// Asks it to end by itself.
    pub fn ask_to_leave(&mut self) {
        match &mut self.process {
            Process::Actor(actor) => actor.tell("stop"),
            Process::Binary(_) => self.signal(Signal::TERM),
        }
    }

    /// Stops it until then, or lets it go on.
    pub fn stop_until(&mut self, until: Option<Instant>) {
        self.signal(if until.is_some() { Signal::STOP } else { Signal::CONT });
        self.stopped_until = until;
    }

    fn signal(&self, signal: Signal) {
        // It may have ended; it was not waited for, so that its number is nobody else's.
        let _ = kill_process(Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap(), signal);
    }

    pub fn kill(&mut self) {
        match &mut self.process {
            Process::Actor(actor) => actor.kill(),
            Process::Binary(child) => {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        match &mut self.process {
            Process::Actor(actor) => actor.ended(),
            Process::Binary(child) => child.try_wait().unwrap(),
        }
    }

    /// An end that nobody caused is no finding only where the binary could not open a store that nobody could.
    pub fn is_expected(&self, status: ExitStatus) -> bool {
        status.success()
            || (matches!(self.process, Process::Binary(_)) && status.code() == Some(5) && status.signal().is_none())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Process::Binary(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
