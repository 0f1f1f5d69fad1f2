//! A process's connection to the stone of another. It carries changes there and answers back, for all threads of this
//! process; when it breaks, what was not answered goes back to the committer, which sends it on to whoever commits next
//! (A1).

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crossbeam_channel::{Sender, bounded};

use crate::{
    clock::monotonic,
    error::{Error, Result},
    queue::id::SessionId,
    stone::{
        socket,
        wire::{
            FRAME_BYTES_MAX, Hello, LENGTH_BYTES, PROTOCOL, Reply, Request, Welcome, frame_length, put_frame,
            refuse_protocol, take_frame,
        },
    },
    store::{
        change::ClientId,
        committer::Inbox,
        object::FormatRecord,
        paths::{Path, Paths},
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
const ALIVE_EVERY: Duration = Duration::from_secs(1);

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
}

/// A connection to a stone.
pub(crate) struct Connection {
    pid: u32,
    out: Mutex<Out>,
    waiting: Mutex<Waiting>,
    is_broken: AtomicBool,
    /// Kept by the thread that reads; who waits for the end of the connection sees it go.
    ended: crossbeam_channel::Receiver<()>,
    next_ask: AtomicU64,
    /// The stone waits for its lock to be given back, as long as this process lives.
    has_loan: AtomicBool,
    inbox: Inbox,
    paths: Arc<Paths>,
}

struct Out {
    stream: UnixStream,
    buffer: Vec<u8>,
}

/// What was sent and not answered.
#[derive(Default)]
struct Waiting {
    changes: BTreeMap<u64, Box<Pending>>,
    asks: BTreeMap<u64, Sender<Result<()>>>,
}

/// The writer's lock, lent by a stone; dropping this gives it back.
pub(crate) struct Loan {
    connection: Arc<Connection>,
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
        if let Some(living) = self.living() {
            return Some(living);
        }
        let path = self.socket().filter(|path| path.exists())?;
        let mut slot = lock(&self.connection);
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.is_broken.load(Ordering::Acquire)) {
            return Some(connection.clone());
        }
        *slot = None;
        self.is_living.store(false, Ordering::Release);
        match self.greet(&path) {
            Ok(connection) => {
                *slot = Some(connection.clone());
                self.is_living.store(true, Ordering::Release);
                Some(connection)
            }
            Err(None) => None,
            Err(Some(error)) => {
                self.site.note_trouble(&error);
                None
            }
        }
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

    /// Connects and introduces this process; an error where there is something to tell.
    fn greet(&self, path: &std::path::Path) -> Result<Arc<Connection>, Option<Error>> {
        let introduction = self.introduction.get().ok_or(None)?;
        let mut stream = socket::connect(path).ok_or(None)?;
        let store = self.store_id().map_err(Some)?;
        let io = |_: io::Error| None;
        stream.set_read_timeout(Some(HELLO_PATIENCE)).map_err(io)?;
        stream.set_write_timeout(Some(WRITE_PATIENCE)).map_err(io)?;
        let hello = Hello {
            protocol: PROTOCOL,
            store,
            client: introduction.client,
            pid: std::process::id(),
            label: introduction.label.clone(),
        };
        let mut buffer = Vec::new();
        put_frame(&mut buffer, &hello).map_err(Some)?;
        stream.write_all(&buffer).map_err(io)?;
        let welcome = read_welcome(&mut stream).ok_or(None)?;
        let pid = match welcome {
            Welcome::Come { pid } => pid,
            Welcome::No { protocol, store: theirs } if theirs == store => {
                return Err(Some(refuse_protocol(protocol)));
            }
            Welcome::No { .. } => {
                return Err(Some(Error::unavailable(format!(
                    "the socket {} is of another store; remove it while no process uses the store",
                    path.display()
                ))));
            }
        };
        self.begin(stream, pid).map_err(Some)
    }

    fn begin(&self, stream: UnixStream, pid: u32) -> Result<Arc<Connection>> {
        let cannot = |error: io::Error| Error::unavailable("the stone's socket can't be used").because(error);
        stream.set_read_timeout(Some(ALIVE_EVERY)).map_err(cannot)?;
        let incoming = stream.try_clone().map_err(cannot)?;
        let (end, ended) = bounded(0);
        let connection = Arc::new(Connection {
            pid,
            out: Mutex::new(Out { stream, buffer: Vec::new() }),
            waiting: Mutex::default(),
            is_broken: AtomicBool::new(false),
            ended,
            next_ask: AtomicU64::new(1),
            has_loan: AtomicBool::new(false),
            inbox: self.inbox.clone(),
            paths: self.paths.clone(),
        });
        let reading = Arc::downgrade(&connection);
        thread::Builder::new()
            .name("casque-client".into())
            .spawn(move || {
                read(&reading, incoming);
                drop(end);
            })
            .map_err(|error| Error::unavailable("the client's thread can't be started").because(error))?;
        Ok(connection)
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

    /// Waits until the connection is broken, or somebody calls through `stop`.
    pub(crate) fn ended(&self) -> &crossbeam_channel::Receiver<()> {
        &self.ended
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
            asked = waiting.asked(number, pending.resent);
            let Out { buffer, .. } = &mut *out;
            buffer.clear();
            let request = RequestOut::Change { asked, wait_ms, change: &pending.change };
            if let Err(error) = put_frame(buffer, &request) {
                pending.replier.answer(Err(error));
                return None;
            }
            waiting.changes.insert(number, pending);
        }
        let Out { stream, buffer } = &mut *out;
        if stream.write_all(buffer).is_err() {
            drop(out);
            // The thread that reads gives back what waits.
            self.end();
        }
        None
    }

    /// Asks the stone to close its window; whether it could be asked. The answer's other end is dropped where it
    /// breaks.
    pub(crate) fn close_window(&self, answer: Sender<Result<()>>) -> bool {
        self.ask(answer, |ask| Request::CloseWindow { ask })
    }

    /// Asks for the writer's lock, and waits for it; nothing where the connection breaks.
    pub(crate) fn borrow_lock(self: &Arc<Self>) -> Option<Loan> {
        let (answer, receiver) = bounded(1);
        if !self.ask(answer, |ask| Request::Borrow { ask }) {
            return None;
        }
        receiver.recv().ok()?.ok()?;
        self.has_loan.store(true, Ordering::Release);
        Some(Loan { connection: self.clone() })
    }

    /// Has the file of a session that has ended removed.
    pub(crate) fn bury(&self, session: SessionId) {
        self.send(&Request::Bury { session });
    }

    fn ask(&self, answer: Sender<Result<()>>, request: impl FnOnce(u64) -> Request) -> bool {
        let ask = self.next_ask.fetch_add(1, Ordering::Relaxed);
        {
            let mut waiting = lock(&self.waiting);
            if self.is_broken.load(Ordering::Acquire) {
                return false;
            }
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

    /// Ends the connection; the thread that reads then gives back what waits.
    fn end(&self) {
        let _ = lock(&self.out).stream.shutdown(Shutdown::Both);
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
                if let Some(waiting) = lock(&self.waiting).asks.remove(&ask) {
                    let _ = waiting.send(answer.map_err(Error::from));
                }
            }
        }
    }

    /// Shows life where a claim waits, so that it is served, and while the stone waits for its lock.
    fn show_life(&self) {
        if self.has_loan.load(Ordering::Acquire)
            || lock(&self.waiting).changes.values().any(|pending| pending.wait_until.is_some())
        {
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
            pending.resent = true;
            self.inbox.put(pending);
        }
    }
}

impl Waiting {
    /// A2: which answers are still needed, with the change of this number.
    fn asked(&self, number: u64, resent: bool) -> Asked {
        let is_parked = |pending: &Pending| pending.wait_until.is_some();
        let first = self.changes.iter().find(|(_, pending)| !is_parked(pending)).map_or(number, |(number, _)| *number);
        let parked = self.changes.iter().find(|(_, pending)| is_parked(pending)).map(|(number, _)| *number);
        Asked { awaited: first.min(number), parked, resent }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.connection.has_loan.store(false, Ordering::Release);
        self.connection.send(&Request::GiveBack);
    }
}

/// A change as it goes out, without copying it; the same bytes as [`Request::Change`].
#[derive(serde::Serialize)]
enum RequestOut<'a> {
    Change { asked: Asked, wait_ms: u64, change: &'a crate::store::change::Change },
}

/// The thread that reads what the stone answers, until the connection ends.
fn read(connection: &Weak<Connection>, mut stream: UnixStream) {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    'reading: loop {
        let mut used = 0;
        loop {
            match take_frame::<Reply>(&bytes[used..]) {
                Ok(Some((reply, length))) => {
                    used += length;
                    let Some(connection) = connection.upgrade() else { return };
                    connection.receive(reply);
                }
                Ok(None) => break,
                Err(_) => break 'reading,
            }
        }
        bytes.drain(..used);
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                let Some(connection) = connection.upgrade() else { return };
                connection.show_life();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    if let Some(connection) = connection.upgrade() {
        connection.end();
        connection.give_back();
    }
}

fn read_welcome(stream: &mut UnixStream) -> Option<Welcome> {
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
