//! Where a store is: its engine, and the files beside it where it has any. What the committer and the readers share.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    clock::{Clock, Timestamp},
    engine::{Engine, StorageHook},
    error::{Error, Result},
    local::{self, Folder, Holder, Wakes, WriterLock},
    queue::HeldJob,
    stone::{Measures, candidate},
    store::growth::{Growth, Limits},
};

pub(crate) struct Site {
    pub(crate) engine: Box<dyn Engine>,
    place: Place,
    /// A process that forks without exec must open the store anew: locks and threads do not come along.
    pid: u32,
    clock: Clock,
}

enum Place {
    Memory { wakes: AtomicU64 },
    Files(Box<Files>),
}

/// The files beside a store.
pub(crate) struct Files {
    pub(crate) store: PathBuf,
    pub(crate) folder: Folder,
    /// What the store's path named when it was opened.
    opened: Option<Identity>,
    /// None in a process that only reads.
    lock: Option<WriterLock>,
    /// None where there is no such file, or it may not be read.
    wakes: Option<Wakes>,
    growth: Growth,
    /// This process asks no stone.
    is_direct_only: bool,
    /// Is asked before each operation on the log, as the engine asks it before each of its own.
    pub(crate) hook: Option<Arc<dyn StorageHook>>,
    pub(crate) measures: Measures,
}

/// What names a file: device and inode where there are such, else its resolved path.
#[cfg(unix)]
pub(crate) type Identity = (u64, u64);
#[cfg(not(unix))]
pub(crate) type Identity = PathBuf;

#[cfg(unix)]
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;

    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    Some(path.to_owned())
}

/// A turn, until this is dropped or the process dies.
pub(crate) struct Turn {
    _file: Option<std::fs::File>,
}

impl Files {
    pub(crate) fn open(store: &Path, label: &str) -> Result<Self> {
        let folder = Folder::create(store)?;
        let lock = Some(WriterLock::open(&folder, label.to_owned())?);
        let wakes = Some(Wakes::open(&folder)?);
        Ok(Self::new(store, folder, lock, wakes))
    }

    /// The files beside a store that is only read: nothing is made or locked.
    pub(crate) fn to_read(store: &Path) -> Result<Option<Self>> {
        let Some(folder) = Folder::existing(store)? else { return Ok(None) };
        let wakes = Wakes::existing(&folder)?;
        Ok(Some(Self::new(store, folder, None, wakes)))
    }

    fn new(store: &Path, folder: Folder, lock: Option<WriterLock>, wakes: Option<Wakes>) -> Self {
        Self {
            store: store.to_owned(),
            folder,
            opened: None,
            lock,
            wakes,
            growth: Growth::default(),
            is_direct_only: false,
            hook: None,
            measures: Measures::default(),
        }
    }

    /// Remembers which file the store is, now that it is there.
    pub(crate) fn note_identity(&mut self) {
        self.opened = identity(&self.store);
    }

    pub(crate) fn limit_growth(&mut self, limits: Limits) {
        self.growth = Growth::new(limits);
    }

    /// What is said where a process goes on with a file that the store's path names no longer.
    pub(crate) fn replaced_under(&self, pid: Option<u32>) -> Error {
        let who = pid.map_or("a process".to_owned(), |pid| format!("process {pid}"));
        Error::new(
            crate::error::ErrorKind::Closed,
            format!(
                "the store {} was removed or replaced while {who} has it open and commits for the others; end that \
                 process, then try again",
                self.store.display()
            ),
        )
    }

    /// Notes that this process asks no stone, for those who wait for one in vain.
    pub(crate) fn commit_directly(&mut self) {
        self.is_direct_only = true;
    }

    /// Whether this process waits for the lock of a stone that it does not ask.
    pub(crate) fn waits_in_vain_for(&self, holder: &Holder) -> bool {
        self.is_direct_only && holder.purpose == candidate::PURPOSE
    }

    fn is_store_in_place(&self) -> bool {
        self.opened.is_none() || identity(&self.store) == self.opened
    }

    /// The writer's lock.
    ///
    /// # Errors
    /// `Invalid` in a process that only reads.
    pub(crate) fn lock(&self) -> Result<&WriterLock> {
        self.lock.as_ref().ok_or_else(|| Error::invalid("the store is open for reading only"))
    }
}

impl Site {
    pub(crate) fn in_memory(engine: Box<dyn Engine>) -> Self {
        Self {
            engine,
            place: Place::Memory { wakes: AtomicU64::new(0) },
            pid: std::process::id(),
            clock: Clock::default(),
        }
    }

    pub(crate) fn on_disk(engine: Box<dyn Engine>, files: Files) -> Self {
        Self { engine, place: Place::Files(Box::new(files)), pid: std::process::id(), clock: Clock::default() }
    }

    /// The same, by another clock than this machine's.
    pub(crate) fn by_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The time of what is committed here.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn files(&self) -> Option<&Files> {
        match &self.place {
            Place::Memory { .. } => None,
            Place::Files(files) => Some(files),
        }
    }

    /// Does something under the writer's lock, where that can be had at once; else nothing.
    pub(crate) fn try_locked<T>(&self, purpose: &str, work: impl FnOnce() -> T) -> Result<Option<T>> {
        match self.files() {
            None => Ok(Some(work())),
            Some(files) => Ok(files.lock()?.try_take(purpose)?.map(|_guard| work())),
        }
    }

    /// Whether a process holds the writer's lock just now.
    pub(crate) fn has_writer(&self) -> bool {
        self.files().is_some_and(|files| local::holder(&files.folder).is_some())
    }

    /// Takes a turn that one process at a time may have; nothing where another has it.
    pub(crate) fn try_turn(&self, name: &str) -> Option<Turn> {
        match self.files() {
            None => Some(Turn { _file: None }),
            Some(files) => match local::try_turn(&files.folder, name) {
                Ok(file) => file.map(|file| Turn { _file: Some(file) }),
                Err(error) => {
                    self.note_trouble(&error);
                    None
                }
            },
        }
    }

    pub(crate) fn is_turn_taken(&self, name: &str) -> bool {
        self.files().is_some_and(|files| local::is_turn_taken(&files.folder, name))
    }

    /// P5: whether a child process still works on a held job.
    pub(crate) fn is_child_busy(&self, held: &HeldJob) -> bool {
        self.files().is_some_and(|files| local::children::is_busy(&files.folder, held.job, held.token))
    }

    /// That the store's path still names the file that was opened.
    ///
    /// # Errors
    /// `Closed` where it does not: what is written now would be lost.
    pub(crate) fn verify_store(&self) -> Result<()> {
        match self.files() {
            Some(files) if !files.is_store_in_place() => Err(Error::new(
                crate::error::ErrorKind::Closed,
                format!("the store {} was removed or replaced while it was open; open it again", files.store.display()),
            )),
            _ => Ok(()),
        }
    }

    /// R4: how long each commit is to wait, because a process that does not run any more lets the file grow.
    pub(crate) fn commit_pause(&self) -> Option<Duration> {
        self.files().and_then(|files| files.growth.pause(&files.store, |error| self.note_trouble(error)))
    }

    /// R4: waits for that long. Under the writer's lock, before a write.
    pub(crate) fn slow_down(&self) {
        if let Some(files) = self.files() {
            files.growth.slow_down(&files.store, |error| self.note_trouble(error));
        }
    }

    /// A number that changes with every commit of any process.
    pub(crate) fn wakes(&self) -> u64 {
        match &self.place {
            Place::Memory { wakes } => wakes.load(Ordering::Acquire),
            Place::Files(files) => match &files.wakes {
                Some(wakes) => wakes.read(),
                // Without the count, whoever waits for a commit looks again and again, at leisure.
                None => self.now().as_millis() / 100,
            },
        }
    }

    pub(crate) fn bump_wakes(&self) {
        match &self.place {
            Place::Memory { wakes } => {
                wakes.fetch_add(1, Ordering::AcqRel);
            }
            Place::Files(files) => {
                if let Some(Err(error)) = files.wakes.as_ref().map(Wakes::bump) {
                    self.note_trouble(&error);
                }
            }
        }
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        Err(Error::new(
            crate::error::ErrorKind::Closed,
            format!("the store was opened by process {}, and this one was forked from it; open it again", self.pid),
        ))
    }

    /// Trouble that no caller waits for, and that changes nothing that was answered.
    #[allow(clippy::unused_self, reason = "with `tracing` off there is nowhere to say it")]
    pub(crate) fn note_trouble(&self, error: &Error) {
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "casque", error = %error.full_message(), "trouble beside the store");
        #[cfg(not(feature = "tracing"))]
        let _ = error;
    }
}
