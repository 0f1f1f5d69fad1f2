//! Who is present on a store: the session files beside it, with the jobs they hold.

use crate::{
    clock::Timestamp,
    error::Result,
    local,
    queue::{
        held,
        id::{JobId, SessionId},
    },
    store::Store,
};

/// A process that is present on a store, or whose presence has not been cleared away yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The session's random name.
    pub id: SessionId,
    /// Its process.
    pub pid: u32,
    /// What it calls itself.
    pub label: String,
    /// Whether its process lives.
    pub alive: bool,
    /// Whether its process is stopped, as by Ctrl-Z.
    pub is_stopped: bool,
    /// When it began.
    pub started_at: Timestamp,
    /// How many jobs it holds.
    pub held: u64,
    /// Those whose handlers have begun.
    pub running: Vec<JobId>,
}

#[cfg(feature = "cli")]
impl SessionInfo {
    pub(crate) fn state(&self) -> &'static str {
        state_of(self.alive, self.is_stopped)
    }
}

/// What a process is, in a word.
#[cfg(feature = "cli")]
pub(crate) fn state_of(is_alive: bool, is_stopped: bool) -> &'static str {
    match (is_alive, is_stopped) {
        (false, _) => "dead",
        (true, true) => "stopped",
        (true, false) => "alive",
    }
}

impl Store {
    /// The sessions on this store, in order of their names; none for a store in memory.
    ///
    /// # Errors
    /// `Unavailable` when the files beside the store can't be read.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>> {
        let Some(files) = self.inner.site.files() else { return Ok(Vec::new()) };
        let jobs = held(self.inner.peek()?.as_ref())?;
        let of = |session: SessionId| jobs.iter().filter(move |job| job.session == session);
        let info = |seen: local::Seen| SessionInfo {
            id: seen.id,
            pid: seen.pid,
            label: seen.label,
            alive: seen.alive,
            is_stopped: seen.alive && local::is_stopped(seen.pid),
            started_at: Timestamp::from_millis(seen.started_ms),
            held: of(seen.id).count() as u64,
            running: of(seen.id)
                .filter(|held| seen.notes.iter().any(|note| note.job == held.job && note.token == held.token))
                .map(|held| held.job)
                .collect(),
        };
        Ok(local::sessions(&files.folder)?.into_iter().map(info).collect())
    }
}
