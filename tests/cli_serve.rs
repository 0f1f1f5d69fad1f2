//! `casque serve`, and Ctrl-Z: the stone as a process of its own, which leaves in order, is replaced when it dies, and
//! lets another take its place before it stops.
#![cfg(unix)]

mod cli_support;

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use casque::Store;
use cli_support::{Cli, Running, until};

/// The longest gap that a hand-over may make. Who waits for a stopped stone waits for ten seconds.
const GAP_MAX: Duration = Duration::from_secs(2);

/// A `casque serve` that commits for all.
fn serve(cli: &Cli) -> Running {
    let serving = cli.start(&["serve"]);
    until("it serves", || cli.path("app.redb.d/sock").exists().then_some(()));
    serving
}

#[test]
fn server_commits_for_others_and_leaves_in_order() {
    let cli = Cli::new();
    let serving = serve(&cli);
    for _ in 0..3 {
        cli.id(&["enqueue", "a"]);
    }
    assert_eq!(cli.json(&["stats", "--fresh"])[0]["ready"], 3);
    serving.signal("TERM");
    let ran = serving.end().succeeds();
    assert!(ran.stderr.contains("serves") && ran.stderr.contains("commits for all"), "{ran:?}");
    assert_eq!(ran.stdout, "committed 3 changes\n");
    assert!(!cli.path("app.redb.d/sock").exists());
    cli.run(&["check"]).succeeds();
    cli.run(&["serve", "--commits", "direct"]).fails(2, &["--commits direct"]);
}

#[test]
fn switch_says_how_changes_get_to_the_disk() {
    for (how, committed) in [("logged", "committed 1 change"), ("unlogged", "committed 1 change")] {
        let cli = Cli::new();
        let mut command = cli.command(&["serve"]);
        command.env("CASQUE_COMMITS", how).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        until("it serves", || cli.path("app.redb.d/sock").exists().then_some(()));
        cli.id(&["enqueue", "a"]);
        assert_eq!(cli.path("app.redb.d/log").exists(), how == "logged");
        let ended = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(ended.success());
        let ran = cli_support::Ran::of(child.wait_with_output().unwrap()).succeeds();
        assert_eq!(ran.stdout.trim(), committed, "{how}");
    }
    let cli = Cli::new();
    cli.id(&["enqueue", "a", "--commits", "direct"]);
    cli.run(&["enqueue", "a", "--commits", "whatever"]).fails(2, &["whatever"]);
}

#[test]
fn killed_server_is_replaced_by_the_one_that_stands_by() {
    let cli = Cli::new();
    let first = serve(&cli);
    let second = cli.start(&["serve"]);
    cli.id(&["enqueue", "a"]);
    first.kill();
    let store = Store::open(cli.store()).unwrap();
    until("the second one commits", || {
        store.put("key", &1).unwrap();
        (store.commits_by_path().stone > 0).then_some(())
    });
    store.close().unwrap();
    second.signal("TERM");
    second.end().succeeds();
    cli.run(&["check"]).succeeds();
}

/// One process commits all the time through the stone while that is stopped by Ctrl-Z, goes on, and ends.
fn hands_over(cli: &Cli, server: Running) {
    let store = Store::open(cli.store()).unwrap();
    let (is_over, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let gap = thread::scope(|scope| {
        let committing = scope.spawn(|| {
            let mut gap = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                store.put("key", &1).unwrap();
                gap = gap.max(begun.elapsed());
                commits.fetch_add(1, Ordering::Relaxed);
            }
            gap
        });
        let some_more = || {
            let before = commits.load(Ordering::Relaxed);
            until("others commit", || (commits.load(Ordering::Relaxed) > before + 20).then_some(()));
        };
        until("the stone commits", || (store.commits_by_path().stone > 20).then_some(()));
        server.signal("TSTP");
        until("it has stopped", || is_stopped(server.pid()).then_some(()));
        let by_stone = store.commits_by_path().stone;
        some_more();
        server.signal("CONT");
        until("it commits again", || (store.commits_by_path().stone > by_stone).then_some(()));
        some_more();
        is_over.store(true, Ordering::Relaxed);
        committing.join().unwrap()
    });
    println!("the longest commit took {gap:?}");
    assert!(gap < GAP_MAX, "a commit took {gap:?}");
    store.close().unwrap();
    server.signal("TERM");
    server.end().succeeds();
    cli.run(&["check"]).succeeds();
}

#[test]
fn ctrl_z_of_a_server_keeps_nobody_waiting() {
    let cli = Cli::new();
    let server = serve(&cli);
    hands_over(&cli, server);
}

#[test]
fn ctrl_z_of_a_worker_keeps_nobody_waiting() {
    let cli = Cli::new();
    let server = cli.start(&["work"]);
    until("it serves", || cli.path("app.redb.d/sock").exists().then_some(()));
    hands_over(&cli, server);
}

fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}
