//! Taking back the jobs of sessions that are dead (nobody holds their file) or stopped (their beat stands still), P2
//! to P5.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    clock::{Timestamp, monotonic},
    error::Result,
    local::{self, Folder, NoteState, Seen, boot_id, children},
    queue::{
        held,
        id::{JobId, SessionId},
        reclaim::{Reclaim, Reclaimed},
    },
    store::{
        Store,
        change::{Intent, Outcome},
        session::{Observer, Pulse},
    },
    worker::{
        Setup,
        event::{Event, tell},
    },
};

/// How often it is checked that each lease has a session at all.
const ORPHANS_EVERY: Duration = Duration::from_secs(2);

pub(super) struct Recovery {
    store: Store,
    setup: Arc<Setup>,
    observer: Observer,
    lease: Duration,
    own: SessionId,
    next_orphans: Instant,
}

impl Recovery {
    pub(super) fn new(store: &Store, setup: &Arc<Setup>) -> Result<Self> {
        Ok(Self {
            store: store.clone(),
            setup: setup.clone(),
            observer: Observer::default(),
            lease: store.inner.settings()?.lease,
            own: store.inner.session()?.id,
            next_orphans: monotonic(),
        })
    }

    /// Looks at the other sessions once.
    pub(super) fn look(&mut self) -> Result<()> {
        let Some(files) = self.store.inner.site.files() else { return Ok(()) };
        let sessions = local::sessions(&files.folder)?;
        self.observer.keep_only(&sessions);
        for seen in sessions.iter().filter(|seen| seen.id != self.own) {
            match self.observer.observe(seen, self.lease) {
                Pulse::Alive => {}
                Pulse::Stopped => {
                    self.take_back(seen.id, Some(seen))?;
                }
                Pulse::Dead => {
                    if self.take_back(seen.id, Some(seen))? {
                        self.bury(seen.id)?;
                    }
                }
            }
        }
        let now = monotonic();
        if now >= self.next_orphans {
            self.next_orphans = now + ORPHANS_EVERY;
            self.take_back_orphans(&files.folder)?;
        }
        Ok(())
    }

    /// Leases of sessions that have no file: of a store that was copied, or a folder that was cleared.
    fn take_back_orphans(&self, folder: &Folder) -> Result<()> {
        let holders: HashSet<SessionId> = held(self.store.inner.rows()?.as_ref())?
            .into_iter()
            .filter_map(|job| job.lease.map(|lease| lease.session))
            .collect();
        // Listed after the leases were read: a session has its file before its first claim (P1).
        let sessions = local::sessions(folder)?;
        let known: HashSet<SessionId> = sessions.iter().map(|seen| seen.id).chain([self.own]).collect();
        holders.difference(&known).try_for_each(|session| self.take_back(*session, None).map(|_| ()))
    }

    /// Takes a session's jobs back; whether it has none left.
    fn take_back(&self, session: SessionId, seen: Option<&Seen>) -> Result<bool> {
        let jobs = self.store.held_by(session)?;
        if jobs.is_empty() {
            return Ok(true);
        }
        let Some(files) = self.store.inner.site.files() else { return Ok(true) };
        // P5: what a child process still works on is not given back; what its neighbours wait for is.
        let busy: Vec<JobId> = jobs
            .iter()
            .filter_map(|job| job.lease.as_ref().map(|lease| (job.id, lease.token)))
            .filter(|(job, token)| children::is_busy(&files.folder, *job, *token))
            .map(|(job, _)| job)
            .collect();
        if busy.len() == jobs.len() {
            return Ok(false);
        }
        let mut reclaim = reclaim_of(session, seen, busy);
        loop {
            let Outcome::Reclaimed(done) = self.store.inner.perform(Intent::Reclaim(reclaim.clone()))? else {
                return Ok(false);
            };
            self.tell_recovered(session, &done);
            match done.next {
                Some(next) => reclaim.after = Some(next),
                None => return Ok(reclaim.busy.is_empty()),
            }
        }
    }

    fn tell_recovered(&self, session: SessionId, done: &Reclaimed) {
        let jobs: Vec<JobId> = [&done.requeued, &done.suspects, &done.completed, &done.dead, &done.cancelled]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        if !jobs.is_empty() {
            tell(&self.setup.listeners, &Event::Recovered { session, jobs });
        }
    }

    /// W1: removes the file of a dead session that holds nothing any more.
    fn bury(&self, session: SessionId) -> Result<()> {
        self.store.inner.section("bury a dead session", move |site| {
            let Some(files) = site.files() else { return Ok(()) };
            match local::look(&files.folder, session)? {
                Some(seen) if !seen.alive => local::remove(&files.folder, session)?,
                _ => {}
            }
            local::remove_leftovers(&files.folder)
        })?
    }
}

fn reclaim_of(session: SessionId, seen: Option<&Seen>, busy: Vec<JobId>) -> Reclaim {
    let notes = seen.map(|seen| seen.notes.as_slice()).unwrap_or_default();
    Reclaim {
        started: notes
            .iter()
            .filter(|note| note.state != NoteState::EndedClean)
            .map(|note| (note.job, note.token, Timestamp::from_millis(note.started_ms)))
            .collect(),
        ended: notes
            .iter()
            .filter(|note| note.state == NoteState::EndedClean)
            .map(|note| (note.job, note.token))
            .collect(),
        // A session without a file, or with an unreadable one, has not noted what it began.
        power_cut: seen.is_none_or(|seen| seen.boot_id != boot_id()),
        busy,
        ..Reclaim::of_all(session, seen.map(|seen| seen.beat))
    }
}
