//! Named locks in the model.

use std::collections::BTreeSet;

use super::model::{Model, Told};
use crate::{
    clock::Timestamp,
    store::{
        change::{Intent, Outcome},
        lock::{Fence, rules::Claimant},
    },
};

/// A lock that is held.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lock {
    /// Its holder, and then those who wait, in the order they came.
    pub(super) line: Vec<Claimant>,
    pub(super) fence: u64,
    pub(super) since: Timestamp,
}

impl Model {
    pub(super) fn change_locks(&mut self, intent: &Intent) -> Told {
        let (version, now) = (self.version + 1, self.now);
        Told::Is(match intent {
            Intent::Lock(request) => {
                let new = || Lock { line: vec![request.claimant], fence: version, since: now };
                let lock = self.locks.entry(request.name.clone()).or_insert_with(new);
                if request.waits && !lock.line.contains(&request.claimant) {
                    lock.line.push(request.claimant);
                }
                Outcome::Locked((lock.line[0] == request.claimant).then_some(Fence(lock.fence)))
            }
            Intent::Unlock { name, claimant } => {
                let was_held = self.locks.get(name).is_some_and(|lock| lock.line[0] == *claimant);
                self.leave(name, |other| other == claimant);
                Outcome::Unlocked { was_held }
            }
            Intent::FreeLocks(free) => {
                let is_of_session = |claimant: &Claimant| claimant.session == free.session;
                let has_one = |lock: &Lock| lock.line.iter().any(is_of_session);
                let named: BTreeSet<String> =
                    self.locks.iter().filter(|(_, lock)| has_one(lock)).map(|(name, _)| name.clone()).collect();
                named.iter().for_each(|name| self.leave(name, is_of_session));
                Outcome::LocksFreed { locks: named.len() }
            }
            _ => unreachable!("nothing else is about locks"),
        })
    }

    /// Takes claimants out of the line; whoever is first then, and was not before, has it under a new number.
    fn leave(&mut self, name: &str, leaves: impl Fn(&Claimant) -> bool) {
        let (version, now) = (self.version + 1, self.now);
        let Some(lock) = self.locks.get_mut(name) else { return };
        let holder = lock.line[0];
        lock.line.retain(|claimant| !leaves(claimant));
        match lock.line.first() {
            None => drop(self.locks.remove(name)),
            Some(first) if *first != holder => (lock.fence, lock.since) = (version, now),
            Some(_) => {}
        }
    }
}
