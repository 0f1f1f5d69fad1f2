//! A transaction on the root: it reads on one snapshot, guards every key and every range that it read (absence too),
//! and commits by compare-and-swap. Of two that each read what the other writes, one commits: strictly serializable.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    clock::sleep,
    codec::{Digest, Payload},
    error::{Error, ErrorKind, Result},
    queue::{Flow, IntoJob, JobRef, Lease, id::JobId, lease::result_payload, settle::Ending},
    random,
    store::{
        Store,
        apply::digest_object,
        change::{ChangeId, Guard, Intent},
        conflict::Version,
        keys,
        object::{Value, check_key},
        snapshot::{Object, Snapshot},
    },
};

/// How often a transaction is tried before its conflict is given to the caller.
const TRIES_MAX: u32 = 12;
/// The first pause after a conflict is a random part of this; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Reads on one snapshot, and what is to be written in one commit.
pub struct Transaction {
    snapshot: Snapshot,
    /// What was read, and the version found.
    reads: BTreeMap<String, Option<Version>>,
    ranges: Vec<Guard>,
    /// Named locks that must still be held.
    locks: Vec<Guard>,
    /// What this transaction has made of a key so far.
    written: BTreeMap<String, Written>,
    intents: Vec<Intent>,
    /// What it is called, once something in it says so.
    id: Option<ChangeId>,
    /// Leases that end with the commit.
    settled: Vec<(Lease, Settlement)>,
    job: Option<JobId>,
}

#[derive(Clone, Debug)]
enum Written {
    Value(Payload),
    Removed,
    /// So much more than what is there.
    Added(i64),
}

/// How a lease ends with the commit.
enum Settlement {
    Completed,
    Other,
}

impl Transaction {
    pub(crate) fn new(snapshot: Snapshot, job: Option<JobId>) -> Self {
        Self {
            snapshot,
            reads: BTreeMap::new(),
            ranges: Vec::new(),
            locks: Vec::new(),
            written: BTreeMap::new(),
            intents: Vec::new(),
            id: None,
            settled: Vec::new(),
            job,
        }
    }

    /// The version that this transaction reads.
    #[must_use]
    pub fn version(&self) -> Version {
        self.snapshot.version()
    }

    /// The value under a key, as this transaction has left it so far. Guards the key, also where it is absent.
    ///
    /// # Errors
    /// `Invalid` for a bad key, or a value that is no `T`; `Conflict` for a snapshot that is too old.
    pub fn get<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>> {
        let named = |error: Error| error.during(&format!("\"{key}\""));
        match self.written.get(key) {
            Some(Written::Value(payload)) => return payload.decode().map(Some).map_err(named),
            Some(Written::Removed) => return Ok(None),
            Some(Written::Added(_)) | None => {}
        }
        let record = self.snapshot.object_record(key)?;
        let version = record.as_ref().map(|record| record.version);
        self.reads.insert(key.to_owned(), version);
        let value = record.map(|record| record.value);
        let Some(Written::Added(delta)) = self.written.get(key) else {
            return value.map(|value| value.decode()).transpose().map_err(named);
        };
        let before = match value {
            Some(Value::Counter(count)) => count,
            Some(Value::Plain(_)) => return Err(Error::invalid(format!("\"{key}\" holds a value, not a counter"))),
            None => 0,
        };
        Value::Counter(before.saturating_add(*delta)).decode().map(Some).map_err(named)
    }

    /// The objects whose keys begin with `prefix`, as this transaction has left them so far. Guards the whole range: a
    /// key that somebody adds to it is a conflict. What this transaction itself wrote has version 0.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn list<T: DeserializeOwned>(&mut self, prefix: &str) -> Result<Vec<Object<T>>> {
        let range = keys::roots(prefix);
        let mut digest = Digest::new();
        let mut found: BTreeMap<String, (Version, Value)> = BTreeMap::new();
        for (key, record) in self.snapshot.object_records(prefix)? {
            digest_object(&mut digest, &keys::root(&key), record.version);
            found.insert(key, (record.version, record.value));
        }
        self.ranges.push(Guard::Range {
            prefix: prefix.to_owned(),
            start: range.start,
            end: range.end,
            digest,
            read: self.snapshot.version(),
        });
        for (key, written) in self.written.iter().filter(|(key, _)| key.starts_with(prefix)) {
            match written {
                Written::Removed => {
                    found.remove(key);
                }
                Written::Value(payload) => {
                    found.insert(key.clone(), (Version(0), Value::Plain(payload.clone())));
                }
                Written::Added(delta) => {
                    let before = match found.get(key) {
                        Some((_, Value::Counter(count))) => *count,
                        _ => 0,
                    };
                    found.insert(key.clone(), (Version(0), Value::Counter(before.saturating_add(*delta))));
                }
            }
        }
        found
            .into_iter()
            .map(|(key, (version, value))| {
                let value = value.decode().map_err(|error| error.during(&format!("\"{key}\"")))?;
                Ok(Object { key, version, value })
            })
            .collect()
    }

    /// Puts a value under a key.
    ///
    /// # Errors
    /// `Invalid` for a bad key, or a value that can't be encoded.
    pub fn put<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<()> {
        self.put_payload(key, Payload::bincode(value)?)
    }

    /// Puts a value that is already encoded, as JSON text from outside.
    ///
    /// # Errors
    /// `Invalid` for a bad key.
    pub fn put_payload(&mut self, key: &str, payload: Payload) -> Result<()> {
        check_key(key)?;
        self.written.insert(key.to_owned(), Written::Value(payload.clone()));
        self.intents.push(Intent::Put { key: key.to_owned(), value: Value::Plain(payload) });
        Ok(())
    }

    /// Removes what is under a key, if anything is.
    ///
    /// # Errors
    /// `Invalid` for a bad key.
    pub fn remove(&mut self, key: &str) -> Result<()> {
        check_key(key)?;
        self.written.insert(key.to_owned(), Written::Removed);
        self.intents.push(Intent::Remove { key: key.to_owned() });
        Ok(())
    }

    /// Adds to the counter under a key, from 0 where there is none. Two transactions that add don't conflict.
    ///
    /// # Errors
    /// `Invalid` for a bad key; the commit refuses a key that holds another value, and a sum that does not fit.
    pub fn add(&mut self, key: &str, delta: i64) -> Result<()> {
        check_key(key)?;
        match self.written.entry(key.to_owned()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Written::Added(delta));
            }
            Entry::Occupied(mut occupied) => match occupied.get_mut() {
                Written::Added(sum) => *sum = sum.saturating_add(delta),
                Written::Removed => return Err(Error::invalid(format!("\"{key}\" was removed in this transaction"))),
                Written::Value(_) => return Err(Error::invalid(format!("\"{key}\" holds a value, not a counter"))),
            },
        }
        self.intents.push(Intent::Add { key: key.to_owned(), delta });
        Ok(())
    }

    /// Enqueues a job in the same commit.
    ///
    /// # Errors
    /// `Invalid` for arguments that can't be encoded.
    pub fn enqueue(&mut self, queue: &str, job: impl IntoJob) -> Result<()> {
        self.intents.push(Intent::Enqueue(job.into_job().for_queue(queue)?));
        Ok(())
    }

    /// Enqueues a job in the same commit, and gives a reference to it that can be stored there as well:
    /// [`Store::resolve`] gives the job's id, as long as the job lives.
    ///
    /// ```
    /// # use casque::{JobRequest, State, flow::JobRef};
    /// # let store = casque::Store::in_memory()?;
    /// store.transaction(|tx| {
    ///     let job = tx.enqueue_ref("mail", JobRequest::new("confirm", &"order 7"))?;
    ///     tx.put("order/7", &("paid", job))
    /// })?;
    /// let (_, job): (String, JobRef) = store.get("order/7")?.expect("it is there");
    /// assert_eq!(store.job(store.resolve(&job)?)?.state, State::Ready);
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for arguments that can't be encoded.
    pub fn enqueue_ref(&mut self, queue: &str, job: impl IntoJob) -> Result<JobRef> {
        let mut request = job.into_job();
        request.extra_mut().is_referenced = true;
        let index = u32::try_from(self.enqueued()).unwrap_or(u32::MAX);
        self.enqueue(queue, request)?;
        let inner = self.snapshot.inner();
        Ok(JobRef { change: *self.id.get_or_insert_with(|| inner.next_change()), index })
    }

    /// Enqueues jobs that wait for each other in the same commit.
    ///
    /// # Errors
    /// `Invalid` for arguments that can't be encoded, and more than 10,000 jobs.
    pub fn enqueue_flow(&mut self, flow: Flow) -> Result<()> {
        let jobs = flow.into_jobs(self.enqueued())?;
        self.intents.extend(jobs.into_iter().map(Intent::Enqueue));
        Ok(())
    }

    fn enqueued(&self) -> usize {
        self.intents.iter().filter(|intent| matches!(intent, Intent::Enqueue(_))).count()
    }

    /// Completes a leased job in the same commit: its effects on the root happen exactly once, since a lease that was
    /// lost refuses the whole transaction.
    ///
    /// ```
    /// # use casque::{JobRequest, Registry, Store, Worker};
    /// # let store = Store::in_memory()?;
    /// # store.queue("default").enqueue(JobRequest::new("count", &()))?;
    /// let mut tasks = Registry::new();
    /// tasks.register("count", |job, ()| {
    ///     job.store().transaction(|tx| {
    ///         tx.add("counter", 1)?;
    ///         tx.complete(job)
    ///     })?;
    ///     Ok(())
    /// })?;
    /// let report = Worker::new(&store).tasks(tasks).drain(true).run()?;
    /// assert_eq!((report.completed, report.leases_lost), (1, 0));
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// None now; the commit is `LeaseLost` where the lease is.
    pub fn complete(&mut self, lease: &Lease) -> Result<()> {
        self.complete_payload(lease, None);
        Ok(())
    }

    /// As [`Transaction::complete`], with what came of the work.
    ///
    /// # Errors
    /// `Invalid` for a result that can't be encoded; the commit is `LeaseLost` where the lease is.
    pub fn complete_with<T: Serialize>(&mut self, lease: &Lease, result: &T) -> Result<()> {
        self.complete_payload(lease, result_payload(result)?);
        Ok(())
    }

    /// In the same commit, the attempt failed: again after `retry_after`, or never for `None`. So many leases can be
    /// settled in one change, and what goes with that is there too, or nothing is.
    ///
    /// # Errors
    /// As [`Transaction::complete`].
    pub fn fail(&mut self, lease: &Lease, message: &str, retry_after: Option<Duration>) -> Result<()> {
        self.settle(lease, Ending::Fail { message: message.to_owned(), retry_after }, Settlement::Other);
        Ok(())
    }

    /// In the same commit, the job goes back to the front of its queue, without an attempt charged.
    ///
    /// # Errors
    /// As [`Transaction::complete`].
    pub fn release(&mut self, lease: &Lease) -> Result<()> {
        self.settle(lease, Ending::Release, Settlement::Other);
        Ok(())
    }

    /// In the same commit, the job is put off, without an attempt charged.
    ///
    /// # Errors
    /// As [`Transaction::complete`].
    pub fn snooze(&mut self, lease: &Lease, delay: Duration) -> Result<()> {
        self.settle(lease, Ending::Snooze { delay }, Settlement::Other);
        Ok(())
    }

    /// Has the commit depend on a named lock.
    pub(crate) fn add_guard(&mut self, lock: Guard) {
        self.locks.push(lock);
    }

    fn complete_payload(&mut self, lease: &Lease, result: Option<Payload>) {
        self.settle(lease, Ending::Complete { result }, Settlement::Completed);
    }

    fn settle(&mut self, lease: &Lease, how: Ending, settlement: Settlement) {
        self.intents.push(Intent::Settle(lease.ending(how)));
        self.settled.push((lease.clone(), settlement));
    }

    /// Commits; the version is that of the commit, or the snapshot's where there was nothing to write.
    fn commit(mut self) -> Result<Version> {
        if self.intents.is_empty() && self.locks.is_empty() {
            return Ok(self.snapshot.version());
        }
        let mut guards: Vec<Guard> =
            self.reads.into_iter().map(|(key, version)| Guard::Object { key, version }).collect();
        guards.extend(self.ranges);
        guards.extend(self.locks);
        // A job that is enqueued may have the unique key that one which ends here gives up.
        self.intents.sort_by_key(|intent| !matches!(intent, Intent::Settle(_)));
        let inner = self.snapshot.inner();
        let applied = match self.id {
            Some(id) => inner.commit_as(id, guards, self.intents, self.job),
            None => inner.commit(guards, self.intents, self.job),
        }?;
        for (lease, settlement) in &self.settled {
            match settlement {
                Settlement::Completed => lease.note_completed_in_transaction(),
                Settlement::Other => lease.note_settled(),
            }
        }
        Ok(applied.version.unwrap_or(self.snapshot.version()))
    }
}

/// Makes one change of the root that reads nothing, and so needs no snapshot: that would end the stone's window. Gives
/// the version of the commit, or the store's where there was nothing to write.
pub(crate) fn write(store: &Store, key: &str, intent: Intent) -> Result<Version> {
    check_key(key)?;
    let applied = store.inner.commit(Vec::new(), vec![intent], None)?;
    applied.version.map_or_else(|| store.version(), Ok)
}

/// Runs a closure as a transaction of a store, again on a fresh snapshot after each conflict.
pub(crate) fn run<T>(
    store: &Store,
    job: Option<JobId>,
    mut body: impl FnMut(&mut Transaction) -> Result<T>,
) -> Result<(T, Version)> {
    let mut pause = PAUSE_FIRST;
    for attempt in 1.. {
        let mut transaction = Transaction::new(store.snapshot()?, job);
        let outcome = body(&mut transaction).and_then(|value| Ok((value, transaction.commit()?)));
        match outcome {
            Err(error) if error.kind() == ErrorKind::Conflict && attempt < TRIES_MAX => {
                sleep(random::up_to(pause));
                pause = (pause * 2).min(PAUSE_MAX);
            }
            outcome => return outcome,
        }
    }
    unreachable!("the last try returns")
}
