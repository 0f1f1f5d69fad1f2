//! Which jobs a claim gets next: a merge, by priority and place, of the lanes that are open to it. Reads the lane rows
//! of the queue and then only rows that it takes (and one more per lane), so what can't run costs nothing to skip
//! (S46). A lane of jobs with concurrency keys is read through its index: the first job of each key that lets one run.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    codec,
    engine::Rows,
    error::Result,
    queue::{chunks::Chunks, id::Place, keyed::KeyStateRecord, lane::Lane, moves::task, record::JobRecord, room::Room},
    store::{
        keys,
        view::{first_key, first_rows, get_record},
    },
};

/// The most bytes of jobs that one claim takes, so that its answer fits into a frame; a larger job is taken alone.
pub(crate) const CLAIM_BYTES_MAX: usize = 7 << 20;
/// How many rows of a lane are read at once where several are merged.
const CHUNK_ROWS: usize = 16;

/// The tasks that a claim can take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tasks {
    Any,
    /// Shared, since each claim of a worker names the same.
    Named(Arc<HashSet<String>>),
}

/// What a claim may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) tasks: Tasks,
    pub(crate) jobs_max: usize,
    /// P4: the claimer runs nothing, so that it may take a suspect job, alone.
    pub(crate) idle: bool,
}

/// What there is to take.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    pub(crate) jobs: Vec<JobRecord>,
    bytes: usize,
    /// The one job in `jobs` is suspect.
    pub(crate) alone: bool,
    /// A suspect job waits for a worker that is idle.
    pub(crate) suspects_wait: bool,
    /// The next job has to wait, so that nothing behind it is taken either.
    is_ended: bool,
}

impl Selection {
    fn is_full(&self, jobs_max: usize) -> bool {
        self.alone || self.is_ended || self.jobs.len() >= jobs_max
    }

    /// Whether a row of so many bytes may be added.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.jobs.is_empty() || self.bytes + bytes <= CLAIM_BYTES_MAX
    }

    /// Adds a job that was read from a row of so many bytes.
    pub(crate) fn take(&mut self, job: JobRecord, bytes: usize) {
        self.alone = job.suspect;
        self.bytes += bytes;
        self.jobs.push(job);
    }
}

/// Adds to a selection what a queue has to offer to whoever looks now.
pub(crate) fn select(
    rows: &dyn Rows,
    queue: &str,
    wanted: &Wanted,
    now: Timestamp,
    selection: &mut Selection,
) -> Result<()> {
    select_within(rows, queue, wanted, &Room::seen(rows, queue, now)?, selection)
}

/// Adds to a selection what a queue has to offer, and its limits leave room for.
pub(crate) fn select_within(
    rows: &dyn Rows,
    queue: &str,
    wanted: &Wanted,
    room: &Room,
    selection: &mut Selection,
) -> Result<()> {
    let room_jobs = usize::try_from(room.jobs).unwrap_or(usize::MAX);
    let jobs_max = wanted.jobs_max.min(selection.jobs.len().saturating_add(room_jobs));
    let mut offer = Offer { rows, queue, room, jobs_max, keys: HashMap::new() };
    let mut open = open_lanes(rows, queue, wanted)?.into_iter().peekable();
    while let Some(urgency) = open.peek().map(|lane| lane.urgency()) {
        if selection.is_full(jobs_max) {
            return Ok(());
        }
        let mut cursors = Vec::new();
        while let Some(lane) = open.next_if(|lane| lane.urgency() == urgency) {
            let mut cursor = Cursor::new(queue, lane);
            if cursor.jobs.peek(rows, jobs_max.min(CHUNK_ROWS))?.is_none() {
                continue;
            }
            if lane.suspect && !wanted.idle {
                selection.suspects_wait = true;
            } else {
                cursors.push(cursor);
            }
        }
        offer.merge(cursors, selection)?;
    }
    Ok(())
}

fn open_lanes(rows: &dyn Rows, queue: &str, wanted: &Wanted) -> Result<Vec<Lane>> {
    let mut lanes = Vec::new();
    for (key, _) in first_rows(rows, &keys::lanes(queue), usize::MAX)? {
        let Some((_, lane)) = keys::lane_of(&key) else { continue };
        let task = task(rows, lane.task)?;
        let is_known = match &wanted.tasks {
            Tasks::Any => true,
            Tasks::Named(names) => names.contains(&task.name),
        };
        if is_known && !task.paused {
            lanes.push(lane);
        }
    }
    Ok(lanes)
}

/// What one queue offers to one claim.
struct Offer<'a> {
    rows: &'a dyn Rows,
    queue: &'a str,
    room: &'a Room,
    jobs_max: usize,
    /// How many more jobs may be taken of the keys that were met.
    keys: HashMap<String, u32>,
}

impl Offer<'_> {
    fn merge(&mut self, mut cursors: Vec<Cursor>, selection: &mut Selection) -> Result<()> {
        let chunk = if cursors.len() == 1 { self.jobs_max } else { CHUNK_ROWS };
        while !selection.is_full(self.jobs_max) {
            let mut first: Option<(usize, Place)> = None;
            for (index, cursor) in cursors.iter_mut().enumerate() {
                if let Some(place) = cursor.peek(self.rows, chunk)?
                    && first.is_none_or(|(_, sooner)| place < sooner)
                {
                    first = Some((index, place));
                }
            }
            let Some((index, place)) = first else { return Ok(()) };
            let cursor = &mut cursors[index];
            let key = if cursor.lane.keyed { Some(cursor.key()) } else { None };
            if let Some(key) = &key
                && self.room_of(key)? == 0
            {
                // What was taken of its key is as much as may run.
                cursor.take(place);
                continue;
            }
            if cursor.lane.suspect && !selection.jobs.is_empty() {
                // P4: a suspect job is claimed alone; what comes before it goes first.
                selection.suspects_wait = true;
                selection.is_ended = true;
                return Ok(());
            }
            let keyed_row = match &key {
                Some(key) => self.rows.get(&keys::keyed(self.queue, key, cursor.lane, place))?,
                None => None,
            };
            if !selection.has_room(keyed_row.as_ref().map_or_else(|| cursor.jobs.front_bytes(), Vec::len)) {
                selection.is_ended = true;
                return Ok(());
            }
            let front = cursor.take(place);
            let bytes = if key.is_some() { keyed_row.unwrap_or_default() } else { front };
            // What this build can't read stays for one that can, and holds up nobody.
            let job = codec::decode::<JobRecord>(&bytes).ok();
            if let Some(key) = key {
                self.open_next(cursor, place, key, job.is_some())?;
            }
            if let Some(job) = job {
                selection.take(job, bytes.len());
            }
        }
        Ok(())
    }

    fn room_of(&mut self, key: &str) -> Result<u32> {
        if let Some(room) = self.keys.get(key) {
            return Ok(*room);
        }
        let state: KeyStateRecord = get_record(self.rows, &keys::key_state(self.queue, key))?.unwrap_or_default();
        let room = self.room.keys.running_max.saturating_sub(state.running);
        self.keys.insert(key.to_owned(), room);
        Ok(room)
    }

    /// Lets the key's next job in the lane be taken too, where the key lets one more run. By strict order that is for
    /// another claim: the next one may be in another lane.
    fn open_next(&mut self, cursor: &mut Cursor, place: Place, key: String, is_taken: bool) -> Result<()> {
        let is_strict = self.room.keys.is_strict;
        let room = self.keys.entry(key.clone()).or_default();
        *room = if is_strict { 0 } else { room.saturating_sub(u32::from(is_taken)) };
        if *room == 0 {
            return Ok(());
        }
        let row = keys::keyed(self.queue, &key, cursor.lane, place);
        let behind = keys::keyed_lane(self.queue, &key, cursor.lane).after(&row);
        if let Some(next) = first_key(self.rows, &behind)?.and_then(|next| keys::id_at_end(&next)) {
            cursor.opened.insert(next, key);
        }
        Ok(())
    }
}

/// The jobs of one lane; of one for jobs with keys, the entries that lead to them.
struct Cursor {
    lane: Lane,
    jobs: Chunks,
    /// The next jobs of keys of which one was taken, by their places.
    opened: BTreeMap<Place, String>,
}

impl Cursor {
    fn new(queue: &str, lane: Lane) -> Self {
        Self { lane, jobs: Chunks::new(keys::claimable_in(queue, lane)), opened: BTreeMap::new() }
    }

    fn peek(&mut self, rows: &dyn Rows, chunk: usize) -> Result<Option<Place>> {
        let next = self.jobs.peek(rows, chunk)?;
        Ok(next.into_iter().chain(self.opened.keys().next().copied()).min())
    }

    /// The key of the job that was peeked at.
    fn key(&self) -> String {
        let (jobs, opened) = (self.jobs.front(), self.opened.first_key_value());
        match (jobs, opened) {
            (Some((place, _)), Some((sooner, key))) if sooner < place => key.clone(),
            (Some((_, name)), _) => String::from_utf8_lossy(name).into_owned(),
            (None, Some((_, key))) => key.clone(),
            (None, None) => String::new(),
        }
    }

    /// The row at the place that was peeked at; nothing where that was opened.
    fn take(&mut self, place: Place) -> Vec<u8> {
        if self.opened.remove(&place).is_some() { Vec::new() } else { self.jobs.take() }
    }
}
