//! Listing jobs in order of their ids, by a merge of the families they are in. Reads what it gives, what its filter
//! skips, and one row more per family and lane.

use crate::{
    codec,
    engine::Rows,
    error::Result,
    queue::{
        JobInfo,
        chunks::Chunks,
        depend::with_waits,
        id::JobId,
        moves::find,
        record::{Home, JobRecord},
        state::State,
    },
    store::{
        keys::{self, ById, Range},
        view::{first_key, first_rows},
    },
};

/// How many rows of a family are read at once.
const CHUNK_ROWS: usize = 64;

/// Which jobs to list.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct JobFilter {
    queue: Option<String>,
    state: Option<State>,
    task: Option<String>,
    after: Option<JobId>,
}

impl JobFilter {
    /// All jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only those of a queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Only those in a state.
    pub fn state(mut self, state: State) -> Self {
        self.state = Some(state);
        self
    }

    /// Only those of a task.
    pub fn task(mut self, task: impl Into<String>) -> Self {
        self.task = Some(task.into());
        self
    }

    /// Only those that stand behind this one: the next page, after the last job of the one before.
    pub fn after(mut self, id: JobId) -> Self {
        self.after = Some(id);
        self
    }

    pub(crate) fn only_queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    pub(crate) fn only_state(&self) -> Option<State> {
        self.state
    }

    pub(crate) fn only_task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    fn admits(&self, job: &JobInfo) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == job.queue)
            && self.state.is_none_or(|state| state == job.state)
            && self.task.as_ref().is_none_or(|task| *task == job.task)
    }
}

/// The first `limit` jobs that the filter admits. A requeued job stands where its place is; with a concurrency key,
/// at its id.
pub(crate) fn list(rows: &dyn Rows, filter: &JobFilter, limit: usize) -> Result<Vec<JobInfo>> {
    let mut sources = sources(rows, filter)?;
    let mut listed = Vec::new();
    while listed.len() < limit {
        let mut first: Option<(usize, JobId)> = None;
        for (index, source) in sources.iter_mut().enumerate() {
            if let Some(id) = source.jobs.peek(rows, CHUNK_ROWS)?
                && first.is_none_or(|(_, sooner)| id < sooner)
            {
                first = Some((index, id));
            }
        }
        let Some((index, _)) = first else { break };
        let source = &mut sources[index];
        let mut bytes = source.jobs.take();
        if source.is_by_key {
            // A requeued job without a concurrency key has its place there, and is listed by that.
            let queue =
                keys::ready_queue(&bytes).filter(|queue| filter.queue.as_ref().is_none_or(|only| only == queue));
            let Some(row) = queue.map(|_| rows.get(&bytes)).transpose()?.flatten() else { continue };
            bytes = row;
        }
        // S28: a row that this build can't read is told of by `check`, and does not end the listing.
        let Ok(record) = codec::decode::<JobRecord>(&bytes) else { continue };
        let job = JobInfo::of(rows, source.home, with_waits(rows, source.home, record)?)?;
        if filter.admits(&job) {
            listed.push(job);
        }
    }
    Ok(listed)
}

/// The jobs of one family, or of one lane.
struct Source {
    home: Home,
    jobs: Chunks,
    /// Its rows lead to the ready jobs that have concurrency keys.
    is_by_key: bool,
}

impl Source {
    fn new(home: Home, range: Range) -> Self {
        Self { home, jobs: Chunks::new(range), is_by_key: false }
    }
}

fn sources(rows: &dyn Rows, filter: &JobFilter) -> Result<Vec<Source>> {
    let after = filter.after.map(|after| place_of(rows, after)).transpose()?;
    let wants = |states: &[State]| filter.state.is_none_or(|state| states.contains(&state));
    let mut sources = Vec::new();
    for (family, states) in [
        (ById::Held, &[State::Running][..]),
        (ById::Due, &[State::Scheduled]),
        (ById::Waiting, &[State::Waiting]),
        (ById::Finished, &[State::Completed, State::Cancelled]),
        (ById::Dead, &[State::Dead]),
    ] {
        if wants(states) {
            let range = match after {
                Some(after) => family.all().after(&family.key(after)),
                None => family.all(),
            };
            sources.push(Source::new(Home::ById(family), range));
        }
    }
    if wants(&[State::Ready]) {
        for (key, _) in first_rows(rows, &keys::all_lanes(), usize::MAX)? {
            let Some((queue, lane)) = keys::lane_of(&key).filter(|(_, lane)| !lane.keyed) else { continue };
            if filter.queue.as_ref().is_some_and(|wanted| *wanted != queue) {
                continue;
            }
            let range = match after {
                Some(after) => keys::ready_lane(&queue, lane).after(&keys::ready(&queue, lane, after)),
                None => keys::ready_lane(&queue, lane),
            };
            sources.push(Source::new(Home::Ready, range));
        }
        let keyed = filter.queue.as_ref().map_or_else(keys::all_keyed, |queue| keys::keyed_of_queue(queue));
        if first_key(rows, &keyed)?.is_some() {
            let range = match after {
                Some(after) => keys::places().after(&keys::place(after)),
                None => keys::places(),
            };
            sources.push(Source { is_by_key: true, ..Source::new(Home::Ready, range) });
        }
    }
    Ok(sources)
}

/// Where a job stands in a listing: at its id; where it is ready and has no concurrency key, at its place, which a
/// requeue renews.
fn place_of(rows: &dyn Rows, job: JobId) -> Result<JobId> {
    Ok(match find(rows, job)? {
        Some((Home::Ready, record)) if record.key().is_none() => record.place,
        _ => job,
    })
}
