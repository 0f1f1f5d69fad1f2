//! The log of the stone: rows that were answered and that redb does not have yet, in a file of fixed size (L1 to L6).
//!
//! It has two halves, and windows take turns with them: while redb commits the rows of one window, the next one already
//! appends to the other half. Three rules make that safe, and the stone keeps them:
//!
//! - a half is begun anew only after the redb commit of the window that it held has returned `Ok` (L3): till then it is
//!   what that window's answers stand on;
//! - a window begins only when all records before it are synced, so that no crash leaves a gap between the halves;
//! - the store names the log's id before the first append and no longer names it before [`Log::create`] (L1, L6).
//!
//! The bytes are in `format`, what they are written on in `medium`, recovery in `replay`. Deliberately absent: redb,
//! windows' lengths, and who may write; only the holder of the writer's lock touches a log.

mod format;
mod medium;
mod replay;

#[cfg(test)]
mod tests;

use std::{fmt, io, path::Path, sync::Arc};

pub(crate) use self::replay::replay;
use self::{
    format::{Header, encode_record, record_bytes},
    medium::LogFile,
};
use crate::{
    codec,
    engine::{Medium, RowSet, StorageHook},
    error::{Error, ErrorKind, Result},
    local::files::refused,
    planted::{Bug, planted},
    store::conflict::Version,
};

/// How many bytes of records a half holds where nothing else is said.
pub(crate) const HALF_BYTES: usize = 8 << 20;

/// How much is zeroed by one write.
const ZEROS_BYTES: usize = 1 << 20;

/// The name of one life of a log file; drawn at random, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogId(pub(crate) [u8; 16]);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&codec::hex(&self.0))
    }
}

/// One of a log's two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    First,
    Second,
}

impl Half {
    /// The half that the next window writes.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// A log that is being written.
pub(crate) struct Log {
    syncer: Syncer,
    header: Header,
    window: Option<Window>,
    is_synced: bool,
    /// L4: why it is never appended to again.
    broken: Option<String>,
    buffer: Vec<u8>,
}

/// Makes a log's records durable, on whatever thread.
#[derive(Clone)]
pub(crate) struct Syncer {
    medium: Arc<dyn Medium>,
    path: Arc<Path>,
}

/// Where the next record goes.
struct Window {
    half: Half,
    used: usize,
    version: Version,
    seed: u64,
}

impl Log {
    /// Makes the log of a store, or takes over the file of an earlier one, whatever it holds; under a fresh id, for the
    /// file's owner only, durable with its full size when this returns. The store must not name an earlier log here as
    /// in use: that is recovered first.
    ///
    /// # Errors
    /// `Unavailable`, with the path and what to do. No log is in use then, and the call may be repeated.
    pub(crate) fn create(
        path: &Path,
        store: [u8; 16],
        half_bytes: usize,
        hook: Option<Arc<dyn StorageHook>>,
    ) -> Result<Self> {
        let file = LogFile::open_or_create(path, hook)?;
        let header = Header { store, log: LogId(crate::random::bytes()), half_bytes };
        let log = Self::create_on(Arc::new(file), path, header)?;
        // Always: who made the file may have died before this.
        log.syncer.medium.sync_folder().map_err(|cause| refused("sync the folder of", path, cause))?;
        Ok(log)
    }

    fn create_on(medium: Arc<dyn Medium>, path: &Path, header: Header) -> Result<Self> {
        lay_out(&*medium, &header).map_err(|cause| refused("make the log", path, cause))?;
        let syncer = Syncer { medium, path: path.into() };
        Ok(Self { syncer, header, window: None, is_synced: true, broken: None, buffer: Vec::new() })
    }

    /// What the store is to name as in use before the first append.
    pub(crate) fn id(&self) -> LogId {
        self.header.log
    }

    /// Starts a window in this half, at this version of the store. Writes nothing; what the half held goes with the
    /// first append.
    pub(crate) fn begin(&mut self, half: Half, version: Version) {
        assert!(self.is_synced || self.is_broken(), "a window begins when all records before it are synced");
        self.window = Some(Window { half, used: 0, version, seed: self.header.window_seed(version) });
    }

    /// Writes one record behind the others of the window: the rows that bring the store from version `before` to
    /// version `after`. Durable, and to be answered, after [`Log::sync`].
    ///
    /// # Errors
    /// `Invalid` where the record does not fit into what is left of the half (nothing was written; see [`Log::fits`]),
    /// `Unavailable` where the log was broken before (nothing was written), `Unknown` where the write failed: a replay
    /// may find the record or not, and the log is broken.
    pub(crate) fn append(&mut self, before: Version, after: Version, rows: &RowSet) -> Result<()> {
        self.check_sound("append to")?;
        let bytes = Self::record_bytes(rows);
        if !self.fits(bytes) {
            let (path, used, half_bytes) = (self.syncer.path.display(), self.used(), self.header.half_bytes);
            return Err(Error::invalid(format!(
                "append to the log \"{path}\": a record of {bytes} bytes does not fit behind {used} of {half_bytes}; \
                 end the window first, or commit the rows without the log"
            )));
        }
        let window = self.window.as_mut().expect("the stone begins a window before it appends");
        assert!(before == window.version && after > before, "records of a window continue each other");
        let sum = encode_record(&mut self.buffer, window.seed, before, after, rows);
        let at = self.header.half_at(window.half) + window.used as u64;
        self.is_synced = false;
        match self.syncer.medium.write_all_at(&self.buffer, at) {
            Ok(()) => {
                *window = Window { used: window.used + bytes, version: after, seed: sum, ..*window };
                Ok(())
            }
            Err(cause) => {
                let error = self.syncer.failed("append to", cause);
                self.broken = Some(error.full_message());
                Err(error)
            }
        }
    }

    /// What makes the records durable that were appended before its call, here or on another thread.
    pub(crate) fn syncer(&self) -> Syncer {
        self.syncer.clone()
    }

    /// All that was appended was synced, by [`Log::syncer`].
    pub(crate) fn note_synced(&mut self) {
        self.is_synced = true;
    }

    /// Makes all appended records durable, with one sync.
    ///
    /// # Errors
    /// `Unavailable` where the log was broken before, `Unknown` where the sync failed: a replay may find the unsynced
    /// records or a first part of them, and the log is broken.
    #[cfg(test)]
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.check_sound("sync")?;
        self.syncer.sync().inspect_err(|error| self.broken = Some(error.full_message()))?;
        self.is_synced = true;
        Ok(())
    }

    /// L4: whether a write or a sync failed. The window is then committed to redb before any further answer, and a new
    /// log takes this one's place.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// How many bytes a record of these rows takes.
    pub(crate) fn record_bytes(rows: &RowSet) -> usize {
        record_bytes(rows)
    }

    /// Whether a record of so many bytes fits into what is left of the window's half.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.header.half_bytes - self.used()
    }

    /// How many bytes of its half the window has used.
    pub(crate) fn used(&self) -> usize {
        self.window.as_ref().map_or(0, |window| window.used)
    }

    fn check_sound(&self, doing: &str) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(Error::unavailable(format!(
                "{doing} the log \"{}\": it failed before ({why}) and is not used again; commit the window and make a \
                 new log",
                self.syncer.path.display()
            ))),
        }
    }
}

impl Syncer {
    /// Makes all records durable that were appended before, with one sync.
    ///
    /// # Errors
    /// `Unknown`: a replay may find the unsynced records or a first part of them. L4: the log is neither synced nor
    /// appended to again.
    pub(crate) fn sync(&self) -> Result<()> {
        if planted(Bug::AnswerBeforeSync) {
            return Ok(());
        }
        self.medium.sync().map_err(|cause| self.failed("sync", cause))
    }

    fn failed(&self, doing: &str, cause: io::Error) -> Error {
        let refused = refused(&format!("{doing} the log"), &self.path, cause);
        Error::new(ErrorKind::Unknown, refused.to_string()).because(refused)
    }
}

/// Brings the file to its full size and puts the header on it, durably. Old records need not be wiped: the fresh id
/// makes them void.
fn lay_out(medium: &dyn Medium, header: &Header) -> io::Result<()> {
    let full = header.file_bytes();
    let mut len = medium.len()?;
    if len > full {
        medium.set_len(full)?;
    }
    let zeros = vec![0; if len < full { ZEROS_BYTES } else { 0 }];
    while len < full {
        let count = usize::try_from(full - len).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
        medium.write_all_at(&zeros[..count], len)?;
        len += count as u64;
    }
    medium.write_all_at(&header.encode(), 0)?;
    medium.sync()
}
