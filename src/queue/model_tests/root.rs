//! The root in the model, and what a change may rely on.

use std::collections::BTreeMap;

use super::model::{Model, Told};
use crate::{
    codec::Digest,
    error::ErrorKind,
    queue::state::State,
    store::{
        apply::digest_object,
        change::{Candidate, Guard, Intent, Outcome},
        conflict::Version,
        keys,
        object::Value,
    },
};

/// An object: its value, and the version of the change that wrote it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    pub(super) value: Value,
    pub(super) version: u64,
}

/// The guard of a transaction that has read all objects whose keys begin so.
pub(super) fn range_guard(root: &BTreeMap<String, Object>, prefix: &str, read: Version) -> Guard {
    let range = keys::roots(prefix);
    let mut digest = Digest::new();
    for (key, object) in root.iter().filter(|(key, _)| key.starts_with(prefix)) {
        digest_object(&mut digest, &keys::root(key), Version(object.version));
    }
    Guard::Range { prefix: prefix.to_owned(), start: range.start, end: range.end, digest, read }
}

impl Model {
    pub(super) fn write(&mut self, intent: &Intent) -> Result<Told, ErrorKind> {
        let version = self.version + 1;
        match intent {
            Intent::Put { key, value } => {
                self.root.insert(key.clone(), Object { value: value.clone(), version });
            }
            Intent::Remove { key } => {
                self.root.remove(key);
            }
            Intent::Add { key, delta } => {
                let before = match self.root.get(key).map(|object| &object.value) {
                    None => 0,
                    Some(Value::Counter(count)) => *count,
                    Some(Value::Plain(_)) => return Err(ErrorKind::Invalid),
                };
                let after = before.checked_add(*delta).ok_or(ErrorKind::Invalid)?;
                self.root.insert(key.clone(), Object { value: Value::Counter(after), version });
            }
            _ => unreachable!("nothing else writes to the root"),
        }
        Ok(Told::Is(Outcome::Done))
    }

    /// Whether what a change relies on is still so.
    pub(super) fn check(&self, guard: &Guard) -> Result<(), ErrorKind> {
        let (holds, otherwise) = match guard {
            Guard::Object { key, version } => {
                let found = self.root.get(key).map(|object| object.version);
                (found == version.map(|version| version.0), ErrorKind::Conflict)
            }
            Guard::Range { prefix, read, .. } => {
                (range_guard(&self.root, prefix, *read) == *guard, ErrorKind::Conflict)
            }
            Guard::Queue { queue, version, shifted } => {
                let head = self.queues[queue].head.expect("it was looked at");
                let is_there = |candidate: &Candidate| {
                    let seen = &self.seen[&candidate.key];
                    let found = self.jobs.get(&seen.job);
                    found.is_some_and(|job| job.state == State::Ready && job.signature() == *seen)
                };
                (head == version.0 && shifted.iter().all(is_there), ErrorKind::Conflict)
            }
            Guard::Lock { name, fence } => {
                let lock = self.locks.get(name);
                (lock.is_some_and(|lock| lock.fence == fence.0), ErrorKind::LeaseLost)
            }
        };
        if holds { Ok(()) } else { Err(otherwise) }
    }
}
