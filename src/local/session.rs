//! A process's own session file: its lock says "alive", its beat says "not stopped", its notes say how far jobs came.
//!
//! All writes are unsynced and positional, a microsecond each: other processes read them from the same memory, and a
//! power cut ends every session anyway. How others see the file is in `observe`.

use std::{
    fs::File,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{
    boot::boot_id,
    files::{self, refused},
    folder::Folder,
    record::{self, BEAT_AT, Header, NOTE_BYTES, NOTES_MAX, Note, NoteState},
};
use crate::{
    clock::Timestamp,
    error::{Error, Result},
    queue::id::{JobId, SessionId, Token},
};

/// The open, locked file of this process's session. Dropping it frees the lock, and so ends the session; the file is
/// then removed by whoever holds the writer's lock.
#[derive(Debug)]
pub(crate) struct SessionFile {
    path: PathBuf,
    file: File,
    // Held while writing, so that a slower thread can't put an older beat over a newer one.
    beat: Mutex<u64>,
    slots: Mutex<Slots>,
}

/// The place of one job's note. It must be given back by [`SessionFile::clear`] or
/// [`SessionFile::leave`] to be used again.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct NoteSlot {
    index: u32,
    note: Note,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    used: u32,
}

impl SessionFile {
    /// Makes the session known to others, alive from the first instant they can see it.
    pub(crate) fn create(folder: &Folder, id: SessionId, label: &str) -> Result<Self> {
        let path = path(folder, id);
        let header = Header {
            pid: std::process::id(),
            boot_id: boot_id().to_owned(),
            label: label.to_owned(),
            started_ms: Timestamp::now().as_millis(),
        };
        let file = files::create_locked(&path, &header.encode())?;
        Ok(Self { path, file, beat: Mutex::default(), slots: Mutex::default() })
    }

    /// Shows that this process still runs, and says within which time it will show so again.
    pub(crate) fn beat(&self, interval: Duration) -> Result<()> {
        let mut beat = self.beat.lock().unwrap_or_else(PoisonError::into_inner);
        *beat = beat.wrapping_add(1);
        self.write(&record::encode_beat(*beat, crate::clock::millis(interval)), BEAT_AT)
    }

    /// Notes that a job's handler is about to be called.
    pub(crate) fn note_started(&self, job: JobId, token: Token, at_ms: u64) -> Result<NoteSlot> {
        let note = Note { job, token, started_ms: at_ms, state: NoteState::Started };
        let slot = NoteSlot { index: self.reserve()?, note };
        match self.write(&note.encode(), record::slot_at(slot.index)) {
            Ok(()) => Ok(slot),
            Err(error) => {
                self.free(slot.index);
                Err(error)
            }
        }
    }

    /// Notes that the handler has returned; `clean` if nothing of it is left for a commit to carry.
    pub(crate) fn note_ended(&self, slot: &NoteSlot, clean: bool) -> Result<()> {
        let state = if clean { NoteState::EndedClean } else { NoteState::EndedOther };
        self.write(&Note { state, ..slot.note }.encode(), record::slot_at(slot.index))
    }

    /// Gives back the slot of a job that was settled. The note stays until the next one takes its place, which saves a
    /// write for each job: it harms nobody, since its token is no longer valid.
    #[expect(clippy::needless_pass_by_value, reason = "a slot that was given back can't be written again")]
    pub(crate) fn leave(&self, slot: NoteSlot) {
        self.free(slot.index);
    }

    /// Forgets a note of a job that was not settled. A slot whose note could not be wiped is not used again.
    #[expect(clippy::needless_pass_by_value, reason = "a slot that was given back can't be written again")]
    pub(crate) fn clear(&self, slot: NoteSlot) -> Result<()> {
        self.write(&[0; NOTE_BYTES], record::slot_at(slot.index))?;
        self.free(slot.index);
        Ok(())
    }

    fn reserve(&self) -> Result<u32> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = slots.free.pop() {
            return Ok(index);
        }
        if slots.used == NOTES_MAX {
            return Err(Error::unavailable(format!(
                "note a started job in \"{}\": it holds {NOTES_MAX} notes and has no room; settle some jobs first",
                self.path.display()
            )));
        }
        slots.used += 1;
        Ok(slots.used - 1)
    }

    fn free(&self, index: u32) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).free.push(index);
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        files::write_at(&self.file, bytes, offset).map_err(|cause| refused("write", &self.path, cause))
    }
}

impl Drop for SessionFile {
    fn drop(&mut self) {
        files::unlock(&self.file);
    }
}

pub(super) fn path(folder: &Folder, id: SessionId) -> PathBuf {
    folder.sessions().join(id.to_string())
}
