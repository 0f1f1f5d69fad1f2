//! One store as one process has it open: the site, its committer, and this process's presence. All handles of a store
//! in a process share one of these.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    clock::{monotonic, sleep},
    engine::{Rows, SnapshotError},
    error::{Error, ErrorKind, Result},
    queue::{
        held,
        id::JobId,
        reclaim::{Reclaim, Reclaimed},
    },
    store::{
        alarm::Ringer,
        change::{Applied, Change, ChangeId, ClientId, Guard, Intent, Outcome},
        committer::{Committer, Ticket, name_who_is_stopped, refuse_log_in_use},
        conflict::{Version, Writer},
        pins::Pins,
        session::Session,
        settings::Settings,
        site::Site,
        snapshot::Pin,
    },
};

/// W7: how often the count of commits is read by who has waited for one since then.
pub(crate) fn wake_poll(since: Instant, now: Instant) -> Duration {
    let is_long = now.duration_since(since) > Duration::from_secs(1);
    Duration::from_millis(if is_long { 25 } else { 5 })
}

/// After how long who waits for a commit looks at the store, counted or not.
pub(crate) const LOOK_ANYWAY: Duration = Duration::from_secs(1);

pub(crate) struct Inner {
    pub(crate) site: Arc<Site>,
    pub(crate) committer: Option<Committer>,
    pub(crate) label: String,
    /// How long a call waits for another process's lock.
    pub(crate) patience: Duration,
    client: ClientId,
    next_number: AtomicU64,
    session: Mutex<Option<Arc<Session>>>,
    pins: OnceLock<Pins>,
    /// No claims any more: what is held is being given back.
    closing: AtomicBool,
    closed: AtomicBool,
    pub(crate) is_maintained_elsewhere: AtomicBool,
    /// Rung when what they are to do may have changed.
    maintainers: Mutex<Vec<Ringer>>,
}

impl Inner {
    pub(crate) fn new(site: Arc<Site>, committer: Option<Committer>, label: String, patience: Duration) -> Self {
        let [random, _] = crate::random::words();
        Self {
            site,
            committer,
            label,
            patience,
            client: ClientId { born: Version(0), random },
            next_number: AtomicU64::new(1),
            session: Mutex::new(None),
            pins: OnceLock::new(),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            is_maintained_elsewhere: AtomicBool::new(false),
            maintainers: Mutex::default(),
        }
    }

    /// A1: notes the store's version at the hello.
    pub(crate) fn born_at(&mut self, version: Version) {
        self.client.born = version;
    }

    /// The newest rows. Where the last writer died, they are recovered first, under the writer's lock (R1).
    pub(crate) fn rows(&self) -> Result<Box<dyn Rows + Send>> {
        self.check_open()?;
        self.rows_or_recover().map_err(|error| name_who_is_stopped(self.site.files(), "reading", error))
    }

    fn rows_or_recover(&self) -> Result<Box<dyn Rows + Send>> {
        match self.site.engine.snapshot() {
            Ok(rows) => {
                refuse_log_in_use(rows.as_ref())?;
                return Ok(rows);
            }
            Err(SnapshotError::Failed(error)) => return Err(error),
            Err(SnapshotError::NeedsRecovery) => {}
        }
        let committer = self.committer.as_ref().ok_or_else(|| {
            Error::unavailable(
                "the last writer died, and a store that is open for reading only can't recover it; open it for writing",
            )
        })?;
        committer.section(&self.site, "recover", self.patience, |site| {
            // Another may have recovered it while this one waited for the lock.
            match site.engine.snapshot() {
                Ok(_) => Ok(()),
                Err(SnapshotError::NeedsRecovery) => site.engine.recover(),
                Err(SnapshotError::Failed(error)) => Err(error),
            }
        })??;
        self.site.engine.snapshot().map_err(|error| match error {
            SnapshotError::Failed(error) => error,
            SnapshotError::NeedsRecovery => Error::unavailable("another writer died just now; retry"),
        })
    }

    /// Commits one change and waits for its answer.
    pub(crate) fn commit(&self, guards: Vec<Guard>, intents: Vec<Intent>, job: Option<JobId>) -> Result<Applied> {
        let change = self.change(guards, intents, job)?;
        self.writer()?.commit(change, self.patience)
    }

    /// Commits one change of one intent, and gives that one's outcome.
    pub(crate) fn perform(&self, intent: Intent) -> Result<Outcome> {
        self.perform_within(intent, self.patience)
    }

    fn perform_within(&self, intent: Intent, patience: Duration) -> Result<Outcome> {
        let change = self.change(Vec::new(), vec![intent], None)?;
        let applied = self.writer()?.commit(change, patience)?;
        applied.outcomes.into_iter().next().ok_or_else(|| Error::corrupt("a change was answered without its outcome"))
    }

    /// Hands in a change of one intent without waiting for its answer.
    pub(crate) fn submit(&self, intent: Intent, job: JobId, patience: Duration) -> Result<Ticket> {
        let change = self.change(Vec::new(), vec![intent], Some(job))?;
        self.writer()?.submit(change, patience)
    }

    /// Hands in a worker's turn. A claim that finds nothing may be parked for up to `wait`, and is answered when there
    /// is something; it is the only intent then, since the answer to others must not wait.
    pub(crate) fn submit_turn(&self, intents: Vec<Intent>, wait: Duration) -> Result<Ticket> {
        // Nobody parks a claim where each process commits by itself.
        let _ = wait;
        let change = self.change(Vec::new(), intents, None)?;
        self.writer()?.submit_from_here(change, self.patience)
    }

    /// Whether another process commits for this one.
    #[expect(clippy::unused_self, reason = "each process commits by itself")]
    pub(crate) fn has_stone(&self) -> bool {
        false
    }

    /// Whether this process is to keep the store in order, and no other does.
    pub(crate) fn maintains(&self) -> bool {
        !self.is_maintained_elsewhere.load(Ordering::Acquire)
    }

    /// Has this rung when it may have changed whether this process maintains the store.
    pub(crate) fn add_maintainer(&self, ringer: Ringer) {
        self.maintainers.lock().unwrap_or_else(PoisonError::into_inner).push(ringer);
        self.ring_maintainers();
    }

    pub(crate) fn ring_maintainers(&self) {
        self.maintainers.lock().unwrap_or_else(PoisonError::into_inner).retain(Ringer::ring);
    }

    /// Has this process look for leases of its own that nobody has in hand, also where another maintains the store.
    pub(crate) fn doubt_leases(&self) {
        if let Some(session) = self.session_if_begun() {
            session.doubt();
            self.ring_maintainers();
        }
    }

    fn change(&self, guards: Vec<Guard>, intents: Vec<Intent>, job: Option<JobId>) -> Result<Change> {
        self.check_open()?;
        let id = ChangeId { client: self.client, number: self.next_number.fetch_add(1, Ordering::Relaxed) };
        let writer = Writer { label: self.label.clone(), job };
        Ok(Change { id, writer, guards, intents })
    }

    /// Does something under the writer's lock.
    pub(crate) fn section<T: Send + 'static>(
        &self,
        purpose: &'static str,
        work: impl FnOnce(&Site) -> T + Send + 'static,
    ) -> Result<T> {
        self.check_open()?;
        self.writer()?.section(&self.site, purpose, self.patience, work)
    }

    fn writer(&self) -> Result<&Committer> {
        self.committer.as_ref().ok_or_else(|| Error::invalid("the store is open for reading only"))
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        self.site.check_process()
    }

    pub(crate) fn settings(&self) -> Result<Settings> {
        Settings::read(self.rows()?.as_ref())
    }

    /// This process's presence on the store, begun at its first claim.
    pub(crate) fn session(&self) -> Result<Arc<Session>> {
        self.check_open()?;
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*session {
            return Ok(session.clone());
        }
        let begun = Arc::new(Session::begin(&self.site, &self.label)?);
        *session = Some(begun.clone());
        Ok(begun)
    }

    /// P4: whether this process runs nothing, so that it may take a suspect job.
    pub(crate) fn is_idle(&self) -> bool {
        self.session_if_begun().is_none_or(|session| session.is_idle())
    }

    /// The session of this process, if it has begun one.
    pub(crate) fn session_if_begun(&self) -> Option<Arc<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until some process has committed since `seen` was read, or a second, or the deadline. `since` is when the
    /// caller began to wait (W7).
    pub(crate) fn wait_for_commit(&self, seen: u64, since: Instant, deadline: Instant) {
        let begun = monotonic();
        loop {
            let wakes = self.site.wakes();
            let now = monotonic();
            // A writer that died after its commit and before it counted it must not keep anybody waiting.
            let looks_anyway = now.duration_since(begun) >= LOOK_ANYWAY;
            if wakes != seen || now >= deadline || looks_anyway || self.closed.load(Ordering::Acquire) {
                return;
            }
            sleep(wake_poll(since, now).min(deadline - now));
        }
    }

    /// R3: sees to it that a snapshot gives its pages up in time, also where nobody reads from it any more.
    pub(crate) fn keep_in_time(&self, pin: &Arc<Mutex<Pin>>) {
        self.pins.get_or_init(|| Pins::watch(&self.site)).add(pin);
    }

    /// Ends this process's presence and closes the engine, under the writer's lock.
    pub(crate) fn close(&self, patience: Duration) -> Result<()> {
        self.closing.store(true, Ordering::Release);
        let given_back = self.give_back_all(patience);
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(committer) = &self.committer else { return self.site.engine.close() };
        // Whoever has only read leaves without asking for the writer's lock.
        if session.is_none() && self.site.engine.close_if_only_read()? {
            committer.stop();
            return given_back;
        }
        let closed = committer.section(&self.site, "close", patience, move |site| {
            if let Some(session) = session {
                session.end(site);
            }
            site.engine.close()
        });
        committer.stop();
        closed?.and(given_back)
    }

    /// Gives back what this process still holds, uncharged, though handlers of it may still run.
    fn give_back_all(&self, patience: Duration) -> Result<()> {
        if self.check_open().is_err() {
            return Ok(());
        }
        let Some(session) = self.session_if_begun() else { return Ok(()) };
        session.stop_beating();
        let mut jobs = held(self.rows()?.as_ref())?;
        jobs.retain(|job| job.session == session.id);
        // P5: what a child process still works on waits for it, and is found by whoever looks for leases without a
        // session.
        let busy: Vec<JobId> = jobs.iter().filter(|job| self.site.is_child_busy(job)).map(|job| job.job).collect();
        if busy.len() == jobs.len() {
            return Ok(());
        }
        let beat = match self.site.files() {
            Some(files) => crate::local::look(&files.folder, session.id)?.map(|seen| seen.beat),
            None => None,
        };
        self.reclaim(Reclaim { busy, ..Reclaim::of_all(session.id, beat) }, patience).map(|_| ())
    }

    /// Takes a session's jobs back, slice by slice; gives all that became of them.
    pub(crate) fn reclaim(&self, mut reclaim: Reclaim, patience: Duration) -> Result<Reclaimed> {
        let mut all = Reclaimed::default();
        loop {
            let Outcome::Reclaimed(slice) = self.perform_within(Intent::Reclaim(reclaim.clone()), patience)? else {
                return Err(Error::corrupt("a reclaim was answered without its outcome"));
            };
            reclaim.after = slice.next;
            all.add(slice);
            if reclaim.after.is_none() {
                return Ok(all);
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.site.check_process().is_err() {
            return;
        }
        // Best effort: whoever must know calls `close`. A handle that is never closed is recovered by the next opener.
        if let Err(error) = self.close(Duration::from_secs(2))
            && !matches!(error.kind(), ErrorKind::Closed | ErrorKind::Unavailable)
        {
            self.site.note_trouble(&error);
        }
    }
}
