//! Stores and logs that earlier builds have left: each is opened by this one, and reads as was noted when it was made.
//! `tests/golden/` has one for each format that was ever released; `scripts/golden` makes the one of today's format.

#[path = "golden/blocks.rs"]
mod blocks;
mod cli_support;
mod processes;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use blocks::{gathered, spread};
use casque::{JobRequest, Lease, Schedule, Store, Timestamp, hooks::Step};
use cli_support::Cli;
use processes::{Committer, Scene, await_line, options, path_here, play, say, until};
use serde_json::{Map, Value};

/// What differs from one making to the next, or with the time of looking.
const NOT_NOTED: [&str; 22] = [
    "path",
    "holder",
    "upcoming",
    "file_bytes",
    "enqueued_at",
    "run_at",
    "started_at",
    "finished_at",
    "at",
    "since",
    "age",
    "oldest",
    "oldest_ready",
    "session",
    "held_by",
    "next",
    "last",
    "next_at",
    "last_at",
    "last_slot",
    "next_slot",
    "pid",
];

#[test]
fn actor() {
    play(&[("maker", maker)]);
}

/// Fills a store with a row of each kind, leaves further changes in the log alone, and waits to be killed.
fn maker() {
    let is_held = Arc::new(AtomicBool::new(false));
    let holds = is_held.clone();
    let hook = move |step| {
        if step == Step::Flushing && holds.load(Ordering::SeqCst) {
            loop {
                thread::park();
            }
        }
    };
    let store = options().step_hook(hook).open(path_here("app.redb")).unwrap();
    let _serving = store.serve().unwrap();
    until("the seat", || (store.stone()? == std::process::id()).then_some(()));
    let lease = fill(&store);
    // All of it is in the file.
    store.version().unwrap();
    is_held.store(true, Ordering::SeqCst);
    append(&store, &lease);
    say("made");
    await_line("leave");
}

fn job(task: &str) -> JobRequest {
    JobRequest::with_payload(task, casque::Payload::from_json_text("{\"n\": 1, \"text\": \"übung\"}").unwrap())
}

/// Jobs in each state and with each option, objects, settings, schedules, locks and pauses.
fn fill(store: &Store) -> Lease {
    let queue = store.queue("default");
    let claimed = || queue.claim(1, Duration::ZERO).unwrap().pop().unwrap();

    queue.enqueue(job("completed").keep()).unwrap();
    let lease = claimed();
    lease.start().unwrap();
    lease.log("a line of its log").unwrap();
    lease.complete_with(&("result", 7)).unwrap();

    queue.enqueue(job("dead").max_attempts(2)).unwrap();
    for message in ["the first failure", "the second failure"] {
        let lease = claimed();
        lease.start().unwrap();
        lease.fail(message, Some(Duration::ZERO)).unwrap();
    }

    let cancelled = queue.enqueue(job("cancelled")).unwrap();
    store.cancel(cancelled).unwrap();

    queue.enqueue(job("running").metadata("tenant", "7")).unwrap();
    let running = claimed();
    running.start().unwrap();
    running.progress(0.5, "halfway").unwrap();
    std::mem::forget(running);

    let ready = queue.enqueue(job("ready").priority(9).unique("video-7")).unwrap();
    queue.enqueue(job("ready").concurrency_key("customer-1")).unwrap();
    queue.enqueue(JobRequest::new("ready", &(1_u32, "bincode"))).unwrap();
    let last = queue.enqueue(job("ready").timeout(Duration::from_secs(90))).unwrap();
    store.requeue(ready).unwrap();
    queue.enqueue(job("scheduled").run_at(Timestamp::from_millis(4_000_000_000_000))).unwrap();
    queue.enqueue(job("waiting").after(last)).unwrap();
    let batch = queue.open_batch(job("completion")).unwrap();
    batch.enqueue("default", job("member")).unwrap();

    store.queue("paused").enqueue(job("ready")).unwrap();
    store.queue("paused").pause().unwrap();
    store.pause_task("paused-task").unwrap();
    store.put("text", "value").unwrap();
    store.put("removed", "not there any more").unwrap();
    store.put("numbers", &[1_u64, 2, 3]).unwrap();
    store.add("counter", 41).unwrap();
    store.configure("lease", 45_000).unwrap();
    let day = Duration::from_hours(24);
    store.schedule(Schedule::every("daily", day, job("ready")).queue("nightly")).unwrap();
    store.schedule(Schedule::every("paused", day, job("ready"))).unwrap();
    store.pause_schedule("paused").unwrap();
    std::mem::forget(store.lock("machine").unwrap());
    claimed()
}

/// What was answered, and is in the log only. It reads nothing: a reader has all of it brought into the file.
fn append(store: &Store, lease: &Lease) {
    store.queue("default").enqueue(job("logged")).unwrap();
    store.add("counter", 1).unwrap();
    store.put("text", "a later value").unwrap();
    store.remove("removed").unwrap();
    store.queue("logged").enqueue_batch([job("logged"), job("logged")]).unwrap();
    lease.complete().unwrap();
}

/// All that the command line tells of a store, without what no two makings have in common.
fn noted(cli: &Cli) -> String {
    let questions: [&[&str]; 9] = [
        &["list", "--limit", "1000"],
        &["log", "1"],
        &["queues"],
        &["stats"],
        &["schedule", "list"],
        &["locks"],
        &["root", "ls"],
        &["config"],
        &["config", "--queue", "default"],
    ];
    let mut text = String::new();
    for args in questions {
        for mut line in cli.json(args) {
            forget(&mut line);
            writeln!(text, "{}: {line}", args.join(" ")).unwrap();
        }
    }
    for key in ["text", "numbers", "counter"] {
        let value = cli.run(&["root", "get", key]).succeeds();
        writeln!(text, "root get {key}: {}", value.stdout.trim()).unwrap();
    }
    text
}

fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let kept = std::mem::take(fields).into_iter().filter(|(name, _)| !NOT_NOTED.contains(&name.as_str()));
            *fields = kept
                .map(|(name, mut value)| {
                    forget(&mut value);
                    (name, value)
                })
                .collect::<Map<_, _>>();
        }
        Value::Array(values) => values.iter_mut().for_each(forget),
        _ => {}
    }
}

/// A copy of what a killed stone left in that folder, to be opened.
fn taken_from(folder: &Path) -> Cli {
    let cli = Cli::new();
    fs::copy(folder.join("app.redb"), cli.store()).unwrap();
    let beside = cli.path("app.redb.d");
    fs::create_dir(&beside).unwrap();
    #[cfg(unix)]
    fs::set_permissions(&beside, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(beside.join("log"), spread(&fs::read(folder.join("log")).unwrap())).unwrap();
    cli
}

fn parts(line: &str) -> (&str, Option<Value>) {
    let (asked, answer) = line.split_once(": ").unwrap();
    (asked, serde_json::from_str(answer).ok())
}

/// Whether all that was noted is there: later builds may tell more.
fn holds(found: &Value, noted: &Value) -> bool {
    match (found, noted) {
        (Value::Object(found), Value::Object(noted)) => {
            noted.iter().all(|(name, noted)| found.get(name).is_some_and(|found| holds(found, noted)))
        }
        (Value::Array(found), Value::Array(noted)) => {
            found.len() == noted.len() && found.iter().zip(noted).all(|(found, noted)| holds(found, noted))
        }
        _ => found == noted,
    }
}

/// It opens, its log is replayed, all reads as it was noted, and a worker goes on with it.
fn is_as_noted(folder: &Path) {
    let cli = taken_from(folder);
    let expected = fs::read_to_string(folder.join("noted.txt")).unwrap();
    let found = noted(&cli);
    for (number, (expected, found)) in expected.lines().zip(found.lines()).enumerate() {
        let is_same = match (parts(found), parts(expected)) {
            ((asked, Some(found)), (as_noted, Some(expected))) => asked == as_noted && holds(&found, &expected),
            _ => found == expected,
        };
        assert!(is_same, "line {} of {}:\n{found}\n{expected}", number + 1, folder.display());
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{found}");
    cli.run(&["check"]).succeeds();

    // What ran is taken up, and what waited for a job is let go by its end.
    cli.run(&["exec", "--queue", "default", "--", "true"]).succeeds();
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    let store = Store::open(cli.store()).unwrap();
    let running = cli.json(&["list", "--task", "running"]).pop().unwrap();
    let running = store.job(running["id"].as_str().unwrap().parse().unwrap()).unwrap();
    assert_eq!((running.state, running.suspect), (casque::State::Ready, true));
    assert_eq!(store.queue("default").stats().unwrap().running, 0);
    store.close().unwrap();
    cli.run(&["check"]).succeeds();
}

/// `tests/golden`, below the repository's top.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn store_and_log_of_each_released_format_open_and_read_as_noted() {
    let mut formats: Vec<PathBuf> =
        fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    formats.sort();
    assert!(!formats.is_empty());
    for format in formats {
        is_as_noted(&format);
    }
}

#[test]
fn log_of_a_newer_format_is_refused_by_name_and_left_alone() {
    let cli = taken_from(&golden().join("v1"));
    let path = cli.path("app.redb.d/log");
    let readable = fs::read(&path).unwrap();
    let mut log = readable.clone();
    log[8..12].copy_from_slice(&2_u32.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64(&log[..56]);
    log[56..64].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, &log).unwrap();
    for args in [["list"].as_slice(), &["enqueue", "a"], &["work", "--drain"], &["serve"], &["check"]] {
        cli.run(args).fails(6, &["app.redb.d/log", "format 2", "nothing was changed"]);
        assert!(fs::read(&path).unwrap() == log, "{args:?}");
    }
    // A build that can read it has it all.
    fs::write(&path, &readable).unwrap();
    assert_eq!(cli.run(&["root", "get", "counter"]).succeeds().stdout.trim(), "42");
}

/// The same of a store that this build makes; with `CASQUE_GOLDEN` it is left in the folder of that name.
#[test]
fn store_and_log_of_this_build_open_and_read_as_noted() {
    let scene = Scene::by(Committer::Worker);
    let mut maker = scene.actor("maker", &[]);
    maker.expect("made");
    maker.kill();
    let kept = std::env::var_os("CASQUE_GOLDEN").map_or_else(|| scene.path("kept"), PathBuf::from);
    fs::create_dir(&kept).unwrap();
    fs::copy(scene.store_path(), kept.join("app.redb")).unwrap();
    let log = fs::read(scene.path("app.redb.d/log")).unwrap();
    assert!(spread(&gathered(&log)) == log);
    fs::write(kept.join("log"), gathered(&log)).unwrap();
    fs::write(kept.join("noted.txt"), noted(&taken_from(&kept))).unwrap();
    is_as_noted(&kept);
}
