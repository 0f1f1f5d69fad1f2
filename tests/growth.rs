//! How large the file gets: while a process that is stopped reads an old snapshot (R4, S47), and by a compaction beside
//! processes that use the store.
#![cfg(target_os = "linux")]

mod processes;

use std::{
    fs, io,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use casque::{
    ErrorKind, JobRequest, Lease, Store, StoreOptions,
    hooks::{StorageHook, StorageOperation},
    types::Commits,
};
use processes::{
    Actor, Scene, assert_sound, await_line, die, freeze, number_or, path_here, play, say, store_here, until,
};

const MIB: u64 = 1 << 20;
/// The limits of the rule, scaled: a file may grow by 8 MiB (256 MiB) while it is pinned for 0.3 s (10 s), and then
/// each commit waits 0.5 s (1 s).
const GROWTH: (u64, Duration, Duration) = (8 * MIB, Duration::from_millis(300), Duration::from_millis(500));
/// How long the load goes on: far more than the limits (a minute).
const LOAD: Duration = Duration::from_secs(5);
/// What the file stays below (1 GiB). Without the rule it is twice to four times as large by then, even unoptimized.
const FILE_MAX: u64 = 256 * MIB;
const KEYS: usize = 128;
/// Of each value.
const BYTES: usize = 8 << 10;

#[test]
fn actor() {
    play(&[
        ("server", serve),
        ("reader", read_and_stop),
        ("holder", hold_a_snapshot),
        ("committer", commit),
        ("compactor", compact_and_die),
    ]);
}

/// Is the stone until it is told to leave.
fn serve() {
    let (bytes, age, pause) = GROWTH;
    let store = StoreOptions::new().growth_limits(bytes, age, pause).open(path_here("app.redb")).unwrap();
    let serving = store.serve().unwrap();
    until("it serves", || path_here("app.redb.d/sock").exists().then_some(()));
    say("serves");
    await_line("leave");
    drop(serving);
    store.close().unwrap();
}

/// Is stopped with a snapshot in hand, and reads on when it goes on.
fn read_and_stop() {
    let store = store_here();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.get::<String>("0").unwrap().map(|value| value.len()), Some(BYTES));
    say("reads");
    freeze();
    let read = snapshot.get::<String>("0");
    say(format!("read {}", read.map_or_else(|error| error.to_string(), |_| "well".to_owned())));
    store.close().unwrap();
}

/// Has a snapshot open, and reads nothing.
fn hold_a_snapshot() {
    let store = store_here();
    let snapshot = store.snapshot().unwrap();
    say("holds");
    await_line("leave");
    drop(snapshot);
    store.close().unwrap();
}

/// Commits until it is told to leave; says how long the slowest one took.
fn commit() {
    let store = store_here();
    let mut slowest = Duration::ZERO;
    let (sender, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        await_line("leave");
        let _ = sender.send(());
    });
    let mut count = 0;
    while told.try_recv().is_err() {
        let begun = Instant::now();
        store.add("commits", 1).unwrap();
        slowest = slowest.max(begun.elapsed());
        count += 1;
        if count == 1 {
            say("commits");
        }
    }
    say(format!("slowest {} {count}", slowest.as_millis()));
    store.close().unwrap();
}

/// Dies at the n-th sync of a compaction.
fn compact_and_die() {
    let hook = Arc::new(DieAt { syncs_left: AtomicU64::new(u64::MAX) });
    let store = StoreOptions::new()
        .commits(Commits::DirectOnly)
        .storage_hook(hook.clone())
        .open(path_here("app.redb"))
        .unwrap();
    store.add("compactions", 1).unwrap();
    hook.syncs_left.store(number_or("syncs", 1) as u64, Ordering::Relaxed);
    let compacted = store.compact();
    hook.syncs_left.store(u64::MAX, Ordering::Relaxed);
    compacted.unwrap();
    say("compacted");
    store.close().unwrap();
}

#[derive(Debug)]
struct DieAt {
    syncs_left: AtomicU64,
}

impl StorageHook for DieAt {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        if operation == StorageOperation::Sync && self.syncs_left.fetch_sub(1, Ordering::Relaxed) == 1 {
            die();
        }
        Ok(())
    }
}

fn size(scene: &Scene) -> u64 {
    fs::metadata(scene.store_path()).unwrap().len()
}

/// Writes all keys anew, in one change.
fn rewrite(store: &Store, round: u8) {
    let value = value(round);
    store.transaction(|tx| (0..KEYS).try_for_each(|key| tx.put(&key.to_string(), &value))).unwrap();
}

fn value(round: u8) -> String {
    round.to_string().repeat(BYTES)
}

fn doctor(scene: &Scene) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casque"));
    let ran = command.args(["doctor"]).env("CASQUE_STORE", scene.store_path()).output().unwrap();
    (ran.status.code().unwrap(), String::from_utf8(ran.stdout).unwrap())
}

/// Loads the store while a reader is stopped, then lets the reader go on.
fn load_beside_a_stopped_reader(scene: &Scene, store: &Store) {
    rewrite(store, 0);
    let mut reader = scene.actor("reader", &[]);
    reader.expect("reads");
    reader.await_stopped();
    let begun = Instant::now();
    let mut commits = 0;
    while begun.elapsed() < LOAD {
        rewrite(store, 1);
        commits += 1;
    }
    let bytes = size(scene);
    println!("{commits} commits, {} MiB", bytes / MIB);
    assert!(bytes < FILE_MAX, "the file has {} MiB after {commits} commits", bytes / MIB);
    let (code, told) = doctor(scene);
    let pid = reader.pid();
    let finding = format!("process {pid} is stopped; it reads an old snapshot");
    assert!(code == 1 && told.contains(&finding) && told.contains(&format!("kill -CONT {pid}")), "{code} {told}");

    reader.go_on();
    let read = reader.expect("read");
    assert!(read.contains("snapshot too old") || read == "well", "{read}");
    reader.finish();
    until("commits are fast again", || {
        let begun = Instant::now();
        (0..3).for_each(|round| rewrite(store, round));
        (begun.elapsed() < GROWTH.2).then_some(())
    });
    let (code, told) = doctor(scene);
    assert!(code == 0 && told.contains("nothing is wrong"), "{code} {told}");
    assert!(store.compact().unwrap().bytes_after < 8 * MIB);
}

/// S47.
#[test]
fn file_stays_small_beside_a_reader_that_is_stopped_where_processes_commit_by_themselves() {
    let scene = Scene::new();
    let (bytes, age, pause) = GROWTH;
    let options = StoreOptions::new().growth_limits(bytes, age, pause).commits(Commits::DirectOnly);
    let store = options.open(scene.store_path()).unwrap();
    load_beside_a_stopped_reader(&scene, &store);
    assert_sound(&store);
    store.close().unwrap();
}

/// S47.
#[test]
fn file_stays_small_beside_a_reader_that_is_stopped_where_a_stone_commits() {
    let scene = Scene::new();
    scene.store().close().unwrap();
    let mut server = scene.actor("server", &[]);
    server.expect("serves");
    let store = scene.store();
    load_beside_a_stopped_reader(&scene, &store);
    assert_sound(&store);
    let paths = store.commits_by_path();
    assert!(paths.stone > 3 && paths.direct == 0, "{paths:?}");
    store.close().unwrap();
    server.tell("leave");
    server.finish();
}

/// Piles jobs up, and drains them.
fn drain_a_backlog(store: &Store, jobs: usize) {
    const BATCH: usize = 5_000;
    for _ in 0..jobs / BATCH {
        let batch = (0..BATCH).map(|_| JobRequest::new("noop", &[7_u8; 200][..]));
        store.queue("default").enqueue_batch(batch).unwrap();
    }
    loop {
        let leases = store.queue("default").claim(1_000, Duration::ZERO).unwrap();
        if leases.is_empty() {
            return;
        }
        store.transaction(|tx| leases.iter().try_for_each(|lease: &Lease| tx.complete(lease))).unwrap();
    }
}

#[test]
fn compaction_makes_the_file_small_after_a_drained_backlog_while_others_use_the_store() {
    let scene = Scene::new();
    scene.store().close().unwrap();
    let mut server = scene.actor("server", &[]);
    server.expect("serves");
    let store = scene.store();
    // Ten million jobs, scaled: a 500th of them, and of what is promised. All of them: `cargo bench --bench growth`.
    drain_a_backlog(&store, 20_000);
    let before = size(&scene);
    assert!(before > 4 * MIB, "a backlog takes its space: {} MiB", before / MIB);

    let mut holder = scene.actor("holder", &[]);
    holder.expect("holds");
    let mut committer = scene.actor("committer", &[]);
    committer.expect("commits");
    let begun = Instant::now();
    let compacted = store.compact().unwrap();
    let took = begun.elapsed();
    println!("{} MiB before, {} KiB after, {took:?}", before / MIB, size(&scene) / 1024);
    assert!(compacted.bytes_before >= before && compacted.bytes_after < 128 * MIB / 500, "{compacted:?}");
    committer.tell("leave");
    let slowest = committer.expect("slowest");
    println!("the slowest commit beside it, in ms, of so many: {slowest}");
    holder.tell("leave");
    for actor in [committer, holder] {
        actor.finish();
    }
    assert_sound(&store);
    drain_a_backlog(&store, 10_000);
    assert_sound(&store);
    store.close().unwrap();
    server.tell("leave");
    server.finish();
}

#[test]
fn who_prevents_a_compaction_is_named() {
    let scene = Scene::new();
    let store = StoreOptions::new().commits(Commits::DirectOnly).open(scene.store_path()).unwrap();
    rewrite(&store, 0);
    let mut reader = scene.actor("reader", &[]);
    reader.expect("reads");
    reader.await_stopped();
    let error = store.compact().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let named = format!("process {} (it is stopped: continue or kill it)", reader.pid());
    assert!(error.to_string().contains(&named), "{error}");
    store.put("still", &"writable").unwrap();
    reader.kill();
    store.compact().unwrap();
    assert_sound(&store);
    store.close().unwrap();
}

#[test]
fn killed_compaction_loses_nothing() {
    for syncs in [1, 2, 3, 5, 8, 13, 21] {
        let scene = Scene::new();
        let store = scene.store();
        drain_a_backlog(&store, 5_000);
        rewrite(&store, 7);
        store.close().unwrap();
        let mut compactor: Actor = scene.actor("compactor", &[("syncs", &syncs.to_string())]);
        let ended = compactor.wait();
        let store = scene.store();
        for key in 0..KEYS {
            assert_eq!(store.get::<String>(&key.to_string()).unwrap(), Some(value(7)), "after {syncs} syncs");
        }
        assert_eq!(store.get::<i64>("compactions").unwrap(), Some(1));
        rewrite(&store, 8);
        store.compact().unwrap();
        assert_sound(&store);
        println!("{syncs} syncs: {ended}, {} KiB", size(&scene) / 1024);
        store.close().unwrap();
    }
}
