//! The overlay: how a change in a group stays all or nothing. It reads through to the rows below and keeps what is
//! written to itself, until a committed verdict moves its rows into the group.

use std::ops::ControlFlow;

use crate::{
    codec::{self, Record},
    engine::{RowSet, Rows, Visit},
    error::{Error, Result},
    store::keys::Range,
};

/// Rows as they are below, with the writes of one change, or of one group, on top.
pub(crate) struct Overlay<'a> {
    below: &'a dyn Rows,
    writes: RowSet,
    /// What was written under each key before, since what is done now began; nothing where it is not to be undone.
    undo: Option<Vec<(Vec<u8>, Before)>>,
}

/// What was written under a key before, if anything was: bytes, or a removal.
type Before = Option<Option<Vec<u8>>>;

impl<'a> Overlay<'a> {
    pub(crate) fn new(below: &'a dyn Rows) -> Self {
        Self { below, writes: RowSet::new(), undo: None }
    }

    pub(crate) fn put(&mut self, key: Vec<u8>, bytes: Vec<u8>) {
        self.write(key, Some(bytes));
    }

    pub(crate) fn put_record<R: Record>(&mut self, key: Vec<u8>, record: &R) -> Result<()> {
        self.put(key, codec::encode(record)?);
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: Vec<u8>) {
        self.write(key, None);
    }

    fn write(&mut self, key: Vec<u8>, bytes: Option<Vec<u8>>) {
        match &mut self.undo {
            None => {
                self.writes.insert(key, bytes);
            }
            Some(undo) => {
                let before = self.writes.insert(key.clone(), bytes);
                undo.push((key, before));
            }
        }
    }

    /// From here on, what is written can be undone.
    pub(crate) fn begin(&mut self) {
        debug_assert!(self.undo.is_none(), "one thing at a time is undone");
        self.undo = Some(Vec::new());
    }

    /// What was written since the beginning stands.
    pub(crate) fn keep(&mut self) {
        self.undo = None;
    }

    /// What was written since the beginning was not.
    pub(crate) fn undo(&mut self) {
        for (key, before) in self.undo.take().into_iter().flatten().rev() {
            match before {
                Some(bytes) => self.writes.insert(key, bytes),
                None => self.writes.remove(&key),
            };
        }
    }

    /// Takes over the rows of a change that committed.
    pub(crate) fn absorb(&mut self, rows: RowSet) {
        if self.writes.is_empty() {
            self.writes = rows;
        } else {
            self.writes.extend(rows);
        }
    }

    /// The rows as they were before the first write.
    pub(crate) fn below(&self) -> &'a dyn Rows {
        self.below
    }

    pub(crate) fn is_untouched(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn into_rows(self) -> RowSet {
        self.writes
    }
}

impl Rows for Overlay<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Layer::new(self.below, &self.writes).get(key)
    }

    fn visit(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        Layer::new(self.below, &self.writes).visit(start, end, visit)
    }
}

/// Rows that somebody else keeps, on top of those below.
pub(crate) struct Layer<'a> {
    below: &'a dyn Rows,
    rows: &'a RowSet,
}

impl<'a> Layer<'a> {
    pub(crate) fn new(below: &'a dyn Rows, rows: &'a RowSet) -> Self {
        Self { below, rows }
    }
}

impl Rows for Layer<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.rows.get(key) {
            Some(written) => Ok(written.clone()),
            None => self.below.get(key),
        }
    }

    fn visit(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        let mut own =
            self.rows.range::<[u8], _>((std::ops::Bound::Included(start), std::ops::Bound::Excluded(end))).peekable();
        let mut ended = false;
        self.below.visit(start, end, &mut |key, bytes| {
            while let Some((own_key, own_bytes)) = own.next_if(|(own_key, _)| own_key.as_slice() <= key) {
                let hides_below = own_key == key;
                let flow = match own_bytes {
                    Some(own_bytes) => visit(own_key, own_bytes)?,
                    None => ControlFlow::Continue(()),
                };
                ended = flow.is_break();
                if ended || hides_below {
                    return Ok(flow);
                }
            }
            let flow = visit(key, bytes)?;
            ended = flow.is_break();
            Ok(flow)
        })?;
        for (key, bytes) in own {
            if ended {
                break;
            }
            if let Some(bytes) = bytes {
                ended = visit(key, bytes)?.is_break();
            }
        }
        Ok(())
    }
}

/// The record under a key.
pub(crate) fn get_record<R: Record>(rows: &dyn Rows, key: &[u8]) -> Result<Option<R>> {
    rows.get(key)?.map(|bytes| codec::decode(&bytes)).transpose()
}

/// The first `limit` rows of a range.
pub(crate) fn first_rows(rows: &dyn Rows, range: &Range, limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    rows.visit(&range.start, &range.end, &mut |key, bytes| {
        found.push((key.to_vec(), bytes.to_vec()));
        Ok(if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(found)
}

/// The first key of a range.
pub(crate) fn first_key(rows: &dyn Rows, range: &Range) -> Result<Option<Vec<u8>>> {
    let mut first = None;
    rows.visit(&range.start, &range.end, &mut |key, _| {
        first = Some(key.to_vec());
        Ok(ControlFlow::Break(()))
    })?;
    Ok(first)
}

/// Calls `each` with every row of a range.
pub(crate) fn for_each(rows: &dyn Rows, range: &Range, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    rows.visit(&range.start, &range.end, &mut |key, bytes| {
        each(key, bytes)?;
        Ok(ControlFlow::Continue(()))
    })
}

/// Says that two rows which must agree don't.
pub(crate) fn inconsistent(what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("{what}; run `casque check`, and keep the store as it is"))
}
