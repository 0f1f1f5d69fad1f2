//! One store as one process has it open: the site, its committer, and this process's presence. All handles of a store
//! in a process share one of these.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    clock::{deadline_after, monotonic, sleep},
    engine::{Rows, SnapshotError, StorageHook},
    error::{Error, ErrorKind, Result},
    queue::{
        held,
        id::{JobId, SessionId},
        reclaim::{Reclaim, Reclaimed},
    },
    stone::{
        Commits,
        candidate::{Means, News},
    },
    store::{
        alarm::{Alarm, Ringer},
        change::{Applied, Change, ChangeId, ClientId, Guard, Intent, Outcome},
        committer::{By, Committer},
        conflict::{Version, Writer},
        keys,
        lock::rules::FreeLocks,
        paths::CommitsByPath,
        pins::Pins,
        recovery::log_in_use,
        session::Session,
        settings::Settings,
        site::Site,
        snapshot::Pin,
        standing::Standing,
        ticket::{Ticket, name_who_is_stopped, out_of_patience},
        view::first_rows,
    },
};

/// W7: how often the count of commits is read by who has waited for one since then.
pub(crate) fn wake_poll(since: Instant, now: Instant) -> Duration {
    let is_long = now.duration_since(since) > Duration::from_secs(1);
    Duration::from_millis(if is_long { 25 } else { 5 })
}

/// After how long who waits for a commit looks at the store, counted or not.
pub(crate) const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// How long who hands over waits for a commit of its own to end; it may itself wait for somebody.
const HAND_OVER_PATIENCE: Duration = Duration::from_millis(500);

pub(crate) struct Inner {
    pub(crate) site: Arc<Site>,
    pub(crate) committer: Committer,
    is_read_only: bool,
    standing: Standing,
    storage_hook: Option<Arc<dyn StorageHook>>,

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
    is_client_gone: AtomicBool,
    is_monitor: AtomicBool,
    /// Rung when what they are to do may have changed.
    maintainers: Mutex<Vec<Ringer>>,
    /// Called when jobs that this process holds may be to be cancelled, or to go back.
    holders: Mutex<Vec<Weak<Call>>>,
}

/// What calls a holder of jobs.
pub(crate) type Call = dyn Fn() + Send + Sync;

impl Inner {
    pub(crate) fn new(
        site: Arc<Site>,
        committer: Committer,
        label: String,
        patience: Duration,
        is_read_only: bool,
        storage_hook: Option<Arc<dyn StorageHook>>,
    ) -> Self {
        let [random, _] = crate::random::words();
        Self {
            site,
            committer,
            is_read_only,
            standing: Standing::default(),
            storage_hook,
            label,
            patience,
            client: ClientId { born: Version(0), random },
            next_number: AtomicU64::new(1),
            session: Mutex::new(None),
            pins: OnceLock::new(),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            is_maintained_elsewhere: AtomicBool::new(false),
            is_client_gone: AtomicBool::new(false),
            is_monitor: AtomicBool::new(false),
            maintainers: Mutex::default(),
            holders: Mutex::default(),
        }
    }

    /// A1: notes the store's version at the hello.
    pub(crate) fn born_at(&mut self, version: Version) {
        self.client.born = version;
        self.committer.introduce(self.client, &self.label);
    }

    /// R2: rows that show all that was answered before: a stone brings it into the store's file first.
    pub(crate) fn rows(&self) -> Result<Box<dyn Rows + Send>> {
        self.check_open()?;
        self.read(false, || self.committer.close_window(self.patience))
    }

    /// R2: rows that may be a window old, where a stone answers.
    pub(crate) fn peek(&self) -> Result<Box<dyn Rows + Send>> {
        self.check_open()?;
        self.read(true, || Ok(self.committer.by()))
    }

    /// Rows for who lists and counts: a peek where the process is a monitor.
    pub(crate) fn look(&self) -> Result<Box<dyn Rows + Send>> {
        if self.is_monitor.load(Ordering::Relaxed) { self.peek() } else { self.rows() }
    }

    /// The store's version, as [`Inner::look`] shows it.
    #[cfg(feature = "cli")]
    pub(crate) fn newest_seen(&self) -> Result<Version> {
        crate::store::snapshot::version_of(self.look()?.as_ref())
    }

    /// R2: from now on this process's lists and counts may be a moment old, so that they cost a stone nothing.
    #[cfg(feature = "cli")]
    pub(crate) fn be_monitor(&self) {
        self.is_monitor.store(true, Ordering::Relaxed);
    }

    /// R1: reads take no lock. Where the last writer died, or a stone that kept a log did, that is recovered first,
    /// under the writer's lock.
    fn read(&self, may_be_old: bool, prepare: impl Fn() -> Result<By>) -> Result<Box<dyn Rows + Send>> {
        let deadline = deadline_after(self.patience);
        loop {
            let by = prepare()?;
            let named = |error| name_who_is_stopped(self.site.files(), "reading", error);
            match self.site.engine.snapshot() {
                Ok(rows) if by != By::Itself || log_in_use(rows.as_ref()).map_err(named)?.is_none() => return Ok(rows),
                // The stone is stopped, or just begins or ends: nobody was answered since the window before this.
                Ok(rows) if may_be_old && self.site.has_writer() => return Ok(rows),
                Err(SnapshotError::Failed(error)) => return Err(named(error)),
                Ok(_) | Err(SnapshotError::NeedsRecovery) => {}
            }
            if monotonic() >= deadline {
                return Err(out_of_patience(self.site.files(), ErrorKind::Unavailable, "reading"));
            }
            self.recover()?;
        }
    }

    pub(crate) fn recover(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::unavailable(
                "the last writer died, and a store that is open for reading only can't recover it; open it for writing",
            ));
        }
        self.committer.recover(&self.site, self.patience)
    }

    /// Commits one change and waits for its answer.
    pub(crate) fn commit(&self, guards: Vec<Guard>, intents: Vec<Intent>, job: Option<JobId>) -> Result<Applied> {
        let change = self.change(guards, intents, job)?;
        self.writer()?.commit(change, self.patience)
    }

    /// The id of a change that is yet to be made up.
    pub(crate) fn next_change(&self) -> ChangeId {
        ChangeId { client: self.client, number: self.next_number.fetch_add(1, Ordering::Relaxed) }
    }

    /// As [`Inner::commit`], under an id that was given out before.
    pub(crate) fn commit_as(
        &self,
        id: ChangeId,
        guards: Vec<Guard>,
        intents: Vec<Intent>,
        job: Option<JobId>,
    ) -> Result<Applied> {
        let change = Change { id, ..self.change(guards, intents, job)? };
        self.writer()?.commit(change, self.patience)
    }

    /// Commits one change of one intent, and gives that one's outcome.
    pub(crate) fn perform(&self, intent: Intent) -> Result<Outcome> {
        self.perform_within(intent, self.patience)
    }

    pub(crate) fn perform_within(&self, intent: Intent, patience: Duration) -> Result<Outcome> {
        let change = self.change(Vec::new(), vec![intent], None)?;
        let applied = self.writer()?.commit(change, patience)?;
        applied.outcomes.into_iter().next().ok_or_else(|| Error::unanswered("a change"))
    }

    /// Hands in a change of one intent without waiting for its answer.
    pub(crate) fn submit(&self, intent: Intent, job: JobId, patience: Duration) -> Result<Ticket> {
        let change = self.change(Vec::new(), vec![intent], Some(job))?;
        self.writer()?.submit(change, patience, Duration::ZERO)
    }

    /// Hands in a worker's turn. Where it is a claim that finds nothing, a stone keeps it waiting for so long.
    pub(crate) fn submit_turn(&self, intents: Vec<Intent>, wait: Duration) -> Result<Ticket> {
        self.submit_guarded(Vec::new(), intents, wait)
    }

    /// The same with guards.
    pub(crate) fn submit_guarded(&self, guards: Vec<Guard>, intents: Vec<Intent>, wait: Duration) -> Result<Ticket> {
        let change = self.change(guards, intents, None)?;
        self.writer()?.submit_from_here(change, self.patience, wait)
    }

    /// Has the answer to a claim that waits at a stone come at once, as it is.
    pub(crate) fn call_off(&self, number: u64) {
        self.committer.call_off(number);
    }

    /// Whether a stone, of this process or another, commits just now.
    pub(crate) fn has_stone(&self) -> bool {
        self.committer.by() != By::Itself
    }

    /// Whether this process is the stone just now.
    pub(crate) fn is_stone(&self) -> bool {
        self.committer.router().seat.is_serving()
    }

    pub(crate) fn commits_by_path(&self) -> CommitsByPath {
        self.committer.paths().counted()
    }

    /// How this process's changes may get to the disk.
    #[cfg(all(unix, feature = "isolation"))]
    pub(crate) fn commits(&self) -> crate::stone::Commits {
        self.committer.router().commits()
    }

    /// The process that commits for this one as a stone, if one does.
    pub(crate) fn stone(&self) -> Option<u32> {
        let router = self.committer.router();
        if router.seat.is_serving() {
            return Some(std::process::id());
        }
        router.connection().map(|connection| connection.pid())
    }

    /// W4: stands for stone until the guard is dropped.
    pub(crate) fn stand(self: &Arc<Self>) -> Result<Serving> {
        let router = self.committer.router();
        let stands = router.commits() != Commits::DirectOnly && self.site.files().is_some();
        if stands {
            self.standing.begin(|| Means {
                site: self.site.clone(),
                desk: self.committer.desk().clone(),
                router: router.clone(),
                inbox: self.committer.inbox().clone(),
                hook: self.storage_hook.clone(),
                on_news: self.on_news(),
            })?;
        }
        Ok(Serving { inner: self.clone(), stands, maintenance: None })
    }

    /// What the candidate tells: maintenance is where the stone is.
    fn on_news(self: &Arc<Self>) -> Arc<dyn Fn(News) + Send + Sync> {
        let inner = Arc::downgrade(self);
        Arc::new(move |news| {
            let Some(inner) = inner.upgrade() else { return };
            match news {
                News::HoldersCalled => return inner.call_holders(),
                News::WindowClosed => {}
                News::ClientGone => inner.is_client_gone.store(true, Ordering::Release),
                // What was called while nobody listened is in the file.
                News::StoneElsewhere => {
                    inner.is_maintained_elsewhere.store(true, Ordering::Release);
                    inner.call_holders();
                }
                News::NoStoneElsewhere => {
                    inner.is_maintained_elsewhere.store(false, Ordering::Release);
                    inner.call_holders();
                }
            }
            inner.ring_maintainers();
        })
    }

    /// Leaves as the stone, if this process is one, and lets go of all that others could wait for, while `pause` runs;
    /// then stands again.
    pub(crate) fn hand_over(&self, pause: impl FnOnce()) {
        let mut pause = Some(pause);
        let mut pause_once = || pause.take().map_or((), |pause| pause());
        if self.check_open().is_err() {
            return pause_once();
        }
        self.standing.pause();
        self.give_up_snapshots();
        // Nobody of this process has the writer's lock, nor redb's own, for as long as these are held.
        let turn = self.committer.desk().take_turn_within(HAND_OVER_PATIENCE);
        self.site.engine.hold_still(&mut pause_once);
        drop(turn);
        if let Err(error) = self.standing.resume() {
            self.site.note_trouble(&error);
        }
    }

    /// Whether this process is to keep the store in order, and no other does.
    pub(crate) fn maintains(&self) -> bool {
        !self.is_maintained_elsewhere.load(Ordering::Acquire)
    }

    /// Whether a client of this process's stone has gone since this was asked last.
    pub(crate) fn take_client_gone(&self) -> bool {
        self.is_client_gone.swap(false, Ordering::AcqRel)
    }

    /// Has this rung when it may have changed whether this process maintains the store.
    pub(crate) fn add_maintainer(&self, ringer: Ringer) {
        self.maintainers.lock().unwrap_or_else(PoisonError::into_inner).push(ringer);
        self.ring_maintainers();
    }

    pub(crate) fn ring_maintainers(&self) {
        self.maintainers.lock().unwrap_or_else(PoisonError::into_inner).retain(Ringer::ring);
    }

    /// Has all who wait for a time look at it again; whether anybody is left who may.
    pub(crate) fn note_time_set(&self) -> bool {
        self.site.bump_wakes();
        self.ring_maintainers();
        !self.closed.load(Ordering::Acquire)
    }

    /// Has this called when jobs that this process holds are to be looked at, for as long as it lives.
    pub(crate) fn add_holder(&self, call: &Arc<Call>) {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(call));
    }

    pub(crate) fn call_holders(&self) {
        let holders = {
            let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
            holders.retain(|holder| holder.strong_count() > 0);
            holders.clone()
        };
        holders.iter().filter_map(Weak::upgrade).for_each(|call| call());
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
        let id = self.next_change();
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

    /// The same for what may take its time: only until it begins is there a limit.
    pub(crate) fn long_section<T: Send + 'static>(
        &self,
        purpose: &'static str,
        work: impl FnOnce(&Site) -> T + Send + 'static,
    ) -> Result<T> {
        self.check_open()?;
        self.writer()?.long_section(&self.site, purpose, self.patience, work)
    }

    fn writer(&self) -> Result<&Committer> {
        if self.is_read_only { Err(Error::invalid("the store is open for reading only")) } else { Ok(&self.committer) }
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

    /// P4: whether it runs a suspect job, and so is to run nothing else.
    pub(crate) fn is_alone(&self) -> bool {
        self.session_if_begun().is_some_and(|session| session.is_alone())
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

    /// Has this process's snapshots give their pages up before their time.
    pub(crate) fn give_up_snapshots(&self) {
        if let Some(pins) = self.pins.get() {
            pins.give_up();
        }
    }

    /// Ends this process's presence and closes the engine, under the writer's lock.
    pub(crate) fn close(&self, patience: Duration) -> Result<()> {
        self.closing.store(true, Ordering::Release);
        let given_back = self.give_back_all(patience);
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // W6: a stone leaves before its file is closed.
        self.standing.pause();
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        let committer = &self.committer;
        // Whoever has only read leaves without asking for the writer's lock, and a stone removes its session.
        let connection = committer.router().living();
        if (session.is_none() || connection.is_some()) && self.site.engine.close_if_only_read()? {
            if let (Some(session), Some(connection)) = (session, connection) {
                session.stop_beating();
                connection.bury(session.id);
            }
            committer.stop();
            return given_back;
        }
        if self.is_read_only {
            committer.stop();
            return self.site.engine.close();
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
        let beat = match self.site.files() {
            Some(files) => crate::local::look(&files.folder, session.id)?.map(|seen| seen.beat),
            None => None,
        };
        self.free_locks(session.id, beat, patience)?;
        let mut jobs = held(self.rows()?.as_ref())?;
        jobs.retain(|job| job.session == session.id);
        // P5: what a child process still works on waits for it, and is found by whoever looks for leases without a
        // session.
        let busy: Vec<JobId> = jobs.iter().filter(|job| self.site.is_child_busy(job)).map(|job| job.job).collect();
        if busy.len() == jobs.len() {
            return Ok(());
        }
        self.reclaim(Reclaim { busy, ..Reclaim::of_all(session.id, beat) }, patience).map(|_| ())
    }

    /// Frees the named locks of a session, if there are any: it is dead, has stopped, or ends.
    pub(crate) fn free_locks(&self, session: SessionId, beat: Option<u64>, patience: Duration) -> Result<()> {
        while !first_rows(self.rows()?.as_ref(), &keys::lock_sessions_of(session), 1)?.is_empty() {
            self.perform_within(Intent::FreeLocks(FreeLocks { session, beat }), patience)?;
        }
        Ok(())
    }

    /// Takes a session's jobs back, slice by slice; gives all that became of them.
    pub(crate) fn reclaim(&self, mut reclaim: Reclaim, patience: Duration) -> Result<Reclaimed> {
        let mut all = Reclaimed::default();
        loop {
            let Outcome::Reclaimed(slice) = self.perform_within(Intent::Reclaim(reclaim.clone()), patience)? else {
                return Err(Error::unanswered("a reclaim"));
            };
            reclaim.after = slice.next;
            all.add(slice);
            if reclaim.after.is_none() {
                return Ok(all);
            }
        }
    }
}

/// This process stands for stone, and commits for others while it is one, until this is dropped.
pub struct Serving {
    inner: Arc<Inner>,
    /// Whether it is counted among those who want this process to stand.
    stands: bool,
    /// The thread that keeps the store in order, where no worker of this process does.
    pub(crate) maintenance: Option<Alarm>,
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.stands {
            self.inner.standing.end();
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
