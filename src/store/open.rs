//! Opening a store: the options, the checks of what is at the path, and the one engine per file and process.

use std::{
    collections::HashMap,
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use crate::{
    clock::{Clock, deadline_after, monotonic, sleep},
    codec,
    engine::{
        Engine, RowSet, Rows, SnapshotError,
        memory::Memory,
        redb::{Redb, RedbOptions, StorageHook},
    },
    error::{Error, ErrorKind, Result},
    local::{self, WriterGuard, is_mount_point, network_file_system},
    stone::{Commits, candidate},
    store::{
        Store,
        committer::{Committer, Step, StepHook},
        growth::Limits,
        inner::Inner,
        keys,
        object::{DATA_FORMAT, FormatRecord, LogRecord, StoreRecord},
        site::{Files, Identity, Site, identity},
        ticket::{name_who_is_stopped, out_of_patience},
        view::get_record,
    },
};

/// How long a call waits for another process's lock where nothing else is said.
const PATIENCE_DEFAULT: Duration = Duration::from_secs(10);
/// How often who wants to create a store tries to get the lock from another that does.
const CREATION_POLL: Duration = Duration::from_millis(2);

/// How often it is looked who keeps a store from being created, before that is believed.
const LOOKS_AT_STONE: usize = 50;

/// How to open a store.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("app.redb");
/// let store = casque::StoreOptions::new().label("importer").open(&path)?;
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct StoreOptions {
    create: bool,
    read_only: bool,
    label: Option<String>,
    patience: Duration,
    redb: RedbOptions,
    step_hook: Option<StepHook>,
    commits: Commits,
    growth: Limits,
    clock: Clock,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            create: true,
            read_only: false,
            label: None,
            patience: PATIENCE_DEFAULT,
            redb: RedbOptions::default(),
            step_hook: None,
            commits: Commits::default(),
            growth: Limits::default(),
            clock: Clock::default(),
        }
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("create", &self.create)
            .field("read_only", &self.read_only)
            .field("label", &self.label)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl StoreOptions {
    /// Options that create a missing store and open it for reading and writing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a missing store is created (the default) or an error.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Opens for reading only: nothing is created, locked or written, not even beside the store.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// What others see of this process in conflicts, sessions and errors. By default the program's name and the pid.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// How long a call waits while another process holds the writer's lock; 10 s by default. After that it is
    /// `Unavailable` (nothing was written) or `Unknown`, and names the holder.
    #[must_use]
    pub fn timeout(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self.redb.patience = patience;
        self
    }

    /// How many bytes of the file this process keeps in memory; 16 MiB by default. More helps who reads all over a
    /// large root: the rest is read from the system again.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.redb.cache_bytes = bytes;
        self
    }

    /// How this process's changes get to the disk; by a stone with a log, where there is one, by default.
    #[must_use]
    pub fn commits(mut self, commits: Commits) -> Self {
        self.commits = commits;
        self
    }

    /// The wall clock that the store goes by in this process; this machine's by default. Another is for tests.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn step_hook(mut self, hook: impl Fn(Step) + Send + Sync + 'static) -> Self {
        self.step_hook = Some(Arc::new(hook));
        self
    }

    /// How much the file may grow while a process that is stopped pins its pages, for how long one may, and how long
    /// each commit waits beyond that.
    #[doc(hidden)]
    #[must_use]
    pub fn growth_limits(mut self, bytes: u64, age: Duration, pause: Duration) -> Self {
        self.growth = Limits { bytes, age, pause };
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn storage_hook(mut self, hook: Arc<dyn StorageHook>) -> Self {
        self.redb.hook = Some(hook);
        self
    }

    /// Opens the store at a path. In one process all openings of one file share one engine, with the options of the
    /// first; but each that is for reading only has its own.
    ///
    /// # Errors
    /// `NotFound` for a missing store that is not to be created; `Invalid` where the path is something else, or a store
    /// of a newer format; `Corrupt` where it is damaged; `Unavailable` where permission or space is lacking.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        #[cfg(all(unix, feature = "isolation"))]
        crate::child::refuse_unreached()?;
        let path = resolve(path.as_ref())?;
        let opened = if self.read_only { self.open_for_reading(&path) } else { self.open_for_writing(&path) };
        // What is wrong with the rows does not say whose they are.
        let named = |error: Error| {
            let name = path.display().to_string();
            if error.full_message().contains(&name) { error } else { error.during(&name) }
        };
        Ok(Store { inner: opened.map_err(named)? })
    }

    /// A store in memory, of this process alone: for tests.
    ///
    /// # Errors
    /// `Unavailable` when a thread can't be started.
    pub fn open_in_memory(&self) -> Result<Store> {
        self.open_on(Box::new(Memory::new()))
    }

    /// Makes a store on an engine that has no rows yet, and that no other process knows.
    pub(crate) fn open_on(&self, engine: Box<dyn Engine>) -> Result<Store> {
        engine.write(None, &first_rows()?)?;
        self.finish(Site::in_memory(engine)).map(|inner| Store { inner })
    }

    /// A store in memory of just these rows.
    #[cfg(test)]
    pub(crate) fn open_with_rows(&self, rows: &crate::engine::RowSet) -> Result<Store> {
        let engine = Memory::new();
        crate::engine::Engine::write(&engine, None, rows)?;
        self.finish(Site::in_memory(Box::new(engine))).map(|inner| Store { inner })
    }

    fn open_for_reading(&self, path: &Path) -> Result<Arc<Inner>> {
        let engine = Redb::open(path, self.redb.clone())?;
        let site = match Files::to_read(path)?.map(|files| self.noted(files)) {
            Some(files) => Site::on_disk(Box::new(engine), files),
            None => Site::in_memory(Box::new(engine)),
        };
        self.finish(site)
    }

    fn open_for_writing(&self, path: &Path) -> Result<Arc<Inner>> {
        if let Some(inner) = opened(path) {
            return Ok(inner);
        }
        let exists = path.try_exists().unwrap_or(false);
        if !exists && !self.create {
            return Err(Error::not_found(format!(
                "there is no store at {}; name another with --store or CASQUE_STORE, or enqueue a job to make one",
                path.display()
            )));
        }
        if exists {
            refuse_what_is_no_store(path)?;
        }
        if is_mount_point(path) {
            return Err(Error::invalid(format!(
                "{} is mounted by itself, and its locks are not those of where it comes from; mount its folder",
                path.display()
            )));
        }
        if let Some(kind) = network_file_system(path.parent().unwrap_or(path)) {
            return Err(Error::invalid(format!(
                "{} is on a network file system ({kind}), where locks can't be relied on; use a local disk",
                path.display()
            )));
        }
        // Looked at before anything is made beside it, so that what is no store stays as it is.
        let engine = if exists { Some(self.open_engine(path)?) } else { None };
        let mut files = Files::open(path, &self.label_or_default())?;
        let engine = if let Some(engine) = engine {
            engine
        } else {
            if let Some(_guard) = self.lock_to_create(&files)? {
                Redb::create(path, &first_rows()?, &self.redb)?;
            }
            Redb::open(path, self.redb.clone())?
        };
        files.note_identity();
        files.limit_growth(self.growth);
        let files = self.noted(files);
        let inner = self.finish(Site::on_disk(Box::new(engine), files))?;
        Ok(remember(path, inner))
    }

    fn noted(&self, mut files: Files) -> Files {
        if self.commits == Commits::DirectOnly {
            files.commit_directly();
        }
        files
    }

    /// The lock, unless there is a store by now: who has made it may be the stone already, and keep the lock. W8: there
    /// is no committer yet that would wait for it where this could give up.
    fn lock_to_create<'a>(&self, files: &'a Files) -> Result<Option<WriterGuard<'a>>> {
        const PURPOSE: &str = "create the store";
        let exists = || files.store.try_exists().unwrap_or(false);
        let deadline = deadline_after(self.patience);
        let mut looks = 0;
        loop {
            if let Some(guard) = files.lock()?.try_take(PURPOSE)? {
                return Ok((!exists()).then_some(guard));
            }
            if exists() {
                return Ok(None);
            }
            // A stone has a store, so that what is missing was there. Its note counts where it stays: who has just
            // taken the lock may not have written its own over that of a dead one.
            let stone = local::last_note(&files.folder).filter(|holder| holder.purpose == candidate::PURPOSE);
            looks = if stone.is_some() { looks + 1 } else { 0 };
            if let Some(stone) = stone.filter(|_| looks >= LOOKS_AT_STONE) {
                return Err(files.replaced_under(Some(stone.pid)));
            }
            if monotonic() >= deadline {
                return Err(out_of_patience(Some(files), ErrorKind::Unavailable, PURPOSE));
            }
            sleep(CREATION_POLL);
        }
    }

    /// The engine of a file that holds a store, as far as that can be told before it is recovered.
    fn open_engine(&self, path: &Path) -> Result<Redb> {
        let engine = Redb::open(path, self.redb.clone())?;
        match engine.snapshot() {
            Ok(rows) => check_format(rows.as_ref())?,
            Err(SnapshotError::NeedsRecovery) => {}
            Err(SnapshotError::Failed(error)) => {
                let files = Files::to_read(path).unwrap_or_default();
                return Err(name_who_is_stopped(files.as_ref(), "reading", error));
            }
        }
        Ok(engine)
    }

    fn finish(&self, site: Site) -> Result<Arc<Inner>> {
        let site = Arc::new(site.by_clock(self.clock.clone()));
        // Without local sockets nobody can be the stone.
        let commits = if cfg!(unix) { self.commits } else { Commits::DirectOnly };
        let committer = Committer::start(site.clone(), self.step_hook.clone(), commits)?;
        let hook = self.redb.hook.clone();
        let mut inner = Inner::new(site, committer, self.label_or_default(), self.patience, self.read_only, hook);
        // A1: looked at before it can be asked of a stone, which is told this process's name in the same breath.
        let store: StoreRecord = match inner.site.engine.snapshot() {
            Ok(rows) => get_record(rows.as_ref(), keys::STORE)?.unwrap_or_default(),
            Err(SnapshotError::NeedsRecovery) => StoreRecord::default(),
            Err(SnapshotError::Failed(error)) => {
                return Err(name_who_is_stopped(inner.site.files(), "reading", error));
            }
        };
        inner.born_at(store.version);
        check_format(inner.peek()?.as_ref())?;
        let inner = Arc::new(inner);
        let timed = Arc::downgrade(&inner);
        self.clock.watch(move || timed.upgrade().is_some_and(|inner| inner.note_time_set()));
        Ok(inner)
    }

    fn label_or_default(&self) -> String {
        self.label.clone().unwrap_or_else(|| {
            let program = std::env::current_exe().ok();
            let name = program.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or("casque");
            format!("{name}.{}", std::process::id())
        })
    }
}

/// # Errors
/// `Invalid` for rows that are no store's, or of a newer format.
pub(crate) fn check_format(rows: &dyn Rows) -> Result<()> {
    let format: FormatRecord = get_record(rows, keys::FORMAT)?
        .ok_or_else(|| Error::invalid("the file is a redb database, but not a casque store; name another path"))?;
    if format.format > DATA_FORMAT {
        return Err(Error::invalid(format!(
            "the store has format {}, and this casque reads up to {DATA_FORMAT}; use a newer casque",
            format.format
        )));
    }
    Ok(())
}

/// The rows of a new store.
fn first_rows() -> Result<RowSet> {
    let format = FormatRecord { format: DATA_FORMAT, store: crate::random::bytes() };
    Ok(RowSet::from([
        (keys::FORMAT.to_vec(), Some(codec::encode(&format)?)),
        (keys::STORE.to_vec(), Some(codec::encode(&StoreRecord::default())?)),
        (keys::LOG.to_vec(), Some(codec::encode(&LogRecord::None)?)),
    ]))
}

/// The path without symbolic links, so that all names of a store lead to the same files beside it.
fn resolve(path: &Path) -> Result<PathBuf> {
    if let Ok(resolved) = fs::canonicalize(path) {
        return Ok(resolved);
    }
    let name = path
        .file_name()
        .ok_or_else(|| Error::invalid(format!("\"{}\" names no file; name one, as app.redb", path.display())))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::canonicalize(folder).map_err(|error| {
        let kind =
            if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Unavailable };
        Error::new(
            kind,
            format!("the folder {} of the store can't be used; make it, or name another", folder.display()),
        )
        .because(error)
    })?;
    if !folder.is_dir() {
        return Err(Error::unavailable(format!(
            "{} is not a folder to make a store in; name another",
            folder.display()
        )));
    }
    Ok(folder.join(name))
}

#[cfg(unix)]
fn refuse_what_is_no_store(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;

    let metadata = fs::metadata(path)
        .map_err(|error| Error::unavailable(format!("{} can't be looked at", path.display())).because(error))?;
    if metadata.is_file() && metadata.nlink() > 1 {
        return Err(Error::invalid(format!(
            "{} has {} names (hard links), and each would have locks of its own; keep one of them",
            path.display(),
            metadata.nlink()
        )));
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_what_is_no_store(_: &Path) -> Result<()> {
    Ok(())
}

static OPENED: Mutex<Option<HashMap<Identity, Weak<Inner>>>> = Mutex::new(None);

fn opened(path: &Path) -> Option<Arc<Inner>> {
    let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let inner = opened.as_ref()?.get(&identity(path)?)?.upgrade()?;
    inner.check_open().is_ok().then_some(inner)
}

/// Keeps the engine for the next opening of the file; gives the one of another thread that was quicker.
fn remember(path: &Path, inner: Arc<Inner>) -> Arc<Inner> {
    let Some(identity) = identity(path) else { return inner };
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let opened = opened.get_or_insert_with(HashMap::new);
    if let Some(known) = opened.get(&identity).and_then(Weak::upgrade)
        && known.check_open().is_ok()
    {
        return known;
    }
    opened.retain(|_, inner| inner.strong_count() > 0);
    opened.insert(identity, Arc::downgrade(&inner));
    inner
}
