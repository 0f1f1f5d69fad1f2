//! A process's presence: the session file that it holds locked, and the beat that others time on their own clocks
//! (P1, P2). A store in memory has no other processes, and its session is a name only.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
        alarm::Alarm,
        settings::{LEASE, SETTINGS},
        site::Site,
    },
};

/// How often a session beats, whatever the lease: that may be changed while it runs.
const BEAT: Duration = Duration::from_millis(50);

const _: () = assert!(BEAT.as_millis() * 5 <= SETTINGS[LEASE].range.0 as u128, "the least lease spans some beats");

pub(crate) struct Session {
    pub(crate) id: SessionId,
    file: Option<Arc<SessionFile>>,
    beat: Mutex<Option<Alarm>>,
    /// The leases that somebody in this process has in hand.
    in_hand: Mutex<HashSet<(JobId, Token)>>,
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
            return Ok(Self { id, file: None, beat: Mutex::new(None), in_hand: Mutex::default() });
        };
        let file = Arc::new(SessionFile::create(&files.folder, id, label)?);
        let beating = file.clone();
        let troubled = site.clone();
        let beat = Alarm::every("casque-beat", BEAT, move || {
            if let Err(error) = beating.beat() {
                troubled.note_trouble(&error);
            }
        })?;
        Ok(Self { id, file: Some(file), beat: Mutex::new(Some(beat)), in_hand: Mutex::default() })
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

    pub(crate) fn take_in_hand(&self, job: JobId, token: Token) {
        self.in_hand().insert((job, token));
    }

    pub(crate) fn let_go(&self, job: JobId, token: Token) {
        self.in_hand().remove(&(job, token));
    }

    pub(crate) fn has_in_hand(&self, job: JobId, token: Token) -> bool {
        self.in_hand().contains(&(job, token))
    }

    /// P4: whether this process runs nothing, so that it may take a suspect job.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_hand().is_empty()
    }

    pub(crate) fn in_hand_count(&self) -> usize {
        self.in_hand().len()
    }

    fn in_hand(&self) -> MutexGuard<'_, HashSet<(JobId, Token)>> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
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
/// ends with its process, and whoever finds it takes the jobs back. Under the writer's lock, with the latest rows: a reader
/// may not see yet the claim that the session died in.
pub(crate) fn remove_if_idle(site: &Site, rows: &dyn Rows, session: SessionId) -> Result<()> {
    let Some(files) = site.files() else { return Ok(()) };
    if held(rows)?.iter().any(|job| job.session == session) {
        return Ok(());
    }
    local::remove(&files.folder, session)
}

impl RunNote {
    /// Notes that the handler ended: `clean` where it succeeded without result or transaction, so that whoever finds
    /// this process dead may complete the job.
    pub(crate) fn ended(&self, clean: bool) -> Result<()> {
        self.file.note_ended(&self.slot, clean)
    }

    /// Forgets the run, once its settlement is committed.
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

/// The most that one look adds to the time that a beat has stood still: whoever was stopped between two looks knows
/// nothing of the time between.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// How a session looks to an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    Alive,
    /// Its process holds the file, and has not beaten for the lease time.
    Stopped,
    /// Nobody holds its file.
    Dead,
}

impl Observer {
    /// Takes note of a session's beat, and tells what that says.
    pub(crate) fn observe(&mut self, seen: &local::Seen, lease: Duration) -> Pulse {
        if !seen.alive {
            self.beats.remove(&seen.id);
            return Pulse::Dead;
        }
        let now = monotonic();
        let fresh = || Beat { count: seen.beat, still: Duration::ZERO, looked: now };
        let beat = self.beats.entry(seen.id).or_insert_with(fresh);
        if beat.count == seen.beat {
            beat.still += now.duration_since(beat.looked).min(LOOK_MAX);
            beat.looked = now;
        } else {
            *beat = fresh();
        }
        if beat.still >= lease { Pulse::Stopped } else { Pulse::Alive }
    }

    /// Forgets the sessions that are not among these.
    pub(crate) fn keep_only(&mut self, present: &[local::Seen]) {
        self.beats.retain(|id, _| present.iter().any(|seen| seen.id == *id));
    }
}
