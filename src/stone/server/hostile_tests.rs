//! What comes over the socket from others than this version of casque: another protocol, frames that lie, bytes at
//! random, clients that write slowly or not at all, and too many of them. Who is well is served all the while.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use crate::{
    error::ErrorKind,
    random,
    stone::wire::{
        FRAME_BYTES_MAX, Hello, PROTOCOL, Purpose, Request, Welcome,
        spoken::{framed, hear, say},
    },
    store::{
        Store, change::ClientId, conflict::Version, inner::Serving, keys, object::FormatRecord, open::StoreOptions,
        recovery::log_in_use, view::get_record,
    },
};

const PATIENCE: Duration = Duration::from_secs(30);
/// As many as a stone has room for.
const CROWD: usize = 4_000;

/// A store whose stone is this process.
struct Served {
    store: Store,
    serving: Serving,
    folder: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreOptions::new().open(folder.path().join("app.redb")).unwrap();
        let serving = store.serve().unwrap();
        while store.stone().is_none() {
            std::thread::yield_now();
        }
        Self { store, serving, folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("app.redb.d/sock")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn hello(&self) -> Hello {
        let rows = self.store.inner.rows().unwrap();
        let format: FormatRecord = get_record(rows.as_ref(), keys::FORMAT).unwrap().unwrap();
        let client = ClientId { born: Version(0), random: random::words()[0] };
        Hello {
            protocol: PROTOCOL,
            store: format.store,
            client,
            purpose: Purpose::Work,
            pid: std::process::id(),
            label: "guest".to_owned(),
        }
    }

    /// A connection that was welcomed.
    fn guest(&self) -> UnixStream {
        let mut stream = self.connect();
        say(&mut stream, &self.hello());
        assert!(matches!(hear::<Welcome>(&mut stream), Welcome::Come { .. }));
        stream
    }

    /// The stone does what it is for.
    fn is_well(&self) {
        self.store.add("n", 1).unwrap();
        let mut guest = self.guest();
        say(&mut guest, &Request::CloseWindow { ask: 7 });
        let mut answer = [0; 4];
        guest.read_exact(&mut answer).unwrap();
    }
}

/// A sequence that a seed repeats (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

/// Waits until the stone has closed the connection; gives what it said before.
fn rest(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("the stone keeps the connection: {error}"),
    }
}

/// The memory of this process that is in use, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn client_of_another_protocol_or_store_is_told_so_and_left() {
    let served = Served::new();
    for (protocol, store) in [(PROTOCOL + 1, None), (0, None), (PROTOCOL, Some([9; 16]))] {
        let mut hello = served.hello();
        let own = hello.store;
        hello.protocol = protocol;
        hello.store = store.unwrap_or(own);
        let mut stream = served.connect();
        say(&mut stream, &hello);
        assert_eq!(hear::<Welcome>(&mut stream), Welcome::No { protocol: PROTOCOL, store: own });
        assert_eq!(rest(&mut stream), b"");
    }
    served.is_well();
}

/// L6: the log that a live stone keeps is nobody's to recover, whatever a reader saw a moment before it came.
#[test]
fn recovery_beside_a_stone_leaves_its_log_in_use() {
    let served = Served::new();
    let log = || log_in_use(served.store.inner.rows().unwrap().as_ref()).unwrap();
    let before = log();
    assert!(before.is_some());
    served.store.inner.recover().unwrap();
    assert_eq!(log(), before);
    served.is_well();
}

/// A stone of another version, which holds the writer's lock and refuses all.
#[test]
fn process_that_meets_a_stone_of_another_protocol_says_so() {
    let served = Served::new();
    let store = served.hello().store;
    let Served { store: own, serving, folder } = served;
    drop(serving);
    own.add("n", 1).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(folder.path().join("app.redb.d/sock")).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // Its hello comes in one piece, and is read or its sender might not see the answer.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&framed(&Welcome::No { protocol: PROTOCOL + 1, store }));
        }
    });
    let error = own.add("n", 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let message = error.full_message();
    for part in [format!("protocol {}", PROTOCOL + 1), format!("this one {PROTOCOL}"), "the same casque".to_owned()] {
        assert!(message.contains(&part), "no \"{part}\" in: {message}");
    }
    fs::remove_file(folder.path().join("app.redb.d/sock")).unwrap();
    own.add("n", 1).unwrap();
}

#[test]
fn frames_that_lie_end_their_connection_and_nothing_else() {
    let served = Served::new();
    let whole = framed(&Request::CloseWindow { ask: 1 });
    let too_long = u32::try_from(FRAME_BYTES_MAX + 1).unwrap();
    let with_length = |length: u32, body: &[u8]| [length.to_le_bytes().as_slice(), body].concat();
    let lies = [
        with_length(too_long, &[]),
        with_length(u32::MAX, &[1; 100]),
        with_length(0, &[]),
        with_length(1, &[250]),
        // Bytes that are left over, and a request that is cut short.
        with_length(u32::try_from(whole.len()).unwrap(), &[&whole[4..], &[0; 4]].concat()),
        with_length(u32::try_from(whole.len() - 5).unwrap(), &whole[4..whole.len() - 1]),
        // A second hello where a request is due.
        framed(&served.hello()),
    ];
    for (number, lie) in lies.iter().enumerate() {
        let mut guest = served.guest();
        guest.write_all(lie).unwrap();
        rest(&mut guest);
        let mut stranger = served.connect();
        stranger.write_all(lie).unwrap();
        stranger.shutdown(std::net::Shutdown::Write).unwrap();
        rest(&mut stranger);
        println!("lie {number}");
        served.is_well();
    }
}

#[test]
fn bytes_at_random_and_requests_with_a_few_of_them_changed_harm_nobody() {
    let seed = std::env::var("CASQUE_SEED").map_or_else(|_| random::words()[0], |seed| seed.parse().unwrap());
    println!("CASQUE_SEED={seed}");
    let mut chance = Chance(seed);
    let served = Served::new();
    let requests = [Request::CloseWindow { ask: 1 }, Request::Alive, Request::GiveBack, Request::Leave];
    for _ in 0..300 {
        let mut bytes: Vec<u8> = if chance.below(2) == 0 {
            (0..chance.below(3_000)).map(|_| chance.byte()).collect()
        } else {
            (0..=chance.below(20)).flat_map(|_| framed(&requests[chance.below(requests.len())])).collect()
        };
        for _ in 0..chance.below(4) {
            let at = chance.below(bytes.len().max(1));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = chance.byte();
            }
        }
        let mut stream = if chance.below(2) == 0 { served.guest() } else { served.connect() };
        // It may be closed before all is sent.
        let _ = stream.write_all(&bytes);
    }
    served.is_well();
}

#[test]
fn crowd_that_says_nothing_whole_costs_little_and_holds_up_nobody() {
    let served = Served::new();
    // Both ends of each connection are in this process.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit.maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let crowd = CROWD.min(most.saturating_sub(500) / 2);
    served.is_well();
    let before = resident();
    let mut guests: Vec<UnixStream> = Vec::new();
    for number in 0..crowd {
        let mut stream = if number % 2 == 0 { served.guest() } else { served.connect() };
        // It promises as much as a frame may hold, and sends some bytes of it.
        stream.write_all(&u32::try_from(FRAME_BYTES_MAX).unwrap().to_le_bytes()).unwrap();
        stream.write_all(&[7; 100]).unwrap();
        guests.push(stream);
    }
    served.is_well();
    let taken = resident().saturating_sub(before);
    println!("{crowd} connections took {} KiB", taken >> 10);
    assert!(taken / crowd < 16 << 10, "{taken} bytes for {crowd} connections");

    // Slow ones, byte by byte: each byte is read, and none of them waited for.
    for round in 0..3_u8 {
        for guest in &mut guests {
            guest.write_all(&[round]).unwrap();
        }
        served.is_well();
    }
    drop(guests);
    served.is_well();
}

#[test]
fn client_that_never_ends_its_frame_takes_no_more_than_one() {
    let served = Served::new();
    let before = resident();
    let mut guest = served.guest();
    guest.write_all(&u32::try_from(FRAME_BYTES_MAX).unwrap().to_le_bytes()).unwrap();
    let piece = vec![0xff; 1 << 20];
    let mut sent = 0;
    while sent < 8 * FRAME_BYTES_MAX && guest.write_all(&piece).is_ok() {
        sent += piece.len();
    }
    rest(&mut guest);
    served.is_well();
    println!("{sent} bytes were taken");
    assert!(sent < 2 * FRAME_BYTES_MAX, "the connection ends with its bad frame");
    assert!(resident().saturating_sub(before) < 4 * FRAME_BYTES_MAX);
}
