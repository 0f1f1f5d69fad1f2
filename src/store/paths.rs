//! Counts commits by the path they took, so that a test can tell whether it tested what it meant to.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a change of this process got to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// By this process, under the writer's lock for one group.
    Direct,
    /// By this process, as the stone.
    OwnStone,
    /// By another process, the stone.
    Stone,
}

/// The commits of one opening of a store, by path.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    counts: [AtomicU64; 3],
}

/// How many commits of a store went which way.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitsByPath {
    /// By this process, under the writer's lock for one group.
    pub direct: u64,
    /// By this process, as the stone, for itself and for its clients.
    pub own_stone: u64,
    /// By another process, the stone.
    pub stone: u64,
}

impl Paths {
    pub(crate) fn add(&self, path: Path, commits: u64) {
        self.counts[path as usize].fetch_add(commits, Ordering::Relaxed);
    }

    pub(crate) fn counted(&self) -> CommitsByPath {
        let [direct, own_stone, stone] = [0, 1, 2].map(|path: usize| self.counts[path].load(Ordering::Relaxed));
        CommitsByPath { direct, own_stone, stone }
    }
}
