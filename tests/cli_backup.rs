//! `casque backup` and `casque restore`: what they print, and how they refuse.

mod cli_support;

use std::fs;

use cli_support::Cli;

/// A store with a few jobs and an object.
fn with_store() -> Cli {
    let cli = Cli::new();
    cli.id(&["enqueue", "note", "--count", "3"]);
    cli.run(&["root", "put", "answer", "42"]).succeeds();
    cli
}

#[test]
fn backup_is_restored_under_another_name_and_is_the_same_store() {
    let cli = with_store();
    let figures = cli.figures();
    let backup = cli.one(&["backup", "app.backup"]);
    let path = fs::canonicalize(cli.path("app.backup")).unwrap();
    assert_eq!(backup["path"], path.to_str().unwrap());
    assert_eq!(backup["version"], figures.last().unwrap()["version"]);
    assert_eq!(backup["bytes"], fs::metadata(&path).unwrap().len());
    let other = cli.at("other.redb");
    let restored = other.one(&["restore", "app.backup"]);
    assert_eq!(restored["version"], backup["version"]);
    assert!(restored["path"].as_str().unwrap().ends_with("other.redb"));
    assert_eq!(restored["bytes"], fs::metadata(other.store()).unwrap().len());
    let without_path = |mut figures: Vec<serde_json::Value>| {
        figures.last_mut().unwrap().as_object_mut().unwrap().remove("path");
        figures
    };
    assert_eq!(without_path(other.figures()), without_path(figures));
    other.run(&["check"]).succeeds();
    assert_eq!(other.run(&["root", "get", "answer"]).succeeds().stdout.trim(), "42");
}

#[test]
fn people_are_told_what_was_made() {
    let cli = with_store();
    let told = cli.run(&["backup", "app.backup"]).succeeds();
    assert!(told.stdout.contains("app.backup: version ") && told.stderr.is_empty(), "{told:?}");
    let told = cli.at("other.redb").run(&["restore", "app.backup"]).succeeds();
    assert!(told.stdout.contains("other.redb: version ") && told.stderr.is_empty(), "{told:?}");
}

#[test]
fn backup_has_what_only_the_log_of_who_commits_for_all_has() {
    let cli = with_store();
    let server = cli.start(&["serve"]);
    cli_support::until("it serves", || cli.run(&["--json", "sessions"]).code.eq(&0).then_some(()));
    for turn in 0..5 {
        let id = cli.id(&["enqueue", "note"]);
        let name = format!("{turn}.backup");
        cli.one(&["backup", &name]);
        assert_eq!(cli.run(&["--store", &name, "show", &id]).succeeds().code, 0);
    }
    server.kill();
    // Also where nobody is left to ask: what the log has is brought in first.
    let id = cli.id(&["enqueue", "note"]);
    cli.one(&["backup", "last.backup"]);
    cli.run(&["--store", "last.backup", "show", &id]).succeeds();
}

#[test]
fn backup_refuses_by_the_contract_and_makes_nothing() {
    let cli = with_store();
    cli.write("taken", "mine");
    cli.run(&["backup", "taken"]).fails(4, &["taken", "is there already"]);
    assert_eq!(fs::read_to_string(cli.path("taken")).unwrap(), "mine");
    cli.run(&["backup", "app.redb"]).fails(4, &["app.redb", "is there already"]);
    cli.run(&["backup", "no/folder"]).fails(3, &["no"]);
    cli.run(&["backup"]).fails(2, &["DEST"]);
    cli.at("none.redb").run(&["backup", "new"]).fails(5, &["none.redb", "no store"]);
}

#[test]
fn restore_refuses_by_the_contract_and_makes_nothing() {
    let cli = with_store();
    cli.one(&["backup", "app.backup"]);
    cli.run(&["restore", "app.backup"]).fails(4, &["app.redb", "is there already"]);
    let server = cli.start(&["serve"]);
    cli_support::until("the log", || cli.path("app.redb.d/log").exists().then_some(()));
    fs::rename(cli.store(), cli.path("moved.redb")).unwrap();
    cli.run(&["restore", "app.backup"]).fails(4, &[&server.pid().to_string(), "end it first"]);
    server.kill();
    cli.run(&["restore", "app.backup"]).fails(4, &["app.redb.d/log", "move the folder"]);

    let cli = cli.at("other.redb");
    cli.run(&["restore", "nothing"]).fails(3, &["nothing"]);
    cli.write("text", "this is no store, however long it may be looked at".repeat(200));
    cli.run(&["restore", "text"]).fails(2, &["text", "not a casque store"]);
    let mut bytes = fs::read(cli.path("app.backup")).unwrap();
    bytes.truncate(bytes.len() / 2);
    cli.write("cut.backup", bytes);
    cli.run(&["restore", "cut.backup"]).fails(6, &["cut.backup", "damaged", "nothing was restored"]);
    assert!(!cli.store().exists());
    cli.one(&["restore", "app.backup"]);
}
