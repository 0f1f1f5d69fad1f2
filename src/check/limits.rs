//! Checking what the limits of queues rest on: the states of concurrency keys and the index that leads claims to their
//! jobs, against the jobs themselves; configurations and buckets of tokens.

use std::collections::{BTreeSet, HashMap};

use super::Check;
use crate::{
    codec::hex,
    error::Result,
    queue::{
        config::{ConfigRecord, config},
        id::{JobId, Place},
        keyed::{KeyStateRecord, openings_of},
        rate::BucketRecord,
        record::{Home, JobRecord},
        state::State,
    },
    store::{keys, view::for_each},
};

/// What the jobs of a concurrency key say of it.
#[derive(Default)]
pub(super) struct KeySeen {
    running: u32,
    /// The places of the scheduled ones.
    scheduled: BTreeSet<Place>,
    state: KeyStateRecord,
}

impl Check<'_> {
    pub(super) fn keyed(&mut self) -> Result<()> {
        self.each::<JobRecord>(&keys::all_keyed(), |check, key, job| check.job(key, Home::Ready, &job))
    }

    pub(super) fn note_key(&mut self, job: &JobRecord, state: State) {
        let Some(key) = job.key() else { return };
        let seen = self.keys.entry((job.queue.clone(), key.to_owned())).or_default();
        match state {
            State::Running => seen.running += 1,
            State::Scheduled => drop(seen.scheduled.insert(job.place)),
            _ => {}
        }
    }

    /// Each key's state counts what runs of it, and its entries in the index are those of the jobs that may be claimed.
    pub(super) fn keys(&mut self) -> Result<()> {
        self.each::<KeyStateRecord>(&keys::all_key_states(), |check, key, state| {
            match keys::key_of_state(key) {
                Some((queue, name)) => {
                    check.keys.entry((queue.to_owned(), name.to_owned())).or_default().state = state;
                }
                None => check.find(format!("the state of a concurrency key can't be read: {}", hex(key))),
            }
            Ok(())
        })?;
        let mut entries: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        for_each(self.rows, &keys::key_indexes(), |key, name| {
            entries.insert(key.to_vec(), name.to_vec());
            Ok(())
        })?;
        for (key, seen) in std::mem::take(&mut self.keys) {
            let (queue, name) = &key;
            if seen.state.running != seen.running {
                self.find(format!(
                    "key \"{name}\" of queue \"{queue}\" counts {} running jobs and has {} (INV-9)",
                    seen.state.running, seen.running
                ));
            }
            if seen.state.holding.iter().any(|place| !seen.scheduled.contains(place)) {
                self.find(format!("key \"{name}\" of queue \"{queue}\" is held back by a job that is not scheduled"));
            }
            let rules = config(self.rows, queue)?.unwrap_or_default().key_rules();
            for (lane, place) in openings_of(self.rows, &key, rules)? {
                let entry = entries.remove(&keys::key_index(queue, lane, place));
                if entry.as_deref() != Some(name.as_bytes()) {
                    let id: JobId = place;
                    self.find(format!("the job at {id} of key \"{name}\" may run, and no claim finds it (INV-1)"));
                }
                if !self.lanes.contains(&keys::lane(queue, lane)) {
                    self.find(format!(
                        "key \"{name}\" of queue \"{queue}\" has a job in a lane that has no row (INV-1)"
                    ));
                }
            }
        }
        for entry in entries.into_keys() {
            self.find(format!("an entry leads claims to a job that may not run: {}", hex(&entry)));
        }
        Ok(())
    }

    pub(super) fn buckets(&mut self) -> Result<()> {
        self.each::<ConfigRecord>(&keys::queue_configs(), |_, _, _| Ok(()))?;
        self.each::<BucketRecord>(&keys::buckets(), |check, key, _| {
            let queue = keys::root_name(key);
            if config(check.rows, &queue)?.is_none_or(|config| config.rate.is_none()) {
                check.find(format!("queue \"{queue}\" has tokens and no rate"));
            }
            Ok(())
        })
    }
}
