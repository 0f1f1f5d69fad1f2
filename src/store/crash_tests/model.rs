//! What a store ought to hold: the changes that were sent, what is known of each, and the rows that they make.

use std::{collections::HashMap, ops::ControlFlow, sync::Arc};

use crate::{
    clock::Timestamp,
    codec::{self, Payload},
    engine::{RowSet, Rows, Visit},
    error::Result,
    store::{
        apply::apply,
        change::{Change, Intent},
        conflict::Version,
        keys,
        object::{ObjectRecord, StoreRecord, Value},
        view::get_record,
    },
};

/// The time at which all of it happens.
pub(super) const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// What is known of a change that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Unknown,
    /// It was answered, or seen to be there.
    Committed,
    /// It was refused, or seen not to be there.
    Absent,
}

/// A change that was sent; its number is in it, so that it is known again.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) number: usize,
    pub(super) change: Arc<Change>,
    pub(super) fate: Fate,
}

/// All that was sent, in order.
pub(super) type History = Vec<Sent>;

/// Two objects far apart for each change: both are there, or none.
pub(super) fn marks(number: usize) -> [Intent; 2] {
    ["a", "z"].map(|side| {
        let value = Payload::json(&number).expect("a number is JSON");
        Intent::Put { key: format!("{side}/{number:06}"), value: Value::Plain(value) }
    })
}

/// The rows that changes make, one after the other.
#[derive(Clone, Default)]
struct State {
    rows: std::collections::BTreeMap<Vec<u8>, Vec<u8>>,
    version: Version,
}

/// The rows that ought to be there after changes in some order; remembered, as the same ones are asked for again.
#[derive(Default)]
pub(super) struct Model {
    states: HashMap<Vec<usize>, Arc<State>>,
}

/// How many orders are remembered.
const STATES_MAX: usize = 256;

impl Model {
    /// Tells what of the history is there, and settles what was unknown.
    ///
    /// # Panics
    /// Where something is lost, came back, is there by half, or the rows are not those that these changes make.
    pub(super) fn judge(&mut self, rows: &dyn Rows, history: &mut History) {
        let store: StoreRecord = get_record(rows, keys::STORE).unwrap().unwrap_or_default();
        let mut order: Vec<(Version, usize)> = Vec::new();
        for sent in history.iter_mut() {
            let [a, z] = ["a", "z"].map(|side| {
                let key = keys::root(&format!("{side}/{:06}", sent.number));
                get_record::<ObjectRecord>(rows, &key).unwrap().map(|object| object.version)
            });
            assert_eq!(a, z, "change {} is there by half", sent.number);
            let found = if a.is_some() { Fate::Committed } else { Fate::Absent };
            assert!(
                sent.fate == Fate::Unknown || sent.fate == found,
                "change {} was {:?}, and is {found:?}: INV-4, INV-5",
                sent.number,
                sent.fate
            );
            sent.fate = found;
            order.extend(a.map(|version| (version, sent.number)));
        }
        order.sort_unstable();
        let versions: Vec<u64> = order.iter().map(|(version, _)| version.0).collect();
        assert!(versions.iter().copied().eq(1..=store.version.0), "INV-2: {versions:?} up to {}", store.version);
        let order: Vec<usize> = order.into_iter().map(|(_, number)| number).collect();
        let expected = self.after(&order, history);
        let mut expected = expected.rows.iter();
        let clients = keys::clients();

        rows.visit(&[0], &[u8::MAX; 4], &mut |key, bytes| {
            // A2: what was sent to two writers has a row that says so, whatever else it does.
            let is_of_protocol = key == keys::FORMAT
                || key == keys::LOG
                || clients.start.as_slice() <= key && key < clients.end.as_slice();
            if !is_of_protocol {
                let next = expected.next();
                assert!(
                    next == Some((&key.to_vec(), &bytes.to_vec())),
                    "a row is not the one that the changes make: {key:?} instead of {:?}",
                    next.map(|(key, _)| key)
                );
            }
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(expected.next().map(|(key, _)| key), None, "a row is missing");
    }

    fn after(&mut self, order: &[usize], history: &History) -> Arc<State> {
        if let Some(state) = self.states.get(order) {
            return state.clone();
        }
        let Some((last, before)) = order.split_last() else { return Arc::new(State::made()) };
        let mut state = State::clone(&self.after(before, history));
        let sent = history.iter().find(|sent| sent.number == *last).expect("what is there was sent");
        state.apply(sent).expect("what was committed can be committed");
        let state = Arc::new(state);
        if self.states.len() >= STATES_MAX {
            self.states.clear();
        }
        self.states.insert(order.to_vec(), state.clone());
        state
    }
}

impl State {
    fn made() -> Self {
        let mut state = Self::default();
        let row = codec::encode(&StoreRecord::default()).unwrap();
        state.rows.insert(keys::STORE.to_vec(), row);
        state
    }

    fn apply(&mut self, sent: &Sent) -> Result<()> {
        let (applied, mut rows) = apply(&sent.change, &*self, self.version, NOW)?;
        self.version = applied.version.expect("each change has marks");
        let store = StoreRecord { version: self.version, stamp: NOW };
        rows.insert(keys::STORE.to_vec(), Some(codec::encode(&store)?));
        self.write(rows);
        Ok(())
    }

    fn write(&mut self, rows: RowSet) {
        for (key, value) in rows {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }
}

impl Rows for State {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.rows.get(key).cloned())
    }

    fn visit(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        for (key, bytes) in self.rows.range(start.to_vec()..end.to_vec()) {
            if visit(key, bytes)? == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}
