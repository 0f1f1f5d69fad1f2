//! Unique keys: each row names a job that holds it, and each job that must hold one does.

use std::collections::HashMap;

use super::{Check, hex};
use crate::{
    error::Result,
    queue::{record::JobRecord, state::State, unique::Holder},
    store::{keys, view::for_each},
};

/// The unique key that a job has in a state in which it may hold it.
pub(super) struct Claim {
    row: Vec<u8>,
    holder: Holder,
    /// It has held it since it was enqueued, and can't have lost it.
    must_hold: bool,
}

impl Claim {
    pub(super) fn of(job: &JobRecord, state: State) -> Option<Self> {
        let unique = job.unique().filter(|unique| unique.states.contains(state))?;
        Some(Self {
            row: unique.row_of(&job.queue),
            holder: Holder { job: job.id, until: unique.until },
            must_hold: unique.is_held_to_the_end(),
        })
    }
}

impl Check<'_> {
    pub(super) fn uniques(&mut self) -> Result<()> {
        let mut holders = HashMap::new();
        for_each(self.rows, &keys::uniques(), |key, bytes| {
            holders.insert(key.to_vec(), Holder::from_bytes(bytes));
            Ok(())
        })?;
        let mut wrong = Vec::new();
        for (key, holder) in &holders {
            let claim = holder.and_then(|holder| self.jobs.get(&holder.job)).and_then(|job| job.unique.as_ref());
            if claim.is_none_or(|claim| claim.row != *key || Some(claim.holder) != *holder) {
                wrong.push(format!("a unique key is held by no job that has it: {}", hex(key)));
            }
        }
        for claim in self.jobs.values().filter_map(|job| job.unique.as_ref()).filter(|claim| claim.must_hold) {
            if holders.get(&claim.row) != Some(&Some(claim.holder)) {
                wrong.push(format!("job {} does not hold its unique key", claim.holder.job));
            }
        }
        self.find_all(wrong);
        Ok(())
    }
}
