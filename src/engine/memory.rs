//! The engine in memory: the executable specification of all others, and what tests of rules run on.
//!
//! Nothing here survives the process, so there is nothing to recover, to close or to check.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{Arc, PoisonError, RwLock},
};

use super::{Basis, Engine, RowSet, Rows, SnapshotError, Visit, basis_changed};
use crate::error::Result;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Rows in an ordered map. A snapshot shares the map; a write copies it while a snapshot is held.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    rows: RwLock<Arc<Map>>,
}

impl Memory {
    /// An engine without rows.
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

impl Engine for Memory {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send>, SnapshotError> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        Ok(Box::new(MemoryRows(Arc::clone(&rows))))
    }

    fn latest(&self) -> Result<Box<dyn Rows + Send>> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        Ok(Box::new(MemoryRows(Arc::clone(&rows))))
    }

    fn write(&self, basis: Option<&Basis>, rows: &RowSet) -> Result<()> {
        let mut map = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        if basis.is_some_and(|(key, presumed)| map.get(key) != presumed.as_ref()) {
            return Err(basis_changed());
        }
        let map = Arc::make_mut(&mut map);
        for (key, value) in rows {
            match value {
                Some(value) => map.insert(key.clone(), value.clone()),
                None => map.remove(key),
            };
        }
        Ok(())
    }

    fn recover(&self) -> Result<()> {
        Ok(())
    }

    fn close_if_only_read(&self) -> Result<bool> {
        Ok(true)
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

struct MemoryRows(Arc<Map>);

impl Rows for MemoryRows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key).cloned())
    }

    fn visit(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        // A map panics where a range's start lies above its end; here such a range is empty.
        if start >= end {
            return Ok(());
        }
        for (key, value) in self.0.range::<[u8], _>((std::ops::Bound::Included(start), std::ops::Bound::Excluded(end)))
        {
            if visit(key, value)? == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}
