//! What tests of rules stand on: rows in a map that counts what is read of it, a clock that is moved by hand, and a
//! look at every invariant that can be read off the rows after each change.

use std::{cell::Cell, collections::BTreeMap, ops::ControlFlow, time::Duration};

use crate::{
    check::check_rows,
    clock::Timestamp,
    codec::{self, Payload},
    engine::{Engine, RowSet, Rows, Visit},
    error::Result,
    queue::{
        QueueStats,
        admin::Admin,
        claim::{Claim, Claimed},
        enqueue::{NewExtra, NewJob, NewUnique, When},
        extra::{StateSet, UniqueScope},
        id::{JobId, SessionId, Token},
        info::stats,
        moves::find,
        reclaim::{Reclaim, Reclaimed},
        record::{Home, JobRecord},
        select::{Tasks, Wanted},
        settle::{Ending, Settle},
        state::State,
        sweep::{Sweep, Swept},
    },
    store::{
        apply::apply,
        change::{Applied, Candidate, Change, ChangeId, ClientId, Guard, Intent, Outcome},
        conflict::{Version, Writer},
        keys,
        object::{DATA_FORMAT, FormatRecord, LogRecord, StoreRecord},
    },
};

/// The queue of jobs that name no other.
pub(crate) const QUEUE: &str = "q";
pub(crate) const SESSION: SessionId = SessionId([1; 16]);
pub(crate) const OTHER_SESSION: SessionId = SessionId([2; 16]);

/// Rows in a map that counts what is read: each look at a key, and each row visited.
#[derive(Default)]
pub(crate) struct Table {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    reads: Cell<usize>,
    /// An engine that has the same rows: what it says is what is read, and has to be what the map says.
    engine: Option<Box<dyn Engine>>,
}

impl Rows for Table {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.reads.set(self.reads.get() + 1);
        let expected = self.map.get(key).cloned();
        let Some(engine) = &self.engine else { return Ok(expected) };
        let found = engine.latest()?.get(key)?;
        assert_eq!(found, expected, "the engine's row");
        Ok(found)
    }

    fn visit(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        if let Some(engine) = &self.engine {
            let mut expected = self.map.range(start.to_vec()..end.to_vec());
            engine.latest()?.visit(start, end, &mut |key, bytes| {
                assert_eq!(expected.next(), Some((&key.to_vec(), &bytes.to_vec())), "the engine's rows");
                Ok(ControlFlow::Continue(()))
            })?;
            assert_eq!(expected.next(), None, "the engine's rows");
        }
        for (key, bytes) in self.map.range(start.to_vec()..end.to_vec()) {
            self.reads.set(self.reads.get() + 1);
            if visit(key, bytes)? == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

impl Table {
    pub(crate) fn write(&mut self, rows: RowSet) {
        if let Some(engine) = &self.engine {
            engine.write(None, &rows).unwrap();
        }
        for (key, value) in rows {
            match value {
                Some(value) => self.map.insert(key, value),
                None => self.map.remove(&key),
            };
        }
    }

    pub(crate) fn all(&self) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.map
    }

    /// How many rows `read` reads.
    pub(crate) fn reads_of<T>(&self, read: impl FnOnce(&Self) -> T) -> (usize, T) {
        let before = self.reads.get();
        let value = read(self);
        (self.reads.get() - before, value)
    }
}

/// A store without a committer: changes are applied one by one, at a time that is told.
pub(crate) struct Rig {
    pub(crate) rows: Table,
    pub(crate) now: Timestamp,
    pub(crate) version: Version,
    changes: u64,
    /// Whether the invariants are looked at after each change; off where there are very many rows.
    pub(crate) is_checked: bool,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::over(Table::default())
    }

    /// The same on an engine without rows.
    pub(crate) fn on(engine: Box<dyn Engine>) -> Self {
        Self::over(Table { engine: Some(engine), ..Table::default() })
    }

    fn over(mut rows: Table) -> Self {
        let format = FormatRecord { format: DATA_FORMAT, store: [7; 16] };
        rows.write(RowSet::from([
            (keys::FORMAT.to_vec(), Some(codec::encode(&format).unwrap())),
            (keys::STORE.to_vec(), Some(codec::encode(&StoreRecord::default()).unwrap())),
            (keys::LOG.to_vec(), Some(codec::encode(&LogRecord::None).unwrap())),
        ]));
        let now = Timestamp::from_millis(1_700_000_000_000);
        Self { rows, now, version: Version(0), changes: 0, is_checked: true }
    }

    pub(crate) fn advance(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
    }

    /// What a change would give, without doing it.
    pub(crate) fn try_change(&self, guards: Vec<Guard>, intents: Vec<Intent>) -> Result<(Applied, RowSet)> {
        let client = ClientId { born: Version(0), random: 1 };
        let id = ChangeId { client, number: self.changes + 1 };
        let writer = Writer { label: "rig".into(), job: None };
        apply(&Change { id, writer, guards, intents }, &self.rows, self.version, self.now)
    }

    pub(crate) fn change(&mut self, guards: Vec<Guard>, intents: Vec<Intent>) -> Result<Applied> {
        let (applied, mut rows) = self.try_change(guards, intents)?;
        self.changes += 1;
        if let Some(version) = applied.version {
            assert_eq!(version, Version(self.version.0 + 1), "INV-2");
            self.version = version;
            let store = StoreRecord { version, stamp: self.now };
            rows.insert(keys::STORE.to_vec(), Some(codec::encode(&store).unwrap()));
        } else {
            assert!(rows.is_empty(), "a change without a version writes nothing");
        }
        self.rows.write(rows);
        if self.is_checked {
            assert_eq!(check_rows(&self.rows).unwrap(), []);
        }
        Ok(applied)
    }

    pub(crate) fn intent(&mut self, intent: Intent) -> Result<Outcome> {
        Ok(self.change(Vec::new(), vec![intent])?.outcomes.remove(0))
    }

    pub(crate) fn enqueue(&mut self, job: NewJob) -> JobId {
        match self.intent(Intent::Enqueue(job)).unwrap() {
            Outcome::Enqueued { job, .. } => job,
            other => panic!("not enqueued: {other:?}"),
        }
    }

    pub(crate) fn try_claim(&mut self, claim: Claim) -> Result<Claimed> {
        match self.intent(Intent::Claim(claim))? {
            Outcome::Claimed(claimed) => Ok(claimed),
            other => panic!("not claimed: {other:?}"),
        }
    }

    pub(crate) fn claim(&mut self, claim: Claim) -> Claimed {
        self.try_claim(claim).unwrap()
    }

    /// Claims the next job, which there must be.
    pub(crate) fn claim_one(&mut self) -> (JobId, Token) {
        let claimed = self.claim(claim(1));
        (claimed.jobs[0].record.id, claimed.token.unwrap())
    }

    pub(crate) fn settle(&mut self, job: JobId, token: Token, how: Ending) -> Result<State> {
        let started_at = Some(self.now);
        match self.intent(Intent::Settle(Settle { job, token, started_at, how, enqueues: Vec::new() }))? {
            Outcome::Settled(settled) => Ok(settled.state),
            other => panic!("not settled: {other:?}"),
        }
    }

    pub(crate) fn administer(&mut self, admin: Admin) -> Result<Outcome> {
        self.intent(Intent::Administer(admin))
    }

    pub(crate) fn reschedule(&mut self, job: JobId, priority: Option<i64>, when: Option<When>) -> Result<()> {
        self.administer(Admin::Reschedule { job, priority, when }).map(|_| ())
    }

    /// Does something to all jobs of a state, in slices of two rows; gives what came of it.
    pub(crate) fn sweep(&mut self, admin: fn(Sweep) -> Admin, state: State) -> Swept {
        let sweep = Sweep { state, queue: None, task: None, newest: self.version, after: None, limit: 2 };
        self.sweep_all(admin, sweep)
    }

    /// The same in one queue, in as few changes as can be, so that what is let go by it comes after.
    pub(crate) fn sweep_queue(&mut self, admin: fn(Sweep) -> Admin, state: State, queue: &str) -> Swept {
        let queue = Some(queue.to_owned());
        self.sweep_all(admin, Sweep { state, queue, task: None, newest: self.version, after: None, limit: 1_000 })
    }

    fn sweep_all(&mut self, admin: fn(Sweep) -> Admin, mut sweep: Sweep) -> Swept {
        let mut all = Swept::default();
        loop {
            let Outcome::Swept(slice) = self.administer(admin(sweep.clone())).unwrap() else { panic!("not swept") };
            all.jobs += slice.jobs;
            all.refused += slice.refused;
            sweep.after = slice.next;
            if sweep.after.is_none() {
                return all;
            }
        }
    }

    pub(crate) fn reclaim(&mut self, reclaim: Reclaim) -> Reclaimed {
        match self.intent(Intent::Reclaim(reclaim)).unwrap() {
            Outcome::Reclaimed(reclaimed) => reclaimed,
            other => panic!("not reclaimed: {other:?}"),
        }
    }

    pub(crate) fn promote(&mut self) -> usize {
        match self.intent(Intent::Promote { limit: 100 }).unwrap() {
            Outcome::Promoted { jobs } => jobs,
            other => panic!("not promoted: {other:?}"),
        }
    }

    pub(crate) fn find(&self, job: JobId) -> Option<(Home, JobRecord)> {
        find(&self.rows, job).unwrap()
    }

    pub(crate) fn state(&self, job: JobId) -> Option<State> {
        self.find(job).map(|(home, record)| record.state_in(home))
    }

    pub(crate) fn record(&self, job: JobId) -> JobRecord {
        self.find(job).unwrap().1
    }

    pub(crate) fn stats(&self, queue: &str) -> QueueStats {
        stats(&self.rows, queue).unwrap()
    }

    /// A ready job as a claimer's candidate.
    pub(crate) fn candidate(&self, job: JobId) -> Candidate {
        let (home, record) = self.find(job).unwrap();
        Candidate { job, key: record.key_in(home) }
    }
}

/// A job that can run now.
pub(crate) fn job(task: &str) -> NewJob {
    NewJob {
        queue: QUEUE.into(),
        task: task.into(),
        args: Payload::json(&()).unwrap(),
        args_version: 1,
        priority: 0,
        when: When::Now,
        attempts_max: 3,
        metadata: Vec::new(),
        keep: false,
        extra: None,
    }
}

/// What has a job hold a unique key until it ends.
pub(crate) fn unique(key: &str) -> NewExtra {
    let unique = NewUnique { key: key.into(), scope: UniqueScope::Queue, states: StateSet::UNENDED, within: None };
    NewExtra { unique: Some(unique), ..NewExtra::default() }
}

/// A claim of an idle worker for the next jobs, whatever their tasks.
pub(crate) fn claim(jobs_max: usize) -> Claim {
    Claim::new(SESSION, vec![QUEUE.into()], Wanted { tasks: Tasks::Any, jobs_max, idle: true })
}

/// A reclaim of a session that had begun nothing.
pub(crate) fn reclaim() -> Reclaim {
    Reclaim::of_all(SESSION, None)
}

/// The ids that a claim got, in order.
pub(crate) fn ids(claimed: &Claimed) -> Vec<JobId> {
    claimed.jobs.iter().map(|job| job.record.id).collect()
}
