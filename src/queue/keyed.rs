//! Concurrency keys: how many jobs of one key run at once, and in which order. The first job of each lane of a key has
//! an entry in the index that claims read, only while it may be claimed: what is behind it, or may not run now, costs a
//! claim nothing (S46).
//!
//! Moves note what they change of a key; `settle_keys` then brings the key's state and its entries up to that.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    codec::Record,
    engine::Rows,
    error::Result,
    queue::{config::ConfigRecord, id::Place, lane::Lane, record::JobRecord},
    store::{
        apply::Context,
        keys::{self, Range},
        view::{first_key, for_each, get_record, inconsistent},
    },
};

/// How many jobs of one key run at once where nothing is configured.
pub(crate) const KEY_RUNNING_MAX_DEFAULT: u32 = 1;

/// What runs of a key, and what is held back: a row only while there is any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyStateRecord {
    pub(crate) running: u32,
    /// The places, in order, of scheduled jobs that are to run again before those behind them.
    pub(crate) holding: Vec<Place>,
}

impl Record for KeyStateRecord {
    const NAME: &'static str = "state of a concurrency key";

    fn validate(&self) -> Result<(), &'static str> {
        if self.is_idle() {
            return Err("nothing of its key runs or holds others back");
        }
        if self.holding.is_sorted_by(|one, next| one < next) { Ok(()) } else { Err("its places are not in order") }
    }
}

impl KeyStateRecord {
    pub(crate) fn is_idle(&self) -> bool {
        self.running == 0 && self.holding.is_empty()
    }
}

/// How the jobs of one key run in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRules {
    pub(crate) running_max: u32,
    /// In the order of their places, whatever their priorities.
    pub(crate) is_strict: bool,
}

impl ConfigRecord {
    pub(crate) fn key_rules(&self) -> KeyRules {
        KeyRules {
            running_max: self.key_running_max.unwrap_or(KEY_RUNNING_MAX_DEFAULT),
            is_strict: self.is_strict_by_key,
        }
    }
}

/// The lane and place of a job that may be claimed.
pub(crate) type Opening = (Lane, Place);

/// A key of a queue.
pub(crate) type QueueKey = (String, String);

/// The keys that a change touches.
#[derive(Clone, Default)]
pub(crate) struct KeysTouched {
    /// What was not settled yet.
    moves: BTreeMap<QueueKey, KeyMoves>,
    /// The entries of the keys that were settled before.
    openings: BTreeMap<QueueKey, Vec<Opening>>,
}

/// What became of the jobs of a key.
#[derive(Clone, Default)]
struct KeyMoves {
    running: i64,
    /// Places that hold others back from now on, or no longer do.
    holding: BTreeMap<Place, bool>,
}

impl Context<'_> {
    fn key_moves(&mut self, job: &JobRecord) -> Option<&mut KeyMoves> {
        let name = job.key()?.to_owned();
        let key = (job.queue.clone(), name);
        Some(self.keys.moves.entry(key).or_default())
    }

    /// A job with a key became ready, or is no longer.
    pub(crate) fn note_key(&mut self, job: &JobRecord) {
        self.key_moves(job);
    }

    /// One more or less of its key runs.
    pub(crate) fn note_key_running(&mut self, job: &JobRecord, more: i64) {
        if let Some(moves) = self.key_moves(job) {
            moves.running += more;
        }
    }

    /// A scheduled job that ran before is to run again before those behind it.
    pub(crate) fn hold_key_back(&mut self, job: &JobRecord) -> Result<()> {
        if job.key().is_some() && self.config(&job.queue)?.is_strict_by_key {
            self.note_key_holding(job, true);
        }
        Ok(())
    }

    pub(crate) fn note_key_holding(&mut self, job: &JobRecord, holds: bool) {
        if let Some(moves) = self.key_moves(job) {
            moves.holding.insert(job.place, holds);
        }
    }

    /// Whether a scheduled job keeps those behind it from running.
    pub(crate) fn holds_key_back(&mut self, job: &JobRecord) -> Result<bool> {
        let Some(key) = job.key() else { return Ok(false) };
        self.settle_keys()?;
        let state: Option<KeyStateRecord> = get_record(&self.rows, &keys::key_state(&job.queue, key))?;
        Ok(state.is_some_and(|state| state.holding.contains(&job.place)))
    }

    /// Whether a ready job's key, where it has one, lets it run now. By strict order only the first of a key's jobs is
    /// let run.
    pub(crate) fn key_lets_run(&mut self, job: &JobRecord, rules: KeyRules) -> Result<bool> {
        let Some(key) = job.key() else { return Ok(true) };
        self.settle_keys()?;
        if rules.is_strict {
            let openings = openings_of(&self.rows, &(job.queue.clone(), key.to_owned()), rules)?;
            return Ok(openings.contains(&(job.lane(), job.place)));
        }
        let state: Option<KeyStateRecord> = get_record(&self.rows, &keys::key_state(&job.queue, key))?;
        Ok(state.is_none_or(|state| state.running < rules.running_max))
    }

    /// Brings the states and the entries of all keys that were touched up to what became of their jobs.
    pub(crate) fn settle_keys(&mut self) -> Result<()> {
        for (key, moves) in std::mem::take(&mut self.keys.moves) {
            let rules = self.config(&key.0)?.key_rules();
            let openings = match self.keys.openings.remove(&key) {
                Some(openings) => openings,
                None => openings_of(self.rows.below(), &key, rules)?,
            };
            let row = keys::key_state(&key.0, &key.1);
            let before: KeyStateRecord = get_record(&self.rows, &row)?.unwrap_or_default();
            let after = before.clone().moved(&key, &moves)?;
            if after.is_idle() {
                if !before.is_idle() {
                    self.rows.remove(row);
                }
            } else if after != before {
                self.rows.put_record(row, &after)?;
            }
            self.reopen(key, &openings, rules)?;
        }
        Ok(())
    }

    /// Changes a key's entries from what they were to what they have to be.
    fn reopen(&mut self, key: QueueKey, before: &[Opening], rules: KeyRules) -> Result<()> {
        let after = openings_of(&self.rows, &key, rules)?;
        let (queue, name) = &key;
        for (lane, place) in before.iter().filter(|opening| !after.contains(opening)) {
            self.rows.remove(keys::key_index(queue, *lane, *place));
        }
        for (lane, place) in after.iter().filter(|opening| !before.contains(opening)) {
            self.rows.put(keys::key_index(queue, *lane, *place), name.as_bytes().to_vec());
            self.note_lane(queue, *lane)?;
        }
        self.keys.openings.insert(key, after);
        Ok(())
    }

    /// Other rules for the keys of a queue. Looks at the keys of which something runs or is held back; where the order
    /// is another, at all that have ready jobs.
    pub(crate) fn change_key_rules(&mut self, queue: &str, before: KeyRules, after: KeyRules) -> Result<()> {
        let mut names = std::collections::BTreeSet::new();
        for_each(&self.rows, &keys::key_states(queue), |key, _| {
            names.extend(keys::key_of_state(key).map(|(_, name)| name.to_owned()));
            Ok(())
        })?;
        if before.is_strict != after.is_strict {
            names.extend(names_with_ready_jobs(&self.rows, queue)?);
        }
        for name in names {
            let key = (queue.to_owned(), name);
            let openings = openings_of(&self.rows, &key, before)?;
            self.reopen(key, &openings, after)?;
        }
        Ok(())
    }
}

impl KeyStateRecord {
    fn moved(mut self, (queue, name): &QueueKey, moves: &KeyMoves) -> Result<Self> {
        let too_few = || inconsistent(format!("key \"{name}\" of queue \"{queue}\" counts too few running jobs"));
        self.running =
            u32::try_from(i64::from(self.running) + moves.running).map_err(|error| too_few().because(error))?;
        for (place, holds) in &moves.holding {
            match (self.holding.binary_search(place), holds) {
                (Err(index), true) => self.holding.insert(index, *place),
                (Ok(index), false) => drop(self.holding.remove(index)),
                (Ok(_), true) | (Err(_), false) => {}
            }
        }
        Ok(self)
    }

    /// Whether a job at this place waits for one before it.
    pub(crate) fn holds_back(&self, place: Place) -> bool {
        self.holding.first().is_some_and(|first| *first < place)
    }
}

/// The jobs of a key that may be claimed next: the first of each lane; by strict order only the first of all. Reads the
/// key's state, and one row of each lane where the key lets a job run.
pub(crate) fn openings_of(rows: &dyn Rows, (queue, name): &QueueKey, rules: KeyRules) -> Result<Vec<Opening>> {
    let state: KeyStateRecord = get_record(rows, &keys::key_state(queue, name))?.unwrap_or_default();
    if state.running >= rules.running_max {
        return Ok(Vec::new());
    }
    let mut openings = Vec::new();
    let mut rest = keys::keyed_jobs(queue, name);
    while let Some(key) = first_key(rows, &rest)? {
        let (Some(lane), Some(place)) = (keys::keyed_lane_of(&key), keys::id_at_end(&key)) else {
            return Err(inconsistent(format!("a row of key \"{name}\" of queue \"{queue}\" names no job")));
        };
        openings.push((lane, place));
        rest = Range { start: keys::keyed_lane(queue, name, lane).end, end: rest.end };
    }
    if rules.is_strict {
        let first = openings.into_iter().min_by_key(|(_, place)| *place);
        openings = first.into_iter().filter(|(_, place)| !state.holds_back(*place)).collect();
    }
    Ok(openings)
}

/// The keys of a queue that have ready jobs: reads one row of each.
fn names_with_ready_jobs(rows: &dyn Rows, queue: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = keys::keyed_of_queue(queue);
    while let Some(key) = first_key(rows, &rest)? {
        let Some(name) = keys::key_of_keyed(&key) else {
            return Err(inconsistent(format!("a keyed row of queue \"{queue}\" names no key")));
        };
        rest = Range { start: keys::keyed_jobs(queue, name).end, end: rest.end };
        names.push(name.to_owned());
    }
    Ok(names)
}
