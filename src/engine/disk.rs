//! A disk in memory for tests: it keeps apart what processes see of files and what a power cut leaves of them, and it
//! fails, fills up, or holds its callers up as it is told.
//!
//! All that happens on it, in order and over all its files, is in a [`trace::Trace`], from which every disk can be made
//! that a power cut might have left. `image` is the bytes of files, `locks` the locks on them.

pub(crate) mod image;
mod locks;
pub(crate) mod trace;

use std::{
    fmt, io,
    ops::Bound,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use self::{
    image::Image,
    locks::Locks,
    trace::{Cut, Event, Piece, Platter, Trace, What},
};
use super::{Medium, Storage, StorageHook, StorageOperation};

/// How long who is held up is waited for, before that is a test's failure.
const PATIENCE: Duration = Duration::from_mins(1);

/// What an operation that is made to fail is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    SetLen,
    Sync,
    Lock,
    Unlock,
}

/// When operations fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    /// The how-manieth of those that may, from 0.
    pub(crate) first: u64,
    /// How many fail, from that one on.
    pub(crate) count: u64,
    /// Which operations may, on which files.
    pub(crate) may_fail: fn(&str, Operation) -> bool,
    pub(crate) kind: io::ErrorKind,
    /// How many bytes of a write that fails are written all the same.
    pub(crate) written: usize,
}

/// The disk; its clones are the same one.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    live: Image,
    trace: Trace,
    platter: Platter,
    /// Where it is said, writes are taken apart at so many bytes, and a cut may take each part.
    sector: Option<usize>,
    locks: Locks,
    handles: u64,
    failure: Option<Failure>,
    /// How many operations there were that may fail, since it was said which.
    counted: u64,
    failed: u64,
    gate: Option<Gate>,
}

/// Where syncs of one file are held up.
struct Gate {
    file: Arc<str>,
    /// How many may still pass.
    passes: usize,
    /// The thread that waits.
    held: Option<String>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl Disk {
    pub(crate) fn of(image: Image) -> Self {
        let state = State {
            live: image.clone(),
            trace: Trace { base: image.clone(), events: Vec::new() },
            platter: Platter::of(image),
            sector: None,
            locks: Locks::default(),
            handles: 0,
            failure: None,
            counted: 0,
            failed: 0,
            gate: None,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// A handle of the file of this name, which is made where it is missing.
    pub(crate) fn open(&self, name: &str) -> Handle {
        let mut state = self.lock();
        state.handles += 1;
        let file: Arc<str> = name.into();
        if state.live.file(name).is_none() {
            state.write(Piece { file: file.clone(), what: What::Made });
        }
        Handle { disk: self.clone(), file, number: state.handles }
    }

    /// Takes writes apart at so many bytes.
    pub(crate) fn in_sectors(self, bytes: usize) -> Self {
        self.lock().sector = Some(bytes);
        self
    }

    /// What processes see.
    pub(crate) fn live(&self) -> Image {
        self.lock().live.clone()
    }

    /// All that has happened so far.
    pub(crate) fn trace(&self) -> Trace {
        self.lock().trace.clone()
    }

    /// The power goes now.
    pub(crate) fn cut(&self) -> Cut {
        self.lock().platter.cut(usize::MAX)
    }

    /// Takes note of something that happened elsewhere, between what happens here.
    pub(crate) fn note(&self, note: usize) {
        self.lock().happens(Event::Note(note));
    }

    /// Has operations fail from now on, or none any more.
    pub(crate) fn fail(&self, failure: Option<Failure>) {
        let mut state = self.lock();
        (state.failure, state.counted, state.failed) = (failure, 0, 0);
    }

    /// How many operations have failed since it was said which.
    pub(crate) fn failed(&self) -> u64 {
        self.lock().failed
    }

    /// How many operations there were since then that may fail.
    pub(crate) fn counted(&self) -> u64 {
        self.lock().counted
    }

    /// From now on nothing can be done: the process whose disk this is has died.
    pub(crate) fn die(&self) {
        self.fail(Some(Failure {
            first: 0,
            count: u64::MAX,
            may_fail: |_, _| true,
            kind: io::ErrorKind::Other,
            written: 0,
        }));
        self.open_gate();
    }

    /// Holds up the syncs of a file, until they are let through.
    pub(crate) fn shut_gate(&self, file: &str) {
        self.lock().gate = Some(Gate { file: file.into(), passes: 0, held: None });
    }

    /// Waits until a sync is held up; gives the name of the thread.
    pub(crate) fn await_held(&self) -> String {
        let held = |state: &mut State| state.gate.as_ref().is_some_and(|gate| gate.held.is_some());
        let state = self.await_that(held);
        state.gate.as_ref().and_then(|gate| gate.held.clone()).unwrap_or_default()
    }

    /// Lets the sync through that is held up, and no other.
    pub(crate) fn let_one_pass(&self) {
        if let Some(gate) = &mut self.lock().gate {
            gate.passes += 1;
            gate.held = None;
        }
        self.0.changed.notify_all();
    }

    pub(crate) fn open_gate(&self) {
        self.lock().gate = None;
        self.0.changed.notify_all();
    }

    /// Waits until so many events are in the trace.
    pub(crate) fn await_events(&self, count: usize) {
        drop(self.await_that(|state| state.trace.events.len() >= count));
    }

    fn await_that(&self, is_so: impl Fn(&mut State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.0.changed.wait_timeout_while(self.lock(), PATIENCE, |state| !is_so(state));
        let (state, timed) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!timed.timed_out(), "what a test waits for on the disk does not come");
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, piece: Piece) {
        self.lock().write(piece);
        self.0.changed.notify_all();
    }
}

impl State {
    fn write(&mut self, piece: Piece) {
        self.live.apply(&piece);
        match (self.sector, &piece.what) {
            (Some(sector), What::Write(at, bytes)) => {
                let (mut at, mut rest) = (*at, &bytes[..]);
                while !rest.is_empty() {
                    let (part, more) = rest.split_at(rest.len().min(sector - at % sector));
                    let what = What::Write(at, part.into());
                    self.happens(Event::Piece(Piece { file: piece.file.clone(), what }));
                    (at, rest) = (at + part.len(), more);
                }
            }
            _ => self.happens(Event::Piece(piece)),
        }
    }

    fn happens(&mut self, event: Event) {
        self.platter.take(self.trace.events.len(), &event);
        self.trace.events.push(event);
    }

    /// Counts an operation; how many bytes of it may still be written, where it fails.
    fn ask(&mut self, file: &str, operation: Operation) -> Result<(), (io::Error, usize)> {
        let Some(failure) = self.failure.filter(|failure| (failure.may_fail)(file, operation)) else { return Ok(()) };
        let number = self.counted;
        self.counted += 1;
        if number < failure.first || number - failure.first >= failure.count {
            return Ok(());
        }
        self.failed += 1;
        Err((io::Error::new(failure.kind, format!("{operation:?} was made to fail")), failure.written))
    }
}

impl StorageHook for Disk {
    fn before(&self, _: StorageOperation, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn instead_of(&self, path: &Path) -> Option<Arc<dyn Storage>> {
        Some(Arc::new(self.open(path.file_name()?.to_str()?)))
    }
}

/// One opening of a file of the disk.
pub(crate) struct Handle {
    disk: Disk,
    file: Arc<str>,
    number: u64,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({} of '{}')", self.number, self.file)
    }
}

impl Handle {
    fn ask(&self, operation: Operation) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.disk.lock();
        match state.ask(&self.file, operation) {
            Ok(()) => Ok(state),
            Err((error, _)) => Err(error),
        }
    }
}

impl Medium for Handle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.ask(Operation::Read)?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        Ok(state.live.file(&self.file).map_or(0, |bytes| bytes.read(buffer, offset)))
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let asked = self.disk.lock().ask(&self.file, Operation::Write);
        let written = match &asked {
            Ok(()) => bytes,
            Err((_, count)) => &bytes[..bytes.len().min(*count)],
        };
        if !written.is_empty() {
            self.disk.write(Piece { file: self.file.clone(), what: What::Write(offset, written.into()) });
        }
        asked.map_err(|(error, _)| error)
    }

    /// One that fails makes nothing durable; what of it is, is then up to the cut.
    fn sync(&self) -> io::Result<()> {
        // What is written while it goes on is not covered.
        let upto = self.disk.lock().trace.events.len();
        let is_held = |state: &mut State| match &mut state.gate {
            Some(gate) if gate.file == self.file && gate.passes == 0 => {
                gate.held = Some(thread::current().name().unwrap_or_default().to_owned());
                self.disk.0.changed.notify_all();
                true
            }
            Some(gate) if gate.file == self.file => {
                gate.passes -= 1;
                false
            }
            _ => false,
        };
        let waited = self.disk.0.changed.wait_timeout_while(self.disk.lock(), PATIENCE, is_held);
        let (mut state, timed) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!timed.timed_out(), "a test lets nobody through");
        state.ask(&self.file, Operation::Sync).map_err(|(error, _)| error)?;
        state.happens(Event::Synced { file: self.file.clone(), upto });
        drop(state);
        self.disk.0.changed.notify_all();
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut state = self.ask(Operation::Sync)?;
        state.happens(Event::FolderSynced);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().live.file(&self.file).map_or(0, |bytes| bytes.len() as u64))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        drop(self.ask(Operation::SetLen)?);
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.disk.write(Piece { file: self.file.clone(), what: What::Length(len) });
        Ok(())
    }
}

impl Storage for Handle {
    fn try_lock(&self, range: (Bound<u64>, Bound<u64>), is_shared: bool) -> io::Result<bool> {
        Ok(self.ask(Operation::Lock)?.locks.try_take(&self.file, self.number, range, is_shared))
    }

    fn unlock(&self, range: (Bound<u64>, Bound<u64>)) -> io::Result<()> {
        self.ask(Operation::Unlock)?.locks.free(&self.file, self.number, range);
        Ok(())
    }

    fn is_locked_elsewhere(&self, range: (Bound<u64>, Bound<u64>)) -> io::Result<bool> {
        Ok(self.ask(Operation::Lock)?.locks.is_in_the_way(&self.file, self.number, range, false))
    }

    fn close(&self) {
        self.disk.lock().locks.free_all(self.number);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
