//! The stone's ends of its clients' connections: what they said, and what is to be said to them.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    io::{self, Read as _, Write as _},
    net::Shutdown,
    sync::Arc,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token, Waker};

use super::line::{Line, Sent};

use crate::{
    clock::{deadline_after, monotonic},
    error::{Error, Result},
    queue::id::SessionId,
    stone::{
        entry::{Entry, Origin},
        parked::LIFE_MAX,
        socket::{self, Listener},
        wire::{FRAME_BYTES_MAX, Hello, PROTOCOL, Purpose, Refusal, Reply, Request, Welcome, take_frame},
    },
    store::change::{Applied, ClientId},
};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;

/// How much is read from one connection before the next has its turn.
const READ_BYTES_MAX: usize = 256 << 10;
/// How many clients there may be.
const CONNECTIONS_MAX: usize = 4_096;

/// What a client said.
pub(super) enum Heard {
    Change(Box<Entry>),
    Close { connection: usize, ask: u64 },
    Borrow { connection: usize, ask: u64 },
    CallOff { connection: usize, number: u64 },
    Bury { session: SessionId },
    Left { client: ClientId },
    Gone { connection: usize },
}

impl Heard {
    fn connection(&self) -> Option<usize> {
        match self {
            Self::Change(entry) => match entry.origin {
                Origin::Own(_) => None,
                Origin::Client { connection, .. } => Some(connection),
            },
            Self::Close { connection, .. }
            | Self::Borrow { connection, .. }
            | Self::CallOff { connection, .. }
            | Self::Gone { connection } => Some(*connection),
            Self::Bury { .. } | Self::Left { .. } => None,
        }
    }
}

pub(super) struct Connections {
    poll: Poll,
    events: Events,
    listener: Listener,
    store: [u8; 16],
    open: BTreeMap<usize, Connection>,
    next: usize,
    /// Those that may have something to read, in the order that was noticed.
    unread: VecDeque<usize>,
    /// Those that have something to send.
    unsent: Vec<usize>,
    heard: VecDeque<Heard>,
    /// Somebody who wants to connect could not be let in.
    has_left_waiting: bool,
    /// Somebody has shown life who has nothing else to say.
    has_life: bool,
    chunk: Vec<u8>,
}

#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Connection {
    line: Arc<Line>,
    client: Option<ClientId>,
    purpose: Purpose,
    input: Vec<u8>,
    is_unread: bool,
    /// It has not taken all that was said, and is watched for when it can.
    is_stuck: bool,
    /// The other end says no more: what it said last is followed by an end that no further event tells of.
    is_ended: bool,
    /// When it last said something.
    life: Instant,
    has_returned: bool,
}

impl Connections {
    pub(super) fn open(mut listener: Listener, store: [u8; 16]) -> Result<(Self, Arc<Waker>)> {
        let cannot = |error: io::Error| Error::unavailable("the stone's socket can't be served").because(error);
        let poll = Poll::new().map_err(cannot)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).map_err(cannot)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(cannot)?);
        let connections = Self {
            poll,
            events: Events::with_capacity(256),
            listener,
            store,
            open: BTreeMap::new(),
            next: FIRST,
            unread: VecDeque::new(),
            unsent: Vec::new(),
            heard: VecDeque::new(),
            has_left_waiting: false,
            has_life: false,
            chunk: vec![0; 64 << 10],
        };
        Ok((connections, waker))
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty() || !self.heard.is_empty()
    }

    /// Waits for something to happen, at most so long.
    pub(super) fn poll(&mut self, patience: Duration) -> Result<()> {
        match self.poll.poll(&mut self.events, Some(patience)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(Error::unavailable("the stone can't wait for its clients").because(error)),
        }
        let mut is_somebody_new = false;
        for event in &self.events {
            match event.token() {
                LISTENER => is_somebody_new = true,
                WAKER => {}
                Token(number) => {
                    if let Some(connection) = self.open.get_mut(&number) {
                        if connection.is_stuck && event.is_writable() {
                            self.unsent.push(number);
                        }
                        connection.is_ended |= event.is_read_closed() || event.is_error();
                        if !connection.is_unread {
                            connection.is_unread = true;
                            self.unread.push_back(number);
                        }
                    }
                }
            }
        }
        if is_somebody_new || self.has_left_waiting {
            self.accept();
        }
        Ok(())
    }

    fn accept(&mut self) {
        self.has_left_waiting = false;
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    // Too many files are open, perhaps: no event tells when there is room again.
                    self.has_left_waiting = true;
                    return;
                }
            };
            let number = self.next;
            self.next += 1;
            if self.open.len() >= CONNECTIONS_MAX
                || self.poll.registry().register(&mut stream, Token(number), Interest::READABLE).is_err()
            {
                continue; // closed as it is dropped
            }
            let connection = Connection {
                line: Arc::new(Line::new(stream)),
                client: None,
                purpose: Purpose::Work,
                input: Vec::new(),
                is_unread: true,
                is_stuck: false,
                is_ended: false,
                life: monotonic(),
                has_returned: false,
            };
            self.open.insert(number, connection);
            self.unread.push_back(number);
        }
    }

    /// Whether somebody has shown life since this was asked last.
    pub(super) fn take_life(&mut self) -> bool {
        std::mem::take(&mut self.has_life)
    }

    /// The next thing that a client said.
    pub(super) fn next_request(&mut self) -> Option<Heard> {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                return Some(heard);
            }
            let number = self.unread.pop_front()?;
            self.read(number);
        }
    }

    fn read(&mut self, number: usize) {
        let Some(connection) = self.open.get_mut(&number) else { return };
        connection.is_unread = false;
        let mut is_over = false;
        let mut read = 0;
        loop {
            if read >= READ_BYTES_MAX {
                // Others first; what is left is told by no further event.
                connection.is_unread = true;
                self.unread.push_back(number);
                break;
            }
            match (&connection.line.stream).read(&mut self.chunk) {
                Ok(0) => {
                    is_over = true;
                    break;
                }
                Ok(count) => {
                    read += count;
                    connection.input.extend_from_slice(&self.chunk[..count]);
                    // A short read has emptied the socket: what comes later is an event of its own.
                    if count < self.chunk.len() && !connection.is_ended {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    is_over = true;
                    break;
                }
            }
        }
        if read > 0 {
            connection.life = monotonic();
        }
        let is_sound = self.parse(number);
        if is_over || !is_sound {
            self.end(number);
        }
    }

    /// Takes the whole frames out of what was read; whether they are such.
    fn parse(&mut self, number: usize) -> bool {
        let Some(connection) = self.open.get_mut(&number) else { return true };
        let mut used = 0;
        let mut is_sound = true;
        let mut older = None;
        while is_sound {
            let rest = &connection.input[used..];
            let Some(client) = connection.client else {
                match take_frame::<Hello>(rest) {
                    Ok(Some((hello, length))) => {
                        used += length;
                        is_sound = greet(connection, &hello, self.store);
                        older = (is_sound && hello.purpose == Purpose::Work).then_some(hello.client);
                        self.unsent.push(number);
                    }
                    Ok(None) => break,
                    Err(_) => is_sound = false,
                }
                continue;
            };
            match take_frame::<Request>(rest) {
                Ok(Some((request, length))) => {
                    used += length;
                    let heard = match request {
                        Request::Change { asked, wait_ms, change } => {
                            if change.id.client != client {
                                is_sound = false;
                                continue;
                            }
                            let wait = Duration::from_millis(wait_ms);
                            Heard::Change(Box::new(Entry {
                                origin: Origin::Client { connection: number, number: change.id.number },
                                change,
                                asked: Some(asked),
                                wait_until: (!wait.is_zero()).then(|| deadline_after(wait)),
                            }))
                        }
                        Request::CloseWindow { ask } => Heard::Close { connection: number, ask },
                        Request::Borrow { ask } => Heard::Borrow { connection: number, ask },
                        Request::CallOff { number: claim } => Heard::CallOff { connection: number, number: claim },
                        Request::Bury { session } => Heard::Bury { session },
                        Request::Leave => Heard::Left { client },
                        Request::Alive => {
                            self.has_life = true;
                            continue;
                        }
                        Request::GiveBack => {
                            connection.has_returned = true;
                            continue;
                        }
                    };
                    self.heard.push_back(heard);
                }
                Ok(None) => break,
                Err(_) => is_sound = false,
            }
        }
        connection.input.drain(..used);
        if let Some(client) = older {
            self.end_older(client, number);
        }
        let Some(connection) = self.open.get_mut(&number) else { return true };
        if connection.input.len() > FRAME_BYTES_MAX + READ_BYTES_MAX {
            is_sound = false;
        }
        // What a large frame took is given back.
        if connection.input.is_empty() && connection.input.capacity() > READ_BYTES_MAX {
            connection.input = Vec::new();
        }
        is_sound
    }

    /// A2: who says hello again has given up its older connections, and sends again what it said there. What is still
    /// to be read from them is dropped, or it would be done once more after its answer is no longer kept.
    fn end_older(&mut self, client: ClientId, newest: usize) {
        let is_older = |(number, connection): (&usize, &Connection)| {
            let is_for_work = connection.client == Some(client) && connection.purpose == Purpose::Work;
            (*number != newest && is_for_work).then_some(*number)
        };
        let older: Vec<usize> = self.open.iter().filter_map(is_older).collect();
        for number in older {
            self.heard.retain(|heard| heard.connection() != Some(number));
            self.end(number);
        }
    }

    fn end(&mut self, number: usize) {
        if let Some(Connection { line, .. }) = self.open.remove(&number) {
            line.send();
            let _ = socket::unwatch(self.poll.registry(), &line.stream);
            // The sealer may have it for a moment longer.
            let _ = line.stream.shutdown(Shutdown::Both);
            self.heard.push_back(Heard::Gone { connection: number });
        }
    }

    /// C4: whether a claim may be served: its client has said something just now, or is this process.
    pub(super) fn shows_life(&self, origin: &Origin, now: Instant) -> bool {
        match origin {
            Origin::Own(_) => true,
            Origin::Client { connection, .. } => self
                .open
                .get(connection)
                .is_some_and(|connection| now.saturating_duration_since(connection.life) < LIFE_MAX),
        }
    }

    /// Who is connected.
    pub(super) fn clients(&self) -> HashSet<ClientId> {
        self.open.values().filter_map(|connection| connection.client).collect()
    }

    /// Where the answers of a connection go; nowhere where it is gone.
    pub(super) fn line(&self, connection: usize) -> Option<Arc<Line>> {
        self.open.get(&connection).map(|connection| connection.line.clone())
    }

    pub(super) fn answer(&mut self, connection: usize, number: u64, answer: Result<Applied, Refusal>) {
        self.say(connection, &Reply::Change { number, answer });
    }

    pub(super) fn answer_ask(&mut self, connection: usize, ask: u64, answer: Result<(), Refusal>) {
        self.say(connection, &Reply::Asked { ask, answer });
    }

    /// Says a byte on each lifeline. Who does not read it has others before it that say the same.
    pub(super) fn call_holders(&mut self) {
        for connection in self.open.values_mut().filter(|connection| connection.purpose == Purpose::Lifeline) {
            let _ = (&connection.line.stream).write(&[1]);
        }
    }

    fn say(&mut self, number: usize, reply: &Reply) {
        // Who is gone asks whoever commits next.
        let Some(connection) = self.open.get(&number) else { return };
        if connection.line.reply(reply) {
            self.unsent.push(number);
        }
    }

    /// Takes note of connections that did not take all that was said.
    pub(super) fn note_unsent(&mut self, numbers: &[usize]) {
        self.unsent.extend(numbers);
    }

    /// Sends what was said.
    pub(super) fn flush(&mut self) {
        for number in std::mem::take(&mut self.unsent) {
            let Some(connection) = self.open.get_mut(&number) else { continue };
            let sent = connection.line.send();
            let is_stuck = sent == Sent::Some;
            let mut is_well = sent != Sent::Never;
            if is_well && is_stuck != connection.is_stuck {
                connection.is_stuck = is_stuck;
                // Only then: else each answer that a client reads would be an event.
                let interest = if is_stuck { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
                let watched = socket::watch(self.poll.registry(), &connection.line.stream, Token(number), interest);
                is_well = watched.is_ok();
            }
            if !is_well {
                self.end(number);
            }
        }
    }

    /// Waits until a client that has borrowed the lock gives it back, or is gone, or has shown no life for so long;
    /// what others say meanwhile waits.
    pub(super) fn wait_for_return(&mut self, borrower: usize, patience: Duration) -> Result<()> {
        let lent = monotonic();
        loop {
            self.read(borrower);
            let Some(connection) = self.open.get_mut(&borrower) else { return Ok(()) };
            if std::mem::take(&mut connection.has_returned) {
                return Ok(());
            }
            let (now, deadline) = (monotonic(), connection.life.max(lent) + patience);
            if now >= deadline {
                self.end(borrower);
                return Ok(());
            }
            self.poll(deadline - now)?;
        }
    }

    /// Stops reading, and closes all connections (A3: what comes now is dropped).
    pub(super) fn close(&mut self) {
        self.heard.clear();
        for number in self.open.keys().copied().collect::<Vec<_>>() {
            self.end(number);
        }
        self.heard.clear();
    }
}

fn greet(connection: &mut Connection, hello: &Hello, store: [u8; 16]) -> bool {
    let is_welcome = hello.protocol == PROTOCOL && hello.store == store;
    let welcome = if is_welcome {
        connection.client = Some(hello.client);
        connection.purpose = hello.purpose;
        Welcome::Come { pid: std::process::id() }
    } else {
        Welcome::No { protocol: PROTOCOL, store }
    };
    connection.line.say(&welcome);
    is_welcome
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream};

    use super::*;
    use crate::{stone::wire::put_frame, store::conflict::Version};

    #[test]
    fn client_that_speaks_and_goes_at_once_is_heard_and_seen_to_go() {
        let folder = tempfile::tempdir().unwrap();
        let beside = folder.path().join("app.redb.d");
        std::fs::create_dir(&beside).unwrap();
        let path = beside.join("sock");
        let (mut connections, _waker) = Connections::open(socket::bind(&path, &path).unwrap(), [7; 16]).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        connections.poll(Duration::from_secs(10)).unwrap();
        assert!(connections.next_request().is_none());

        let client = ClientId { born: Version(1), random: 2 };
        let mut said = Vec::new();
        let hello = Hello {
            protocol: PROTOCOL,
            store: [7; 16],
            client,
            purpose: Purpose::Work,
            pid: std::process::id(),
            label: String::new(),
        };
        put_frame(&mut said, &hello).unwrap();
        put_frame(&mut said, &Request::Leave).unwrap();
        stream.write_all(&said).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        connections.poll(Duration::from_secs(10)).unwrap();
        assert!(matches!(connections.next_request(), Some(Heard::Left { client: left }) if left == client));
        assert!(matches!(connections.next_request(), Some(Heard::Gone { .. })));
        assert!(connections.open.is_empty());
    }
}
