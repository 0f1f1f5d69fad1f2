//! casque beside other queues, at the same work: `cargo bench --bench peers` in the folder of casque.
//!
//! `peers` has a file for each; `works` is what is measured, `run` one run, `line` the interleaved pairs of runs that a
//! ratio is made of, `verdicts` what was set out to reach. Servers are started here on temporary folders and sockets of
//! this machine, and end with this program; clients are processes, this program run again. Absent: networks, replicas,
//! and settings that nobody would run.

mod client;
mod crew;
mod disk;
mod idle;
mod line;
mod options;
mod peer;
mod peers;
mod plot;
mod run;
mod server;
mod syncs;
mod verdicts;
mod works;

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::ExitCode,
    thread,
};

use serde_json::json;

use crate::{
    line::{Bench, Line},
    options::{HELP, Options},
    peer::{BEST_JOBS, PAYLOAD_BYTES, Peer},
    peers::Casque,
    server::is_installed,
    works::{Kind, WORKS},
};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--client", errand] => {
            client::run(errand);
            ExitCode::SUCCESS
        }
        [peers::COMMAND, ..] => casque::cli::run(casque::Registry::new()),
        _ => match Options::parse(args.into_iter()) {
            Ok(Some(options)) => bench(&options),
            Ok(None) => {
                println!("{HELP}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::from(2)
            }
        },
    }
}

fn bench(options: &Options) -> ExitCode {
    let (installed, missing): (Vec<_>, Vec<_>) = peers::all().into_iter().partition(|peer| is_there(peer.as_ref()));
    for peer in &missing {
        let program = peer.program().unwrap_or_default();
        println!("left out: {}, since {program} is not installed (scripts/bench-peers installs it)", peer.name());
    }
    if options.lists {
        list(&installed);
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir_in(&options.folder).expect("the folder is writable");
    let mut bench = Bench::new(options, folder.path());
    head(options, bench.disk.rate());
    let (mut lines, mut failures) = (Vec::new(), Vec::new());
    for work in &WORKS {
        let wanted: Vec<_> = installed.iter().filter(|peer| options.wants(work.title, peer.name())).collect();
        if wanted.is_empty() {
            continue;
        }
        println!("\n{}\n  {}", work.title, columns(work.kind));
        for peer in wanted {
            if work.kind == Kind::Latency && !peer.is_shared() {
                println!("  {:<34} left out: its enqueuer and its worker can't be two processes", peer.name());
                continue;
            }
            match catch_unwind(AssertUnwindSafe(|| bench.measure(work, peer.as_ref()))) {
                Ok(line) => {
                    println!("{}", line.text());
                    lines.push(line);
                }
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no figure");
                    println!("  {:<34} FAILED: {text}", peer.name());
                    failures.push(json!({ "work": work.key, "peer": peer.name(), "error": text }));
                }
            }
        }
    }
    let idle_cores = options.wants("idle workers", Casque.name()).then(|| (options.idle_workers, idle::cores(options)));
    finish(options, &lines, &failures, idle_cores);
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn finish(options: &Options, lines: &[Line], failures: &[serde_json::Value], idle_cores: Option<(usize, f64)>) {
    let verdicts = verdicts::verdicts(lines, idle_cores);
    println!("\nset out and measured (`Done when` by number)");
    verdicts.iter().for_each(|verdict| println!("{}", verdict.text()));
    if !failures.is_empty() {
        println!("{} lines FAILED", failures.len());
    }
    let figures = json!({
        "cores": thread::available_parallelism().map_or(0, usize::from),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "payload_bytes": PAYLOAD_BYTES,
        "seconds": options.seconds,
        "lines": lines.iter().map(Line::json).collect::<Vec<_>>(),
        "failed": failures,
        "idle_workers": idle_cores.map(|(workers, cores)| json!({ "workers": workers, "cores": cores })),
        "verdicts": verdicts.iter().map(verdicts::Verdict::json).collect::<Vec<_>>(),
    });
    if let Some(path) = &options.json {
        write(path, &serde_json::to_string_pretty(&figures).expect("figures are JSON"));
    }
    if let Some(path) = &options.svg {
        write(path, &plot::svg(lines));
    }
}

fn head(options: &Options, disk: f64) {
    println!(
        "jobs of {PAYLOAD_BYTES} bytes, handlers that do nothing, {} pairs of {} s, {} at once where a peer is at its \
         best;\n{} cores, raw appends made durable one by one: {disk:.0} /s. Ratios are casque by peer: median (min to \
         max) of the pairs.",
        options.pairs,
        options.seconds,
        BEST_JOBS,
        thread::available_parallelism().map_or(0, usize::from),
    );
    println!("Syncs are counted by strace on all processes of a side, in a run of its own.");
}

fn columns(kind: Kind) -> String {
    let (ours, theirs) = if kind.is_time() { ("casque p50/p99", "peer p50/p99") } else { ("casque", "peer") };
    format!("{:<34} {ours:>15}  {theirs:>15}    ratio  {:>26}  raw syncs /s", "", "syncs/job: casque, peer")
}

fn list(installed: &[Box<dyn Peer>]) {
    WORKS.iter().for_each(|work| println!("work: {:<16} {}", work.key, work.title));
    for peer in installed {
        let durable = if peer.is_durable() { "durable" } else { "not durable" };
        println!("peer: {:<36} {durable}: {}", peer.name(), peer.durability());
    }
}

fn is_there(peer: &dyn Peer) -> bool {
    peer.program().is_none_or(is_installed)
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{} can't be written: {error}", path.display()));
}
