//! The note in the locked file of who holds the lock and what for: advice, since a holder that dies leaves it behind.
//!
//! It is text, so that it can be read with any tool. The number of takes stays in it when the lock is given back.

use std::{fs::File, path::Path};

use super::{boot::boot_id, files, folder::Folder};

/// Every note is as long, so that it is written at once and nothing of an older one remains.
pub(super) const NOTE_BYTES: usize = 512;
const NOTE_TEXT_BYTES: usize = 160;

/// Who says to hold the lock, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) boot_id: String,
    pub(crate) label: String,
    pub(crate) purpose: String,
}

/// Who holds the lock, for those who open nothing and make nothing; nobody where it is free, or its holder has noted
/// nothing.
pub(crate) fn holder(folder: &Folder) -> Option<Holder> {
    let file = files::open_existing(&folder.lock()).ok()??;
    // A holder that was killed has left its note behind.
    if files::is_locked(&file).unwrap_or(false) { noted_in(&file) } else { None }
}

/// What the lock's last holder noted, for who knows that the lock is held. `None` where it was given back, or was never
/// made.
pub(crate) fn last_note(folder: &Folder) -> Option<Holder> {
    noted_in(&files::open_existing(&folder.lock()).ok()??)
}

/// Whether somebody holds the lock; also where its note says nothing.
pub(crate) fn is_lock_held(folder: &Folder) -> bool {
    let file = files::open_existing(&folder.lock()).ok().flatten();
    file.is_some_and(|file| files::is_locked(&file).unwrap_or(false))
}

/// Whether a process of this machine is stopped, by a signal or a debugger, so that it holds its locks and does
/// nothing.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = files::read_at_most(Path::new(&format!("/proc/{pid}/stat")), 4096).unwrap_or_default();
    // The name before the state may itself hold parentheses.
    let state = stat.iter().rposition(|&byte| byte == b')').and_then(|end| stat.get(end + 2));
    matches!(state, Some(b'T' | b't'))
}

/// The note of a lock that is held by this process.
pub(super) fn held(take: u64, label: &str, purpose: &str) -> [u8; NOTE_BYTES] {
    let (label, purpose) = (one_line(label), one_line(purpose));
    let (pid, boot) = (std::process::id(), boot_id());
    padded(&format!("take {take}\npid {pid}\nboot {boot}\nlabel {label}\npurpose {purpose}\n"))
}

/// The note of a lock that is free.
pub(super) fn released(take: u64) -> [u8; NOTE_BYTES] {
    padded(&format!("take {take}\n"))
}

fn noted_in(file: &File) -> Option<Holder> {
    parse(&files::read_start(file, NOTE_BYTES).ok()?).1
}

fn padded(text: &str) -> [u8; NOTE_BYTES] {
    let mut note = [b' '; NOTE_BYTES];
    for (byte, from) in note.iter_mut().zip(text.bytes()) {
        *byte = from;
    }
    note
}

/// The number of the last take, and its holder unless that has given the lock back.
pub(super) fn parse(note: &[u8]) -> (u64, Option<Holder>) {
    let text = String::from_utf8_lossy(note);
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .map(|value| value.trim_end().to_owned())
    };
    let take = field("take").and_then(|value| value.parse().ok()).unwrap_or(0);
    let holder = field("pid").and_then(|value| value.parse().ok()).map(|pid| Holder {
        pid,
        boot_id: field("boot").unwrap_or_default(),
        label: field("label").unwrap_or_default(),
        purpose: field("purpose").unwrap_or_default(),
    });
    (take, holder)
}

/// `text` as it fits into a note: no line breaks, no control characters, not too long.
fn one_line(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(NOTE_TEXT_BYTES)];
    text.replace(char::is_control, " ")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use super::is_stopped;

    #[test]
    fn stopped_process_is_told_from_a_running_one() {
        assert!(!is_stopped(std::process::id()));
        assert!(!is_stopped(u32::MAX));
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(!is_stopped(child.id()));
        let sent = Command::new("kill").args(["-STOP", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        while !is_stopped(child.id()) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
