//! What it costs to work where millions of jobs wait, in time and in memory.
//!
//! ```text
//! cargo bench --bench depth -- [--quick] [--sweep] [--jobs N] [--seconds N] [--only WORD] [--folder PATH]
//!     [--json FILE]
//! ```
//!
//! Ten million jobs are piled up once, or `--jobs N`, or 100,000 with `--quick`. What is done there is also done where
//! a thousand wait, in turns (`rounds`): through a stone, and by direct commits. Then four workers drain the deep
//! store, which tells what they take of memory, and it is compacted (`drain`). `--sweep` tries how much of the file
//! the stone had best keep in memory (`cache`). What a crowd of jobs that can't run costs is in `crowd`, and how large
//! a file becomes through which jobs only pass in the bench `growth`.
//!
//! What is promised: ten million deep a job takes at most 1.25 times as long as a thousand deep, through a stone; a
//! worker takes less than 64 MiB, also the one that is the stone; and after a backlog a compaction brings the file
//! below 128 MiB. Beside a crowd, a claim is at least 0.8 as fast, and writes as much but for 5 %.

#[path = "../common/mod.rs"]
mod common;

mod cache;
mod crowd;
mod drain;
mod rounds;

use std::path::{Path, PathBuf};

use casque::{JobRequest, Queue, Store, StoreOptions};
use serde_json::json;

use crate::common::{Options, Report, file_bytes, mebibytes, role};

/// The bytes of a job's arguments.
const PAYLOAD_BYTES: usize = 200;
/// How many jobs one change of those that pile up enqueues.
const FILL_BATCH: u64 = 1_000;
const SHALLOW: u64 = 1_000;
/// The processes that work at once.
const PROCESSES: usize = 4;
const MEMORY_PROMISED: u64 = 64 << 20;

/// A store, and how many jobs wait in it.
#[derive(Clone)]
struct Place {
    name: String,
    path: PathBuf,
    depth: u64,
}

fn main() {
    if let Some((role, args)) = role() {
        match role.as_str() {
            "stone" => rounds::serve(&args),
            "client" => rounds::work(&args),
            "worker" => drain::work(&args),
            other => panic!("there is no role {other}"),
        }
    }
    let options = Options::parse(1.0, 0.2);
    let deep = options.jobs.unwrap_or(if options.quick { 100_000 } else { 10_000_000 });
    let mut report = Report::new(&options);
    println!("jobs of {PAYLOAD_BYTES} bytes, {SHALLOW} and {deep} deep, {PROCESSES} processes");
    let folder = options.fresh_folder();
    let stores = [("shallow.redb", SHALLOW), ("deep.redb", deep)]
        .map(|(name, depth)| fill(&mut report, &folder.path().join(name), depth));
    if options.wants("stone") {
        Report::heading("stone: what the depth costs through a stone");
        rounds::through_a_stone(&options, &mut report, &stores);
    }
    if options.wants("direct") {
        Report::heading("direct: what it costs by direct commits");
        rounds::directly(&options, &mut report, &stores);
    }
    if options.sweep {
        Report::heading("cache: what the stone's share of the file in memory does, in turns");
        cache::measure(&options, &mut report, &stores[1]);
    }
    if options.wants("crowd") {
        Report::heading("crowd: what scheduled, finished and dead jobs cost those that can run");
        crowd::measure(&options, &mut report, &stores[0], folder.path());
    }
    if options.wants("drain") {
        Report::heading("drain: workers with default settings empty the deep store");
        drain::measure(&mut report, &stores[1]);
    }
    report.finish();
}

/// Piles up jobs in a new store, through a stone.
fn fill(report: &mut Report, path: &Path, depth: u64) -> Place {
    let filled = rounds::fill(path, depth, rounds::USUAL);
    let bytes = file_bytes(path);
    report.line(
        &format!("{depth} jobs are piled up"),
        &format!("{:>9.0} /s  {:.1} MiB", filled.rate, mebibytes(bytes)),
        &json!({ "per_second": filled.rate, "bytes": bytes }),
    );
    if let Some(peak) = filled.stone_peak {
        let name = format!("MiB of the stone at its peak, {depth} piled up");
        report.verdict(&name, mebibytes(peak), "below 64", peak < MEMORY_PROMISED);
    }
    Place { name: format!("{depth} deep"), path: path.to_owned(), depth }
}

fn enqueue(queue: &Queue, mut jobs: u64, batch: u64) {
    let job = || JobRequest::new("noop", &[7_u8; PAYLOAD_BYTES][..]);
    while jobs > 0 {
        let now = jobs.min(batch);
        queue.enqueue_batch((0..now).map(|_| job())).expect("a batch is enqueued");
        jobs -= now;
    }
}

/// With this much of its file in memory, or as much as is usual.
fn open(path: &str, cache_mebibytes: &str) -> Store {
    options(cache_mebibytes).open(path).expect("the store opens")
}

fn options(cache_mebibytes: &str) -> StoreOptions {
    let options = StoreOptions::new();
    match cache_mebibytes.parse::<usize>() {
        Ok(mebibytes) => options.cache_bytes(mebibytes << 20),
        Err(_) => options,
    }
}
