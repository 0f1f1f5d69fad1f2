//! The rows that were answered and are not in the store's file yet: those of the window that goes on, over those of the
//! one before, which are on their way into the file, over the file as it was before that.
//!
//! It is a view like any other, so that `decide` works on it. Jobs are claimed from the front of their lane, and
//! within a window each claim would pass over all rows that the claims before it took out: where a visit finds nothing
//! is remembered, until something is put there.

mod ahead;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::Arc,
    time::Instant,
};

use self::ahead::Ahead;
use crate::{
    engine::{Basis, RowSet, Rows, Visit},
    error::Result,
    store::{
        conflict::Version,
        keys,
        object::StoreRecord,
        site::Site,
        view::{Layer, get_record},
    },
};

/// The rows over the store's file.
pub(super) struct Window {
    /// The file, as of the last window that is in it.
    base: Ahead,
    /// The store's row there.
    pub(super) basis: Basis,
    in_file: StoreRecord,
    /// The window that is being written into the file.
    frozen: Option<Frozen>,
    current: RowSet,
    /// About how many bytes `current` takes.
    bytes: usize,
    pub(super) store: StoreRecord,
    /// The store as the current window began.
    start: StoreRecord,
    /// When the first group of the current window came.
    pub(super) begun: Option<Instant>,
    gaps: RefCell<Gaps>,
    /// What the file has of rows that are read often; most of them are not there at all.
    known: RefCell<HashMap<Vec<u8>, Option<Vec<u8>>>>,
}

/// A window that takes no more rows.
#[derive(Clone)]
pub(super) struct Frozen {
    pub(super) rows: Arc<RowSet>,
    pub(super) basis: Basis,
    pub(super) before: StoreRecord,
    pub(super) after: StoreRecord,
}

impl Window {
    /// Under the writer's lock, with nothing left to recover.
    pub(super) fn open(site: &Site) -> Result<Self> {
        let base = Ahead::new(site.engine.latest()?);
        let basis = (keys::STORE.to_vec(), base.get(keys::STORE)?);
        let store: StoreRecord = get_record(&base, keys::STORE)?.unwrap_or_default();
        Ok(Self {
            base,
            basis,
            in_file: store,
            frozen: None,
            current: RowSet::new(),
            bytes: 0,
            store,
            start: store,
            begun: None,
            gaps: RefCell::default(),
            known: RefCell::default(),
        })
    }

    /// Takes the rows of a group that was made durable.
    pub(super) fn absorb(&mut self, rows: RowSet, after: StoreRecord, now: Instant) {
        let gaps = self.gaps.get_mut();
        for (key, value) in rows {
            if value.is_some() {
                gaps.fill(&key);
            }
            self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
            self.current.insert(key, value);
        }
        self.store = after;
        self.begun.get_or_insert(now);
    }

    /// Puts a row that needs no answer and no durability of its own.
    pub(super) fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.current.insert(key, value);
    }

    pub(super) fn has_rows(&self) -> bool {
        self.begun.is_some()
    }

    pub(super) fn is_flushing(&self) -> bool {
        self.frozen.is_some()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Ends the window: its rows are to be written into the file, and a new window begins over them. Only one is on its
    /// way at a time.
    pub(super) fn freeze(&mut self) -> Frozen {
        debug_assert!(self.frozen.is_none(), "the window before is still on its way");
        let rows = Arc::new(std::mem::take(&mut self.current));
        let frozen = Frozen { rows, basis: self.basis.clone(), before: self.start, after: self.store };
        self.frozen = Some(frozen.clone());
        self.bytes = 0;
        self.begun = None;
        self.start = self.store;
        frozen
    }

    /// The store's version in the file.
    pub(super) fn version_in_file(&self) -> Version {
        self.in_file.version
    }

    /// The window that is on its way into the file.
    pub(super) fn frozen(&self) -> Option<Frozen> {
        self.frozen.clone()
    }

    /// What was put here without a group; for whoever writes around the window.
    pub(super) fn take_strays(&mut self) -> RowSet {
        debug_assert!(!self.has_rows(), "a window with groups is not written around");
        std::mem::take(&mut self.current)
    }

    /// A group went into the file without waiting in a window.
    pub(super) fn follow(&mut self, site: &Site, after: StoreRecord) -> Result<()> {
        self.store = after;
        self.start = after;
        // Its rows are not known here, and one of them may be where nothing was.
        self.gaps = RefCell::default();
        self.known = RefCell::default();
        self.thaw(site)
    }

    /// Gives the file's pages up, while somebody else may do with it what needs that nobody reads. The window is of no
    /// use afterwards; it is opened anew.
    pub(super) fn let_go_of_file(&mut self) {
        self.base = Ahead::new(Box::new(Nothing));
    }

    /// The frozen window is in the file.
    pub(super) fn thaw(&mut self, site: &Site) -> Result<()> {
        self.base = Ahead::new(site.engine.latest()?);
        self.basis = (keys::STORE.to_vec(), self.base.get(keys::STORE)?);
        self.in_file = get_record(&self.base, keys::STORE)?.unwrap_or_default();
        if let Some(frozen) = self.frozen.take() {
            let known = self.known.get_mut();
            frozen.rows.keys().filter(|key| keys::is_read_often(key)).for_each(|key| drop(known.remove(key)));
        }
        Ok(())
    }
}

impl Rows for Window {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(written) = self.current.get(key) {
            return Ok(written.clone());
        }
        if let Some(written) = self.frozen.as_ref().and_then(|frozen| frozen.rows.get(key)) {
            return Ok(written.clone());
        }
        if !keys::is_read_often(key) {
            return self.base.get(key);
        }
        if let Some(known) = self.known.borrow().get(key) {
            return Ok(known.clone());
        }
        let found = self.base.get(key)?;
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key.to_vec(), found.clone());
        Ok(found)
    }

    fn visit(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let from = self.gaps.borrow().end_of(start).map_or_else(|| start.to_vec(), <[u8]>::to_vec);
        let mut first: Option<Vec<u8>> = None;
        let mut noted = |key: &[u8], bytes: &[u8]| {
            first.get_or_insert_with(|| key.to_vec());
            visit(key, bytes)
        };
        match &self.frozen {
            Some(frozen) => {
                let below = Layer::new(&self.base, &frozen.rows);
                Layer::new(&below, &self.current).visit(&from, end, &mut noted)?;
            }
            None => Layer::new(&self.base, &self.current).visit(&from, end, &mut noted)?,
        }
        self.gaps.borrow_mut().note(start, first.as_deref().unwrap_or(end));
        Ok(())
    }
}

/// How many rows of the file are remembered.
const KNOWN_MAX: usize = 4_096;

/// No rows.
struct Nothing;

impl Rows for Nothing {
    fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn visit(&self, _: &[u8], _: &[u8], _: &mut Visit<'_>) -> Result<()> {
        Ok(())
    }
}

/// Ranges in which there is no row, by where they start.
#[derive(Default)]
struct Gaps {
    ends: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// How many gaps are remembered: each put of a ready job looks at all of them.
const GAPS_MAX: usize = 8;

impl Gaps {
    fn end_of(&self, start: &[u8]) -> Option<&[u8]> {
        self.ends.get(start).map(Vec::as_slice)
    }

    fn note(&mut self, start: &[u8], end: &[u8]) {
        // Only jobs are taken from the front of a range again and again.
        if start >= end || !keys::is_ready(start) {
            return;
        }
        if let Some(known) = self.ends.get_mut(start) {
            known.clear();
            known.extend_from_slice(end);
            return;
        }
        if self.ends.len() >= GAPS_MAX {
            self.ends.clear();
        }
        self.ends.insert(start.to_vec(), end.to_vec());
    }

    /// A row is put at this key.
    fn fill(&mut self, key: &[u8]) {
        if !keys::is_ready(key) {
            return;
        }
        // Gaps may overlap where ranges were visited that contain each other, so each that could hold the key is looked
        // at.
        for (_, end) in self.ends.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key))) {
            if end.as_slice() > key {
                end.clear();
                end.extend_from_slice(key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
