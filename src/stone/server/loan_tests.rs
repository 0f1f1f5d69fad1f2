//! The writer's lock on loan: for as long as its borrower shows life, and no longer.

use std::{
    io::Read as _,
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use super::{LOAN_MAX, connections::Connections};
use crate::{
    clock::{monotonic, sleep},
    random,
    stone::{
        socket,
        wire::{
            Hello, PROTOCOL, Purpose, Reply, Request, Welcome,
            spoken::{hear, say},
        },
    },
    store::{
        Store, change::ClientId, conflict::Version, keys, object::FormatRecord, open::StoreOptions, view::get_record,
    },
};

/// How long a test waits for what must happen.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long a loan lasts without a sign of life, and how often there is one.
const PATIENCE: Duration = Duration::from_millis(1_500);
const ALIVE_EVERY: Duration = Duration::from_millis(50);

fn hello(store: [u8; 16]) -> Hello {
    let client = ClientId { born: Version(0), random: random::words()[0] };
    Hello {
        protocol: PROTOCOL,
        store,
        client,
        purpose: Purpose::Work,
        pid: std::process::id(),
        label: "borrower".to_owned(),
    }
}

/// A stone that has lent its lock, and how long it was gone without when it goes on; and the borrower's end.
fn lend(patience: Duration) -> (UnixStream, Receiver<Duration>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let beside = folder.path().join("app.redb.d");
    std::fs::create_dir(&beside).unwrap();
    let path = beside.join("sock");
    let (mut connections, _waker) = Connections::open(socket::bind(&path, &path).unwrap(), [7; 16]).unwrap();
    let mut borrower = UnixStream::connect(&path).unwrap();
    borrower.set_read_timeout(Some(DEADLINE)).unwrap();
    say(&mut borrower, &hello([7; 16]));
    say(&mut borrower, &Request::Borrow { ask: 1 });
    let (told, went_on) = channel();
    thread::spawn(move || {
        let connection = loop {
            connections.poll(DEADLINE).unwrap();
            match connections.next_request() {
                Some(super::Heard::Borrow { connection, .. }) => break connection,
                Some(_) => panic!("nothing else was said"),
                None => {}
            }
        };
        connections.flush();
        let lent = monotonic();
        connections.wait_for_return(connection, patience).unwrap();
        // Nobody hears it in a test that has failed.
        let _ = told.send(monotonic().duration_since(lent));
    });
    assert!(matches!(hear(&mut borrower), Welcome::Come { .. }));
    (borrower, went_on, folder)
}

#[test]
fn loan_lasts_while_its_borrower_shows_life_and_ends_when_it_stops_to() {
    let (mut borrower, went_on, _folder) = lend(PATIENCE);
    let begun = monotonic();
    while monotonic().duration_since(begun) < 2 * PATIENCE {
        say(&mut borrower, &Request::Alive);
        assert_eq!(went_on.try_recv().ok(), None, "the stone went on though its borrower shows life");
        // waits: as a borrower does between two signs of life
        sleep(ALIVE_EVERY);
    }
    let lasted = went_on.recv_timeout(DEADLINE).unwrap();
    assert!(lasted >= 2 * PATIENCE, "{lasted:?}");
    // Whatever it does with the lock, it hears that the loan is over.
    assert_eq!(borrower.read(&mut [0]).unwrap(), 0);
}

#[test]
fn loan_of_a_borrower_that_says_nothing_ends_in_time() {
    let (mut borrower, went_on, _folder) = lend(PATIENCE);
    let lasted = went_on.recv_timeout(DEADLINE).unwrap();
    assert!(lasted >= PATIENCE, "{lasted:?}");
    assert_eq!(borrower.read(&mut [0]).unwrap(), 0);
}

#[test]
fn loan_ends_at_once_when_it_is_given_back_or_its_connection_breaks() {
    let ends: [fn(&mut UnixStream); 3] = [
        |borrower| say(borrower, &Request::GiveBack),
        |borrower| borrower.shutdown(Shutdown::Write).unwrap(),
        |borrower| borrower.shutdown(Shutdown::Both).unwrap(),
    ];
    for end in ends {
        let (mut borrower, went_on, _folder) = lend(DEADLINE);
        assert_eq!(went_on.recv_timeout(ALIVE_EVERY), Err(RecvTimeoutError::Timeout));
        end(&mut borrower);
        let lasted = went_on.recv_timeout(DEADLINE).unwrap();
        assert!(lasted < DEADLINE / 2, "it was waited for: {lasted:?}");
    }
}

/// The other end: a stone that lends its lock and waits for signs of life while something is done under it.
#[test]
fn borrower_shows_life_until_it_gives_the_lock_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = StoreOptions::new().timeout(DEADLINE).open(folder.path().join("app.redb")).unwrap();
    let listener = UnixListener::bind(folder.path().join("app.redb.d/sock")).unwrap();
    let (lives, has_life) = channel();
    let (end, ended) = channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(hear::<Hello>(&mut stream).purpose, Purpose::Work);
        say(&mut stream, &Welcome::Come { pid: std::process::id() });
        loop {
            match hear(&mut stream) {
                Request::Borrow { ask } => say(&mut stream, &Reply::Asked { ask, answer: Ok(()) }),
                Request::Alive => drop(lives.send(())),
                Request::GiveBack => return end.send(()).unwrap(),
                other => panic!("nothing else is asked: {other:?}"),
            }
        }
    });
    let lives = store
        .inner
        .section("work", move |_| (0..2).filter(|_| has_life.recv_timeout(DEADLINE).is_ok()).count())
        .unwrap();
    assert_eq!(lives, 2, "it shows life again and again");
    ended.recv_timeout(DEADLINE).unwrap();
}

/// The whole of it: nobody's changes are lost by a borrower that hangs, they only wait.
#[test]
fn stone_goes_on_after_a_loan_whose_borrower_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let store: Store = StoreOptions::new().timeout(DEADLINE).open(folder.path().join("app.redb")).unwrap();
    let _serving = store.serve().unwrap();
    while store.stone().is_none() {
        thread::yield_now();
    }
    store.add("n", 1).unwrap();
    let format: FormatRecord = get_record(store.inner.rows().unwrap().as_ref(), keys::FORMAT).unwrap().unwrap();
    let mut borrower = UnixStream::connect(folder.path().join("app.redb.d/sock")).unwrap();
    borrower.set_read_timeout(Some(DEADLINE)).unwrap();
    say(&mut borrower, &hello(format.store));
    assert!(matches!(hear(&mut borrower), Welcome::Come { .. }));
    say(&mut borrower, &Request::Borrow { ask: 1 });
    assert!(matches!(hear(&mut borrower), Reply::Asked { ask: 1, answer: Ok(()) }));
    let lent: Instant = monotonic();
    store.add("n", 1).unwrap();
    let waited = monotonic().duration_since(lent);
    println!("the change waited for {waited:?}");
    assert!(waited > LOAN_MAX / 2, "the lock was lent and used at once");
    assert_eq!(borrower.read(&mut [0]).unwrap(), 0);
    assert_eq!(store.get::<i64>("n").unwrap(), Some(2));
    assert_eq!(store.stone(), Some(std::process::id()));
}
