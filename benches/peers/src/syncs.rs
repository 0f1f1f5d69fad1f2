//! Counts, from outside, how often processes make the disk durable: `strace` on all of them, in a run of its own.
//!
//! Counted are the calls of `fsync`, `fdatasync`, `msync` and `sync_file_range`, and each write to a file that was
//! opened with `O_DSYNC`, which is a sync too.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::server::{guarded, is_installed};

const SYNCS: [&str; 4] = ["fsync(", "fdatasync(", "msync(", "sync_file_range("];
const WRITES: [&str; 3] = ["write(", "pwrite64(", "pwritev("];
const O_DSYNC: u32 = 0o10000;

/// `strace` at work on processes.
pub struct Trace {
    strace: Child,
    log: PathBuf,
    /// The numbers of the files whose writes are syncs: the same in all clients, which open the same files in turn.
    synced_files: Vec<u32>,
}

impl Trace {
    /// None where processes can't be traced.
    pub fn attach(pids: &[u32], folder: &Path) -> Option<Self> {
        if !is_installed("strace") {
            return None;
        }
        let log = folder.join("strace.log");
        let synced_files: Vec<u32> = pids.iter().flat_map(|pid| synced_files(*pid)).collect();
        let calls = "trace=fsync,fdatasync,msync,sync_file_range";
        // To stop at each write is dear, and only needed for such files.
        let calls = if synced_files.is_empty() { calls.to_owned() } else { format!("{calls},write,pwrite64,pwritev") };
        let mut command = guarded(&["strace", "-f", "-qq", "-e", &calls, "-o"], "INT");
        command.arg(&log);
        for pid in pids {
            command.args(["-p", &pid.to_string()]);
        }
        let mut strace = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().ok()?;
        if wait_until_attached(pids) {
            return Some(Self { strace, log, synced_files });
        }
        let _ = strace.kill();
        let said =
            strace.stderr.take().map(|said| BufReader::new(said).lines().map_while(Result::ok).collect::<Vec<_>>());
        let _ = strace.wait();
        eprintln!("syncs are not counted: strace says {:?}", said.unwrap_or_default());
        None
    }

    /// How many syncs there were since it was attached.
    pub fn finish(mut self) -> u64 {
        let _ = Command::new("kill").args(["-s", "INT", &self.strace.id().to_string()]).status();
        let _ = self.strace.wait();
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| is_sync(line, &self.synced_files)).count() as u64
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

/// Whether a line of the log, `PID CALL(FILE, ...`, begins a call that syncs.
fn is_sync(line: &str, synced_files: &[u32]) -> bool {
    let Some((_, call)) = line.split_once(' ') else { return false };
    let call = call.trim_start();
    if SYNCS.iter().any(|sync| call.starts_with(sync)) {
        return true;
    }
    let Some(args) = WRITES.iter().find_map(|write| call.strip_prefix(write)) else { return false };
    let file = args.split(',').next().and_then(|file| file.parse().ok());
    file.is_some_and(|file| synced_files.contains(&file))
}

fn synced_files(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let synced = entries.filter_map(|entry| {
        let flags = fs::read_to_string(entry.path()).ok()?;
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        let file = entry.file_name().to_str()?.parse().ok()?;
        (flags & O_DSYNC != 0).then_some(file)
    });
    synced.collect()
}

/// Waits until each process, all its threads included, has a tracer.
fn wait_until_attached(pids: &[u32]) -> bool {
    let is_traced = |pid: &u32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads.into_iter().all(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            !status.contains("TracerPid:\t0\n")
        })
    };
    for _ in 0..500 {
        if pids.iter().all(is_traced) {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_sync;

    #[test]
    fn syncs_and_synced_writes_are_told_from_all_else() {
        let synced_files = [7];
        for line in ["12 fsync(3) = 0", "12  fdatasync(3 <unfinished ...>", "12 pwrite64(7, \"\"..., 8192, 0) = 8192"] {
            assert!(is_sync(line, &synced_files), "{line}");
        }
        for line in [
            "12 <... fdatasync resumed>) = 0",
            "12 pwrite64(8, \"fsync(\"..., 8192, 0) = 8192",
            "12 +++ exited with 0 +++",
            "",
        ] {
            assert!(!is_sync(line, &synced_files), "{line}");
        }
    }
}
