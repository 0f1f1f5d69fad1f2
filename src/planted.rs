//! Bugs that tests plant, to see that a rig finds them. They are there only in a build with `--cfg planted`, which
//! `scripts/planted` makes and nothing that is shipped is; in any other, [`planted`] is `false` as it is compiled, and
//! what it switches is no code at all.

/// A bug that can be planted, by its name in the variable `CASQUE_PLANTED` (several with spaces between them).
#[cfg_attr(not(planted), allow(dead_code, reason = "named where the bug would be"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bug {
    /// A settlement by an old token is taken as one by the current one (INV-3).
    FencingOff,
    /// A stone answers before it has synced its log (INV-4).
    AnswerBeforeSync,
    /// No bug, but a disk that shows the one above: what a log holds unsynced is lost with its process, as in a power
    /// cut.
    UnsyncedIsLost,
    /// A change commits whatever became of what it has read (INV-8).
    GuardSkipped,
    /// A snapshot does not wait for the window that is open (R2).
    SnapshotWithoutBarrier,
    /// What is sent again is done again (A2).
    VerdictForgotten,
}

/// Writes that are in the process's memory alone until they are synced, where [`Bug::UnsyncedIsLost`] is planted; else
/// nothing.
#[derive(Default)]
pub(crate) struct Unsynced {
    #[cfg(planted)]
    writes: std::sync::Mutex<Vec<(u64, Vec<u8>)>>,
}

#[cfg(planted)]
impl Unsynced {
    pub(crate) fn keep(&self, offset: u64, bytes: &[u8]) {
        self.writes.lock().expect("nobody panics under it").push((offset, bytes.to_vec()));
    }

    pub(crate) fn release(&self, mut write: impl FnMut(u64, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
        let writes = std::mem::take(&mut *self.writes.lock().expect("nobody panics under it"));
        writes.iter().try_for_each(|(offset, bytes)| write(*offset, bytes))
    }
}

#[cfg(not(planted))]
#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in a build with bugs")]
impl Unsynced {
    pub(crate) fn keep(&self, _: u64, _: &[u8]) {}

    pub(crate) fn release(&self, _: impl FnMut(u64, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whether this bug is planted.
#[cfg(not(planted))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}

/// Whether this bug is planted.
#[cfg(planted)]
pub(crate) fn planted(bug: Bug) -> bool {
    static ALL: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let all = ALL.get_or_init(|| std::env::var("CASQUE_PLANTED").unwrap_or_default());
    let name = format!("{bug:?}");
    !all.is_empty() && all.split(' ').any(|one| one == name)
}
