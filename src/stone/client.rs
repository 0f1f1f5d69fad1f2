//! A process's connection to the stone of another. It carries changes there and answers back, for all threads of this
//! process: one of those that wait reads for all. When it breaks, what was not answered goes back to the committer,
//! which sends it on to whoever commits next (A1).

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::Shutdown,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    clock::{deadline_after, monotonic},
    error::{Error, Result},
    local,
    queue::id::SessionId,
    stone::{
        Stream, socket,
        wire::{
            FRAME_BYTES_MAX, Hello, LENGTH_BYTES, PROTOCOL, Purpose, Reply, Request, Welcome, frame_length, put_frame,
            refuse_protocol, take_frame,
        },
    },
    store::{
        alarm::Alarm,
        change::ClientId,
        committer::Inbox,
        object::FormatRecord,
        paths::{Path, Paths},
        promise::{Courier, Promise, promise},
        site::Site,
        ticket::Pending,
        verdict::Asked,
        view::get_record,
    },
};

/// How long a stone has to say who it is; one that is stopped does not.
const HELLO_PATIENCE: Duration = Duration::from_millis(500);
/// How long bytes may take to go out; the other end reads in between.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);
/// C4: how often who waits shows that it lives.
const ALIVE_EVERY: Duration = Duration::from_millis(1_500);
/// The least time that a read may be told to wait: none would be for ever.
const READ_PATIENCE_MIN: Duration = Duration::from_millis(1);
/// How long it may take until a stone lends its lock: it writes its window first.
const LOAN_PATIENCE: Duration = Duration::from_secs(10);
/// For how long a stone that was heard of is taken to be there.
const TRUSTED_FOR: Duration = Duration::from_millis(100);
/// How often who has the lock on loan shows life.
const LOAN_ALIVE_EVERY: Duration = Duration::from_secs(1);
/// How much is read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// How this process introduces itself to a stone.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub(crate) client: ClientId,
    pub(crate) label: String,
}

/// This process as a client: its connection, if it has one.
pub(crate) struct Client {
    site: Arc<Site>,
    introduction: OnceLock<Introduction>,
    inbox: Inbox,
    paths: Arc<Paths>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// What `connection` holds, to be asked without waiting for who connects.
    is_living: AtomicBool,
    store: OnceLock<[u8; 16]>,
    /// Why the stone that there is will not have this process.
    refusal: Mutex<Option<Error>>,
}

/// A connection to a stone.
pub(crate) struct Connection {
    own: Weak<Self>,
    pid: u32,
    out: Mutex<Out>,
    waiting: Mutex<Waiting>,
    is_broken: AtomicBool,
    /// Held by the thread that reads for all.
    input: Mutex<Input>,
    /// When the stone was last known to be there.
    heard: Mutex<Instant>,
    next_ask: AtomicU64,
    inbox: Inbox,
    paths: Arc<Paths>,
}

struct Out {
    stream: Stream,
    buffer: Vec<u8>,
}

struct Input {
    stream: Stream,
    bytes: Vec<u8>,
    chunk: Vec<u8>,
    /// How long a read waits.
    patience: Duration,
}

/// What was sent and not answered.
#[derive(Default)]
struct Waiting {
    changes: BTreeMap<u64, Box<Pending>>,
    asks: BTreeMap<u64, Promise<Result<()>>>,
}

/// The writer's lock, lent by a stone; dropping this gives it back.
pub(crate) struct Loan {
    connection: Arc<Connection>,
    /// Shows life meanwhile: the stone waits for its lock as long as somebody does.
    _alarm: Option<Alarm>,
}

impl Client {
    pub(crate) fn new(site: &Arc<Site>, inbox: Inbox, paths: Arc<Paths>) -> Self {
        Self {
            site: site.clone(),
            introduction: OnceLock::new(),
            inbox,
            paths,
            connection: Mutex::new(None),
            is_living: AtomicBool::new(false),
            store: OnceLock::new(),
            refusal: Mutex::new(None),
        }
    }

    /// Says who this process is; before that it does not connect.
    pub(crate) fn introduce(&self, introduction: Introduction) {
        // Only the opening of a store introduces it, once.
        let _ = self.introduction.set(introduction);
    }

    /// The connection, if there is one that is not known to be broken.
    pub(crate) fn living(&self) -> Option<Arc<Connection>> {
        if !self.is_living.load(Ordering::Acquire) {
            return None;
        }
        let connection = lock(&self.connection).clone()?;
        (!connection.is_broken.load(Ordering::Acquire)).then_some(connection)
    }

    /// Whether it is worth to try: there is a connection, or a socket.
    pub(crate) fn may_connect(&self) -> bool {
        self.living().is_some() || self.socket().is_some_and(|path| path.exists())
    }

    /// The connection; a new one where there is none and a stone answers.
    pub(crate) fn connect(&self) -> Option<Arc<Connection>> {
        if let Some(living) = self.living().filter(|living| living.is_well()) {
            return Some(living);
        }
        let Some(path) = self.socket().filter(|path| path.exists()) else {
            lock(&self.refusal).take();
            return None;
        };
        let mut slot = lock(&self.connection);
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.is_broken.load(Ordering::Acquire)) {
            return Some(connection.clone());
        }
        *slot = None;
        self.is_living.store(false, Ordering::Release);
        let was_refused = lock(&self.refusal).take().is_some();
        match self.greet(&path, Purpose::Work).and_then(|(stream, pid)| self.begin(stream, pid).map_err(Some)) {
            Ok(connection) => {
                *slot = Some(connection.clone());
                self.is_living.store(true, Ordering::Release);
                Some(connection)
            }
            Err(None) => None,
            Err(Some(error)) => {
                // Who waits asks again and again.
                if !was_refused {
                    self.site.note_trouble(&error);
                }
                None
            }
        }
    }

    /// Why there is no connection, where a stone answered and refused.
    pub(crate) fn refusal(&self) -> Option<Error> {
        lock(&self.refusal).as_ref().map(Error::for_each_caller)
    }

    /// Leaves the stone: what it keeps for this client is not needed any more.
    pub(crate) fn leave(&self) {
        if let Some(connection) = lock(&self.connection).take() {
            self.is_living.store(false, Ordering::Release);
            connection.send(&Request::Leave);
            connection.end();
        }
    }

    fn socket(&self) -> Option<std::path::PathBuf> {
        socket::path(self.site.files()?).ok()
    }

    /// A connection on which nothing is asked: its end is that of the stone, which calls the holders of jobs by it.
    pub(crate) fn lifeline(&self) -> Option<Stream> {
        let path = self.socket().filter(|path| path.exists())?;
        let (stream, _) = self.greet(&path, Purpose::Lifeline).ok()?;
        stream.set_read_timeout(None).ok()?;
        Some(stream)
    }

    /// Takes note that the stone is gone, for those who wait for its answers.
    pub(crate) fn note_gone(&self) {
        if let Some(connection) = lock(&self.connection).take() {
            self.is_living.store(false, Ordering::Release);
            connection.end();
        }
    }

    /// Connects and introduces this process; an error where there is something to tell.
    fn greet(&self, path: &std::path::Path, purpose: Purpose) -> Result<(Stream, u32), Option<Error>> {
        let introduction = self.introduction.get().ok_or(None)?;
        let files = self.site.files().ok_or(None)?;
        let mut stream = socket::connect(path, &files.store).ok_or(None)?;
        let store = self.store_id().map_err(Some)?;
        let io = |_: io::Error| None;
        stream.set_read_timeout(Some(HELLO_PATIENCE)).map_err(io)?;
        stream.set_write_timeout(Some(WRITE_PATIENCE)).map_err(io)?;
        let hello = Hello {
            protocol: PROTOCOL,
            store,
            client: introduction.client,
            purpose,
            pid: std::process::id(),
            label: introduction.label.clone(),
        };
        let mut buffer = Vec::new();
        put_frame(&mut buffer, &hello).map_err(Some)?;
        stream.write_all(&buffer).map_err(io)?;
        let (protocol, theirs) = match read_welcome(&mut stream).ok_or(None)? {
            Welcome::Come { pid } => return Ok((stream, pid)),
            Welcome::No { protocol, store } => (protocol, store),
        };
        let refusal = match self.site.files() {
            _ if theirs == store => refuse_protocol(protocol),
            Some(files) if local::is_lock_held(&files.folder) => {
                files.replaced_under(local::holder(&files.folder).map(|holder| holder.pid))
            }
            _ => Error::unavailable(format!(
                "the socket {} is of another store; remove it while no process uses the store",
                path.display()
            )),
        };
        *lock(&self.refusal) = Some(refusal.for_each_caller());
        Err(Some(refusal))
    }

    fn begin(&self, stream: Stream, pid: u32) -> Result<Arc<Connection>> {
        let cannot = |error: io::Error| Error::unavailable("the stone's socket can't be used").because(error);
        let input = Input {
            stream: stream.try_clone().map_err(cannot)?,
            bytes: Vec::new(),
            chunk: vec![0; CHUNK_BYTES],
            patience: HELLO_PATIENCE,
        };
        Ok(Arc::new_cyclic(|own| Connection {
            own: own.clone(),
            pid,
            out: Mutex::new(Out { stream, buffer: Vec::new() }),
            waiting: Mutex::default(),
            is_broken: AtomicBool::new(false),
            input: Mutex::new(input),
            heard: Mutex::new(monotonic()),
            next_ask: AtomicU64::new(1),
            inbox: self.inbox.clone(),
            paths: self.paths.clone(),
        }))
    }

    fn store_id(&self) -> Result<[u8; 16]> {
        if let Some(id) = self.store.get() {
            return Ok(*id);
        }
        let rows = self.site.engine.snapshot().map_err(|error| match error {
            crate::engine::SnapshotError::Failed(error) => error,
            crate::engine::SnapshotError::NeedsRecovery => Error::unavailable("the last writer died; retry"),
        })?;
        let format: FormatRecord = get_record(rows.as_ref(), crate::store::keys::FORMAT)?
            .ok_or_else(|| Error::corrupt("the store does not say which store it is"))?;
        Ok(*self.store.get_or_init(|| format.store))
    }
}

impl Connection {
    /// The stone's process.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command line tells it"))]
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a change; gives it back where the connection is broken.
    pub(crate) fn offer(&self, pending: Box<Pending>) -> Option<Box<Pending>> {
        let number = pending.change.id.number;
        let wait = pending.wait_until.map(|until| until.saturating_duration_since(monotonic()));
        let wait_ms = wait.map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let mut out = lock(&self.out);
        let asked;
        {
            let mut waiting = lock(&self.waiting);
            if self.is_broken.load(Ordering::Acquire) {
                return Some(pending);
            }
            if !pending.replier.seal() {
                return None;
            }
            asked = waiting.asked(number, pending.replier.resent);
            let Out { buffer, .. } = &mut *out;
            buffer.clear();
            let request = RequestOut::Change { asked, wait_ms, change: &pending.change };
            if let Err(error) = put_frame(buffer, &request) {
                pending.replier.answer(Err(error));
                return None;
            }
            pending.replier.promise().comes_by(self.courier());
            waiting.changes.insert(number, pending);
        }
        let Out { stream, buffer } = &mut *out;
        if stream.write_all(buffer).is_err() {
            drop(out);
            self.end();
        }
        None
    }

    /// Asks the stone to close its window; whether it could be asked. The promise is dropped where the connection
    /// breaks.
    pub(crate) fn close_window(&self, answer: Promise<Result<()>>) -> bool {
        self.ask(answer, |ask| Request::CloseWindow { ask })
    }

    /// Asks for the writer's lock, and waits for it; nothing where the connection breaks.
    pub(crate) fn borrow_lock(self: &Arc<Self>) -> Option<Loan> {
        let (answer, lent) = promise();
        if !self.ask(answer, |ask| Request::Borrow { ask }) {
            return None;
        }
        let Ok(lent) = lent.wait_until(deadline_after(LOAN_PATIENCE)) else {
            // A loan that comes later would be kept by nobody, and the stone would wait for its return.
            self.end();
            return None;
        };
        lent.ok()?;
        let alive = self.clone();
        let alarm = Alarm::every("casque-loan", LOAN_ALIVE_EVERY, move || alive.send(&Request::Alive));
        Some(Loan { connection: self.clone(), _alarm: alarm.ok() })
    }

    /// Has a claim that waits answered now.
    pub(crate) fn call_off(&self, number: u64) {
        self.send(&Request::CallOff { number });
    }

    /// Has the file of a session that has ended removed.
    pub(crate) fn bury(&self, session: SessionId) {
        self.send(&Request::Bury { session });
    }

    fn ask(&self, answer: Promise<Result<()>>, request: impl FnOnce(u64) -> Request) -> bool {
        let ask = self.next_ask.fetch_add(1, Ordering::Relaxed);
        {
            let mut waiting = lock(&self.waiting);
            if self.is_broken.load(Ordering::Acquire) {
                return false;
            }
            answer.comes_by(self.courier());
            waiting.asks.insert(ask, answer);
        }
        self.send(&request(ask));
        true
    }

    fn send(&self, request: &Request) {
        let mut out = lock(&self.out);
        let Out { stream, buffer } = &mut *out;
        buffer.clear();
        let sent = put_frame(buffer, request).is_ok() && stream.write_all(buffer).is_ok();
        drop(out);
        if !sent {
            self.end();
        }
    }

    /// Whether the stone is there, as far as can be told without waiting for it. While nobody reads, only a write shows
    /// that the other end is gone.
    fn is_well(&self) -> bool {
        let is_quiet = {
            let mut heard = lock(&self.heard);
            let now = monotonic();
            let is_quiet = now.duration_since(*heard) >= TRUSTED_FOR;
            if is_quiet {
                *heard = now;
            }
            is_quiet
        };
        if is_quiet {
            self.send(&Request::Alive);
        }
        !self.is_broken.load(Ordering::Acquire)
    }

    /// Ends the connection, and gives back what waits.
    fn end(&self) {
        // Who reads or writes just now sees it end.
        let _ = lock(&self.out).stream.shutdown(Shutdown::Both);
        self.give_back();
    }

    fn courier(&self) -> Weak<dyn Courier> {
        self.own.clone()
    }

    fn receive(&self, reply: Reply) {
        match reply {
            Reply::Change { number, answer } => {
                let pending = lock(&self.waiting).changes.remove(&number);
                if let Some(pending) = pending {
                    let answer = answer.map_err(Error::from);
                    if answer.as_ref().is_ok_and(|applied| applied.version.is_some()) {
                        self.paths.add(Path::Stone, 1);
                    }
                    pending.replier.answer(answer);
                }
            }
            Reply::Asked { ask, answer } => {
                let waiting = lock(&self.waiting).asks.remove(&ask);
                if let Some(waiting) = waiting {
                    waiting.keep(answer.map_err(Error::from));
                }
            }
        }
    }

    /// Shows life where a claim waits, so that it is served.
    fn show_life(&self) {
        if lock(&self.waiting).changes.values().any(|pending| pending.wait_until.is_some()) {
            self.send(&Request::Alive);
        }
    }

    fn give_back(&self) {
        let (changes, asks) = {
            let mut waiting = lock(&self.waiting);
            self.is_broken.store(true, Ordering::Release);
            (std::mem::take(&mut waiting.changes), std::mem::take(&mut waiting.asks))
        };
        drop(asks);
        for mut pending in changes.into_values() {
            pending.replier.resent = true;
            self.inbox.put(pending);
        }
    }
}

impl Waiting {
    /// A2: which answers are still needed, with the change of this number.
    fn asked(&self, number: u64, resent: bool) -> Asked {
        let is_parked = |pending: &Pending| pending.wait_until.is_some();
        let first = self.changes.iter().find(|(_, pending)| !is_parked(pending)).map_or(number, |(number, _)| *number);
        let parked = self.changes.iter().filter(|(_, pending)| is_parked(pending)).map(|(number, _)| *number).collect();
        Asked { awaited: first.min(number), parked, resent }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.connection.send(&Request::GiveBack);
    }
}

/// A change as it goes out, without copying it; the same bytes as [`Request::Change`].
#[derive(serde::Serialize)]
enum RequestOut<'a> {
    Change { asked: Asked, wait_ms: u64, change: &'a crate::store::change::Change },
}

impl Courier for Connection {
    fn is_free(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire) && self.input.try_lock().is_ok()
    }

    /// Reads for all who wait, until the caller has what it waits for; then somebody else does.
    fn bring(&self, is_done: &dyn Fn() -> bool, deadline: Instant) {
        let Ok(mut input) = self.input.try_lock() else { return };
        let mut is_well = true;
        while is_well && !is_done() {
            let left = deadline.saturating_duration_since(monotonic());
            if left.is_zero() {
                break;
            }
            is_well = match input.read(left.min(ALIVE_EVERY)) {
                Ok(true) => self.take_replies(&mut input),
                Ok(false) => {
                    self.show_life();
                    true
                }
                Err(_) => false,
            };
        }
        drop(input);
        if is_well {
            *lock(&self.heard) = monotonic();
            self.hand_on();
        } else {
            self.end();
        }
    }

    fn hand_on(&self) {
        let waiting = lock(&self.waiting);
        // One is enough: whoever it is does the same when it goes, and who comes later looks by itself.
        let has_heard = waiting.changes.values().any(|pending| pending.replier.promise().poke());
        if !has_heard {
            let _ = waiting.asks.values().any(Promise::poke);
        }
    }
}

impl Connection {
    /// Gives out the replies that have come whole; whether they are such.
    fn take_replies(&self, input: &mut Input) -> bool {
        let mut used = 0;
        let is_well = loop {
            match take_frame::<Reply>(&input.bytes[used..]) {
                Ok(Some((reply, length))) => {
                    used += length;
                    self.receive(reply);
                }
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        input.bytes.drain(..used);
        if input.bytes.is_empty() && input.bytes.capacity() > CHUNK_BYTES {
            input.bytes = Vec::new();
        }
        is_well
    }
}

impl Input {
    /// Reads what has come, waiting for it at most so long; whether there was something.
    fn read(&mut self, patience: Duration) -> io::Result<bool> {
        if self.patience != patience {
            self.stream.set_read_timeout(Some(patience.max(READ_PATIENCE_MIN)))?;
            self.patience = patience;
        }
        match self.stream.read(&mut self.chunk) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.bytes.extend_from_slice(&self.chunk[..count]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }
}

fn read_welcome(stream: &mut Stream) -> Option<Welcome> {
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length).ok()?;
    let body = frame_length(length).ok().filter(|body| *body <= FRAME_BYTES_MAX.min(1 << 16))?;
    let mut frame = length.to_vec();
    frame.resize(LENGTH_BYTES + body, 0);
    stream.read_exact(&mut frame[LENGTH_BYTES..]).ok()?;
    let (welcome, _) = take_frame(&frame).ok()??;
    Some(welcome)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half done under these: each holds it for a step that can't panic between its parts.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
