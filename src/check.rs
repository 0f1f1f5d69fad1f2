//! Checking a store at rest: every invariant that can be read off its rows, and the engine's own structure. It changes
//! nothing but what the engine repairs of itself, and tells all it finds, not only the first.

mod limits;
mod links;
mod schedules;
mod uniques;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use self::limits::KeySeen;

use crate::{
    codec::{self, Record, hex},
    engine::Rows,
    error::Result,
    queue::{
        id::JobId,
        keyed::QueueKey,
        log::{LOG_LINES_MAX, LineRecord},
        record::{CountRecord, HeadRecord, Home, JobRecord, TaskRecord},
        state::State,
    },
    store::{
        Store,
        conflict::Version,
        keys::{self, ById, Range},
        lock::rules::LockRecord,
        object::{FormatRecord, LogRecord, ObjectRecord, StoreRecord},
        settings::SettingRecord,
        verdict::{ClientRecord, HorizonRecord},
        view::{for_each, get_record},
    },
};

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding(String);

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Store {
    /// Checks every invariant that can be read off the rows, and the file's own integrity; nothing found is soundness.
    /// Takes the writer's lock for the latter, so that others wait meanwhile.
    ///
    /// # Errors
    /// `Unavailable` when the lock can't be had; `Corrupt` when the rows can't be read at all.
    pub fn check(&self) -> Result<Vec<Finding>> {
        // It reads the whole file, for as long as that takes.
        let mut findings = self.inner.long_section("check", |site| {
            let found = site.engine.check()?;
            Ok::<_, crate::error::Error>(found.into_iter().map(Finding).collect::<Vec<_>>())
        })??;
        findings.extend(check_rows(self.inner.rows()?.as_ref())?);
        Ok(findings)
    }
}

/// What is wrong in rows.
pub(crate) fn check_rows(rows: &dyn Rows) -> Result<Vec<Finding>> {
    let store: StoreRecord = get_record(rows, keys::STORE)?.unwrap_or_default();
    let mut check = Check::new(rows, store.version);
    check.store_rows()?;
    check.task_names()?;
    check.root()?;
    check.lanes()?;
    check.ready()?;
    check.keyed()?;
    for family in ById::ALL {
        check.by_id(family)?;
    }
    check.indexes()?;
    check.places()?;
    check.uniques()?;
    check.keys()?;
    check.buckets()?;
    check.schedules()?;
    check.logs()?;
    check.dependents()?;
    check.refs()?;
    check.heads_and_counts()?;
    check.clients()?;
    check.locks()?;
    check.foreign_rows()?;
    Ok(check.findings)
}

struct Check<'a> {
    rows: &'a dyn Rows,
    version: Version,
    findings: Vec<Finding>,
    jobs: HashMap<JobId, Seen>,
    lanes: HashSet<Vec<u8>>,
    tasks: HashSet<u32>,
    counts: BTreeMap<String, CountRecord>,
    keys: BTreeMap<QueueKey, KeySeen>,
}

/// What the other rows must agree with.
struct Seen {
    state: State,
    /// What the row that tells where it is must say.
    place: Option<Vec<u8>>,
    /// The key of the index entry that must name it.
    index: Option<Vec<u8>>,
    unique: Option<uniques::Claim>,
    log_lines: u32,
    has_dependents: bool,
    /// The keys of the rows by which it is referred to.
    refs: Vec<Vec<u8>>,
}

impl<'a> Check<'a> {
    fn new(rows: &'a dyn Rows, version: Version) -> Self {
        Self {
            rows,
            version,
            findings: Vec::new(),
            jobs: HashMap::new(),
            lanes: HashSet::new(),
            tasks: HashSet::new(),
            counts: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    fn find(&mut self, what: impl Into<String>) {
        self.findings.push(Finding(what.into()));
    }

    fn find_all(&mut self, what: Vec<String>) {
        self.findings.extend(what.into_iter().map(Finding));
    }

    /// Looks at each row of a family; those that can't be read are told of and left out.
    fn each<R: Record>(
        &mut self,
        range: &Range,
        mut look: impl FnMut(&mut Self, &[u8], R) -> Result<()>,
    ) -> Result<()> {
        let rows = self.rows;
        for_each(rows, range, |key, bytes| match codec::decode::<R>(bytes) {
            Ok(record) => look(self, key, record),
            Err(error) => {
                self.find(format!("row {}: {}", hex(key), error.full_message()));
                Ok(())
            }
        })
    }

    fn store_rows(&mut self) -> Result<()> {
        if get_record::<FormatRecord>(self.rows, keys::FORMAT)?.is_none() {
            self.find("the format row is missing");
        }
        if get_record::<StoreRecord>(self.rows, keys::STORE)?.is_none() {
            self.find("the store's version row is missing");
        }
        if get_record::<LogRecord>(self.rows, keys::LOG)?.is_none() {
            self.find("the row that tells of a log is missing");
        }
        self.each::<SettingRecord>(&keys::settings(), |_, _, _| Ok(()))
    }

    fn task_names(&mut self) -> Result<()> {
        self.each::<TaskRecord>(&keys::task_names(), |check, key, task| {
            if key != keys::task_name(task.number) {
                check.find(format!("task number {} stands at the row of another number", task.number));
            }
            if get_record::<TaskRecord>(check.rows, &keys::task_number(&task.name))?.as_ref() != Some(&task) {
                check.find(format!("task \"{}\" is not found by its name", task.name));
            }
            check.tasks.insert(task.number);
            Ok(())
        })
    }

    fn root(&mut self) -> Result<()> {
        self.each::<ObjectRecord>(&keys::roots(""), |check, key, object| {
            if object.version > check.version {
                let (name, version) = (keys::root_name(key), check.version);
                check.find(format!("\"{name}\" is of version {}, and the store of {version} (INV-2)", object.version));
            }
            Ok(())
        })
    }

    fn lanes(&mut self) -> Result<()> {
        let rows = self.rows;
        for_each(rows, &keys::all_lanes(), |key, _| {
            if keys::lane_of(key).is_none() {
                self.find(format!("a lane's row can't be read: {}", hex(key)));
            }
            self.lanes.insert(key.to_vec());
            Ok(())
        })
    }

    /// A2: the answers that clients of a stone may still ask for.
    fn clients(&mut self) -> Result<()> {
        let _: Option<HorizonRecord> = get_record(self.rows, keys::CLIENT_HORIZON)?;
        let rows = self.rows;
        for_each(rows, &keys::clients(), |key, bytes| {
            if keys::client_of(key).is_none() || codec::decode::<ClientRecord>(bytes).is_err() {
                self.find(format!("the row of client {} can't be read; its answers can't be asked for", hex(key)));
            }
            Ok(())
        })
    }

    /// Each named lock is found by the sessions in it, and by no others.
    fn locks(&mut self) -> Result<()> {
        let mut indexed = HashSet::new();
        self.each::<LockRecord>(&keys::locks(), |check, key, lock| {
            let name = keys::lock_name(key).unwrap_or_default();
            if lock.fence.number() > check.version.0 {
                let (fence, version) = (lock.fence, check.version);
                check.find(format!("lock \"{name}\" is held under {fence}, and the store is at {version} (INV-2)"));
            }
            if lock.claimants().collect::<HashSet<_>>().len() <= lock.waiters.len() {
                check.find(format!("lock \"{name}\" has somebody in it twice"));
            }
            for claimant in lock.claimants() {
                let index = keys::lock_session(claimant.session, name);
                if check.rows.get(&index)?.is_none() {
                    check.find(format!("lock \"{name}\" is not found by session {}, which is in it", claimant.session));
                }
                indexed.insert(index);
            }
            Ok(())
        })?;
        let mut stray = Vec::new();
        for_each(self.rows, &keys::lock_sessions(), |key, _| {
            if !indexed.contains(key) {
                stray.push(format!(
                    "an entry of the index of locks names a lock that its session is not in: {}",
                    hex(key)
                ));
            }
            Ok(())
        })?;
        self.find_all(stray);
        Ok(())
    }

    /// Rows that this build has no family for.
    fn foreign_rows(&mut self) -> Result<()> {
        let rows = self.rows;
        for range in keys::between_families() {
            for_each(rows, &range, |key, _| {
                self.find(format!("row {} is of no family that this casque knows", hex(key)));
                Ok(())
            })?;
        }
        Ok(())
    }

    fn ready(&mut self) -> Result<()> {
        self.each::<JobRecord>(&keys::all_ready(), |check, key, job| {
            if !check.lanes.contains(&keys::lane(&job.queue, job.lane())) {
                check.find(format!("job {} is ready in a lane that has no row, so no claim finds it (INV-1)", job.id));
            }
            check.job(key, Home::Ready, &job)
        })
    }

    fn by_id(&mut self, family: ById) -> Result<()> {
        self.each::<JobRecord>(&family.all(), |check, key, job| check.job(key, Home::ById(family), &job))
    }

    fn job(&mut self, key: &[u8], home: Home, job: &JobRecord) -> Result<()> {
        let state = job.state_in(home);
        let id = job.id;
        if key != job.key_in(home) {
            self.find(format!("job {id} ({state}) stands at a row that is not its own: {}", hex(key)));
        }
        if job.lease.is_some() != (state == State::Running) {
            self.find(format!("job {id} is {state}, which does not fit to whether it has a lease (INV-3)"));
        }
        if job.finished_at.is_some() != state.is_final() {
            self.find(format!("job {id} is {state}, which does not fit to whether it has ended"));
        }
        if !self.tasks.contains(&job.task) {
            self.find(format!("job {id} is of task number {}, which names no task", job.task));
        }
        if id.version > self.version.0 || job.lease.as_ref().is_some_and(|lease| lease.token.0 > self.version.0) {
            self.find(format!("job {id} or its lease is newer than the store, which is at {} (INV-2)", self.version));
        }
        if state.is_final() && job.expires_at.is_none() {
            self.find(format!("job {id} ({state}) has no time after which it may go, so it never goes"));
        }
        let index = match home {
            Home::ById(ById::Due) => job.run_at.map(|at| keys::due_time(at, id)),
            Home::ById(ById::Finished | ById::Dead) => job.expires_at.map(|at| keys::expiry(at, id)),
            Home::Ready | Home::ById(ById::Held | ById::Waiting) => None,
        };
        if let Some(index) = &index
            && self.rows.get(index)?.is_none()
        {
            self.find(format!("job {id} ({state}) has no entry in its index by time"));
        }
        *self.counts.entry(job.queue.clone()).or_default().now_in(state) += 1;
        let unique = uniques::Claim::of(job, state);
        let place = match job.key() {
            Some(_) if home == Home::Ready => Some(key.to_vec()),
            None if job.place != id => Some(job.place.to_bytes().to_vec()),
            _ => None,
        };
        self.note_key(job, state);
        let extra = job.extra.as_deref();
        let seen = Seen {
            state,
            place,
            index,
            unique,
            log_lines: job.log_lines(),
            has_dependents: extra.is_some_and(|extra| extra.has_dependents),
            refs: extra.iter().flat_map(|extra| &extra.refs).map(|reference| reference.row()).collect(),
        };
        if let Some(other) = self.jobs.insert(id, seen) {
            self.find(format!("job {id} is both {} and {state} (INV-1)", other.state));
        }
        Ok(())
    }

    /// Each entry of the indexes by time names a job whose entry it is.
    fn indexes(&mut self) -> Result<()> {
        for (name, range) in [("schedule", keys::due_times()), ("retention", keys::expiries())] {
            let mut stray = Vec::new();
            for_each(self.rows, &range, |key, bytes| {
                if keys::is_untold(key) {
                    stray.extend(Self::untold(self.rows, key, bytes)?);
                    return Ok(());
                }
                let job = keys::id_at_end(key).and_then(|id| self.jobs.get(&id));
                if job.is_none_or(|job| job.index.as_deref() != Some(key)) {
                    stray.push(format!("an entry of the {name} index names no such job: {}", hex(key)));
                }
                Ok(())
            })?;
            self.find_all(stray);
        }
        Ok(())
    }

    fn places(&mut self) -> Result<()> {
        let mut places = HashMap::new();
        for_each(self.rows, &keys::places(), |key, bytes| {
            places.extend(keys::id_at_end(key).map(|id| (id, bytes.to_vec())));
            Ok(())
        })?;
        let mut wrong = Vec::new();
        for (id, place) in &places {
            if self.jobs.get(id).is_none_or(|job| job.place.as_ref() != Some(place)) {
                wrong.push(format!("the row that tells the place of job {id} tells of no such job"));
            }
        }
        for (id, job) in &self.jobs {
            if job.place.is_some() && !places.contains_key(id) {
                wrong.push(format!("no row tells the place of job {id}, which is not found by its id"));
            }
        }
        self.find_all(wrong);
        Ok(())
    }

    /// Each line of a log is of a job that has so many, and each job has its lines.
    fn logs(&mut self) -> Result<()> {
        let mut found: HashMap<JobId, u32> = HashMap::new();
        let mut wrong = Vec::new();
        for_each(self.rows, &keys::all_job_logs(), |key, bytes| {
            let line = keys::log_line_of(key);
            let is_of_job = |(job, line)| self.jobs.get(&job).is_some_and(|job| line < job.log_lines);
            match line.filter(|line| is_of_job(*line)) {
                Some((job, _)) => *found.entry(job).or_default() += 1,
                None => wrong.push(format!("a line of a log is of no job that has it: {}", hex(key))),
            }
            if let Err(error) = codec::decode::<LineRecord>(bytes) {
                wrong.push(format!("{error}: {}", hex(key)));
            }
            Ok(())
        })?;
        for (id, job) in &self.jobs {
            let (kept, found) = (job.log_lines.min(LOG_LINES_MAX), found.get(id).copied().unwrap_or_default());
            if kept != found {
                wrong.push(format!("the log of job {id} is to have {kept} lines and has {found}"));
            }
        }
        self.find_all(wrong);
        Ok(())
    }

    fn heads_and_counts(&mut self) -> Result<()> {
        self.each::<HeadRecord>(&keys::heads(), |check, key, head| {
            if head.version > check.version {
                let queue = keys::root_name(key);
                check.find(format!("queue \"{queue}\" is of version {}, newer than the store (INV-2)", head.version));
            }
            Ok(())
        })?;
        let mut counted = std::mem::take(&mut self.counts);
        self.each::<CountRecord>(&keys::counts(), |check, key, count| {
            let queue = keys::counted_queue(key);
            let mut rows = counted.remove(&queue).unwrap_or_default();
            let mut count_now = count;
            for state in State::ALL {
                let (told, found) = (*count_now.now_in(state), *rows.now_in(state));
                if told != found {
                    check.find(format!("queue \"{queue}\" counts {told} as {state} and has {found} (INV-9)"));
                }
            }
            if count.completed < count.kept {
                check.find(format!("queue \"{queue}\" keeps more completed jobs than were ever completed (INV-9)"));
            }
            Ok(())
        })?;
        for queue in counted.into_keys() {
            self.find(format!("queue \"{queue}\" has jobs and no count row (INV-9)"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
