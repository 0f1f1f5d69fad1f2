//! Commands that can't get at a store because of the process that commits for the others: it is stopped, is not asked,
//! or goes on with a file that is gone. Each says so, names the process, and what to do.
#![cfg(target_os = "linux")]

mod cli_support;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use casque::{ErrorKind, Store};
use cli_support::{Cli, Ran, Running, until};

/// A `casque serve` that commits for all.
fn serve(cli: &Cli) -> Running {
    let serving = cli.start(&["serve"]);
    until("it serves", || cli.path("app.redb.d/sock").exists().then_some(()));
    serving
}

/// Starts a command; gives it with the first line that it says on stderr.
fn first_said(cli: &Cli, args: &[&str]) -> (Child, String) {
    let mut command = cli.command(args);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    // What it says later has somewhere to go.
    thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(drop));
    (child, line)
}

#[test]
fn readers_say_at_once_that_they_wait_for_a_stopped_process_and_go_on_when_it_does() {
    let cli = Cli::new();
    let server = serve(&cli);
    let id = cli.id(&["enqueue", "a"]);
    cli.run(&["root", "put", "k", "1"]).succeeds();
    server.signal("STOP");
    let readers: [&[&str]; 3] = [&["show", &id], &["root", "ls"], &["root", "get", "k"]];
    let mut reading: Vec<(Child, String)> = readers.iter().map(|args| first_said(&cli, args)).collect();
    for ((child, said), args) in reading.iter_mut().zip(readers) {
        assert!(child.try_wait().unwrap().is_none(), "{args:?} waits: {said}");
        for part in [&format!("process {}", server.pid()), "is stopped", "commit for all", "kill -CONT"] {
            assert!(said.contains(part), "{args:?}: no \"{part}\" in: {said}");
        }
    }
    server.signal("CONT");
    for (child, _) in reading {
        Ran::of(child.wait_with_output().unwrap()).succeeds();
    }
}

#[test]
fn readers_that_have_waited_for_a_stopped_process_in_vain_say_so() {
    let cli = Cli::new();
    let server = serve(&cli);
    let id = cli.id(&["enqueue", "a"]);
    server.signal("STOP");
    let readers = [cli.start(&["show", &id]), cli.start(&["root", "ls"])];
    for reader in readers {
        let pid = server.pid();
        let parts = [format!("process {pid}"), "reading timed out".to_owned(), format!("kill -CONT {pid}")];
        reader.end().fails(5, &parts.each_ref().map(String::as_str));
    }
    server.signal("CONT");
}

#[test]
fn direct_commits_beside_a_stone_are_told_that_they_wait_in_vain() {
    let cli = Cli::new();
    let server = serve(&cli);
    let id = cli.id(&["enqueue", "a"]);
    let ways: [&[&str]; 3] = [&["enqueue", "b"], &["show", &id], &["pause", "q"]];
    let waiting = ways.map(|args| cli.start(&[&["--commits", "direct"], args].concat()));
    for command in waiting {
        let pid = format!("process {}", server.pid());
        command.end().fails(5, &[&pid, "commits for the others", "--commits direct", "leave that away"]);
    }
    // Whoever asks it is not told of a switch that it did not use.
    server.signal("STOP");
    let ran = cli.run(&["enqueue", "b"]).fails(5, &["is stopped"]);
    assert!(!ran.stderr.contains("--commits"), "{ran:?}");
    server.signal("CONT");
}

#[test]
fn store_that_was_removed_under_a_stone_is_told_by_name() {
    let cli = Cli::new();
    let server = serve(&cli);
    cli.id(&["enqueue", "a"]);
    let before = Store::open(cli.store()).unwrap();
    before.put("key", &1).unwrap();
    fs::remove_file(cli.store()).unwrap();
    let pid = format!("process {}", server.pid());
    let ran = cli.run(&["enqueue", "b"]).fails(5, &["app.redb was removed or replaced", &pid, "end that process"]);
    assert!(!ran.stderr.contains("timed out"), "{ran:?}");
    assert_eq!(Store::open(cli.store()).unwrap_err().kind(), ErrorKind::Closed);
    let error = before.put("key", &2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{}", error.full_message());
    assert!(error.full_message().contains("was removed or replaced"), "{}", error.full_message());
    thread::sleep(Duration::from_millis(500)); // waits: for the server to say again what it is to say once
    server.signal("TERM");
    let told = server.end().succeeds().stderr;
    assert_eq!(told.matches("was removed or replaced").count(), 1, "{told}");
}

#[test]
fn store_that_was_replaced_under_a_stone_is_told_by_name() {
    let cli = Cli::new();
    let server = serve(&cli);
    cli.id(&["enqueue", "a"]);
    let other = Store::open(cli.path("other.redb")).unwrap();
    other.put("key", &1).unwrap();
    other.close().unwrap();
    fs::rename(cli.path("other.redb"), cli.store()).unwrap();
    let pid = format!("process {}", server.pid());
    for args in [&["enqueue", "b"][..], &["work", "--drain"]] {
        let ran = cli.run(args);
        assert_eq!(ran.code, 5, "{ran:?}");
        for part in ["app.redb was removed or replaced", &pid, "end that process"] {
            assert!(ran.stderr.contains(part), "no \"{part}\" in: {ran:?}");
        }
        assert!(!ran.stderr.contains("timed out"), "{ran:?}");
        assert!(ran.stderr.lines().count() < 20, "it says so again and again: {ran:?}");
    }
    let store = Store::open(cli.store()).unwrap();
    assert_eq!(store.get::<i32>("key").unwrap(), Some(1), "the new file may still be read");
    let error = store.put("key", &2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{}", error.full_message());
    server.signal("TERM");
    server.end().succeeds();
    store.put("key", &2).unwrap();
    store.close().unwrap();
}
