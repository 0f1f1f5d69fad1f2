//! Who is whose child, as the system says.

use std::{fs, os::unix::process::parent_id};

use rustix::process::{Pid, Signal, getsid, kill_process};

/// A process that the system knows.
#[derive(Debug, PartialEq, Eq)]
pub struct Relative {
    pub pid: u32,
    pub is_zombie: bool,
}

/// The children of a process, those too that have ended and were not reaped.
pub fn children_of(parent: u32) -> Vec<Relative> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| {
        let (state, its_parent) = state_of(pid)?;
        (its_parent == parent).then_some(Relative { pid, is_zombie: state == 'Z' })
    })
    .collect()
}

/// Whether there is such a process, dead or alive.
pub fn is_there(pid: u32) -> bool {
    state_of(pid).is_some()
}

/// Whether the process leads a session of its own.
pub fn leads_a_session(pid: u32) -> bool {
    let pid = process(pid);
    getsid(Some(pid)).is_ok_and(|session| session == pid)
}

pub fn signal(pid: u32, signal: Signal) {
    kill_process(process(pid), signal).unwrap();
}

/// This process and its parent, as a handler's result.
pub fn me_and_my_parent() -> (u32, u32) {
    (std::process::id(), parent_id())
}

fn process(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// The state of a process, and its parent.
fn state_of(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // A program's name may hold anything, parentheses too.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
