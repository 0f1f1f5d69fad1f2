//! Who holds which lock.

use crate::{
    clock::Timestamp,
    error::Result,
    local,
    queue::id::SessionId,
    store::{
        Store, keys,
        lock::rules::{Fence, LockRecord},
        view::for_each,
    },
};

/// A named lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock's name.
    pub name: String,
    /// What the process calls itself that holds it.
    pub holder: String,
    /// That process's session.
    pub session: SessionId,
    /// That process; nothing where its session's file tells of none.
    pub pid: Option<u32>,
    /// Since when.
    pub since: Timestamp,
    /// The number of this holding.
    pub fence: Fence,
    /// How many wait for it.
    pub waiting: usize,
}

impl Store {
    /// The named locks that are held, in order of their names.
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// let held = store.lock("nightly-report")?;
    /// let locks = store.locks()?;
    /// assert_eq!((locks[0].name.as_str(), locks[0].fence), ("nightly-report", held.fence()));
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// What reading the store says.
    pub fn locks(&self) -> Result<Vec<LockInfo>> {
        let rows = self.inner.look()?;
        let mut locks = Vec::new();
        for_each(rows.as_ref(), &keys::locks(), |key, bytes| {
            let record: LockRecord = crate::codec::decode(bytes)?;
            let session = record.holder.session;
            let own = || self.inner.session_if_begun().is_some_and(|own| own.id == session);
            let pid = match self.inner.site.files() {
                Some(files) => local::look(&files.folder, session)?.map(|seen| seen.pid).filter(|pid| *pid != 0),
                None => own().then(std::process::id),
            };
            locks.push(LockInfo {
                name: keys::lock_name(key).unwrap_or_default().to_owned(),
                holder: record.label,
                session,
                pid,
                since: record.since,
                fence: record.fence,
                waiting: record.waiters.len(),
            });
            Ok(())
        })?;
        Ok(locks)
    }
}
