//! Which jobs a claim gets next: a merge, by priority and place, of the lanes that are open to it. Reads the lane rows
//! of the queue and then only rows that it takes (and one more per lane), so what can't run costs nothing to skip
//! (S46).

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::{
    codec,
    engine::Rows,
    error::Result,
    queue::{chunks::Chunks, id::Place, lane::Lane, moves::task, record::JobRecord},
    store::{keys, view::first_rows},
};

/// The most bytes of jobs that one claim takes, so that its answer fits into a frame; a larger job is taken alone.
pub(crate) const CLAIM_BYTES_MAX: usize = 7 << 20;
/// How many rows of a lane are read at once where several are merged.
const CHUNK_ROWS: usize = 16;

/// The tasks that a claim can take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tasks {
    Any,
    Named(HashSet<String>),
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
    fn is_full(&self, wanted: &Wanted) -> bool {
        self.alone || self.is_ended || self.jobs.len() >= wanted.jobs_max
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

/// Adds to a selection what a queue has to offer.
pub(crate) fn select(rows: &dyn Rows, queue: &str, wanted: &Wanted, selection: &mut Selection) -> Result<()> {
    let mut open = open_lanes(rows, queue, wanted)?.into_iter().peekable();
    while let Some(urgency) = open.peek().map(|lane| lane.urgency()) {
        if selection.is_full(wanted) {
            return Ok(());
        }
        let mut cursors = Vec::new();
        while let Some(lane) = open.next_if(|lane| lane.urgency() == urgency) {
            let mut cursor = Cursor::new(queue, lane);
            if cursor.jobs.peek(rows, wanted.jobs_max.min(CHUNK_ROWS))?.is_none() {
                continue;
            }
            if lane.suspect && !wanted.idle {
                selection.suspects_wait = true;
            } else {
                cursors.push(cursor);
            }
        }
        merge(rows, cursors, wanted, selection)?;
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

fn merge(rows: &dyn Rows, mut cursors: Vec<Cursor>, wanted: &Wanted, selection: &mut Selection) -> Result<()> {
    let chunk = if cursors.len() == 1 { wanted.jobs_max } else { CHUNK_ROWS };
    while !selection.is_full(wanted) {
        let mut first: Option<(usize, Place)> = None;
        for (index, cursor) in cursors.iter_mut().enumerate() {
            if let Some(place) = cursor.jobs.peek(rows, chunk)?
                && first.is_none_or(|(_, sooner)| place < sooner)
            {
                first = Some((index, place));
            }
        }
        let Some((index, _)) = first else { return Ok(()) };
        if cursors[index].lane.suspect && !selection.jobs.is_empty() {
            // P4: a suspect job is claimed alone; what comes before it goes first.
            selection.suspects_wait = true;
            selection.is_ended = true;
            return Ok(());
        }
        if !selection.has_room(cursors[index].jobs.front_bytes()) {
            selection.is_ended = true;
            return Ok(());
        }
        let bytes = cursors[index].jobs.take();
        // What this build can't read stays for one that can, and holds up nobody.
        if let Ok(job) = codec::decode::<JobRecord>(&bytes) {
            selection.take(job, bytes.len());
        }
    }
    Ok(())
}

/// The jobs of one lane.
struct Cursor {
    lane: Lane,
    jobs: Chunks,
}

impl Cursor {
    fn new(queue: &str, lane: Lane) -> Self {
        Self { lane, jobs: Chunks::new(keys::ready_lane(queue, lane)) }
    }
}
