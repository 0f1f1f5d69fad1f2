//! Unique keys: which job holds one, from when, and until when. A key's row names the job that holds it, and the time
//! after which it does so no longer, if there is one.
//!
//! A job holds its key while it is in one of the key's states, and until the key's time. What it once gave up, or lost
//! after that time, may be another's by now: then it goes on without. No job takes another's key from it.

use crate::{
    clock::Timestamp,
    engine::Rows,
    error::{Error, Result},
    queue::{
        enqueue::NewUnique,
        extra::{StateSet, UniqueRecord, UniqueScope},
        id::{ID_BYTES, JobId},
        record::JobRecord,
        state::State,
    },
    store::{apply::Context, keys, view::inconsistent},
};

/// Who holds a unique key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) job: JobId,
    /// From then on the key may be taken over, whatever became of the job.
    pub(crate) until: Option<Timestamp>,
}

impl Holder {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.job.to_bytes().to_vec();
        if let Some(until) = self.until {
            bytes.extend_from_slice(&until.as_millis().to_be_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (job, rest) = bytes.split_at_checked(ID_BYTES)?;
        let until = if rest.is_empty() {
            None
        } else {
            Some(Timestamp::from_millis(u64::from_be_bytes(rest.try_into().ok()?)))
        };
        Some(Self { job: JobId::from_bytes(job)?, until })
    }

    fn holds_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

impl UniqueRecord {
    pub(crate) fn of(new: &NewUnique, now: Timestamp) -> Self {
        Self {
            key: new.key.clone(),
            scope: new.scope,
            states: new.states,
            until: new.within.map(|within| now.after(within)),
        }
    }

    /// The key of the row that says which job holds it, for a job of a queue.
    pub(crate) fn row_of(&self, queue: &str) -> Vec<u8> {
        unique_row(self.scope, queue, &self.key)
    }

    /// Whether a job that has this key holds it all the time from its enqueueing to its end.
    pub(crate) fn is_held_to_the_end(&self) -> bool {
        self.until.is_none() && self.states.contains_all(StateSet::UNENDED)
    }

    /// Until when a job that has ended so is kept for its key's sake, where it holds it by then.
    pub(crate) fn keeps_until(&self, end: State) -> Option<Timestamp> {
        self.until.filter(|_| self.states.contains(end))
    }
}

fn unique_row(scope: UniqueScope, queue: &str, key: &str) -> Vec<u8> {
    match scope {
        UniqueScope::Queue => keys::unique(queue, key),
        UniqueScope::Store => keys::unique("", key),
    }
}

impl Context<'_> {
    /// The job that stands in the way of one more with this key.
    pub(crate) fn holder_of_unique(&self, queue: &str, unique: &NewUnique) -> Result<Option<JobId>> {
        Ok(self.holder_at(&unique_row(unique.scope, queue, &unique.key))?.map(|holder| holder.job))
    }

    /// Gives a job that is about to be in a state its unique key, or takes it away, as its policy says. A job that has
    /// held it from its enqueueing on costs nothing here.
    pub(crate) fn note_unique(&mut self, job: &JobRecord, state: State) -> Result<()> {
        let Some(unique) = job.unique() else { return Ok(()) };
        if !unique.states.contains(state) {
            return self.give_up_unique(job);
        }
        let is_new = job.id.version == self.version.0;
        if is_new || !unique.is_held_to_the_end() {
            self.take_unique(job)?;
        }
        Ok(())
    }

    /// Gives a job its unique key where that is free; tells who has it.
    pub(crate) fn take_unique(&mut self, job: &JobRecord) -> Result<Option<JobId>> {
        let Some(unique) = job.unique() else { return Ok(None) };
        let row = unique.row_of(&job.queue);
        if let Some(holder) = self.holder_at(&row)? {
            return Ok(Some(holder.job));
        }
        let holder = Holder { job: job.id, until: unique.until };
        if !holder.holds_at(self.now) {
            return Ok(None);
        }
        self.rows.put(row, holder.to_bytes());
        Ok(Some(job.id))
    }

    /// S24: no unique key outlives its job. What another has taken over by now stays with it.
    pub(crate) fn give_up_unique(&mut self, job: &JobRecord) -> Result<()> {
        let Some(unique) = job.unique() else { return Ok(()) };
        let row = unique.row_of(&job.queue);
        if read_holder(&self.rows, &row)?.is_some_and(|holder| holder.job == job.id) {
            self.rows.remove(row);
        }
        Ok(())
    }

    /// Has a job that was dead or cancelled hold its key again, where its policy says so of the state that it gets.
    ///
    /// # Errors
    /// `Invalid` where another holds it by now.
    pub(crate) fn take_unique_back(&mut self, job: &JobRecord, state: State) -> Result<()> {
        let Some(unique) = job.unique().filter(|unique| unique.states.contains(state)) else { return Ok(()) };
        match self.take_unique(job)? {
            Some(holder) if holder != job.id => Err(Error::invalid(format!(
                "job {} can't be retried: job {holder} holds its unique key \"{}\" now",
                job.id, unique.key
            ))),
            _ => Ok(()),
        }
    }

    fn holder_at(&self, row: &[u8]) -> Result<Option<Holder>> {
        Ok(read_holder(&self.rows, row)?.filter(|holder| holder.holds_at(self.now)))
    }
}

fn read_holder(rows: &dyn Rows, row: &[u8]) -> Result<Option<Holder>> {
    let Some(bytes) = rows.get(row)? else { return Ok(None) };
    let holder = Holder::from_bytes(&bytes);
    holder.map(Some).ok_or_else(|| inconsistent("the row of a unique key names no job"))
}
