//! Locks on ranges of bytes, each held by one handle.

use std::{ops::Bound, sync::Arc};

#[derive(Default)]
pub(super) struct Locks(Vec<Lock>);

struct Lock {
    file: Arc<str>,
    handle: u64,
    bytes: (u64, u64),
    is_shared: bool,
}

impl Locks {
    pub(super) fn try_take(
        &mut self,
        file: &Arc<str>,
        handle: u64,
        range: (Bound<u64>, Bound<u64>),
        is_shared: bool,
    ) -> bool {
        if self.is_in_the_way(file, handle, range, is_shared) {
            return false;
        }
        self.0.push(Lock { file: file.clone(), handle, bytes: bytes(range), is_shared });
        true
    }

    /// Whether another handle has a lock that forbids this one.
    pub(super) fn is_in_the_way(
        &self,
        file: &str,
        handle: u64,
        range: (Bound<u64>, Bound<u64>),
        is_shared: bool,
    ) -> bool {
        let (first, last) = bytes(range);
        self.0.iter().any(|lock| {
            lock.handle != handle
                && &*lock.file == file
                && lock.bytes.0 <= last
                && first <= lock.bytes.1
                && !(is_shared && lock.is_shared)
        })
    }

    pub(super) fn free(&mut self, file: &str, handle: u64, range: (Bound<u64>, Bound<u64>)) {
        let bytes = bytes(range);
        self.0.retain(|lock| !(lock.handle == handle && &*lock.file == file && lock.bytes == bytes));
    }

    pub(super) fn free_all(&mut self, handle: u64) {
        self.0.retain(|lock| lock.handle != handle);
    }
}

/// The first and the last byte of a range.
fn bytes((start, end): (Bound<u64>, Bound<u64>)) -> (u64, u64) {
    let first = match start {
        Bound::Included(first) => first,
        Bound::Excluded(before) => before + 1,
        Bound::Unbounded => 0,
    };
    let last = match end {
        Bound::Included(last) => last,
        Bound::Excluded(after) => after.saturating_sub(1),
        Bound::Unbounded => u64::MAX,
    };
    (first, last)
}
