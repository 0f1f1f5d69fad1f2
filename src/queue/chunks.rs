//! The jobs of a range in order, read a few at a time, so that a merge of several ranges reads little more than it
//! takes.

use std::collections::VecDeque;

use crate::{
    engine::Rows,
    error::Result,
    queue::id::Place,
    store::{
        keys::{self, Range},
        view::first_rows,
    },
};

/// What is left of a range, and what was read of it already.
pub(crate) struct Chunks {
    rest: Range,
    chunk: VecDeque<(Place, Vec<u8>)>,
    is_read: bool,
}

impl Chunks {
    pub(crate) fn new(range: Range) -> Self {
        Self { rest: range, chunk: VecDeque::new(), is_read: false }
    }

    /// The place, or id, at the end of the next row's key; reads up to so many rows where none is at hand.
    pub(crate) fn peek(&mut self, rows: &dyn Rows, chunk_rows: usize) -> Result<Option<Place>> {
        if self.chunk.is_empty() && !self.is_read {
            let found = first_rows(rows, &self.rest, chunk_rows)?;
            self.is_read = found.len() < chunk_rows;
            if let Some((last, _)) = found.last() {
                self.rest = self.rest.clone().after(last);
            }
            self.chunk = found.into_iter().filter_map(|(key, bytes)| Some((keys::id_at_end(&key)?, bytes))).collect();
        }
        Ok(self.chunk.front().map(|(place, _)| *place))
    }

    /// The row that was peeked at.
    pub(crate) fn front(&self) -> Option<&(Place, Vec<u8>)> {
        self.chunk.front()
    }

    /// How many bytes the row takes that was peeked at.
    pub(crate) fn front_bytes(&self) -> usize {
        self.chunk.front().map_or(0, |(_, bytes)| bytes.len())
    }

    /// The row that was peeked at; nothing where there is none.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.chunk.pop_front().map(|(_, bytes)| bytes).unwrap_or_default()
    }
}
