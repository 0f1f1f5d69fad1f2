//! One suite for all engines, over all starting states; behaviour of an engine is tested here and nowhere else.
//!
//! A new engine is one more line at the end. What only redb's file can do (fail, be damaged, be shared) is in `faults`,
//! `files` and `sharing`.

mod faults;
mod files;
mod rules;
mod sharing;

use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

use super::{
    Engine, RowSet, Rows, SnapshotError,
    memory::Memory,
    redb::{Redb, RedbOptions},
};
use crate::error::ErrorKind;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// An engine in a file, without rows.
pub(crate) fn in_file(path: &Path) -> Box<dyn Engine> {
    Redb::create(path, &RowSet::new(), &RedbOptions::default()).unwrap();
    Box::new(Redb::open(path, RedbOptions::default()).unwrap())
}

type Reopen = Box<dyn Fn(Box<dyn Engine>) -> Box<dyn Engine>>;
type Start = fn(&mut Subject);

/// An engine, and the rows that it ought to hold.
struct Subject {
    engine: Box<dyn Engine>,
    expected: Map,
    /// Closes the engine and opens its rows again; does nothing for one that has no file.
    reopen: Reopen,
}

impl Subject {
    fn memory() -> Self {
        Self { engine: Box::new(Memory::new()), expected: Map::new(), reopen: Box::new(|engine| engine) }
    }

    fn redb() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.redb");
        let engine = in_file(&path);
        let reopen = move |engine: Box<dyn Engine>| -> Box<dyn Engine> {
            engine.close().unwrap();
            // The folder is held here so that it lives as long as the engine.
            Box::new(Redb::open(&folder.path().join("app.redb"), RedbOptions::default()).unwrap())
        };
        Self { engine, expected: Map::new(), reopen: Box::new(reopen) }
    }

    fn write(&mut self, rows: &RowSet) {
        self.engine.write(None, rows).unwrap();
        for (key, value) in rows {
            match value {
                Some(value) => self.expected.insert(key.clone(), value.clone()),
                None => self.expected.remove(key),
            };
        }
    }

    fn reopen(&mut self) {
        let engine = std::mem::replace(&mut self.engine, Box::new(Memory::new()));
        self.engine = (self.reopen)(engine);
    }

    fn snapshot(&self) -> Box<dyn Rows> {
        self.engine.snapshot().unwrap()
    }

    #[track_caller]
    fn assert_as_expected(&self) {
        assert!(all(&*self.snapshot()) == self.expected, "the rows are not those that were written");
    }
}

/// Each state that a test of the suite begins in.
const STARTS: [(&str, Start); 4] = [
    ("empty", |_| {}),
    ("with rows", |subject| subject.write(&puts(&[("b", "1"), ("d", "2"), ("f", "3"), ("zz", "4")]))),
    ("after overwrites and removes", |subject| {
        subject.write(&puts(&[("b", "1"), ("d", "2"), ("f", "3"), ("h", "4")]));
        subject.write(&change(&[("b", Some("new")), ("d", None), ("f", Some("")), ("absent", None)]));
    }),
    ("after a reopening", |subject| {
        subject.write(&puts(&[("b", "1"), ("d", "2")]));
        subject.reopen();
    }),
];

fn on_all_starts(subject: fn() -> Subject, test: Start) {
    for (name, start) in STARTS {
        eprintln!("start: {name}");
        let mut subject = subject();
        start(&mut subject);
        subject.assert_as_expected();
        test(&mut subject);
        subject.assert_as_expected();
        subject.reopen();
        subject.assert_as_expected();
        assert_eq!(subject.engine.check().unwrap(), Vec::<String>::new());
        subject.engine.close().unwrap();
    }
}

fn change(rows: &[(&str, Option<&str>)]) -> RowSet {
    rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()))).collect()
}

fn puts(rows: &[(&str, &str)]) -> RowSet {
    rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))).collect()
}

/// All rows whose keys are not empty and do not begin with eight bytes of 255.
fn all(rows: &dyn Rows) -> Map {
    between(rows, b"", &[255; 8]).into_iter().collect()
}

fn between(rows: &dyn Rows, start: &[u8], end: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    rows.visit(start, end, &mut |key, value| {
        seen.push((key.to_vec(), value.to_vec()));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    seen
}

#[track_caller]
fn failure(result: Result<Box<dyn Rows + Send>, SnapshotError>) -> (ErrorKind, String) {
    match result {
        Err(SnapshotError::Failed(error)) => (error.kind(), error.full_message()),
        Err(SnapshotError::NeedsRecovery) => panic!("recovery is asked for"),
        Ok(_) => panic!("there is a snapshot"),
    }
}

macro_rules! suite {
    ($($engine:ident)*) => {$(
        mod $engine {
            use super::{Subject, on_all_starts, rules};

            suite!(@tests $engine
                get_returns_what_was_put_and_nothing_for_an_absent_key
                overwrite_and_remove_take_effect
                visit_is_ordered_and_keeps_its_bounds
                visit_stops_at_break_and_at_an_error
                old_snapshot_does_not_see_later_writes
                write_of_nothing_changes_nothing
                large_value_is_kept
                ten_thousand_rows_are_kept
                snapshots_never_see_half_a_write
                random_writes_leave_what_they_should
            );
        }
    )*};
    (@tests $engine:ident $($test:ident)*) => {$(
        #[test]
        fn $test() {
            on_all_starts(Subject::$engine, rules::$test);
        }
    )*};
}

suite!(memory redb);
