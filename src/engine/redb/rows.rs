//! A snapshot: a read transaction of redb.

use std::{ops::ControlFlow, sync::Arc};

use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata as _};

use super::{TABLE, place::Place};
use crate::{
    engine::{Rows, Visit},
    error::Result,
};

const DOING: &str = "read";

/// The table as one read transaction sees it; it keeps that transaction, and its pages, alive.
pub(super) struct RedbRows {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    place: Arc<Place>,
}

impl RedbRows {
    pub(super) fn new(transaction: &ReadTransaction, place: &Arc<Place>) -> Result<Self> {
        let table =
            place.guarded(DOING, || transaction.open_table(TABLE))?.map_err(|error| place.of_table(DOING, error))?;
        Ok(Self { table, place: Arc::clone(place) })
    }
}

impl Rows for RedbRows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.place.guarded(DOING, || {
            ReadableTable::get(&self.table, key).map(|found| found.map(|value| value.value().to_vec()))
        })?;
        found.map_err(|error| self.place.of_storage(DOING, error))
    }

    fn visit(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        let mut range = self
            .place
            .guarded(DOING, || ReadableTable::range::<&[u8]>(&self.table, start..end))?
            .map_err(|error| self.place.of_storage(DOING, error))?;
        // Only redb's steps are guarded: a panic of the visitor is not the file's doing.
        while let Some(row) = self.place.guarded(DOING, || range.next())? {
            let (key, value) = row.map_err(|error| self.place.of_storage(DOING, error))?;
            // On a damaged page the two may lie outside of it.
            let (key, value) = self.place.guarded(DOING, || (key.value(), value.value()))?;
            if visit(key, value)? == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn count(&self) -> Option<u64> {
        self.place.guarded(DOING, || self.table.len()).ok()?.ok()
    }
}
