//! What a peer is to the bench: how its server is started, and what its client does. One file in `peers` per peer.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::server::Server;

/// The bytes of a job.
pub const PAYLOAD_BYTES: usize = 200;
/// How many jobs a peer at its best takes at once.
pub const BEST_JOBS: usize = 64;
/// How long a worker waits for a job before it looks whether its time is over.
const CLAIM_WAIT: Duration = Duration::from_millis(100);

/// A queue with its settings, as the parent sees it.
pub trait Peer: Sync {
    fn name(&self) -> &'static str;

    /// What is on the disk when an enqueue, a claim and a completion are answered.
    fn durability(&self) -> &'static str;

    /// Whether an enqueue and a completion are on the disk when they are answered.
    fn is_durable(&self) -> bool;

    /// Whether several processes can use it. One that can't has as many threads in one process.
    fn is_shared(&self) -> bool {
        true
    }

    /// What must be installed for it.
    fn program(&self) -> Option<&'static str> {
        None
    }

    /// Starts it in an empty folder. `has_workers` where workers will run, and not enqueuers alone.
    fn start(&self, folder: &Path, has_workers: bool) -> Running;

    /// So many clients of what was started, for as many threads of this process.
    fn clients(&self, address: &str, count: usize, purpose: Purpose) -> Vec<Box<dyn Client>>;
}

/// A peer that was started, for as long as this lives.
pub struct Running {
    /// Where its clients find it.
    pub address: String,
    /// None where the clients do all themselves.
    pub server: Option<Server>,
}

impl Running {
    /// A file that all clients open.
    pub fn file(path: &Path) -> Self {
        Self { address: path.to_str().expect("a path of text").to_owned(), server: None }
    }
}

/// What clients are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// As many jobs as can be.
    Rate,
    /// The next job as soon as can be: enqueuers wake idle workers where the peer has a way to.
    Wakeup,
}

/// How workers take jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Style {
    /// One job in the worker's hands, the next claimed when it is completed.
    One,
    /// As whoever follows the manual does it: casque's `Worker` with nothing set, the peers one at a time.
    Ordinary,
    /// [`BEST_JOBS`] at once, pipelined or in one transaction, whatever the peer is best at.
    Best,
}

/// One connection or handle, in a client's process. It panics when the peer fails: then there is no figure.
pub trait Client: Send {
    /// Enqueues this many equal jobs, in one step if the peer can; returns when all are answered.
    fn enqueue(&mut self, payload: &[u8], jobs: usize);

    /// Claims up to so many jobs, gives each payload to the handler, and keeps them in hand. Waits for the first one.
    fn claim(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize;

    /// Completes what is in hand; returns when all of it is answered.
    fn complete(&mut self);

    /// [`Client::complete`] and [`Client::claim`], in one step where the peer can.
    fn turn(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        self.complete();
        self.claim(jobs, wait, handle)
    }

    /// Works until the deadline; tells the tally what was completed after it was answered.
    fn work(&mut self, style: Style, deadline: Instant, tally: &Arc<Tally>) {
        work_in_a_loop(self, style, deadline, tally);
    }

    /// How many jobs there are that were not completed, by the peer's own count.
    fn left(&mut self) -> u64;

    /// What the peer would do by itself in a quiet minute, after many jobs were put in.
    fn settle_down(&mut self) {}
}

/// What a client's threads have done; others read it while they work.
#[derive(Default)]
pub struct Tally {
    count: AtomicU64,
    /// Whether each completion is told at once, with how long its job took to its start.
    tells: bool,
    latency_ns: AtomicU64,
}

impl Tally {
    pub fn telling() -> Self {
        Self { tells: true, ..Self::default() }
    }

    /// To be called when the answer is there.
    pub fn add(&self, jobs: usize) {
        self.count.fetch_add(jobs as u64, Ordering::Relaxed);
        if self.tells && jobs > 0 {
            println!("s {}", self.latency_ns.load(Ordering::Relaxed));
        }
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The handler: it does nothing, but that the payload has to be there.
    pub fn handle(&self, payload: &[u8]) {
        assert_eq!(payload.len(), PAYLOAD_BYTES, "a job came with other bytes than it was enqueued with");
        if self.tells {
            let (stamp, _) = payload.split_first_chunk::<8>().expect("a payload is longer than its stamp");
            let latency_ns = now_ns().saturating_sub(u64::from_be_bytes(*stamp));
            self.latency_ns.store(latency_ns, Ordering::Relaxed);
        }
    }
}

/// A payload that says when it was made. Its bytes are letters, but for the stamp, lest any peer find it easy to pack.
pub fn payload() -> Vec<u8> {
    let letters = (0..PAYLOAD_BYTES).map(|at| b'a' + u8::try_from(at * 7 % 26).expect("there are 26 letters"));
    let mut payload: Vec<u8> = letters.collect();
    payload[..8].copy_from_slice(&now_ns().to_be_bytes());
    payload
}

fn work_in_a_loop<C: Client + ?Sized>(client: &mut C, style: Style, deadline: Instant, tally: &Tally) {
    let mut handle = |payload: &[u8]| tally.handle(payload);
    let mut in_hand = 0;
    while Instant::now() < deadline {
        if style == Style::Best {
            let claimed = client.turn(BEST_JOBS, CLAIM_WAIT, &mut handle);
            tally.add(in_hand);
            in_hand = claimed;
        } else {
            let claimed = client.claim(1, CLAIM_WAIT, &mut handle);
            if claimed > 0 {
                client.complete();
                tally.add(claimed);
            }
        }
    }
    client.complete();
    tally.add(in_hand);
}

/// Wall-clock time, which the processes of one machine share.
fn now_ns() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("the clock is past 1970");
    u64::try_from(since.as_nanos()).expect("the year is below 2554")
}
