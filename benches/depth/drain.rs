//! Workers as anyone would start them, until nothing is left: how fast they are in the deep and at its end, what memory
//! they take, one of them being the stone, and what a compaction makes of the file.

use std::{
    thread,
    time::{Duration, Instant},
};

use casque::{Queue, Registry, Store, Worker};
use serde_json::json;

use crate::{
    MEMORY_PROMISED, PROCESSES, Place,
    common::{Crew, Memory, Report, answer, float, mebibytes, ready},
    rounds::memory_line,
};

const FILE_PROMISED: u64 = 128 << 20;
/// How often it is looked how many jobs are left.
const LOOK: Duration = Duration::from_millis(10);

pub fn measure(report: &mut Report, place: &Place) {
    let store = Store::open(&place.path).expect("the store opens");
    let path = place.path.to_str().expect("a path of text");
    let mut crew = Crew::start(PROCESSES, "worker", &[path]);
    let queue = store.queue("default");
    let began = Instant::now();
    crew.go();
    let part = |tenths_left: u64| until_left(&queue, place.depth * tenths_left / 10);
    let first = part(9);
    let in_the_deep: Vec<Option<Memory>> = crew.pids().map(Memory::of).collect();
    part(1);
    let last = part(0);
    let took = began.elapsed().as_secs_f64();
    let answers = crew.answers();
    for (name, rate) in [("the first tenth", first), ("the last tenth", last), ("all", float(place.depth) / took)] {
        report.line(name, &format!("{rate:>9.0} /s"), &json!({ "per_second": rate }));
    }

    // When it leaves another may become the stone, for the rest.
    let commits = |index: &usize| answers[*index]["as_stone"].as_u64();
    let most = (0..PROCESSES).max_by_key(commits).expect("there are workers");
    assert!(commits(&most) > Some(0), "no worker was the stone");
    let at_the_end: Vec<Option<Memory>> = crew.pids().map(Memory::of).collect();
    for (name, is_stone) in [("a worker", false), ("the worker that is the stone", true)] {
        let of = |memories: &[Option<Memory>], bytes: fn(Memory) -> u64| {
            let some = memories.iter().enumerate().filter(|(index, _)| (*index == most) == is_stone);
            some.filter_map(|(_, memory)| memory.map(bytes)).max()
        };
        memory_line(report, &format!("memory of {name}, after a tenth"), of(&in_the_deep, |memory| memory.now));
        if let Some(peak) = of(&at_the_end, |memory| memory.peak) {
            let name = format!("memory of {name} at its peak, MiB");
            report.verdict(&name, mebibytes(peak), "below 64", peak < MEMORY_PROMISED);
        }
    }
    drop(crew);
    compact(report, &store);
}

fn compact(report: &mut Report, store: &Store) {
    let began = Instant::now();
    let compacted = store.compact().expect("nobody reads");
    let took = began.elapsed().as_secs_f64();
    let (before, after) = (compacted.bytes_before, compacted.bytes_after);
    report.line(
        "the file, drained, and compacted",
        &format!("{:>9.1} MiB, {:.1} MiB after {took:.1} s", mebibytes(before), mebibytes(after)),
        &json!({ "bytes_before": before, "bytes_after": after, "seconds": took }),
    );
    report.verdict("MiB of the file, compacted", mebibytes(after), "below 128", after < FILE_PROMISED);
}

/// How many jobs a second are completed from now on until so many are left.
fn until_left(queue: &Queue, left: u64) -> f64 {
    let counted = || {
        let stats = queue.stats().expect("the queue is counted");
        (stats.completed, stats.ready + stats.running)
    };
    let (began, (completed_before, _)) = (Instant::now(), counted());
    loop {
        let (completed, now) = counted();
        if now <= left {
            return float(completed - completed_before) / began.elapsed().as_secs_f64();
        }
        thread::sleep(LOOK);
    }
}

/// One worker, until the queue is empty.
pub fn work(args: &[String]) -> ! {
    let [path] = args else { panic!("a worker has one argument") };
    let store = Store::open(path).expect("the store opens");
    let mut tasks = Registry::new();
    tasks.register("noop", |_, _: Vec<u8>| Ok(())).expect("the registry is empty");
    let worker = Worker::new(&store).tasks(tasks).drain(true);
    ready();
    worker.run().expect("the worker runs");
    answer(&json!({ "as_stone": store.commits_by_path().own_stone }))
}
