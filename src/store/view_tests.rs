//! The overlay reads as if its writes were in the rows below, whatever both hold.

use std::{collections::BTreeMap, ops::ControlFlow};

use proptest::prelude::*;

use super::view::{Overlay, first_rows};
use crate::{
    engine::{Engine, RowSet, Rows, memory::Memory},
    store::keys::{Range, prefixed},
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..3, 0..3)
}

fn found(rows: &dyn Rows, range: &Range, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    first_rows(rows, range, limit).unwrap()
}

proptest! {
    #[test]
    fn overlay_reads_as_if_its_writes_were_below(
        below in prop::collection::btree_map(keys(), any::<u8>().prop_map(|byte| vec![byte]), 0..8),
        writes in prop::collection::vec((keys(), prop::option::of(any::<u8>().prop_map(|byte| vec![byte]))), 0..8),
        bounds in (keys(), keys()),
        limit in 0usize..6,
    ) {
        let engine = Memory::new();
        let rows: RowSet = below.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
        engine.write(None, &rows).unwrap();
        let latest = engine.latest().unwrap();
        let mut overlay = Overlay::new(latest.as_ref());
        let mut expected: Map = below;
        for (key, value) in writes {
            if let Some(value) = value {
                overlay.put(key.clone(), value.clone());
                expected.insert(key, value);
            } else {
                overlay.remove(key.clone());
                expected.remove(&key);
            }
        }
        let inside = |range: &Range| -> Vec<(Vec<u8>, Vec<u8>)> {
            let all = expected.iter().filter(|(key, _)| **key >= range.start && **key < range.end);
            all.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let (start, end) = bounds;
        for range in [Range { start, end }, Range { start: vec![], end: vec![9] }, prefixed(vec![1])] {
            let all = inside(&range);
            prop_assert_eq!(&found(&overlay, &range, usize::MAX), &all);
            prop_assert_eq!(found(&overlay, &range, limit), all.into_iter().take(limit).collect::<Vec<_>>());
        }
        for (key, value) in &expected {
            prop_assert_eq!(overlay.get(key).unwrap(), Some(value.clone()));
        }
        let mut errors = 0;
        let result = overlay.visit(&[], &[9], &mut |_, _| {
            errors += 1;
            if errors > 1 { Err(crate::error::Error::invalid("stop")) } else { Ok(ControlFlow::Continue(())) }
        });
        prop_assert_eq!(result.is_err(), expected.len() > 1, "what the visitor says ends the visit");
    }
}
