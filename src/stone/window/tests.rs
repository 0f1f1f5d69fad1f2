//! Windows show what was put last, whatever layer it is in, and never forget a row for a gap that was remembered.

use proptest::prelude::*;

use super::*;
use crate::{
    clock::{Timestamp, monotonic},
    engine::{Engine as _, memory::Memory},
    store::conflict::Version,
};

fn site(rows: &[u8]) -> Site {
    let engine = Memory::new();
    let first: RowSet = rows.iter().map(|number| (key(*number), Some(vec![*number]))).collect();
    engine.write(None, &first).unwrap();
    Site::in_memory(Box::new(engine))
}

/// Keys of ready jobs, since gaps are remembered among those only.
fn key(number: u8) -> Vec<u8> {
    let mut key = keys::all_ready().start;
    key.push(number);
    key
}

fn record(version: u64) -> StoreRecord {
    StoreRecord { version: Version(version), stamp: Timestamp::from_millis(0) }
}

fn visible(window: &Window, from: u8) -> Vec<u8> {
    let mut found = Vec::new();
    window
        .visit(&key(from), &keys::all_ready().end, &mut |key, _| {
            found.push(*key.last().unwrap());
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
    found
}

fn first(window: &Window, from: u8) -> Option<u8> {
    let mut found = None;
    window
        .visit(&key(from), &keys::all_ready().end, &mut |key, _| {
            found = key.last().copied();
            Ok(std::ops::ControlFlow::Break(()))
        })
        .unwrap();
    found
}

#[test]
fn row_is_that_of_the_newest_window_that_has_it() {
    let site = site(&[1, 2, 3]);
    let mut window = Window::open(&site).unwrap();
    window.absorb(RowSet::from([(key(1), None), (key(4), Some(vec![4]))]), record(1), monotonic());
    let frozen = window.freeze();
    assert_eq!((frozen.before.version, frozen.after.version), (Version(0), Version(1)));
    window.absorb(RowSet::from([(key(2), None), (key(1), Some(vec![9]))]), record(2), monotonic());
    assert_eq!(visible(&window, 0), [1, 3, 4]);
    assert_eq!(window.get(&key(1)).unwrap(), Some(vec![9]));
    assert_eq!(window.get(&key(2)).unwrap(), None);
    assert_eq!(window.get(&key(4)).unwrap(), Some(vec![4]));
}

#[test]
fn window_in_the_file_makes_room_for_the_next() {
    let site = site(&[1]);
    let mut window = Window::open(&site).unwrap();
    let mut rows = RowSet::from([(key(2), Some(vec![2]))]);
    rows.insert(keys::STORE.to_vec(), Some(crate::codec::encode(&record(1)).unwrap()));
    window.absorb(rows, record(1), monotonic());
    let frozen = window.freeze();
    assert!(window.is_flushing() && !window.has_rows());
    site.engine.write(None, &frozen.rows).unwrap();
    window.thaw(&site).unwrap();
    assert!(!window.is_flushing());
    assert_eq!(window.version_in_file(), Version(1));
    assert_eq!(visible(&window, 0), [1, 2]);
}

proptest! {
    #[test]
    fn no_row_is_lost_in_a_gap(steps in prop::collection::vec((0u8..4, 0u8..24), 1..120)) {
        let site = site(&[3, 7, 11, 19]);
        let mut window = Window::open(&site).unwrap();
        let mut model: std::collections::BTreeSet<u8> = [3, 7, 11, 19].into();
        let mut version = 0;
        for (step, number) in steps {
            version += 1;
            match step {
                0 => {
                    window.absorb(RowSet::from([(key(number), Some(vec![number]))]), record(version), monotonic());
                    model.insert(number);
                }
                1 => {
                    window.absorb(RowSet::from([(key(number), None)]), record(version), monotonic());
                    model.remove(&number);
                }
                2 => prop_assert_eq!(first(&window, number), model.range(number..).next().copied()),
                _ if !window.is_flushing() => drop(window.freeze()),
                _ => prop_assert_eq!(visible(&window, number), model.range(number..).copied().collect::<Vec<_>>()),
            }
        }
    }
}
