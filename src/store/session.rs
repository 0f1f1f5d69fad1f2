//! A process's presence: the session file that it holds locked, and the beat that others time on their own clocks
//! (P1, P2). A store in memory has no other processes, and its session is a name only.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    clock::{Timestamp, monotonic},
    error::Result,
    local::{self, NoteSlot, SessionFile},
    queue::id::{JobId, SessionId, Token},
    store::{inner::Alarm, site::Site},
};

pub(crate) struct Session {
    pub(crate) id: SessionId,
    file: Option<Arc<SessionFile>>,
    beat: Mutex<Option<Alarm>>,
}

/// A run that the session's file notes as begun, until its settlement is committed.
pub(crate) struct RunNote {
    file: Arc<SessionFile>,
    slot: NoteSlot,
}

impl Session {
    pub(crate) fn begin(site: &Arc<Site>, label: &str, lease: Duration) -> Result<Self> {
        let id = SessionId::random();
        let Some(files) = site.files() else {
            return Ok(Self { id, file: None, beat: Mutex::new(None) });
        };
        let file = Arc::new(SessionFile::create(&files.folder, id, label)?);
        let period = (lease / 10).clamp(Duration::from_millis(20), Duration::from_secs(1));
        let beating = file.clone();
        let troubled = site.clone();
        let beat = Alarm::every("casque-beat", period, move || {
            if let Err(error) = beating.beat() {
                troubled.note_trouble(&error);
            }
        })?;
        Ok(Self { id, file: Some(file), beat: Mutex::new(Some(beat)) })
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

    /// Removes the session's file. Under the writer's lock.
    pub(crate) fn end(&self, site: &Site) {
        self.stop_beating();
        if let (Some(files), Some(_)) = (site.files(), &self.file)
            && let Err(error) = local::remove(&files.folder, self.id)
        {
            site.note_trouble(&error);
        }
    }
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
    beats: std::collections::HashMap<SessionId, (u64, std::time::Instant)>,
}

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
        let (beat, since) = self.beats.entry(seen.id).or_insert((seen.beat, now));
        if *beat != seen.beat {
            (*beat, *since) = (seen.beat, now);
        }
        if now.duration_since(*since) >= lease { Pulse::Stopped } else { Pulse::Alive }
    }

    /// Forgets the sessions that are not among these.
    pub(crate) fn keep_only(&mut self, present: &[local::Seen]) {
        self.beats.retain(|id, _| present.iter().any(|seen| seen.id == *id));
    }
}
