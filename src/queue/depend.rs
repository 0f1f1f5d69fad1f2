//! Waiting for other jobs. A job in `waiting` has a row of numbers (how many have not ended yet, and how the others
//! did) apart from its own, so that an end costs the same however large it is; each that it waits for has a row that
//! leads to it. A job that nobody waits for has a flag that says so, and its end looks at nothing.
//!
//! No circle arises: a new job waits for older ones, and nobody waits for it yet. Where an older one is to wait for a
//! new one too, either the new one waits for nobody, or nobody waits for the older one ([`Context::join`]).

use std::collections::{BTreeSet, VecDeque};

use crate::{
    codec,
    engine::Rows,
    error::{Error, Result},
    queue::{
        enqueue::{Dependency, NewExtra, When},
        extra::{OnFailure, WaitsRecord},
        id::JobId,
        moves::{find, not_found},
        record::{Finish, Home, JobRecord},
        settle::Settled,
        state::State,
    },
    store::{
        apply::Context,
        change::{CHANGE_BYTES_MAX, Outcome},
        keys::{self, ById},
        view::{first_rows, get_record},
    },
};

/// How many jobs one change tells at most that what they waited for has ended; maintenance tells the others.
pub(crate) const TELLS_MAX: usize = 1_000;
/// A job whose row is larger counts as several, so that the change stays small.
const BYTES_PER_TELL: usize = CHANGE_BYTES_MAX / TELLS_MAX;

/// How a job ended, for those that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Completed,
    Dead,
    Cancelled,
}

/// The ends of a change that others wait for, and how many of those it may still tell.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) queue: VecDeque<(JobId, End)>,
    pub(crate) tells_left: usize,
}

impl Default for Ends {
    fn default() -> Self {
        Self { queue: VecDeque::new(), tells_left: TELLS_MAX }
    }
}

impl End {
    const ALL: [Self; 3] = [Self::Completed, Self::Dead, Self::Cancelled];

    /// How a job that is in a family has ended, if it has.
    fn of(home: Home, job: &JobRecord) -> Option<Self> {
        match home {
            Home::ById(ById::Dead) => Some(Self::Dead),
            Home::ById(ById::Finished) if job.finish == Some(Finish::Cancelled) => Some(Self::Cancelled),
            Home::ById(ById::Finished) => Some(Self::Completed),
            Home::Ready | Home::ById(ById::Held | ById::Due | ById::Waiting) => None,
        }
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        vec![self as u8]
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|end| bytes == [*end as u8])
    }

    fn told(self) -> &'static str {
        match self {
            Self::Completed => "has completed",
            Self::Dead => "is dead",
            Self::Cancelled => "was cancelled",
        }
    }
}

impl WaitsRecord {
    fn count(&mut self, end: End) {
        match end {
            End::Completed => self.completed += 1,
            End::Dead => self.dead += 1,
            End::Cancelled => self.cancelled += 1,
        }
    }

    /// Whether one that it waited for ended in a way that is its own end too.
    pub(crate) fn has_failed(&self) -> bool {
        self.dead + self.cancelled > 0 && self.on_failure == OnFailure::Cancel
    }

    pub(crate) fn is_over(&self) -> bool {
        self.pending == 0 && !self.is_open
    }
}

impl NewExtra {
    /// Whether the job has to do with others.
    pub(crate) fn is_linked(&self) -> bool {
        self.waits() || !self.before.is_empty()
    }

    fn waits(&self) -> bool {
        self.is_open || !self.after.is_empty()
    }
}

impl Context<'_> {
    /// Puts in a new job that waits for others, or that others are to wait for.
    pub(crate) fn put_linked(&mut self, mut job: JobRecord, new: &NewExtra, when: When) -> Result<()> {
        let id = job.id;
        let mut waits = new.waits().then(|| WaitsRecord {
            is_open: new.is_open,
            on_failure: new.on_failure,
            delay: if let When::After(delay) = when { Some(delay) } else { None },
            ..WaitsRecord::default()
        });
        let mut failed = None;
        if let Some(waits) = &mut waits {
            for on in self.resolve_all(&new.after)? {
                match self.link(on, id)? {
                    None => waits.pending += 1,
                    Some(end) => {
                        waits.count(end);
                        failed = failed.or(waits.has_failed().then_some((on, end)));
                    }
                }
            }
        }
        let extra = job.extra.get_or_insert_default();
        extra.has_dependents = failed.is_none() && !new.before.is_empty();
        let is_over = waits.as_ref().is_none_or(WaitsRecord::is_over);
        extra.waits = waits;
        let end = failed.map(|_| End::Cancelled);
        if let Some((on, end)) = failed {
            self.note_end_of_other(&mut job, on, end);
            self.end_cancelled(job)?;
        } else if is_over {
            let home = self.home_at(job.run_at);
            self.put_in(&job, home)?;
        } else {
            self.put_in(&job, Home::ById(ById::Waiting))?;
        }
        let is_waiting = failed.is_none() && !is_over;
        for waiter in self.resolve_all(&new.before)? {
            self.join(waiter, id, is_waiting, end)?;
        }
        Ok(())
    }

    /// Has other jobs wait for one that there was before, as its unique key says.
    pub(crate) fn join_existing(&mut self, job: JobId, before: &[Dependency]) -> Result<()> {
        let (home, record) = self.find(job)?;
        let end = End::of(home, &record);
        let is_waiting = home == Home::ById(ById::Waiting);
        if end.is_none() {
            self.mark_waited_for(home, record)?;
        }
        self.resolve_all(before)?.into_iter().try_for_each(|waiter| self.join(waiter, job, is_waiting, end))
    }

    fn resolve_all(&self, dependencies: &[Dependency]) -> Result<BTreeSet<JobId>> {
        let resolve = |dependency: &Dependency| match dependency {
            Dependency::Job(job) => Ok(*job),
            Dependency::Enqueued(index) => self.enqueued.get(*index as usize).copied().ok_or_else(|| {
                Error::invalid(format!("a job can't have to do with number {index} of its change, which comes later"))
            }),
        };
        dependencies.iter().map(resolve).collect()
    }

    /// Has a job wait for another; how that one has ended, if it has. One that is gone was completed, or its retention
    /// is over.
    fn link(&mut self, on: JobId, waiter: JobId) -> Result<Option<End>> {
        let Some((home, record)) = find(&self.rows, on)? else {
            if on.version < self.version.0 {
                return Ok(Some(End::Completed));
            }
            return Err(not_found(&self.rows, on)?);
        };
        if let Some(end) = End::of(home, &record) {
            return Ok(Some(end));
        }
        self.mark_waited_for(home, record)?;
        self.rows.put(keys::dependent(on, waiter), Vec::new());
        Ok(None)
    }

    fn mark_waited_for(&mut self, home: Home, mut record: JobRecord) -> Result<()> {
        let extra = record.extra.get_or_insert_default();
        if !extra.has_dependents {
            extra.has_dependents = true;
            self.rows.put_record(record.key_in(home), &record)?;
        }
        Ok(())
    }

    /// Has a waiting job wait for a newer one too, which waits itself or not, and may have ended.
    fn join(&mut self, waiter: JobId, job: JobId, is_waiting: bool, end: Option<End>) -> Result<()> {
        let Some(mut waits) = get_record::<WaitsRecord>(&self.rows, &keys::wait(waiter))? else {
            let (home, found) = self.find(waiter)?;
            return Err(Error::invalid(format!(
                "job {waiter} is {}, and can't wait for another any more",
                found.state_in(home)
            )));
        };
        let row = keys::dependent(job, waiter);
        if self.rows.get(&row)?.is_some() {
            return Ok(());
        }
        if is_waiting && self.find(waiter)?.1.extra.is_some_and(|extra| extra.has_dependents) {
            return Err(Error::invalid(format!(
                "job {waiter} can't wait for a job that waits itself, since others wait for {waiter}: it might be a \
                 circle; let the new job wait for nobody, or enqueue what waits for {waiter} later"
            )));
        }
        match end {
            None => {
                self.rows.put(row, Vec::new());
                waits.pending += 1;
                self.rows.put_record(keys::wait(waiter), &waits)
            }
            Some(end) => self.go_on(waiter, waits, job, end),
        }
    }

    /// Tells those that wait for the jobs which this change has ended, and those that wait for these, as far as one
    /// change goes.
    pub(crate) fn tell_dependents(&mut self) -> Result<()> {
        while let Some((ended, end)) = self.ends.queue.pop_front() {
            for (key, _) in first_rows(&self.rows, &keys::dependents(ended), self.ends.tells_left + 1)? {
                if self.ends.tells_left == 0 {
                    self.rows.put(keys::untold(ended), end.to_bytes());
                    break;
                }
                self.ends.tells_left -= 1;
                let waiter = keys::id_at_end(&key);
                self.rows.remove(key);
                let Some(waiter) = waiter else { continue };
                // One that waits no more was cancelled, and the rows that lead to it are left to the ends they are of.
                let Some(mut waits) = get_record::<WaitsRecord>(&self.rows, &keys::wait(waiter))? else { continue };
                waits.pending = waits.pending.saturating_sub(1);
                self.go_on(waiter, waits, ended, end)?;
            }
        }
        Ok(())
    }

    /// What a waiting job does when one that it waits for has ended.
    fn go_on(&mut self, waiter: JobId, mut waits: WaitsRecord, ended: JobId, end: End) -> Result<()> {
        waits.count(end);
        let is_cancelled = waits.has_failed();
        if !is_cancelled && !waits.is_over() {
            return self.rows.put_record(keys::wait(waiter), &waits);
        }
        let Some(mut job) = self.waiting_job(waiter, &waits)? else { return Ok(()) };
        self.take_out(&job, Home::ById(ById::Waiting));
        if is_cancelled {
            self.note_end_of_other(&mut job, ended, end);
            return self.end_cancelled(job);
        }
        self.let_go(job, &waits).map(|_| ())
    }

    /// Lets a job that waits no more run, when its own time has come.
    fn let_go(&mut self, mut job: JobRecord, waits: &WaitsRecord) -> Result<State> {
        if let Some(delay) = waits.delay {
            job.run_at = Some(self.now.after(delay));
        }
        let home = self.home_at(job.run_at);
        self.put_in(&job, home)?;
        Ok(job.state_in(home))
    }

    /// A waiting job, with its numbers. One that this build can't read holds up nobody: its numbers say how the others
    /// ended, and where a build can read it, the next end or a seal has it go on.
    fn waiting_job(&mut self, waiter: JobId, waits: &WaitsRecord) -> Result<Option<JobRecord>> {
        let Some(bytes) = self.rows.get(&ById::Waiting.key(waiter))? else { return Ok(None) };
        let Ok(mut job) = codec::decode::<JobRecord>(&bytes) else {
            self.rows.put_record(keys::wait(waiter), waits)?;
            return Ok(None);
        };
        self.ends.tells_left = self.ends.tells_left.saturating_sub(bytes.len() / BYTES_PER_TELL);
        job.extra.get_or_insert_default().waits = Some(waits.clone());
        Ok(Some(job))
    }

    fn note_end_of_other(&self, job: &mut JobRecord, ended: JobId, end: End) {
        let message = format!("job {ended}, which it waited for, {}", end.told());
        job.note_error(self.now, &self.change.writer.label, &message);
    }

    /// Notes the end of a job for those that wait for it.
    pub(crate) fn note_end(&mut self, job: &mut JobRecord, end: End) {
        if let Some(extra) = &mut job.extra
            && extra.has_dependents
        {
            extra.has_dependents = false;
            self.ends.queue.push_back((job.id, end));
        }
    }
}

/// Says that nothing more comes before an open job: it runs when all that it waits for has ended. A job that should
/// have gone on, and could not be read then, does so now.
pub(crate) fn seal(context: &mut Context<'_>, id: JobId) -> Result<Outcome> {
    let settled = |job: &JobRecord, state| {
        Ok(Outcome::Settled(Settled { job: id, state, attempt: job.attempt, run_at: job.run_at }))
    };
    let (home, job) = context.find(id)?;
    let state = job.state_in(home);
    let refused = |why: &str| Err(Error::invalid(format!("job {id} is {state}, and can't be sealed: {why}")));
    let Some(mut waits) = job.extra.as_ref().and_then(|extra| extra.waits.clone()) else {
        return refused("it waits for no other jobs");
    };
    if state != State::Waiting {
        return if waits.is_open { refused("it ended before its batch was") } else { settled(&job, state) };
    }
    let was_open = std::mem::replace(&mut waits.is_open, false);
    if !waits.is_over() && !waits.has_failed() {
        if was_open {
            context.rows.put_record(keys::wait(id), &waits)?;
        }
        return settled(&job, state);
    }
    context.take_out(&job, Home::ById(ById::Waiting));
    let mut sealed = job.clone();
    sealed.extra.get_or_insert_default().waits = Some(waits.clone());
    if waits.has_failed() {
        sealed.note_error(context.now, &context.change.writer.label, "one that it waited for is dead or was cancelled");
        context.end_cancelled(sealed)?;
        return settled(&job, State::Cancelled);
    }
    let state = context.let_go(sealed, &waits)?;
    settled(&job, state)
}

/// A job as it was found, with the numbers of what it waits for.
pub(crate) fn with_waits(rows: &dyn Rows, home: Home, mut job: JobRecord) -> Result<JobRecord> {
    if home == Home::ById(ById::Waiting)
        && let Some(waits) = get_record(rows, &keys::wait(job.id))?
    {
        job.extra.get_or_insert_default().waits = Some(waits);
    }
    Ok(job)
}
