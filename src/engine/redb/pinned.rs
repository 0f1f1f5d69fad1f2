//! Who reads a store's file just now, in whatever process, and so keeps pages of it from being used again.
//!
//! redb marks each transaction that is read by a shared lock on one byte of the file, far behind its end: the byte's
//! number says which transaction. It is how a writer learns what others still read. Linux tells of a process's locks in
//! `/proc/<pid>/fdinfo`, also of one that is stopped, and of all locks in `/proc/locks`, without whose they are. So
//! nobody has to note anywhere that it reads.

use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

/// Where redb's bytes for transactions begin ("active transaction base" in its `docs/design.md`).
const TRANSACTIONS_BASE: u64 = (1 << 62) + 1024;

/// A transaction that a process reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pinned {
    /// redb's number of it: the lower, the older.
    pub(crate) transaction: u64,
    pub(crate) pid: u32,
}

/// The transactions of the file that are read just now, the oldest first, by whomever. Cheap: it reads one small file.
/// `None` where the system does not tell.
pub(crate) fn pinned_transactions(store: &Path) -> Option<Vec<u64>> {
    let inode = inode(store)?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut pinned: Vec<u64> =
        locks.lines().filter_map(|line| lock_on(line, inode)).filter_map(transactions).flatten().collect();
    pinned.sort_unstable();
    pinned.dedup();
    Some(pinned)
}

/// The same with whose they are, as far as this user may look. It looks through all processes: some milliseconds.
pub(crate) fn pinned_by(store: &Path) -> Vec<Pinned> {
    let (Some(inode), Some(name)) = (inode(store), store.file_name()) else { return Vec::new() };
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let mut pinned = Vec::new();
    for process in processes.filter_map(Result::ok) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Others' processes, and those that end meanwhile, can't be looked into.
        let Ok(open) = fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in open.filter_map(Result::ok) {
            // By its name first: to look at what a descriptor leads to may wait for a disk.
            if fs::read_link(descriptor.path()).is_ok_and(|path| path.file_name() == Some(name)) {
                let info = process.path().join("fdinfo").join(descriptor.file_name());
                pinned.extend(transactions_of(&info, inode).into_iter().map(|transaction| Pinned { transaction, pid }));
            }
        }
    }
    pinned.sort_unstable();
    pinned.dedup();
    pinned
}

fn transactions_of(info: &PathBuf, inode: u64) -> Vec<u64> {
    let text = fs::read_to_string(info).unwrap_or_default();
    let locks = text.lines().filter_map(|line| lock_on(line.strip_prefix("lock:")?, inode));
    locks.filter_map(transactions).flatten().collect()
}

/// The bytes of a lock on the file of this number, in a line as `1: OFDLCK ADVISORY READ -1 fe:00:42 0 319`.
fn lock_on(line: &str, inode: u64) -> Option<RangeInclusive<u64>> {
    let mut words = line.split_whitespace().rev();
    let (end, start, file) = (words.next()?, words.next()?, words.next()?);
    if file.rsplit(':').next()?.parse() != Ok(inode) {
        return None;
    }
    // What goes on to the end of the file is no single byte; who only waits for a lock stands behind an arrow.
    let is_held = !line.contains("->");
    if is_held { Some(start.parse().ok()?..=end.parse().ok()?) } else { None }
}

/// The system shows locks on bytes beside each other as one.
fn transactions(bytes: RangeInclusive<u64>) -> Option<RangeInclusive<u64>> {
    /// So many that one process reads at once are no sign of anything good.
    const MOST: u64 = 10_000;
    let first = bytes.start().checked_sub(TRANSACTIONS_BASE)?;
    let last = bytes.end() - TRANSACTIONS_BASE;
    (last - first < MOST).then_some(first..=last)
}

#[cfg(unix)]
fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|found| std::os::unix::fs::MetadataExt::ino(&found))
}

#[cfg(not(unix))]
fn inode(_: &Path) -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::engine::{Engine as _, RowSet, redb::Redb};

    #[test]
    fn lines_of_the_system_are_understood() {
        let line = "1: OFDLCK ADVISORY  READ  -1 fe:00:42 4611686018427388930 4611686018427388931";
        assert_eq!(lock_on(line, 42).and_then(transactions), Some(2..=3));
        assert_eq!(lock_on(line, 2), None);
        for other in [
            "2: FLOCK  ADVISORY  WRITE 15166 fe:00:42 0 EOF",
            "3: OFDLCK ADVISORY  READ  -1 fe:00:42 0 319",
            "3: -> OFDLCK ADVISORY  WRITE -1 fe:00:42 4611686018427388930 4611686018427388930",
            "",
        ] {
            assert_eq!(lock_on(other, 42).and_then(transactions), None, "{other}");
        }
    }

    #[test]
    fn who_reads_is_told_until_it_has_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.redb");
        let row = |value: u8| RowSet::from([(b"key".to_vec(), Some(vec![value]))]);
        Redb::create(&path, &row(0), &super::super::RedbOptions::default()).unwrap();
        let engine = Redb::open(&path, super::super::RedbOptions::default()).unwrap();
        assert_eq!(pinned_transactions(&path), Some(vec![]));
        let snapshot = engine.snapshot().unwrap();
        let pinned = pinned_by(&path);
        assert_eq!(pinned.iter().map(|pinned| pinned.pid).collect::<Vec<_>>(), [std::process::id()]);
        assert_eq!(pinned_transactions(&path), Some(vec![pinned[0].transaction]));
        engine.write(None, &row(1)).unwrap();
        let later = engine.snapshot().unwrap();
        assert_eq!(pinned_by(&path).len(), 2, "each transaction is told of");
        drop((snapshot, later));
        assert_eq!(pinned_by(&path), []);
        assert_eq!(pinned_transactions(&path), Some(vec![]));
        engine.close().unwrap();
    }
}
