//! Taking back the jobs of sessions that are dead (nobody holds their file) or stopped (their beat stands still), P2
//! to P5.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    clock::{Timestamp, monotonic},
    error::{ErrorKind, Result},
    local::{self, Folder, NoteState, Seen, boot_id},
    queue::{
        HeldJob,
        admin::Admin,
        held,
        id::{JobId, SessionId},
        reclaim::{Reclaim, Reclaimed},
    },
    store::{
        Store,
        change::Intent,
        keys,
        session::{Observer, Pulse, Session, remove_if_idle},
        settings::Settings,
        view::{first_rows, for_each},
    },
    worker::{
        Setup,
        event::{Event, tell},
    },
};

/// How often it is checked that each lease has a session, and those of this one somebody who has it in hand.
pub(super) const LEASES_EVERY: Duration = Duration::from_secs(2);

pub(super) struct Recovery {
    store: Store,
    setup: Arc<Setup>,
    observer: Observer,
    lease: Duration,
    /// Leases of this session that nobody had in hand at the last look.
    lost: HashSet<HeldJob>,
    next_leases: Instant,
}

impl Recovery {
    pub(super) fn new(store: &Store, setup: &Arc<Setup>) -> Result<Self> {
        Ok(Self {
            store: store.clone(),
            setup: setup.clone(),
            observer: Observer::default(),
            lease: store.inner.settings()?.lease,
            lost: HashSet::new(),
            next_leases: monotonic(),
        })
    }

    /// After how long without a beat a session counts as stopped, as read last.
    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    /// Looks at the sessions once; `every` is how often that is done. What fails for one is told, and does not keep
    /// the others waiting.
    pub(super) fn look(&mut self, every: Duration) -> Result<()> {
        let Some(files) = self.store.inner.site.files() else { return Ok(()) };
        let sessions = local::sessions(&files.folder)?;
        self.observer.keep_only(&sessions);
        let mut failure = None;
        let own = self.own().map(|own| own.id);
        // Of a file that this user may not read nothing is known, not even that its process lives.
        for seen in sessions.iter().filter(|seen| Some(seen.id) != own && seen.is_readable) {
            let looked = match self.observer.observe(seen, self.lease, every) {
                Pulse::Alive => Ok(()),
                Pulse::Stopped => self.take_back(seen.id, Some(seen)).map(|_| ()),
                Pulse::Dead => {
                    self.take_back(seen.id, Some(seen)).and_then(|all| if all { self.bury(seen.id) } else { Ok(()) })
                }
            };
            failure = failure.or(looked.err());
        }
        let now = monotonic();
        if now >= self.next_leases {
            self.next_leases = now + LEASES_EVERY;
            self.lease = Settings::read(self.store.inner.peek()?.as_ref())?.lease;
            let looked = self.take_back_orphans(&files.folder).and_then(|()| self.give_back_lost());
            failure = failure.or(looked.err());
        }
        failure.map_or(Ok(()), Err)
    }

    /// Whether to look once more for leases of this session that are in nobody's hand.
    pub(super) fn take_doubt(&self) -> bool {
        self.own().is_some_and(|own| own.take_doubt())
    }

    /// This process's session; a process that only serves has none.
    fn own(&self) -> Option<Arc<Session>> {
        self.store.inner.session_if_begun()
    }

    /// Leases of sessions that have no file: of a store that was copied, or a folder that was cleared.
    fn take_back_orphans(&self, folder: &Folder) -> Result<()> {
        let rows = self.store.inner.peek()?;
        let mut holders: HashSet<SessionId> = held(rows.as_ref())?.iter().map(|job| job.session).collect();
        for_each(rows.as_ref(), &keys::lock_sessions(), |key, _| {
            holders.extend(keys::lock_session_parts(key).map(|(session, _)| session));
            Ok(())
        })?;
        drop(rows);
        if holders.is_empty() {
            return Ok(());
        }
        // Listed after the leases were read: a session has its file before its first claim (P1).
        let known: HashSet<SessionId> =
            local::session_ids(folder)?.into_iter().chain(self.own().map(|own| own.id)).collect();
        holders.difference(&known).try_for_each(|session| self.take_back(*session, None).map(|_| ()))
    }

    /// Leases of this very session that nobody has in hand: of a claim whose answer was lost, or a release that failed.
    /// Those are given back that were so at two looks in a row: an answer may be on its way.
    pub(super) fn give_back_lost(&mut self) -> Result<()> {
        let Some(own) = self.own() else { return Ok(()) };
        let site = &self.store.inner.site;
        let lost: HashSet<HeldJob> = self
            .held()?
            .into_iter()
            .filter(|held| held.session == own.id && !own.has_in_hand(held.job, held.token))
            .filter(|held| !site.is_child_busy(held))
            .collect();
        for held in lost.intersection(&self.lost) {
            let release = Admin::Release { job: held.job, token: held.token };
            match self.store.inner.perform(Intent::Administer(release)) {
                Err(error) if error.kind() != ErrorKind::LeaseLost => return Err(error),
                _ => {}
            }
        }
        self.lost = lost;
        Ok(())
    }

    /// All leases there are, of the newest window too.
    fn held_now(&self) -> Result<Vec<HeldJob>> {
        held(self.store.inner.rows()?.as_ref())
    }

    fn held(&self) -> Result<Vec<HeldJob>> {
        held(self.store.inner.peek()?.as_ref())
    }

    /// Takes a session's jobs back; whether it has none left.
    fn take_back(&self, session: SessionId, seen: Option<&Seen>) -> Result<bool> {
        self.free_locks(session, seen)?;
        // What a process claimed in its last moment is in no peek yet.
        let is_dead = seen.is_some_and(|seen| !seen.alive);
        let mut jobs = if is_dead { self.held_now()? } else { self.held()? };
        jobs.retain(|job| job.session == session);
        // P5: what a child process still works on is not given back; what its neighbours wait for is.
        let site = &self.store.inner.site;
        let busy: Vec<JobId> = jobs.iter().filter(|job| site.is_child_busy(job)).map(|job| job.job).collect();
        if busy.len() == jobs.len() {
            return Ok(busy.is_empty());
        }
        let inner = &self.store.inner;
        let done = inner.reclaim(reclaim_of(session, seen, busy), inner.patience)?;
        self.tell_recovered(session, &done);
        Ok(done.busy.is_empty())
    }

    /// Whoever waits for a lock looks at its holder too; what nobody waits for is freed here.
    fn free_locks(&self, session: SessionId, seen: Option<&Seen>) -> Result<()> {
        let inner = &self.store.inner;
        // What a process locked in its last moment is in no peek yet: it is an orphan's, soon.
        if first_rows(inner.peek()?.as_ref(), &keys::lock_sessions_of(session), 1)?.is_empty() {
            return Ok(());
        }
        inner.free_locks(session, seen.map(|seen| seen.beat), inner.patience)
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

    /// W1: removes the locks of children that have ended.
    pub(super) fn clear_leftovers(&self) -> Result<()> {
        let Some(files) = self.store.inner.site.files() else { return Ok(()) };
        if local::children::list(&files.folder)?.iter().all(|child| child.busy) {
            return Ok(());
        }
        self.store.inner.section("clear what children left", |site| {
            site.files().map_or(Ok(()), |files| local::remove_leftovers(&files.folder))
        })?
    }

    /// W1: removes the file of a dead session that holds nothing any more.
    fn bury(&self, session: SessionId) -> Result<()> {
        self.store.inner.section("bury a dead session", move |site| {
            let Some(files) = site.files() else { return Ok(()) };
            match local::look(&files.folder, session)? {
                Some(seen) if !seen.alive => remove_if_idle(site, site.engine.latest()?.as_ref(), session)?,
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
