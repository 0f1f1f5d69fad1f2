//! The store's file, read ahead: jobs are claimed from the front of their lane, and each claim asks for the lanes and
//! then for the front. What the file has there is read some rows at a time, and served from memory until it is passed.
//!
//! The file is as it was when it was opened here, so that what was read stays right for as long as this lives.

use std::{
    cell::{Cell, RefCell},
    ops::ControlFlow,
    sync::Arc,
};

use crate::{
    engine::{Rows, Visit},
    error::Result,
    store::keys,
};

/// How much is read ahead at once.
const AHEAD_ROWS: usize = 64;
const AHEAD_BYTES: usize = 64 << 10;
/// How many ranges are read ahead in: as many lanes are claimed from in turn at little cost.
const STRETCHES_MAX: usize = 8;

pub(super) struct Ahead {
    file: Box<dyn Rows + Send>,
    stretches: RefCell<Vec<Arc<Stretch>>>,
    /// The stretch that gives its place to the next.
    oldest: Cell<usize>,
}

/// All rows of the file with `start <= key < end`.
struct Stretch {
    start: Vec<u8>,
    end: Vec<u8>,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Ahead {
    pub(super) fn new(file: Box<dyn Rows + Send>) -> Self {
        Self { file, stretches: RefCell::default(), oldest: Cell::new(0) }
    }

    /// The rows of a range from its start on, as many as are read at once.
    fn read(&self, start: &[u8], end: &[u8]) -> Result<Stretch> {
        let mut stretch = Stretch { start: start.to_vec(), end: end.to_vec(), rows: Vec::new() };
        let mut bytes = 0;
        self.file.visit(start, end, &mut |key, value| {
            if stretch.rows.len() == AHEAD_ROWS || bytes >= AHEAD_BYTES {
                stretch.end = key.to_vec();
                return Ok(ControlFlow::Break(()));
            }
            bytes += key.len() + value.len();
            stretch.rows.push((key.to_vec(), value.to_vec()));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(stretch)
    }

    fn keep(&self, stretch: Stretch) -> Arc<Stretch> {
        let stretch = Arc::new(stretch);
        let mut stretches = self.stretches.borrow_mut();
        if stretches.len() < STRETCHES_MAX {
            stretches.push(stretch.clone());
        } else {
            let oldest = self.oldest.get();
            stretches[oldest] = stretch.clone();
            self.oldest.set((oldest + 1) % STRETCHES_MAX);
        }
        stretch
    }
}

impl Rows for Ahead {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.file.get(key)
    }

    fn visit(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        if start >= end || !keys::is_claimed_from(start) {
            return self.file.visit(start, end, visit);
        }
        let is_known = |stretch: &&Arc<Stretch>| stretch.start.as_slice() <= start && start < stretch.end.as_slice();
        // Not borrowed while it is served: what is called with a row may look at others.
        let known = self.stretches.borrow().iter().find(is_known).cloned();
        let stretch = match known {
            Some(stretch) => stretch,
            None => self.keep(self.read(start, end)?),
        };
        let first = stretch.rows.partition_point(|(key, _)| key.as_slice() < start);
        for (key, value) in stretch.rows[first..].iter().take_while(|(key, _)| key.as_slice() < end) {
            if visit(key, value)?.is_break() {
                return Ok(());
            }
        }
        // Whoever takes more than was read ahead takes it from the file.
        self.file.visit(&stretch.end, end, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{Engine as _, RowSet, memory::Memory},
        queue::{id::Place, lane::Lane},
    };

    fn key(index: u32) -> Vec<u8> {
        keys::ready("q", Lane::new(0, 1, false), Place { version: 1, index })
    }

    fn seen(rows: &dyn Rows, start: &[u8], end: &[u8], most: usize) -> Vec<Vec<u8>> {
        let mut seen = Vec::new();
        rows.visit(start, end, &mut |key, _| {
            seen.push(key.to_vec());
            Ok(if seen.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })
        .unwrap();
        seen
    }

    #[test]
    fn what_is_read_ahead_is_what_the_file_has() {
        let engine = Memory::new();
        let rows: RowSet = (0..300).map(|index| (key(2 * index), Some(vec![7]))).collect();
        engine.write(None, &rows).unwrap();
        let file = engine.latest().unwrap();
        let ahead = Ahead::new(engine.latest().unwrap());
        let ends = [0, 1, 2, 63, 64, 126, 127, 128, 129, 255, 256, 599, 700];
        for start in ends {
            for end in ends {
                for most in [1, 2, 64, 65, 1_000] {
                    let (start, end) = (key(start), key(end));
                    assert_eq!(seen(&ahead, &start, &end, most), seen(file.as_ref(), &start, &end, most));
                }
            }
        }
    }
}
