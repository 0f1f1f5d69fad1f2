//! A snapshot: a consistent view of all that was answered before it. It pins pages of the file for at most five seconds
//! (R3); a read after that looks at newer rows, and refuses where they may differ from what the snapshot showed.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;

use crate::{
    clock::{Timestamp, monotonic},
    codec,
    engine::Rows,
    error::{Error, Result},
    queue::{self, JobInfo, QueueView, id::JobId, moves::find},
    store::{
        conflict::{Conflict, Subject, Version},
        inner::Inner,
        keys,
        object::{ObjectRecord, StoreRecord, check_key},
        view::get_record,
    },
};

/// R3: how long a snapshot pins pages of the file.
pub(crate) const PIN_MAX: Duration = Duration::from_secs(5);

/// A consistent view of the store at one version.
pub struct Snapshot {
    inner: Arc<Inner>,
    version: Version,
    stamp: Timestamp,
    pin: Arc<Mutex<Pin>>,
}

/// The rows that a snapshot reads, until they are given up.
pub(crate) struct Pin {
    rows: Option<Box<dyn Rows + Send>>,
    opened: Instant,
}

/// The version of the store that rows show.
pub(crate) fn version_of(rows: &dyn Rows) -> Result<Version> {
    Ok(get_record::<StoreRecord>(rows, keys::STORE)?.unwrap_or_default().version)
}

impl Pin {
    /// Gives the pages up if the time for that has come; whether it still pins them.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        if now.duration_since(self.opened) >= PIN_MAX {
            self.give_up();
        }
        self.rows.is_some()
    }

    /// Gives the pages up: what is read from now on are newer rows.
    pub(crate) fn give_up(&mut self) {
        self.rows = None;
    }
}

fn lock(pin: &Mutex<Pin>) -> std::sync::MutexGuard<'_, Pin> {
    // A panic under it leaves the pin as it was: it is only ever replaced as a whole.
    pin.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One object of the root, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<T> {
    /// Its key.
    pub key: String,
    /// The version of the change that wrote it.
    pub version: Version,
    /// Its value.
    pub value: T,
}

impl Snapshot {
    pub(crate) fn take(inner: &Arc<Inner>) -> Result<Self> {
        let rows = inner.rows()?;
        let store: StoreRecord = get_record(rows.as_ref(), keys::STORE)?.unwrap_or_default();
        let pin = Arc::new(Mutex::new(Pin { rows: Some(rows), opened: monotonic() }));
        Ok(Self { inner: inner.clone(), version: store.version, stamp: store.stamp, pin })
    }

    pub(crate) fn pin(&self) -> &Arc<Mutex<Pin>> {
        &self.pin
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The store's version that this shows.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// When the newest change that this shows was committed, by the committer's clock.
    #[must_use]
    pub fn stamp(&self) -> Timestamp {
        self.stamp
    }

    /// The value under a key of the root, as a `T`.
    ///
    /// # Errors
    /// `Invalid` for a bad key, or a value that is no `T`; `Conflict` for a snapshot that is too old to tell.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        Ok(self.object(key)?.map(|object| object.value))
    }

    /// The object under a key of the root: its value and its version.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn object<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Object<T>>> {
        let Some(record) = self.object_record(key)? else { return Ok(None) };
        let value = record.value.decode().map_err(|error| error.during(&format!("\"{key}\"")))?;
        Ok(Some(Object { key: key.to_owned(), version: record.version, value }))
    }

    /// The object under a key of the root, its value as JSON; as in [`Snapshot::list_json`].
    ///
    /// # Errors
    /// `Invalid` for a bad key; `Conflict` for a snapshot that is too old to tell.
    pub fn object_json(&self, key: &str) -> Result<Option<Object<serde_json::Value>>> {
        let record = self.object_record(key)?;
        Ok(record.map(|record| Object { key: key.to_owned(), version: record.version, value: record.value.to_json() }))
    }

    pub(crate) fn object_record(&self, key: &str) -> Result<Option<ObjectRecord>> {
        check_key(key)?;
        self.read(|rows, is_same| {
            let record: Option<ObjectRecord> = get_record(rows, &keys::root(key))?;
            // A row that is there and no newer than the snapshot was there in it; of one that is gone nobody knows.
            let settled = is_same || record.as_ref().is_some_and(|record| record.version <= self.version);
            if settled { Ok(record) } else { Err(self.too_old(record.map(|record| record.version))) }
        })
    }

    /// The objects whose keys begin with `prefix` (all of them for an empty one), in order of their keys.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn list<T: DeserializeOwned>(&self, prefix: &str) -> Result<Vec<Object<T>>> {
        self.object_records(prefix)?
            .into_iter()
            .map(|(key, record)| {
                let value = record.value.decode().map_err(|error| error.during(&format!("\"{key}\"")))?;
                Ok(Object { key, version: record.version, value })
            })
            .collect()
    }

    /// The objects whose keys begin with `prefix`, their values as JSON: those of Rust programs, which only the owner
    /// of the type can read, as `{"bincode": "<hex>"}`.
    ///
    /// # Errors
    /// `Conflict` for a snapshot that is too old to tell.
    pub fn list_json(&self, prefix: &str) -> Result<Vec<Object<serde_json::Value>>> {
        let records = self.object_records(prefix)?;
        Ok(records
            .into_iter()
            .map(|(key, record)| Object { key, version: record.version, value: record.value.to_json() })
            .collect())
    }

    pub(crate) fn object_records(&self, prefix: &str) -> Result<Vec<(String, ObjectRecord)>> {
        let range = keys::roots(prefix);
        let mut records = Vec::new();
        self.read(|rows, is_same| {
            if !is_same {
                return Err(self.too_old(None));
            }
            rows.visit(&range.start, &range.end, &mut |key, bytes| {
                records.push((keys::root_name(key), codec::decode(bytes)?));
                Ok(ControlFlow::Continue(()))
            })
        })?;
        Ok(records)
    }

    /// The queue of that name as this snapshot shows it, to shift jobs off.
    #[must_use]
    pub fn queue(&self, name: &str) -> QueueView<'_> {
        QueueView::new(self, name)
    }

    /// A job.
    ///
    /// # Errors
    /// `NotFound` for a job that is gone, or never was; `Conflict` for a snapshot that is too old to tell.
    pub fn job(&self, id: JobId) -> Result<JobInfo> {
        self.read_exactly(|rows| match find(rows, id)? {
            Some((home, record)) => JobInfo::of(rows, home, record),
            None => Err(queue::moves::not_found(rows, id)?),
        })
    }

    /// Reads rows that must be exactly those of this version.
    pub(crate) fn read_exactly<T>(&self, read: impl FnOnce(&dyn Rows) -> Result<T>) -> Result<T> {
        self.read(|rows, is_same| if is_same { read(rows) } else { Err(self.too_old(None)) })
    }

    /// Reads the pinned rows; where they were given up, newer ones, saying whether the store's version is still the
    /// same.
    fn read<T>(&self, read: impl FnOnce(&dyn Rows, bool) -> Result<T>) -> Result<T> {
        self.inner.site.check_process()?;
        let mut pin = lock(&self.pin);
        pin.expire(monotonic());
        if let Some(rows) = &pin.rows {
            return read(rows.as_ref(), true);
        }
        let rows = self.inner.rows()?;
        let store: StoreRecord = get_record(rows.as_ref(), keys::STORE)?.unwrap_or_default();
        read(rows.as_ref(), store.version == self.version)
    }

    fn too_old(&self, found: Option<Version>) -> Error {
        Error::of_conflict(Conflict { subject: Subject::SnapshotTooOld, read: Some(self.version), found, by: None })
    }
}
