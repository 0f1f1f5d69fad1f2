//! The writer's lock, its bell, and the note of who holds it.
//!
//! The lock is an OS lock: it dies with its holder, and nobody can be asked who that is. So the holder leaves a note in
//! the locked file, which is advice and worth something only while the lock is held. OS locks are not fair either: who
//! waits holds the bell, and who has just given the lock back steps aside while the bell is held.

use std::{
    fs::{File, TryLockError},
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    files::{self, refused},
    folder::Folder,
    holder::{self, NOTE_BYTES},
};
use crate::{
    clock,
    error::{Error, ErrorKind, Result},
};

/// How long who has released the lock leaves it to those who wait.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long nobody steps aside again after one who waits let a whole `PATIENCE` pass: it is stopped or starved, and
/// would otherwise slow every commit to one per `PATIENCE`.
const SULK: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_micros(100);
/// How rarely who has waited for a while tries the lock.
const POLL_MAX: Duration = Duration::from_millis(1);
/// How often a waiter tries to hold the bell, which somebody who probes it holds for an instant.
const RINGS: usize = 20;

/// One process's handle of the writer's lock; its threads share it, one at a time.
#[derive(Debug)]
pub(crate) struct WriterLock {
    path: PathBuf,
    label: String,
    file: File,
    // The bell is open twice, since what one handle holds it can't probe: a probe would convert the hold.
    waiting: File,
    probe: File,
    /// An OS lock belongs to the open file, not to a thread: a second thread would be let in beside the first.
    is_taken_here: AtomicBool,
    manners: Mutex<Manners>,
    patience: Duration,
}

/// The lock, held. Dropping it gives the lock back.
#[derive(Debug)]
#[must_use]
pub(crate) struct WriterGuard<'a> {
    lock: &'a WriterLock,
    take: u64,
    _turn: Turn<'a>,
}

#[derive(Debug, Default)]
struct Manners {
    /// When this process gave the lock back, and the number of the take that ended then.
    released: Option<(Instant, u64)>,
    sulking_until: Option<Instant>,
}

/// The one thread of this process that holds the lock, or tries it.
#[derive(Debug)]
struct Turn<'a> {
    lock: &'a WriterLock,
}

impl WriterLock {
    /// Opens the lock without taking it. `label` is how this process wants to be named to others.
    pub(crate) fn open(folder: &Folder, label: String) -> Result<Self> {
        let path = folder.lock();
        Ok(Self {
            label,
            file: files::open_or_create(&path)?,
            waiting: files::open_or_create(&folder.bell())?,
            probe: files::open_or_create(&folder.bell())?,
            path,
            is_taken_here: AtomicBool::new(false),
            manners: Mutex::default(),
            patience: PATIENCE,
        })
    }

    /// Takes the lock, trying again and again until `give_up` says so. It never blocks in the system: a stone may hold
    /// the lock for its life, and who waits for it finds the stone meanwhile.
    pub(crate) fn take_unless(
        &self,
        purpose: &str,
        mut give_up: impl FnMut() -> bool,
    ) -> Result<Option<WriterGuard<'_>>> {
        let mut rung = false;
        let mut pause = POLL;
        let taken = loop {
            // Who rings has stepped aside before; its own bell must not keep it from the lock.
            let polite = !rung && self.steps_aside()?;
            if !polite && let Some(guard) = self.try_take_now(purpose)? {
                break Some(guard);
            }
            if give_up() {
                break None;
            }
            rung = rung || (!polite && self.ring()?);
            clock::sleep(pause);
            pause = (pause * 2).min(POLL_MAX);
        };
        if rung {
            files::unlock(&self.waiting);
        }
        Ok(taken)
    }

    /// Takes the lock if that needs no waiting, neither for another process nor for a thread of this one.
    pub(crate) fn try_take(&self, purpose: &str) -> Result<Option<WriterGuard<'_>>> {
        if self.steps_aside()? { Ok(None) } else { self.try_take_now(purpose) }
    }

    fn try_take_now(&self, purpose: &str) -> Result<Option<WriterGuard<'_>>> {
        if self.is_taken_here.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        let turn = Turn { lock: self };
        if self.try_lock()? { self.taken(turn, purpose).map(Some) } else { Ok(None) }
    }

    fn taken<'a>(&'a self, turn: Turn<'a>, purpose: &str) -> Result<WriterGuard<'a>> {
        let take = holder::parse(&self.note()).0.wrapping_add(1);
        // Looked at before the guard is made, which leaves its note in the file when it goes.
        if !files::is_at(&self.file, &self.path) {
            files::unlock(&self.file);
            return Err(self.replaced());
        }
        let guard = WriterGuard { lock: self, take, _turn: turn };
        self.write_note(&holder::held(take, &self.label, purpose));
        Ok(guard)
    }

    /// W2: the file locked here is not the one that others would lock.
    fn replaced(&self) -> Error {
        Error::new(
            ErrorKind::Closed,
            format!(
                "the store's lock file \"{}\" was replaced or removed; stop what moves files there, and open the store \
                 again",
                self.path.display()
            ),
        )
    }

    fn try_lock(&self) -> Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(cause)) => Err(refused("lock", &self.path, cause)),
        }
    }

    /// Holds the bell, if it can be had soon: a process stopped in the midst of a probe must not stop the others, who
    /// then wait unheard.
    fn ring(&self) -> Result<bool> {
        for _ in 0..RINGS {
            match self.waiting.try_lock_shared() {
                Ok(()) => return Ok(true),
                Err(TryLockError::WouldBlock) => clock::sleep(POLL),
                Err(TryLockError::Error(cause)) => return Err(refused("lock the bell of", &self.path, cause)),
            }
        }
        Ok(false)
    }

    fn bell_is_held(&self) -> Result<bool> {
        match self.probe.try_lock() {
            Ok(()) => {
                files::unlock(&self.probe);
                Ok(false)
            }
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(cause)) => Err(refused("probe the bell of", &self.path, cause)),
        }
    }

    /// Whether the lock is to be left to somebody else for now (W5).
    fn steps_aside(&self) -> Result<bool> {
        let mut manners = guarded(&self.manners);
        let Some((released, take)) = manners.released else { return Ok(false) };
        if !self.bell_is_held()? {
            *manners = Manners::default();
            return Ok(false);
        }
        let now = clock::monotonic();
        if manners.sulking_until.is_some_and(|until| now < until) {
            return Ok(false);
        }
        if now.saturating_duration_since(released) < self.patience {
            return Ok(true);
        }
        let nobody_came = holder::parse(&self.note()).0 == take;
        manners.sulking_until = nobody_came.then(|| now + SULK);
        Ok(false)
    }

    fn note(&self) -> Vec<u8> {
        let mut bytes = vec![0; NOTE_BYTES];
        let count = files::read_at(&self.file, &mut bytes, 0).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }

    fn write_note(&self, note: &[u8; NOTE_BYTES]) {
        // A full disk may keep the note from being written; the lock holds without it.
        let _ = files::write_at(&self.file, note, 0);
    }
}

impl WriterGuard<'_> {
    /// W2: that the lock file is still the one that others would lock.
    ///
    /// # Errors
    /// `Closed` where it is not.
    pub(crate) fn check_place(&self) -> Result<()> {
        if files::is_at(&self.lock.file, &self.lock.path) { Ok(()) } else { Err(self.lock.replaced()) }
    }
}

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        let lock = self.lock;
        lock.write_note(&holder::released(self.take));
        guarded(&lock.manners).released = Some((clock::monotonic(), self.take));
        files::unlock(&lock.file);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lock.is_taken_here.store(false, Ordering::Release);
    }
}

fn guarded<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
