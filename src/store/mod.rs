//! The store: the persistent root, and how changes get into it.
//!
//! `change` is what may be asked, `apply` what it does, `committer` how it gets to the disk; `snapshot` and
//! `transaction` are what a user sees of it. Which rows there are is in `keys`; what is beside the store in
//! `crate::local`.

pub(crate) mod alarm;
pub(crate) mod apply;
pub(crate) mod backup;
pub(crate) mod change;
pub(crate) mod committer;
pub(crate) mod compact;
pub(crate) mod conflict;
pub(crate) mod desk;
#[cfg(feature = "cli")]
pub(crate) mod glance;
pub(crate) mod group;
pub(crate) mod growth;
pub(crate) mod inner;
pub(crate) mod keys;
pub(crate) mod life;
pub(crate) mod lock;
pub(crate) mod object;
pub(crate) mod open;
pub(crate) mod paths;
pub(crate) mod pins;
#[cfg(feature = "tokio")]
mod pool;
pub(crate) mod promise;
pub(crate) mod recovery;
pub(crate) mod restore;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod site;
pub(crate) mod snapshot;
pub(crate) mod standing;
pub(crate) mod ticket;
pub(crate) mod transaction;
pub(crate) mod verdict;
pub(crate) mod view;
pub(crate) mod watch;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod sealing_tests;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod stamp_tests;
#[cfg(test)]
mod view_tests;
#[cfg(test)]
mod waiting_tests;

use std::{path::Path, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    codec::Payload,
    error::Result,
    queue::{Queue, admin::Admin},
    store::{
        change::Intent,
        conflict::Version,
        inner::Inner,
        object::Value,
        open::StoreOptions,
        settings::setting_info,
        snapshot::{Object, Snapshot},
        transaction::Transaction,
    },
};

/// A persistent object store in one file, and the queues in it. Any number of processes may have it open.
///
/// Clones, and all openings of the same file in one process, share one engine.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("app.redb");
/// let store = casque::Store::open(&path)?;
/// store.transaction(|tx| {
///     let visits: u64 = tx.get("visits")?.unwrap_or(0);
///     tx.put("visits", &(visits + 1))
/// })?;
/// assert_eq!(store.get::<u64>("visits")?, Some(1));
/// store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store at a path, and makes it if there is none. [`StoreOptions`] has more to choose.
    ///
    /// # Errors
    /// As [`StoreOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        StoreOptions::new().open(path)
    }

    /// A store in memory, of this process alone: for tests.
    ///
    /// # Errors
    /// `Unavailable` when a thread can't be started.
    pub fn in_memory() -> Result<Self> {
        StoreOptions::new().open_in_memory()
    }

    /// The store's file; none for one in memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.inner.site.files().map(|files| files.store.as_path())
    }

    /// Commits for the other processes on this store too, as a [`Worker`](crate::Worker) does while it runs, until the
    /// returned value is dropped. Of several processes that do, one is the stone, and the others take its place when it
    /// leaves or dies. Nothing happens in a store in memory.
    ///
    /// # Errors
    /// `Unavailable` when a thread can't be started.
    pub fn serve(&self) -> Result<crate::types::Serving> {
        let maintenance = crate::worker::maintain(self)?;
        let mut serving = self.inner.stand()?;
        serving.maintenance = Some(maintenance);
        Ok(serving)
    }

    /// Lets others go on while this process is about to stop for a while, as by Ctrl-Z: it leaves as the stone, if it
    /// is one, gives its snapshots' pages up, and holds no lock of the store while `pause` runs. Then it stands again.
    ///
    /// For a program's own handler of `SIGTSTP`; the library installs none. The command line's `work`, `serve` and
    /// `lock` do this by themselves.
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// // On a thread that waits for the signal, as with the crate `signal-hook`:
    /// store.hand_over(|| { /* raise SIGSTOP; this goes on after SIGCONT */ });
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn hand_over(&self, pause: impl FnOnce()) {
        self.inner.hand_over(pause);
    }

    #[doc(hidden)]
    #[must_use]
    pub fn commits_by_path(&self) -> paths::CommitsByPath {
        self.inner.commits_by_path()
    }

    #[doc(hidden)]
    #[must_use]
    pub fn stone(&self) -> Option<u32> {
        self.inner.stone()
    }

    /// A view of all that was answered before this call, by any process.
    ///
    /// # Errors
    /// `Unavailable` when the last writer died and the store can't be recovered yet.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let snapshot = Snapshot::take(&self.inner)?;
        self.inner.keep_in_time(snapshot.pin());
        Ok(snapshot)
    }

    /// The store's version: how many changes were committed.
    ///
    /// # Errors
    /// As [`Store::snapshot`].
    pub fn version(&self) -> Result<Version> {
        Ok(Snapshot::take(&self.inner)?.version())
    }

    /// Runs a closure that reads on one snapshot and commits what it wrote, all or nothing. If somebody else changed
    /// what it read, it runs again on a fresh snapshot, so it must have no other effects.
    ///
    /// When this returns `Ok`, the commit is on the disk.
    ///
    /// # Errors
    /// `Conflict` when it lost to others again and again; `Unknown` when it may or may not be committed; else what the
    /// closure returned ([`Error::abort`](crate::Error::abort) calls it off).
    pub fn transaction<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        transaction::run(self, None, body).map(|(value, _)| value)
    }

    /// The value under a key of the root.
    ///
    /// # Errors
    /// `Invalid` for a bad key, or a value that is no `T`.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        Snapshot::take(&self.inner)?.get(key)
    }

    /// Puts a value under a key of the root, whatever was there.
    ///
    /// # Errors
    /// `Invalid` for a bad key, or a value that can't be encoded or is too large.
    pub fn put<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<Version> {
        let value = Value::Plain(Payload::bincode(value)?);
        transaction::write(self, key, Intent::Put { key: key.to_owned(), value })
    }

    /// Removes what is under a key of the root, if anything is.
    ///
    /// # Errors
    /// `Invalid` for a bad key.
    pub fn remove(&self, key: &str) -> Result<Version> {
        transaction::write(self, key, Intent::Remove { key: key.to_owned() })
    }

    /// Adds to a counter of the root, from 0 where there is none. Adding never conflicts.
    ///
    /// # Errors
    /// `Invalid` for a bad key, one that holds another value, and a sum that does not fit.
    pub fn add(&self, key: &str, delta: i64) -> Result<Version> {
        transaction::write(self, key, Intent::Add { key: key.to_owned(), delta })
    }

    /// The objects whose keys begin with `prefix`, in order of their keys.
    ///
    /// # Errors
    /// `Invalid` for a value that is no `T`.
    pub fn list<T: DeserializeOwned>(&self, prefix: &str) -> Result<Vec<Object<T>>> {
        Snapshot::take(&self.inner)?.list(prefix)
    }

    /// Waits until the object has another version than `from` (`None`: absent), and gives what is there then.
    ///
    /// # Errors
    /// `TimedOut` when it has not changed in that time.
    pub fn watch_key<T: DeserializeOwned>(
        &self,
        key: &str,
        from: Option<Version>,
        timeout: Duration,
    ) -> Result<Option<Object<T>>> {
        watch::watch(self, key, from, timeout, |snapshot| snapshot.object(key))
    }

    /// The queue of that name. There need not be one yet.
    #[must_use]
    pub fn queue(&self, name: &str) -> Queue {
        Queue::new(self.clone(), name)
    }

    /// The value of a setting, in its unit.
    ///
    /// # Errors
    /// `NotFound` for a name that is no setting.
    pub fn setting(&self, name: &str) -> Result<u64> {
        settings::value(self.inner.rows()?.as_ref(), setting_info(name)?)
    }

    /// Sets a setting, in its unit, for all processes of the store. Those that run go by a new lease time within
    /// seconds.
    ///
    /// # Errors
    /// `NotFound` for a name that is no setting, `Invalid` for a value out of range.
    pub fn configure(&self, name: &str, value: u64) -> Result<()> {
        let admin = Admin::Configure { setting: setting_info(name)?.name.to_owned(), value };
        self.inner.perform(Intent::Administer(admin)).map(|_| ())
    }

    /// Ends this process's presence on the store and closes the file. Jobs that it still holds go back to their queues.
    /// Dropping the last handle does the same, without a word about errors.
    ///
    /// # Errors
    /// `Unavailable` when another process keeps the writer's lock for too long; what the disk says.
    pub fn close(self) -> Result<()> {
        self.inner.close(self.inner.patience)
    }
}
