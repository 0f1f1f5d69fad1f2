//! How a job's row moves from family to family, with all that must move along: the indexes by time, its unique key, its
//! place, the lane it is in, and the counters. The verbs say where; only this file says how.

use std::time::Duration;

use crate::{
    clock::Timestamp,
    codec,
    engine::Rows,
    error::{Error, Result},
    queue::{
        depend::{End, with_waits},
        id::{JobId, Place, Token},
        lane::Lane,
        log,
        record::{Finish, HeadRecord, Home, JobRecord, TaskRecord},
        state::State,
    },
    store::{
        apply::Context,
        keys::{self, ById},
        object::StoreRecord,
        settings::Settings,
        view::{first_rows, for_each, get_record, inconsistent},
    },
};

impl Context<'_> {
    /// Removes a job's row, and what hangs on where it was.
    pub(crate) fn take_out(&mut self, job: &JobRecord, home: Home) {
        self.rows.remove(job.key_in(home));
        self.count_out(&job.queue, job.state_in(home));
        match home {
            Home::Ready if job.key().is_some() => {
                self.rows.remove(keys::place(job.id));
                self.note_key(job);
            }
            Home::ById(ById::Held) => self.note_key_running(job, -1),
            Home::ById(ById::Due) => {
                if let Some(at) = job.run_at {
                    self.rows.remove(keys::due_time(at, job.id));
                }
                self.note_key_holding(job, false);
            }
            Home::ById(ById::Finished | ById::Dead) => {
                if let Some(at) = job.expires_at {
                    self.rows.remove(keys::expiry(at, job.id));
                }
            }
            Home::ById(ById::Waiting) => self.rows.remove(keys::wait(job.id)),
            Home::Ready => {}
        }
    }

    /// Writes a job's row, and what hangs on where it is.
    pub(crate) fn put_in(&mut self, job: &JobRecord, home: Home) -> Result<()> {
        debug_assert_eq!(
            job.lease.is_some(),
            home == Home::ById(ById::Held),
            "INV-3: held jobs have a lease, others none"
        );
        self.rows.put_record(job.key_in(home), job)?;
        self.count_in(&job.queue, job.state_in(home));
        self.note_unique(job, job.state_in(home))?;
        match home {
            Home::Ready if job.key().is_some() => {
                self.rows.put(keys::place(job.id), job.key_in(home));
                self.note_key(job);
            }
            Home::Ready => self.note_lane(&job.queue, job.lane())?,
            Home::ById(ById::Held) => self.note_key_running(job, 1),
            Home::ById(ById::Due) => {
                let at = job.run_at.ok_or_else(|| inconsistent(format!("job {} is scheduled for no time", job.id)))?;
                self.rows.put(keys::due_time(at, job.id), Vec::new());
            }
            Home::ById(ById::Finished | ById::Dead) => {
                if let Some(at) = job.expires_at {
                    self.rows.put(keys::expiry(at, job.id), Vec::new());
                }
            }
            Home::ById(ById::Waiting) => {
                let waits = job.extra.as_ref().and_then(|extra| extra.waits.as_ref());
                let waits = waits.ok_or_else(|| inconsistent(format!("job {} waits for nothing", job.id)))?;
                self.rows.put_record(keys::wait(job.id), waits)?;
            }
        }
        Ok(())
    }

    /// Where a job is that may run from then on.
    pub(crate) fn home_at(&self, run_at: Option<Timestamp>) -> Home {
        if run_at.is_some_and(|at| at > self.now) { Home::ById(ById::Due) } else { Home::Ready }
    }

    /// Puts a job that nobody holds any more back into the queue, under its old place.
    pub(crate) fn put_back(&mut self, mut job: JobRecord) -> Result<()> {
        job.lease = None;
        job.progress = None;
        self.put_in(&job, Home::Ready)
    }

    /// Puts a job that ran among the scheduled ones, or the ready ones where that time has come.
    pub(crate) fn put_later(&mut self, mut job: JobRecord, delay: Duration) -> Result<()> {
        job.lease = None;
        job.progress = None;
        let at = self.now.after(delay);
        job.run_at = Some(at);
        if at <= self.now {
            return self.put_in(&job, Home::Ready);
        }
        self.hold_key_back(&job)?;
        self.put_in(&job, Home::ById(ById::Due))
    }

    /// Ends a job that succeeded. It is kept only where it has a result, or asks to be kept.
    pub(crate) fn end_completed(&mut self, mut job: JobRecord) -> Result<()> {
        self.count_completed(&job.queue);
        self.note_end(&mut job, End::Completed);
        let config = self.config(&job.queue)?;
        let (keeps, retention) = (config.keeps_completed, config.retention_completed);
        job.finish = Some(Finish::Completed);
        if job.result.is_some() || job.keep || keeps {
            let retention = self.retention(retention, |all| all.retention_completed)?;
            return self.end(job, ById::Finished, retention);
        }
        // A job that is kept for its unique key alone goes when that does.
        let unique = job.unique().filter(|unique| unique.states.contains(State::Completed));
        match unique.map(|unique| unique.until) {
            Some(None) => {
                let retention = self.retention(retention, |all| all.retention_completed)?;
                self.end(job, ById::Finished, retention)
            }
            Some(Some(until)) if until > self.now => self.end(job, ById::Finished, Duration::ZERO),
            _ => self.forget(&job),
        }
    }

    pub(crate) fn end_cancelled(&mut self, mut job: JobRecord) -> Result<()> {
        let own = self.config(&job.queue)?.retention_cancelled;
        let retention = self.retention(own, |all| all.retention_cancelled)?;
        job.finish = Some(Finish::Cancelled);
        self.note_end(&mut job, End::Cancelled);
        self.end(job, ById::Finished, retention)
    }

    pub(crate) fn end_dead(&mut self, mut job: JobRecord) -> Result<()> {
        let own = self.config(&job.queue)?.retention_dead;
        let retention = self.retention(own, |all| all.retention_dead)?;
        self.note_end(&mut job, End::Dead);
        self.end(job, ById::Dead, retention)
    }

    /// For how long what has ended is kept: as its queue says, else as the store does.
    fn retention(&mut self, own: Option<Duration>, of_all: fn(&Settings) -> Duration) -> Result<Duration> {
        own.map_or_else(|| self.settings().map(|all| of_all(&all)), Ok)
    }

    fn end(&mut self, mut job: JobRecord, family: ById, retention: Duration) -> Result<()> {
        job.lease = None;
        job.suspect = false;
        job.cancelling = false;
        job.finished_at = Some(self.now);
        let state = job.state_in(Home::ById(family));
        let kept_until = self.now.after(retention);
        let held_until = job.unique().and_then(|unique| unique.keeps_until(state));
        job.expires_at = Some(held_until.map_or(kept_until, |until| until.max(kept_until)));
        self.put_in(&job, Home::ById(family))
    }

    /// Leaves nothing of a job whose row was taken out.
    pub(crate) fn forget(&mut self, job: &JobRecord) -> Result<()> {
        self.give_up_unique(job)?;
        self.forget_place(job);
        self.forget_refs(job);
        log::forget(self, job);
        Ok(())
    }

    /// Removes a job for good that has not begun, or has ended; not one that others wait for, which learn of its end by
    /// its cancelling.
    pub(crate) fn purge(&mut self, job: JobRecord, home: Home) -> Result<()> {
        let has_others = job.extra.as_ref().is_some_and(|extra| extra.has_dependents);
        let is_told = has_others && !job.state_in(home).is_final();
        self.take_out(&job, home);
        if is_told { self.end_cancelled(job) } else { self.forget(&job) }
    }

    /// Removes the row that tells a job's place; it has one only where that is not its id, and one with a concurrency
    /// key only while it is ready.
    fn forget_place(&mut self, job: &JobRecord) {
        if job.place != job.id && job.key().is_none() {
            self.rows.remove(keys::place(job.id));
        }
    }

    /// Gives a job a place at the back of its queue.
    pub(crate) fn renew_place(&mut self, job: &mut JobRecord) {
        job.place = self.next_place();
        // A job with a concurrency key has that row while it is ready.
        if job.key().is_none() {
            self.rows.put(keys::place(job.id), job.place.to_bytes().to_vec());
        }
    }

    /// A place that no job has had: after all jobs of earlier changes.
    pub(crate) fn next_place(&mut self) -> Place {
        let place = Place { version: self.version.0, index: self.next_index };
        self.next_index += 1;
        place
    }

    pub(crate) fn head(&self, queue: &str) -> Result<HeadRecord> {
        Ok(get_record(&self.rows, &keys::head(queue))?.unwrap_or_default())
    }

    /// Writes a queue's head as this change's: a claim by what was seen before is to know, and those that wait are
    /// tried.
    pub(crate) fn bump_head(&mut self, queue: &str, mut head: HeadRecord) -> Result<()> {
        head.version = self.version;
        head.by = self.change.writer.clone();
        self.rows.put_record(keys::head(queue), &head)
    }

    /// Makes the lane's row if there is none yet.
    pub(crate) fn note_lane(&mut self, queue: &str, lane: Lane) -> Result<()> {
        let known = (queue.to_owned(), lane);
        if self.lanes_known.contains(&known) {
            return Ok(());
        }
        let key = keys::lane(queue, lane);
        if self.rows.get(&key)?.is_none() {
            self.rows.put(key, Vec::new());
        }
        self.lanes_known.insert(known);
        Ok(())
    }

    /// The number that stands for a task, given out at its first use.
    pub(crate) fn task_number(&mut self, task: &str) -> Result<u32> {
        if let Some(number) = self.tasks_known.get(task) {
            return Ok(*number);
        }
        let key = keys::task_number(task);
        let number = if let Some(record) = get_record::<TaskRecord>(&self.rows, &key)? {
            record.number
        } else {
            let mut number = 0;
            for_each(&self.rows, &keys::task_names(), |_, _| {
                number += 1;
                Ok(())
            })?;
            self.put_task(&TaskRecord { number, name: task.to_owned(), paused: false })?;
            number
        };
        self.tasks_known.insert(task.to_owned(), number);
        Ok(number)
    }

    /// Writes what is known of a task, under its number and its name.
    pub(crate) fn put_task(&mut self, task: &TaskRecord) -> Result<()> {
        self.rows.put_record(keys::task_name(task.number), task)?;
        self.rows.put_record(keys::task_number(&task.name), task)
    }

    /// The held job of a lease.
    ///
    /// # Errors
    /// P6: `LeaseLost` where the job is not held under this token.
    pub(crate) fn held(&self, job: JobId, token: Token) -> Result<JobRecord> {
        let held: Option<JobRecord> = get_record(&self.rows, &ById::Held.key(job))?;
        let now = match held {
            Some(held) if held.lease.as_ref().is_some_and(|lease| lease.token == token) => return Ok(held),
            Some(JobRecord { lease: Some(lease), .. }) => {
                format!("{} holds it under token {}", lease.label, lease.token)
            }
            _ => "nobody holds it".to_owned(),
        };
        Err(Error::new(
            crate::error::ErrorKind::LeaseLost,
            format!("the lease of job {job} under token {token} is lost ({now}); its result is discarded"),
        ))
    }

    /// The job of that id, wherever it is.
    ///
    /// # Errors
    /// `NotFound`, saying whether there ever was one.
    pub(crate) fn find(&self, job: JobId) -> Result<(Home, JobRecord)> {
        match find(&self.rows, job)? {
            Some(found) => Ok(found),
            None => Err(not_found(&self.rows, job)?),
        }
    }
}

/// The name of a task by its number.
pub(crate) fn task_name(rows: &dyn Rows, number: u32) -> Result<String> {
    task(rows, number).map(|task| task.name)
}

/// A task by its number.
pub(crate) fn task(rows: &dyn Rows, number: u32) -> Result<TaskRecord> {
    get_record(rows, &keys::task_name(number))?.ok_or_else(|| inconsistent(format!("no task has number {number}")))
}

/// The job of that id, wherever it is: by probing the families by id, and the lanes in use at its place.
pub(crate) fn find(rows: &dyn Rows, job: JobId) -> Result<Option<(Home, JobRecord)>> {
    for family in ById::ALL {
        if let Some(record) = get_record(rows, &family.key(job))? {
            let home = Home::ById(family);
            return Ok(Some((home, with_waits(rows, home, record)?)));
        }
    }
    let place = match rows.get(&keys::place(job))?.map(|row| JobId::from_bytes(&row).ok_or(row)) {
        None => job,
        Some(Ok(place)) => place,
        // The key of its row, as jobs with a concurrency key have it.
        Some(Err(row)) => return Ok(get_record(rows, &row)?.map(|record| (Home::Ready, record))),
    };
    for (key, _) in first_rows(rows, &keys::all_lanes(), usize::MAX)? {
        let Some((queue, lane)) = keys::lane_of(&key).filter(|(_, lane)| !lane.keyed) else { continue };
        let Some(bytes) = rows.get(&keys::ready(&queue, lane, place))? else { continue };
        let record: JobRecord = codec::decode(&bytes)?;
        if record.id == job {
            return Ok(Some((Home::Ready, record)));
        }
    }
    Ok(None)
}

/// The error for a job that is nowhere: never enqueued, or gone.
pub(crate) fn not_found(rows: &dyn Rows, job: JobId) -> Result<Error> {
    let store: StoreRecord = get_record(rows, keys::STORE)?.unwrap_or_default();
    Ok(Error::not_found(if job.version <= store.version.0 {
        format!("job {job} is gone: it was completed and not kept, or pruned, or there never was one of that id")
    } else {
        format!("there is no job {job}; the store is at version {}", store.version)
    }))
}
