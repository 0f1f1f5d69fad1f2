//! Which processes have a store's file open, whatever they do with it. Linux tells, of what this user may look into.

use std::{fs, path::Path};

/// A process that has the file open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Opener {
    pub(crate) pid: u32,
    /// What the system calls it.
    pub(crate) name: String,
}

/// The other processes that have the file at this path open, in the order of their numbers.
pub(crate) fn openers(store: &Path) -> Vec<Opener> {
    let (Ok(wanted), Ok(processes)) = (fs::metadata(store), fs::read_dir("/proc")) else { return Vec::new() };
    let mut openers = Vec::new();
    for process in processes.filter_map(Result::ok) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(open) = fs::read_dir(process.path().join("fd")) else { continue };
        let has_it = |descriptor: fs::DirEntry| {
            // By its name first: to look at what a descriptor leads to may wait for a disk.
            fs::read_link(descriptor.path()).is_ok_and(|path| path.file_name() == store.file_name())
                && fs::metadata(descriptor.path()).is_ok_and(|found| is_same(&found, &wanted))
        };
        if pid != std::process::id() && open.filter_map(Result::ok).any(has_it) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            openers.push(Opener { pid, name: name.trim_end().to_owned() });
        }
    }
    openers.sort_unstable();
    openers
}

#[cfg(unix)]
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    false
}
