//! What jobs have to do with each other, and by what else they are found: each row of it names a job that says so too.

use std::collections::{HashMap, HashSet};

use super::{Check, Finding};
use crate::{
    codec::hex,
    engine::Rows,
    error::Result,
    queue::{depend::End, extra::WaitsRecord, id::JobId, state::State},
    store::{
        keys,
        view::{first_rows, for_each},
    },
};

impl Check<'_> {
    /// The jobs that wait, and what they wait for.
    pub(super) fn dependents(&mut self) -> Result<()> {
        let rows = self.rows;
        let mut pending: HashMap<JobId, u32> = HashMap::new();
        for_each(rows, &keys::all_dependents(), |key, _| {
            let Some((on, waiter)) = keys::waited_for(key).zip(keys::id_at_end(key)) else {
                self.find(format!("the row of a job that waits for another can't be read: {}", hex(key)));
                return Ok(());
            };
            *pending.entry(waiter).or_default() += 1;
            let knows = self.jobs.get(&on).is_some_and(|job| job.has_dependents && !job.state.is_final());
            if !knows && rows.get(&keys::untold(on))?.is_none() {
                self.find(format!("job {waiter} waits for job {on}, whose end it is not told of"));
            }
            Ok(())
        })?;
        let mut counted = HashSet::new();
        self.each::<WaitsRecord>(&keys::waits(), |check, key, waits| {
            let id = keys::id_at_end(key).filter(|id| check.is_waiting(*id));
            let Some(id) = id else {
                check.find(format!("a row says what a job waits for, and none waits: {}", hex(key)));
                return Ok(());
            };
            counted.insert(id);
            let found = pending.get(&id).copied().unwrap_or_default();
            if waits.pending != found {
                check.find(format!("job {id} counts {} jobs that it waits for, and waits for {found}", waits.pending));
            }
            if waits.is_over() || waits.has_failed() {
                check.find(format!(
                    "job {id} waits, though what it waits for has ended; `casque seal {id}` has it go on"
                ));
            }
            Ok(())
        })?;
        let uncounted = self.jobs.iter().filter(|(id, job)| job.state == State::Waiting && !counted.contains(id));
        let uncounted: Vec<String> =
            uncounted.map(|(id, _)| format!("job {id} waits, and no row says what for")).collect();
        self.find_all(uncounted);
        Ok(())
    }

    fn is_waiting(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.state == State::Waiting)
    }

    /// What is wrong with the entry of an ended job whose dependents were not all told.
    pub(super) fn untold(rows: &dyn Rows, key: &[u8], bytes: &[u8]) -> Result<Option<String>> {
        let ended = keys::id_at_end(key).filter(|_| End::from_bytes(bytes).is_some());
        let has_dependents = match ended {
            Some(ended) => !first_rows(rows, &keys::dependents(ended), 1)?.is_empty(),
            None => false,
        };
        Ok((!has_dependents).then(|| format!("an entry tells of an end that nobody waits for: {}", hex(key))))
    }

    /// The references of transactions to jobs.
    pub(super) fn refs(&mut self) -> Result<()> {
        let mut found = HashMap::new();
        for_each(self.rows, &keys::job_refs(), |key, bytes| {
            found.insert(key.to_vec(), JobId::from_bytes(bytes));
            Ok(())
        })?;
        for (id, job) in &self.jobs {
            for key in &job.refs {
                if found.remove(key) != Some(Some(*id)) {
                    self.findings.push(Finding(format!("job {id} is not found by a reference to it: {}", hex(key))));
                }
            }
        }
        self.find_all(
            found.keys().map(|key| format!("a reference leads to no job that has it: {}", hex(key))).collect(),
        );
        Ok(())
    }
}
