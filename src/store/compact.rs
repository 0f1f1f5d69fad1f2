//! Compaction: the file is made as small as what it holds.
//!
//! redb does it in place, while nobody has the file in a transaction. So it is done under the writer's lock, which a
//! stone lends with its own view of the file given up; and whoever has snapshots open gives their pages up when it sees
//! that somebody has the turn, at most half a second later. Nobody has to close the file.

use std::{path::Path, time::Duration};

use crate::{
    clock::{monotonic, sleep},
    engine::redb::{pinned_by, pinned_transactions},
    error::{Error, Result},
    local::is_stopped,
    store::Store,
};

/// The turn of who compacts.
pub(crate) const COMPACT_TURN: &str = "compact";
/// How long a process with open snapshots takes to notice that it should give them up.
const NOTICE_MAX: Duration = Duration::from_millis(600);
const POLL: Duration = Duration::from_millis(5);
/// How long it keeps all others from writing while it waits for those that read.
const QUIET_MAX: Duration = Duration::from_secs(1);

/// What a compaction came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// How large the file was.
    pub bytes_before: u64,
    /// How large it is.
    pub bytes_after: u64,
}

impl Store {
    /// Makes the file as small as what it holds. Other processes may have the store open; they wait while it is done,
    /// which takes longer the more there is to move, and snapshots that they have open give their pages up, as after
    /// five seconds. Nothing happens to a store in memory.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let store = casque::Store::open(folder.path().join("app.redb"))?;
    /// let compacted = store.compact()?;
    /// assert!(compacted.bytes_after <= compacted.bytes_before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Unavailable` where a process reads on and on, or is stopped while it reads (it is named), where another
    /// compacts, or where the writer's lock can't be had in time; nothing was changed.
    pub fn compact(&self) -> Result<Compacted> {
        let inner = &self.inner;
        let Some(files) = inner.site.files() else { return Ok(Compacted { bytes_before: 0, bytes_after: 0 }) };
        let path = files.store.clone();
        let turn = inner
            .site
            .try_turn(COMPACT_TURN)
            .ok_or_else(|| Error::unavailable("another process compacts the store; let it end"))?;
        let bytes_before = size(&path)?;
        inner.give_up_snapshots();
        // Nobody is kept from writing for as long as that may help.
        wait_for_readers(&path);
        let is_done = inner.long_section("compact", |site| site.engine.compact(QUIET_MAX))??;
        drop(turn);
        if !is_done {
            return Err(is_read(&path));
        }
        Ok(Compacted { bytes_before, bytes_after: size(&path)? })
    }
}

/// Until those who read now have ended, or have had the time to notice that they should.
fn wait_for_readers(path: &Path) {
    let pinned = || pinned_transactions(path).unwrap_or_default();
    let (begun, read) = (monotonic(), pinned());
    while monotonic().duration_since(begun) < NOTICE_MAX && pinned().iter().any(|now| read.contains(now)) {
        sleep(POLL);
    }
}

fn size(path: &Path) -> Result<u64> {
    let found = std::fs::metadata(path);
    found
        .map(|found| found.len())
        .map_err(|error| Error::unavailable(format!("look at {}", path.display())).because(error))
}

fn is_read(path: &Path) -> Error {
    let mut pids: Vec<u32> = pinned_by(path).iter().map(|pinned| pinned.pid).collect();
    pids.dedup();
    let readers: Vec<String> = pids
        .into_iter()
        .filter(|pid| *pid != std::process::id())
        .map(
            |pid| if is_stopped(pid) { format!("{pid} (it is stopped: continue or kill it)") } else { pid.to_string() },
        )
        .collect();
    let who = if readers.is_empty() {
        "somebody reads it all the time".to_owned()
    } else {
        format!("it is read by process {}", readers.join(", "))
    };
    Error::unavailable(format!("{} can't be compacted: {who}; nothing was changed, try again", path.display()))
}
