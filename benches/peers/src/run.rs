//! One run: a peer started afresh in an empty folder, filled, worked on by a crew, and counted.
//!
//! What is reported is what the parent has heard by its own clock within the measured time. At the end the peer's own
//! count must agree with what the clients say, job for job; else there is no figure.

use std::{
    collections::HashMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{
    client::ErrandKind,
    crew::{Crew, errand, float},
    disk,
    options::Options,
    peer::{Client, PAYLOAD_BYTES, Peer, Purpose, Running, Style, payload},
    server::family,
    syncs::Trace,
    works::{Kind, Work},
};

/// Beyond the measured time, so that its end is heard too.
const SLACK: Duration = Duration::from_millis(60);
const WARMUP_MIN: Duration = Duration::from_millis(100);
const TRACED: Duration = Duration::from_millis(500);
const FILL_JOBS: usize = 1000;
/// Jobs in the queue before enqueuers are measured.
const FIRST_JOBS: u64 = 500;
/// The first guess of how many jobs a second workers will take.
const SUPPLY_RATE: f64 = 15_000.0;
const REFILLS_MAX: usize = 5;
/// How long a peer may take to count what it has answered.
const COUNT_PATIENCE: Duration = Duration::from_secs(5);
/// A worker is idle again, and at a random place of its polls, when the next job comes.
const IDLE: Duration = Duration::from_millis(1);
const IDLE_RANDOM_US: u64 = 2_000;
const WARMUP_SAMPLES: usize = 20;

/// What a run found.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Jobs a second; for latencies their median in milliseconds.
    pub value: f64,
    pub samples_ms: Vec<f64>,
}

/// Runs, and what they have learned about how much is needed.
pub struct Runs<'a> {
    options: &'a Options,
    /// The best rate seen, by peer and work.
    rates: HashMap<(&'static str, &'static str), f64>,
}

struct Crewed {
    count: u64,
    rate: f64,
    syncs: Option<u64>,
}

impl<'a> Runs<'a> {
    pub fn new(options: &'a Options) -> Self {
        Self { options, rates: HashMap::new() }
    }

    /// One run of the work. `style` is how its workers take jobs.
    pub fn measure(&mut self, peer: &dyn Peer, work: &Work, style: Style) -> Figure {
        if work.kind == Kind::Latency {
            let count = self.options.samples.div_ceil(self.options.pairs);
            let samples_ms = self.latencies(peer, count);
            return Figure { value: quantile(&samples_ms, 0.5), samples_ms };
        }
        let seconds = Duration::from_secs_f64(self.options.seconds);
        let crewed = self.with_enough_jobs(peer, work, style, seconds, false);
        Figure { value: crewed.rate, samples_ms: Vec::new() }
    }

    /// Syncs per job, counted in a run of its own. None where they can't be counted.
    pub fn syncs_per_job(&mut self, peer: &dyn Peer, work: &Work, style: Style) -> Option<f64> {
        if work.kind == Kind::Latency {
            return None;
        }
        let crewed = self.with_enough_jobs(peer, work, style, TRACED, true);
        crewed.syncs.map(|syncs| float(syncs) / float(crewed.count))
    }

    fn with_enough_jobs(
        &mut self,
        peer: &dyn Peer,
        work: &Work,
        style: Style,
        seconds: Duration,
        traces: bool,
    ) -> Crewed {
        let mut tries = 0;
        loop {
            let known = self.rates.get(&(peer.name(), work.key)).copied().unwrap_or(SUPPLY_RATE);
            let supply = supply(known, seconds);
            if let Some(crewed) = self.run(peer, work, style, seconds, supply, traces) {
                let best = self.rates.entry((peer.name(), work.key)).or_default();
                *best = best.max(crewed.rate);
                return crewed;
            }
            self.rates.insert((peer.name(), work.key), 3.0 * known);
            tries += 1;
            assert!(tries < REFILLS_MAX, "{} is faster than it can be filled", peer.name());
        }
    }

    /// None where the workers found the queue empty.
    fn run(
        &self,
        peer: &dyn Peer,
        work: &Work,
        style: Style,
        seconds: Duration,
        supply: u64,
        traces: bool,
    ) -> Option<Crewed> {
        let (processes, threads, kind) = match work.kind {
            Kind::Enqueue { processes, callers, jobs } => (processes, callers, ErrandKind::Enqueue { jobs }),
            Kind::Claim { processes, .. } => (processes, 1, ErrandKind::Work { style }),
            Kind::Latency => unreachable!("latencies have a run of their own"),
        };
        let has_workers = matches!(work.kind, Kind::Claim { .. });
        let folder = tempfile::tempdir_in(&self.options.folder).expect("the folder is writable");
        let running = peer.start(folder.path(), has_workers);
        let before = fill(peer, &running, if has_workers { supply } else { FIRST_JOBS });
        disk::flush(folder.path());

        let (processes, threads) = if peer.is_shared() { (processes, threads) } else { (1, processes * threads) };
        let warmup = warmup(seconds);
        let mut errand = errand(peer.name(), &running.address, kind);
        errand.threads = threads;
        errand.seconds = (warmup + seconds + SLACK).as_secs_f64();
        let mut crew = Crew::start(processes, &errand);
        let trace = traces.then(|| attach(&crew, &running, self.options.folder.as_path())).flatten();
        crew.go();
        let from = Instant::now() + warmup;
        let count = crew.count();
        let syncs = trace.map(|(trace, _log)| trace.finish());
        let rate = crew.rate(from, from + seconds);
        crew.leave();

        let expected = if has_workers { before.checked_sub(count) } else { Some(before + count) };
        let expected = expected.unwrap_or_else(|| panic!("{}: more was completed than enqueued", peer.name()));
        let left = left(peer, &running, expected);
        assert_eq!(left, expected, "{}: its own count and that of its clients ({count}) disagree", peer.name());
        (!has_workers || left > 0).then_some(Crewed { count, rate, syncs })
    }

    fn latencies(&self, peer: &dyn Peer, count: usize) -> Vec<f64> {
        assert!(peer.is_shared(), "an enqueuer and a worker are two processes");
        let folder = tempfile::tempdir_in(&self.options.folder).expect("the folder is writable");
        let running = peer.start(folder.path(), true);
        let mut telling = errand(peer.name(), &running.address, ErrandKind::WorkAndTell);
        telling.seconds = 3600.0;
        let mut workers = Crew::start(1, &telling);
        let mut enqueuers = Crew::start(1, &errand(peer.name(), &running.address, ErrandKind::EnqueueWhenTold));
        disk::flush(folder.path());
        workers.go();
        enqueuers.go();
        let mut random = 1_u64;
        let samples = (0..WARMUP_SAMPLES + count).map(|_| {
            // Knuth's numbers; all that counts is that polls and enqueues are in no step.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            thread::sleep(IDLE + Duration::from_micros((random >> 33) % IDLE_RANDOM_US));
            enqueuers.enqueue_one();
            workers.latency_ms()
        });
        let samples: Vec<f64> = samples.skip(WARMUP_SAMPLES).collect();
        enqueuers.enqueue_no_more();
        assert_eq!(enqueuers.count(), (WARMUP_SAMPLES + count) as u64, "an enqueue was not answered");
        assert_eq!(left(peer, &running, 0), 0, "{}: a job was not completed", peer.name());
        samples
    }
}

/// What lies at a part of the way through, sorted: 0.5 is the median.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let index = ((sorted.len() - 1) as f64 * part).round() as usize;
    sorted[index]
}

fn supply(rate: f64, seconds: Duration) -> u64 {
    let jobs = 1.4 * rate * (warmup(seconds) + seconds + SLACK).as_secs_f64();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let jobs = jobs as u64;
    jobs + 2_000
}

fn warmup(seconds: Duration) -> Duration {
    (seconds / 5).max(WARMUP_MIN)
}

/// Enqueues so many jobs, and gives how many there are by the peer's own count.
fn fill(peer: &dyn Peer, running: &Running, jobs: u64) -> u64 {
    let mut client = client(peer, running);
    let payload = payload();
    assert_eq!(payload.len(), PAYLOAD_BYTES);
    let mut missing = usize::try_from(jobs).expect("a number of jobs that fits in memory");
    while missing > 0 {
        let batch = missing.min(FILL_JOBS);
        client.enqueue(&payload, batch);
        missing -= batch;
    }
    client.settle_down();
    let left = client.left();
    assert_eq!(left, jobs, "{} has not what was enqueued", peer.name());
    left
}

/// What the peer counts, when it has come to the number that is expected, or will not.
fn left(peer: &dyn Peer, running: &Running, expected: u64) -> u64 {
    let began = Instant::now();
    loop {
        // Another process may use the peer alone, and be about to leave.
        let left = client(peer, running).left();
        if left == expected || began.elapsed() > COUNT_PATIENCE {
            return left;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn client(peer: &dyn Peer, running: &Running) -> Box<dyn Client> {
    peer.clients(&running.address, 1, Purpose::Rate).pop().expect("one was asked for")
}

/// Traces the server with all that it has started, and the clients.
fn attach(crew: &Crew, running: &Running, folder: &Path) -> Option<(Trace, tempfile::TempDir)> {
    let mut pids = crew.pids();
    pids.extend(running.server.iter().flat_map(|server| family(server.pid())));
    let log = tempfile::tempdir_in(folder).ok()?;
    Trace::attach(&pids, log.path()).map(|trace| (trace, log))
}
