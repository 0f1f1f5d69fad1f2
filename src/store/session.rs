//! A process's presence: the session file that it holds locked, and the beat that others time on their own clocks
//! (P1, P2). A store in memory has no other processes, and its session is a name only.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    clock::{Timestamp, monotonic},
    engine::Rows,
    error::Result,
    local::{self, NoteSlot, SessionFile},
    queue::{
        held,
        id::{JobId, SessionId, Token},
    },
    store::{
        alarm::{Alarm, Ringer},
        settings::{LEASE, SETTINGS},
        site::Site,
    },
};

/// How often a session beats that has something in hand, whatever the lease: that may be changed while it runs.
const BEAT: Duration = Duration::from_millis(50);
/// How often one beats that has nothing, so that idle processes cost nothing.
const BEAT_IDLE: Duration = Duration::from_secs(5);
/// After so many beats with nothing in hand a session counts as idle: moments between two jobs are no rest.
const BEATS_TO_REST: u32 = 20;
/// P2: a session is not stopped before so many of its beats are missing.
const BEATS_MISSED: u32 = 5;

const _: () = assert!(BEAT.as_millis() * 5 <= SETTINGS[LEASE].range.0 as u128, "the least lease spans some beats");

pub(crate) struct Session {
    pub(crate) id: SessionId,
    file: Option<Arc<SessionFile>>,
    beat: Mutex<Option<Alarm>>,
    ringer: Option<Ringer>,
    hands: Arc<Mutex<Hands>>,
    /// How often this process should still look for leases of its own that nobody has in hand.
    doubts: AtomicU32,
}

/// What somebody in this process has in hand.
#[derive(Default)]
struct Hands {
    leases: HashSet<(JobId, Token)>,
    /// P4: the one that nothing runs beside.
    suspect: Option<(JobId, Token)>,
    /// Named locks that are held or waited for, by their nonces.
    locks: HashSet<u64>,
    /// Beats in a row with nothing in hand.
    idle_beats: u32,
}

/// A run that the session's file notes as begun, until its settlement is committed.
pub(crate) struct RunNote {
    file: Arc<SessionFile>,
    slot: NoteSlot,
}

impl Session {
    pub(crate) fn begin(site: &Arc<Site>, label: &str) -> Result<Self> {
        let id = SessionId::random();
        let Some(files) = site.files() else {
            return Ok(Self::of(id, None, None, Arc::default()));
        };
        let file = Arc::new(SessionFile::create(&files.folder, id, label)?);
        let hands: Arc<Mutex<Hands>> = Arc::default();
        let (beating, beating_hands, troubled) = (file.clone(), hands.clone(), site.clone());
        let beat = Alarm::paced("casque-beat", Duration::ZERO, move || {
            let interval = locked(&beating_hands).next_beat();
            if let Err(error) = beating.beat(interval) {
                troubled.note_trouble(&error);
            }
            Some(interval)
        })?;
        Ok(Self::of(id, Some(file), Some(beat), hands))
    }

    fn of(id: SessionId, file: Option<Arc<SessionFile>>, beat: Option<Alarm>, hands: Arc<Mutex<Hands>>) -> Self {
        let ringer = beat.as_ref().map(Alarm::ringer);
        Self { id, file, beat: Mutex::new(beat), ringer, hands, doubts: AtomicU32::new(0) }
    }

    /// Notes that a handler begins, before it does.
    pub(crate) fn note_started(&self, job: JobId, token: Token, at: Timestamp) -> Result<Option<RunNote>> {
        let Some(file) = &self.file else { return Ok(None) };
        let slot = file.note_started(job, token, at.as_millis())?;
        Ok(Some(RunNote { file: file.clone(), slot }))
    }

    /// Ends the beat; others will take the session for stopped.
    pub(crate) fn stop_beating(&self) {
        self.beat.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Takes what a claim got in hand. P4: whether that may run: a suspect job not beside others, nor others beside
    /// one, by whomever in this process they were claimed meanwhile.
    pub(crate) fn take_in_hand(&self, jobs: impl Iterator<Item = JobId>, token: Token, is_suspect: bool) -> bool {
        let (may_run, was_at_rest) = self.hands().take(jobs.map(|job| (job, token)), is_suspect);
        if was_at_rest && let Some(ringer) = &self.ringer {
            ringer.ring();
        }
        may_run
    }

    pub(crate) fn let_go(&self, job: JobId, token: Token) {
        self.hands().let_go((job, token));
    }

    /// Takes a place in a named lock: from now on the session beats as one that has something in hand.
    pub(crate) fn take_lock(&self, nonce: u64) {
        let was_at_rest = self.hands().take_lock(nonce);
        if was_at_rest && let Some(ringer) = &self.ringer {
            ringer.ring();
        }
    }

    pub(crate) fn let_go_lock(&self, nonce: u64) {
        self.hands().locks.remove(&nonce);
    }

    pub(crate) fn has_in_hand(&self, job: JobId, token: Token) -> bool {
        self.hands().leases.contains(&(job, token))
    }

    /// P4: whether this process runs nothing, so that it may take a suspect job.
    pub(crate) fn is_idle(&self) -> bool {
        self.hands().leases.is_empty()
    }

    /// P4: whether this process runs a suspect job, and so is to run nothing else.
    pub(crate) fn is_alone(&self) -> bool {
        self.hands().suspect.is_some()
    }

    pub(crate) fn in_hand_count(&self) -> usize {
        self.hands().leases.len()
    }

    /// Notes that an answer was lost, or a lease abandoned: it may be held, and in nobody's hand.
    pub(crate) fn doubt(&self) {
        // What is given back was so at two looks in a row.
        self.doubts.store(2, Ordering::Release);
    }

    /// Whether to look for leases that nobody has in hand, once more.
    pub(crate) fn take_doubt(&self) -> bool {
        self.doubts.fetch_update(Ordering::AcqRel, Ordering::Acquire, |doubts| doubts.checked_sub(1)).is_ok()
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        locked(&self.hands)
    }

    /// Ends the presence. Under the writer's lock.
    pub(crate) fn end(&self, site: &Site) {
        self.stop_beating();
        if self.file.is_none() {
            return;
        }
        let removed = site.engine.latest().and_then(|rows| remove_if_idle(site, rows.as_ref(), self.id));
        if let Err(error) = removed {
            site.note_trouble(&error);
        }
    }
}

/// Removes the file of a session that holds no jobs any more. One that does is left to tell what it had begun; its lock
/// ends with its process, and whoever finds it takes the jobs back. Under the writer's lock, with the latest rows: a
/// reader may not see yet the claim that the session died in.
pub(crate) fn remove_if_idle(site: &Site, rows: &dyn Rows, session: SessionId) -> Result<()> {
    let Some(files) = site.files() else { return Ok(()) };
    if held(rows)?.iter().any(|job| job.session == session) {
        return Ok(());
    }
    local::remove(&files.folder, session)
}

impl Hands {
    /// Takes leases; whether they may run, and whether the session was at rest, and is to beat at once.
    fn take(&mut self, leases: impl Iterator<Item = (JobId, Token)>, is_suspect: bool) -> (bool, bool) {
        let may_run = self.suspect.is_none() && (!is_suspect || self.leases.is_empty());
        let before = self.leases.len();
        for lease in leases {
            self.leases.insert(lease);
            if is_suspect && may_run {
                self.suspect = Some(lease);
            }
        }
        (may_run, self.leases.len() > before && self.wake())
    }

    fn let_go(&mut self, lease: (JobId, Token)) {
        self.leases.remove(&lease);
        self.suspect.take_if(|suspect| *suspect == lease);
    }

    fn take_lock(&mut self, nonce: u64) -> bool {
        self.locks.insert(nonce);
        self.wake()
    }

    fn wake(&mut self) -> bool {
        std::mem::take(&mut self.idle_beats) >= BEATS_TO_REST
    }

    /// When the beat after the next is due.
    fn next_beat(&mut self) -> Duration {
        let is_empty = self.leases.is_empty() && self.locks.is_empty();
        self.idle_beats = if is_empty { self.idle_beats.saturating_add(1) } else { 0 };
        if self.idle_beats >= BEATS_TO_REST { BEAT_IDLE } else { BEAT }
    }
}

impl RunNote {
    /// Notes that the handler ended: `clean` where it succeeded without result or transaction, so that whoever finds
    /// this process dead may complete the job.
    pub(crate) fn ended(&self, clean: bool) -> Result<()> {
        self.file.note_ended(&self.slot, clean)
    }

    /// Leaves the run, once its settlement is committed.
    pub(crate) fn leave(self) {
        self.file.leave(self.slot);
    }

    /// Forgets the run, as if the handler had not begun.
    pub(crate) fn clear(self) -> Result<()> {
        self.file.clear(self.slot)
    }
}

/// P2: what one observer knows of the others' beats, timed on its own monotonic clock.
#[derive(Default)]
pub(crate) struct Observer {
    beats: HashMap<SessionId, Beat>,
}

struct Beat {
    count: u64,
    /// For how long it has stood still, as far as this observer was awake.
    still: Duration,
    looked: Instant,
}

/// How much more than the time between two looks one of them adds to the time that a beat has stood still: whoever was
/// stopped between two looks knows nothing of the time between.
const LOOK_SLACK: Duration = Duration::from_millis(300);

/// How a session looks to an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    Alive,
    /// Its process holds the file, and has not beaten for the lease time, nor for five of its own beats.
    Stopped,
    /// Nobody holds its file.
    Dead,
}

impl Observer {
    /// Takes note of a session's beat, and tells what that says. A look is taken `every` so long.
    pub(crate) fn observe(&mut self, seen: &local::Seen, lease: Duration, every: Duration) -> Pulse {
        if !seen.alive {
            self.beats.remove(&seen.id);
            return Pulse::Dead;
        }
        let now = monotonic();
        let fresh = || Beat { count: seen.beat, still: Duration::ZERO, looked: now };
        let beat = self.beats.entry(seen.id).or_insert_with(fresh);
        if beat.count == seen.beat {
            beat.still += now.duration_since(beat.looked).min(every + LOOK_SLACK);
            beat.looked = now;
        } else {
            *beat = fresh();
        }
        if beat.still >= lease.max(seen.beat_interval * BEATS_MISSED) { Pulse::Stopped } else { Pulse::Alive }
    }

    /// Forgets the sessions that are not among these.
    pub(crate) fn keep_only(&mut self, present: &[local::Seen]) {
        self.beats.retain(|id, _| present.iter().any(|seen| seen.id == *id));
    }
}

fn locked(hands: &Mutex<Hands>) -> MutexGuard<'_, Hands> {
    hands.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BEAT, BEAT_IDLE, BEATS_TO_REST, Hands, Observer, Pulse};
    use crate::{
        local::Seen,
        queue::id::{JobId, SessionId, Token},
    };

    fn lease(version: u64) -> (JobId, Token) {
        (JobId { version, index: 0 }, Token(9))
    }

    fn take(hands: &mut Hands) -> (bool, bool) {
        hands.take([lease(7)].into_iter(), false)
    }

    #[test]
    fn idle_session_rests_and_beats_at_once_when_it_takes_something_in_hand() {
        let mut hands = Hands::default();
        assert_eq!(take(&mut hands), (true, false), "it was not at rest");
        assert!((0..100).all(|_| hands.next_beat() == BEAT));
        hands.leases.clear();
        assert!((1..BEATS_TO_REST).all(|_| hands.next_beat() == BEAT), "a moment without a job is no rest");
        assert!((0..100).all(|_| hands.next_beat() == BEAT_IDLE));
        assert_eq!(take(&mut hands), (true, true));
        hands.leases.clear();
        assert_eq!(take(&mut hands), (true, false), "once is enough");
        assert_eq!(hands.next_beat(), BEAT);
    }

    /// P4.
    #[test]
    fn nothing_runs_beside_a_suspect_job_whoever_claimed_it() {
        let mut hands = Hands::default();
        let take = |hands: &mut Hands, version: u64, is_suspect| hands.take([lease(version)].into_iter(), is_suspect).0;
        assert!(take(&mut hands, 1, false));
        assert!(!take(&mut hands, 2, true), "it is not idle");
        hands.let_go(lease(2));
        hands.let_go(lease(1));
        assert!(take(&mut hands, 2, true));
        assert!(!take(&mut hands, 3, false) && !take(&mut hands, 4, true));
        hands.let_go(lease(3));
        assert!(hands.suspect.is_some(), "that was another");
        hands.let_go(lease(2));
        assert!(hands.suspect.is_none());
    }

    #[test]
    fn session_that_has_a_place_in_a_lock_does_not_rest() {
        let mut hands = Hands::default();
        assert!((0..=BEATS_TO_REST).map(|_| hands.next_beat()).last() == Some(BEAT_IDLE));
        assert!(hands.take_lock(7), "it was at rest");
        assert!((0..100).all(|_| hands.next_beat() == BEAT));
        hands.locks.clear();
        assert!((1..BEATS_TO_REST).all(|_| hands.next_beat() == BEAT));
        assert_eq!(hands.next_beat(), BEAT_IDLE);
    }

    #[test]
    fn session_is_not_stopped_before_five_of_its_own_beats_are_missing() {
        let lease = Duration::from_millis(500);
        let mut seen = Seen {
            id: SessionId([1; 16]),
            pid: 1,
            boot_id: String::new(),
            label: String::new(),
            started_ms: 0,
            beat: 1,
            beat_interval: BEAT_IDLE,
            alive: true,
            notes: Vec::new(),
            is_readable: true,
        };
        let mut observer = Observer::default();
        let mut stand_still = |seen: &Seen, still: u64| {
            observer.observe(seen, lease, Duration::from_millis(200));
            let beat = observer.beats.get_mut(&seen.id).unwrap();
            beat.still = Duration::from_millis(still);
            observer.observe(seen, lease, Duration::from_millis(200))
        };
        assert_eq!(stand_still(&seen, 24_000), Pulse::Alive);
        assert_eq!(stand_still(&seen, 25_000), Pulse::Stopped);
        seen.beat_interval = BEAT;
        assert_eq!(stand_still(&seen, 400), Pulse::Alive);
        assert_eq!(stand_still(&seen, 500), Pulse::Stopped);
    }
}
