//! Servers of peers, each a child process that ends with this one, however this one ends.

use std::{
    fs::{self, File},
    io,
    net::TcpListener,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a server may take to start, or to leave.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server, until this is dropped.
pub struct Server {
    child: Child,
    /// The signal that makes it leave.
    signal: &'static str,
}

impl Server {
    /// Starts a program whose output goes into a file of the folder.
    pub fn start(command: &[&str], folder: &Path, signal: &'static str) -> Self {
        let log = File::create(folder.join("server.log")).expect("the folder can be written");
        let mut started = guarded(command, signal);
        started.current_dir(folder).stdin(Stdio::null());
        started.stdout(log.try_clone().expect("a file has two ends")).stderr(log);
        let child = started.spawn().unwrap_or_else(|error| panic!("{} can't be started: {error}", command[0]));
        Self { child, signal }
    }

    /// Takes on a process that was started otherwise.
    pub fn of(child: Child) -> Self {
        Self { child, signal: "TERM" }
    }

    /// Tries until the server answers.
    pub fn wait_for<T, E: std::fmt::Display>(&mut self, mut attempt: impl FnMut() -> Result<T, E>) -> T {
        let began = Instant::now();
        loop {
            match attempt() {
                Ok(found) => return found,
                Err(error) => assert!(began.elapsed() < PATIENCE, "a server does not answer: {error}"),
            }
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                panic!("a server ended at once, with {status} ({:?})", status.signal());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-s", self.signal, &self.child.id().to_string()]).status();
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that gets the signal when this process dies, also where it is killed and can end nothing itself.
pub fn guarded(command: &[&str], signal: &str) -> Command {
    if !is_installed("setpriv") {
        let mut bare = Command::new(command[0]);
        bare.args(&command[1..]);
        return bare;
    }
    let mut guarded = Command::new("setpriv");
    guarded.args(["--pdeathsig", signal]).args(command);
    guarded
}

pub fn is_installed(program: &str) -> bool {
    program.starts_with('/') && Path::new(program).exists()
        || std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// A port that was free just now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("a listener has an address").port()
}

/// A process and all that it has started.
pub fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let parents: Vec<(u32, u32)> = processes().filter_map(|pid| Some((pid, parent_of(pid).ok()?))).collect();
    let mut at = 0;
    while at < family.len() {
        let parent = family[at];
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    family
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: u32) -> io::Result<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may hold anything; the parent is the second field behind it.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let parent = behind.split_whitespace().nth(1).and_then(|field| field.parse().ok());
    parent.ok_or_else(|| io::Error::other("no parent"))
}
