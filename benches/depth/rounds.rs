//! The same work at two depths, in turns: processes enqueue some jobs, claim as many, and complete these, again and
//! again, so that each store stays as deep as it is.
//!
//! They go in batches of a hundred: one by one the sync of the disk would hide what the depth costs. Each doing is
//! timed by itself, for no process goes on to the next before all have done the one before. What completes is a
//! transaction, which reads on a snapshot of its own, so it is slower than a worker's.

use std::{
    io,
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use casque::{
    Lease, Queue, Store,
    hooks::{Step, StorageHook, StorageOperation},
};
use serde_json::{Value, json};

use crate::{
    FILL_BATCH, PROCESSES, Place,
    common::{Crew, Memory, Options, Report, float, mebibytes, obey, quantile, sum},
    enqueue, open, options,
};

const BATCH: u64 = 100;
/// What each process enqueues in a round, and then claims and completes.
const SHARE: u64 = 2 * BATCH;
const COST_PROMISED: f64 = 1.25;
const TRIVIAL_WINDOWS: u32 = 20;
/// Of [`open`]: as much in memory as is usual.
pub const USUAL: &str = "usual";

/// What is done in a round, one after the other.
pub const DOINGS: [&str; 3] = ["enqueue", "claim", "complete"];
/// How many of them have a target.
const PROMISED: usize = 2;

/// Jobs per second, by what is done with them.
pub type Rates = [f64; DOINGS.len()];

/// Counts the bytes that are written.
#[derive(Debug, Default)]
struct Bytes(AtomicU64);

impl StorageHook for Bytes {
    fn before(&self, operation: StorageOperation, bytes: u64) -> io::Result<()> {
        if operation == StorageOperation::Write {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// What it took to pile jobs up.
pub struct Filled {
    /// Jobs per second.
    pub rate: f64,
    pub stone_peak: Option<u64>,
}

pub fn through_a_stone(options: &Options, report: &mut Report, places: &[Place; 2]) {
    let mut sites = places.each_ref().map(|place| Site::new(place, Some(USUAL)));
    let costs = compare(options, report, places, &mut sites);
    for (doing, cost) in DOINGS.iter().zip(costs).take(PROMISED) {
        report.verdict(&format!("what the depth costs: {doing}"), cost, "at most 1.25", cost <= COST_PROMISED);
    }
    for (place, site) in places.iter().zip(sites) {
        site.tell_memory(report, &place.name);
    }
}

pub fn directly(options: &Options, report: &mut Report, places: &[Place; 2]) {
    let mut sites = places.each_ref().map(|place| Site::new(place, None));
    compare(options, report, places, &mut sites);
    for (place, site) in places.iter().zip(sites) {
        site.tell_memory(report, &place.name);
    }
}

/// How many times as long each doing takes at the second place, as the median of the pairs.
pub fn compare(options: &Options, report: &mut Report, places: &[Place; 2], sites: &mut [Site; 2]) -> Rates {
    let pairs = turns(options);
    let mut rates = [Vec::new(), Vec::new()];
    for pair in 0..pairs {
        // Each goes first as often as the other.
        for index in [pair % 2, 1 - pair % 2] {
            rates[index].push(sites[index].work(options.duration()));
        }
    }
    std::array::from_fn(|doing| {
        let name = DOINGS[doing];
        for (place, rates) in places.iter().zip(&rates) {
            rates_line(report, &format!("{name}, {}", place.name), rates, doing);
        }
        let costs: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(one, other)| one[doing] / other[doing]).collect();
        let (least, median, most) = (quantile(&costs, 0.0), quantile(&costs, 0.5), quantile(&costs, 1.0));
        report.line(
            &format!("{name}: how many times as long, by pairs"),
            &format!("{median:>9.2}     {least:.2} to {most:.2} in {pairs} pairs"),
            &json!({ "least": least, "median": median, "most": most, "pairs": pairs }),
        );
        median
    })
}

fn turns(options: &Options) -> usize {
    if options.quick { 5 } else { 10 }
}

pub fn rates_line(report: &mut Report, name: &str, rates: &[Rates], doing: usize) {
    let rates: Vec<f64> = rates.iter().map(|rates| rates[doing]).collect();
    let (least, median, most) = (quantile(&rates, 0.0), quantile(&rates, 0.5), quantile(&rates, 1.0));
    report.line(
        name,
        &format!("{median:>9.0} /s  {least:.0} to {most:.0}"),
        &json!({ "least": least, "median": median, "most": most }),
    );
}

pub fn memory_line(report: &mut Report, name: &str, bytes: Option<u64>) {
    match bytes {
        Some(bytes) => report.line(name, &format!("{:>9.1} MiB", mebibytes(bytes)), &json!({ "bytes": bytes })),
        None => report.line(name, "not told by this system", &json!(null)),
    }
}

/// The processes at a store.
pub struct Site {
    /// None where each commits directly.
    stone: Option<Crew>,
    clients: Crew,
    rounds: u64,
}

/// What a stone wrote, in all.
pub struct Written {
    pub bytes: f64,
    pub windows: f64,
}

impl Site {
    pub fn new(place: &Place, stone_cache: Option<&str>) -> Self {
        let path = place.path.to_str().expect("a path of text");
        let stone = stone_cache.map(|cache| Crew::start(1, "stone", &[path, cache]));
        Self { stone, clients: Crew::start(PROCESSES, "client", &[path, USUAL]), rounds: 0 }
    }

    pub fn work(&mut self, duration: Duration) -> Rates {
        // Between the turns nobody was here.
        self.round();
        let (mut rounds, mut took) = (0, [Duration::ZERO; DOINGS.len()]);
        while took.iter().sum::<Duration>() < duration {
            let round = self.round();
            rounds += 1;
            took = std::array::from_fn(|doing| took[doing] + round[doing]);
        }
        took.map(|took| float(rounds * SHARE * PROCESSES as u64) / took.as_secs_f64())
    }

    fn round(&mut self) -> [Duration; DOINGS.len()] {
        self.rounds += 1;
        DOINGS.map(|doing| self.time(doing))
    }

    fn time(&mut self, order: &str) -> Duration {
        let began = Instant::now();
        self.clients.order(order);
        let answers = self.clients.answers();
        let took = began.elapsed();
        let by_stone = sum(&answers, "by_stone") > 0.0;
        let directly = sum(&answers, "directly") > 0.0;
        assert!(by_stone == self.stone.is_some() && directly != by_stone, "the commits went another way");
        took
    }

    pub fn tell_memory(self, report: &mut Report, place: &str) {
        memory_line(report, &format!("a client's memory at its peak, {place}"), peak(self.clients.pids()));
        if self.stone.is_some() {
            memory_line(report, &format!("the stone's memory at its peak, {place}"), self.stone_peak());
        }
        self.leave();
    }

    /// How many jobs were enqueued, claimed and completed here.
    pub fn jobs_done(&self) -> u64 {
        self.rounds * SHARE * PROCESSES as u64
    }

    pub fn written(&mut self) -> Written {
        self.ask_stone("written")
    }

    /// The bytes of a window with next to nothing in it.
    pub fn trivial_window(&mut self) -> f64 {
        let written = self.ask_stone("trivial");
        written.bytes / written.windows
    }

    fn ask_stone(&mut self, order: &str) -> Written {
        let stone = self.stone.as_mut().expect("there is a stone");
        stone.order(order);
        let answers = stone.answers();
        Written { bytes: sum(&answers, "bytes"), windows: sum(&answers, "windows") }
    }

    pub fn stone_peak(&self) -> Option<u64> {
        peak(self.stone.as_ref()?.pids())
    }

    /// The clients first: they would go on without the stone.
    pub fn leave(self) {
        drop(self.clients);
        drop(self.stone);
    }
}

/// Piles jobs up in a new store, from this process, through a stone with so much of the file in memory.
pub fn fill(path: &Path, jobs: u64, cache: &str) -> Filled {
    let store = Store::open(path).expect("the store opens");
    let serving = Crew::start(1, "stone", &[path.to_str().expect("a path of text"), cache]);
    let began = Instant::now();
    enqueue(&store.queue("default"), jobs, FILL_BATCH);
    let rate = float(jobs) / began.elapsed().as_secs_f64();
    let stone_peak = peak(serving.pids());
    store.close().expect("the store closes");
    Filled { rate, stone_peak }
}

/// The most that one of these processes ever took.
pub fn peak(pids: impl Iterator<Item = u32>) -> Option<u64> {
    pids.filter_map(Memory::of).map(|memory| memory.peak).max()
}

/// The process that is the stone.
pub fn serve(args: &[String]) -> ! {
    let [path, cache] = args else { panic!("a stone has two arguments") };
    let (hook, windows) = (Arc::new(Bytes::default()), Arc::new(AtomicU64::new(0)));
    let flushed = windows.clone();
    let options = options(cache).storage_hook(hook.clone()).step_hook(move |step| {
        if step == Step::Flushed {
            flushed.fetch_add(1, Ordering::Relaxed);
        }
    });
    let store = options.open(path).expect("the store opens");
    let _serving = store.serve().expect("this process serves");
    while store.stone() != Some(process::id()) {
        thread::sleep(Duration::from_millis(1));
    }
    let counts = || (hook.0.load(Ordering::Relaxed), windows.load(Ordering::Relaxed));
    obey(|order| {
        let before = match order {
            "written" => (0, 0),
            "trivial" => {
                // What was there before is not to be in the first window.
                store.snapshot().expect("a snapshot");
                let before = counts();
                for turn in 0..TRIVIAL_WINDOWS {
                    store.put("trivial", &turn).expect("a small change");
                    store.snapshot().expect("a snapshot, which ends the window");
                }
                before
            }
            other => panic!("there is no order {other}"),
        };
        let now = counts();
        json!({ "bytes": now.0 - before.0, "windows": now.1 - before.1 })
    })
}

/// One of the processes that enqueue and claim.
pub fn work(args: &[String]) -> ! {
    let [path, cache] = args else { panic!("a client has two arguments") };
    let store = open(path, cache);
    let queue = store.queue("default");
    // The first change opens what is needed to make it, and the first claim begins the session.
    enqueue(&queue, 1, 1);
    complete(&store, claim(&queue, 1));
    let mut held = Vec::new();
    let mut before = store.commits_by_path();
    obey(|order| {
        match order {
            "enqueue" => enqueue(&queue, SHARE, BATCH),
            "claim" => held = claim(&queue, SHARE),
            "complete" => complete(&store, std::mem::take(&mut held)),
            other => panic!("there is no order {other}"),
        }
        let now = store.commits_by_path();
        let answer: Value = json!({ "by_stone": now.stone - before.stone, "directly": now.direct - before.direct });
        before = now;
        answer
    })
}

/// So many jobs, in batches.
fn claim(queue: &Queue, jobs: u64) -> Vec<Vec<Lease>> {
    let (mut left, mut held) = (jobs, Vec::new());
    while left > 0 {
        let batch = usize::try_from(left.min(BATCH)).expect("it is small");
        let leases = queue.claim(batch, Duration::from_secs(10)).expect("a claim");
        assert!(!leases.is_empty(), "the jobs are there");
        left -= leases.len() as u64;
        held.push(leases);
    }
    held
}

fn complete(store: &Store, held: Vec<Vec<Lease>>) {
    for leases in held {
        store.transaction(|tx| leases.iter().try_for_each(|lease| tx.complete(lease))).expect("the leases stand");
    }
}
