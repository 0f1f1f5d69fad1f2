//! `casque doctor` beside stores in good and in bad condition, `casque compact` and `casque bench`.
#![cfg(target_os = "linux")]

mod cli_support;

use std::fs;

use casque::Store;
use cli_support::{Cli, Ran, until};
use serde_json::Value;

/// The facts of one kind in what `doctor --json` said.
fn about<'a>(lines: &'a [Value], about: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["about"] == about).collect()
}

/// What it said, where something is wrong.
fn complains(cli: &Cli) -> Vec<Value> {
    let ran = cli.run(&["doctor", "--json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let lines = ran.json();
    let findings = about(&lines, "finding");
    assert!(!findings.is_empty() && findings.iter().all(|finding| finding["remedy"] != ""), "{lines:#?}");
    lines
}

fn findings(lines: &[Value]) -> String {
    let lines = about(lines, "finding").into_iter().map(|line| format!("{} {}", line["finding"], line["remedy"]));
    lines.collect::<Vec<_>>().join(
        "
",
    )
}

#[test]
fn sound_store_has_no_findings() {
    let cli = Cli::new();
    cli.run(&["doctor"]).fails(5, &["there is no store at"]);
    cli.id(&["enqueue", "a"]);
    let lines = cli.json(&["doctor"]);
    assert_eq!(about(&lines, "lock")[0]["held"], false);
    assert_eq!(about(&lines, "stone")[0]["there"], false);
    let file = about(&lines, "file")[0];
    assert!(file["version"] == 1 && file["row_bytes_are_all"] == true, "{file}");
    assert!(file["bytes"].as_u64() > file["row_bytes"].as_u64() && file["row_bytes"].as_u64() > Some(100), "{file}");
    assert_eq!(findings(&lines), "");
    let ran = cli.run(&["doctor"]).succeeds();
    assert!(ran.stdout.ends_with("nothing is wrong\n") && ran.stderr.is_empty(), "{ran:?}");
    // Also where nothing is beside it.
    fs::remove_dir_all(cli.path("app.redb.d")).unwrap();
    assert_eq!(findings(&cli.json(&["doctor"])), "");
    assert!(!cli.path("app.redb.d").exists());
}

#[test]
fn server_is_seen_at_work_stopped_and_dead() {
    let cli = Cli::new();
    let server = cli.start(&["serve"]);
    until("it serves", || cli.path("app.redb.d/sock").exists().then_some(()));
    cli.id(&["enqueue", "a"]);
    let pid = server.pid();
    let lines = cli.json(&["doctor"]);
    let lock = about(&lines, "lock")[0];
    assert!(lock["pid"] == pid && lock["purpose"] == "commit for all" && lock["stopped"] == false, "{lock}");
    assert_eq!(about(&lines, "stone")[0]["answers"], true);
    assert_eq!(about(&lines, "log")[0]["in_use"], true);
    assert!(about(&lines, "reader").iter().all(|reader| reader["pid"] == pid), "{lines:?}");

    server.signal("STOP");
    // A look in the midst of which it stops sees one half of it.
    let (lines, told) = until("it is seen to be stopped", || {
        let lines = cli.run(&["doctor", "--json"]).json();
        let told = findings(&lines);
        told.contains(&format!("process {pid} is stopped; it holds the writer's lock")).then_some((lines, told))
    });
    assert!(told.contains(&format!("kill -CONT {pid}")), "{told}");
    assert_eq!(about(&lines, "stone")[0]["answers"], false);
    server.signal("CONT");
    until("it goes on", || (cli.run(&["doctor"]).code == 0).then_some(()));

    server.kill();
    let lines = cli.json(&["doctor"]);
    assert_eq!(about(&lines, "lock")[0]["held"], false);
    assert_eq!(about(&lines, "stone")[0]["there"], false);
    assert_eq!(findings(&lines), "", "who opens it next recovers it");
    assert_eq!(cli.json(&["stats"])[0]["ready"], 1);
    assert_eq!(findings(&cli.json(&["doctor"])), "");
}

#[test]
fn log_that_is_in_use_and_missing_is_a_finding() {
    let cli = Cli::new();
    // A process that has the file open for writing, so that it can be read though its last writer died.
    let store = Store::open(cli.store()).unwrap();
    store.put("key", &1).unwrap();
    let server = cli.start(&["serve"]);
    until("it serves", || cli.path("app.redb.d/sock").exists().then_some(()));
    cli.id(&["enqueue", "a"]);
    server.kill();
    let log = cli.path("app.redb.d/log");
    fs::rename(&log, cli.path("elsewhere")).unwrap();
    let told = findings(&complains(&cli));
    assert!(told.contains("is in use") && told.contains("missing") && told.contains("put that file back"), "{told}");
    cli.run(&["enqueue", "a"]).fails(6, &["log"]);
    fs::rename(cli.path("elsewhere"), &log).unwrap();
    assert_eq!(findings(&cli.json(&["doctor"])), "");
    assert_eq!(store.get::<i32>("key").unwrap(), Some(1));
    assert_eq!(about(&cli.json(&["doctor"]), "log")[0]["in_use"], false, "who read has brought in what it held");
    assert_eq!(cli.json(&["stats"])[0]["ready"], 1);
    store.close().unwrap();
}

#[test]
fn worker_that_died_and_what_it_left_are_told() {
    let cli = Cli::new();
    let flag = cli.write("flag", "");
    let wait = format!("while [ -e '{}' ]; do sleep 0.05; done", flag.display());
    let id = cli.id(&["exec", "--", "sh", "-c", &wait]);
    let worker = cli.start(&["work", "--allow-exec"]);
    until("the command runs", || (cli.state(&id) == "running").then_some(()));
    until("its lock is there", || fs::read_dir(cli.path("app.redb.d/children")).unwrap().next().map(drop));
    let pid = worker.pid();
    let lines = cli.json(&["doctor"]);
    let session = about(&lines, "session")[0];
    assert!(session["pid"] == pid && session["state"] == "alive" && session["held"] == 1, "{session}");
    let child = about(&lines, "child")[0];
    assert!(child["job"] == id.as_str() && child["parent_pid"] == pid, "{child}");

    worker.kill();
    cli.id(&["enqueue", "a"]);
    let lines = complains(&cli);
    assert_eq!(about(&lines, "session")[0]["state"], "dead");
    let told = findings(&lines);
    assert!(told.contains(&format!("process {pid} died and held 1 job\"")) && told.contains("run one"), "{told}");

    fs::remove_file(flag).unwrap();
    cli.write("app.redb.d/sessions/half.new", "");
    let left = until("the command's lock is left over", || {
        let ran = cli.run(&["doctor", "--json"]);
        let left: Vec<String> = about(&ran.json(), "left_over").iter().map(|line| line["path"].to_string()).collect();
        (left.len() == 2).then_some(left)
    });
    assert!(left[0].contains("half.new") && left[1].contains("children"), "{left:?}");
    cli.run(&["work", "--allow-exec", "--drain"]).succeeds();
}

#[test]
fn server_that_stands_by_is_seen_and_seen_to_be_stopped() {
    let cli = Cli::new();
    let first = cli.start(&["serve"]);
    until("it serves", || cli.path("app.redb.d/sock").exists().then_some(()));
    let second = cli.start(&["serve"]);
    let pid = second.pid();
    let process = |lines: &[Value]| about(lines, "process").into_iter().find(|line| line["pid"] == pid).cloned();
    let seen = until("it is seen", || process(&cli.json(&["doctor"])));
    assert!(seen["stopped"] == false && seen["name"] == "casque", "{seen}");
    second.signal("STOP");
    let lines = until("it is seen to be stopped", || {
        let ran = cli.run(&["doctor", "--json"]);
        (ran.code == 1).then(|| ran.json())
    });
    assert_eq!(process(&lines).unwrap()["stopped"], true);
    let told = findings(&lines);
    assert!(told.contains(&format!("process {pid} is stopped; it has the store open")), "{told}");
    assert!(!told.contains(&first.pid().to_string()), "{told}");
    second.signal("CONT");
}

#[test]
fn holder_of_a_named_lock_and_who_waits_for_it_are_told_as_such() {
    let cli = Cli::new();
    let held = cli.start(&["lock", "report", "--", "sleep", "100"]);
    until("the lock", || cli.path("app.redb").exists().then(|| cli.json(&["locks", "--fresh"]).pop())?);
    let waiting = cli.start(&["lock", "report", "--", "true"]);
    until("somebody to wait", || (cli.one(&["locks", "--fresh"])["waiting"] == 1).then_some(()));
    let page = cli.run(&["doctor"]).succeeds().stdout;
    for (pid, what) in [(held.pid(), "holds"), (waiting.pid(), "waits for")] {
        let line = page.lines().find(|line| line.contains(&format!(": process {pid} "))).expect(&page);
        assert!(line.ends_with(&format!("alive, {what} the lock \"report\"")), "{line}");
    }
    held.signal("STOP");
    let lines = until("it is seen to be stopped", || {
        let ran = cli.run(&["doctor", "--json"]);
        (ran.code == 1).then(|| ran.json())
    });
    let told = findings(&lines);
    assert!(told.contains(r#"it holds the lock \"report\", which others get after its lease"#), "{told}");
    assert!(!told.contains("is a worker"), "{told}");
    held.signal("CONT");
}

#[test]
fn file_that_is_no_store_gets_one_remedy() {
    let cli = Cli::new();
    let database = redb::Builder::new().create(cli.path("database.redb")).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(redb::TableDefinition::<&[u8], &[u8]>::new("rows")).unwrap();
    write.commit().unwrap();
    drop(database);
    cli.write("text.redb", "hello");
    cli.write("empty.redb", "");
    let mut cli = cli;
    for name in ["database.redb", "text.redb", "empty.redb"] {
        cli = cli.at(name);
        let lines = complains(&cli);
        let found = about(&lines, "finding");
        assert_eq!(found.len(), 1, "{lines:#?}");
        let told = found[0].to_string();
        assert!(told.contains("not a casque store") && told.contains("--store"), "{told}");
        assert!(!told.contains("check") && !told.contains("stopped"), "{told}");
        assert!(about(&lines, "file")[0].get("version").is_none(), "{lines:#?}");
        assert!(!cli.path(&format!("{name}.d")).exists());
    }
}

#[test]
fn compact_tells_what_it_came_to() {
    let cli = Cli::new();
    cli.run(&["compact"]).fails(5, &["there is no store at"]);
    let value = format!("\"{}\"", "x".repeat(900_000));
    let keys = ["b", "c", "d", "e", "f", "g", "h"];
    // The last one lies at the end of the file, and keeps it from being cut when it is closed.
    for key in keys.into_iter().chain(["a"]) {
        cli.run_with_stdin(&["root", "put", key, "-"], &value).succeeds();
    }
    for key in keys {
        cli.run(&["root", "rm", key]).succeeds();
    }
    let line = cli.one(&["compact"]);
    let (before, after) = (line["bytes_before"].as_u64().unwrap(), line["bytes_after"].as_u64().unwrap());
    assert!(after < before && after == fs::metadata(cli.store()).unwrap().len(), "{line}");
    assert!(cli.run(&["compact"]).succeeds().stdout.contains(" before, "));
    cli.run(&["check"]).succeeds();
    assert_eq!(cli.run(&["root", "get", "a"]).succeeds().stdout.trim(), value);

    let store = Store::open(cli.store()).unwrap();
    for part in 0..10 {
        let put = |tx: &mut casque::Transaction, key: u32| tx.put(&format!("{part}/{key}"), &value);
        store.transaction(|tx| (0..8).try_for_each(|key| put(tx, key))).unwrap();
    }
    store.close().unwrap();
    cli.run(&["compact"]).fails(4, &["others would have to wait for about 2 s", "--however-long"]);
    cli.run(&["compact", "--however-long"]).succeeds();
}

#[test]
fn bench_gives_its_figures_and_leaves_nothing() {
    let cli = Cli::new();
    fs::create_dir(cli.path("disk")).unwrap();
    let ran: Ran = cli.run(&["bench", "--duration", "1s", "--workers", "2", "--folder", "disk", "--json"]).succeeds();
    let lines = ran.json();
    let names: Vec<&str> = lines.iter().map(|line| line["line"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "raw fdatasync, before",
            "enqueue, one at a time",
            "enqueue, in batches of 100",
            "claim and complete, 2 workers",
            "from enqueue to start, idle",
            "raw fdatasync, after",
        ]
    );
    for line in &lines {
        let figure = line.get("per_second").or_else(|| line.get("p50_ms")).and_then(Value::as_f64);
        assert!(figure.is_some_and(|figure| figure > 0.0), "{line}");
    }
    assert_eq!(fs::read_dir(cli.path("disk")).unwrap().count(), 0);
    assert!(!cli.store().exists());
}

#[test]
fn bench_that_is_ended_by_a_signal_leaves_nothing() {
    use std::os::unix::process::ExitStatusExt as _;

    for (signal, number) in [("INT", 2), ("TERM", 15)] {
        let cli = Cli::new();
        fs::create_dir(cli.path("disk")).unwrap();
        let made = || fs::read_dir(cli.path("disk")).unwrap().next().map(|entry| entry.unwrap().path());
        let mut bench = cli.start(&["bench", "--duration", "5s", "--workers", "2", "--folder", "disk"]);
        let folder = until("its folder is there", made);
        if signal == "TERM" {
            until("its store is there", || folder.join("bench.redb").exists().then_some(()));
        }
        bench.signal(signal);
        let status = bench.status();
        assert_eq!(status.signal(), Some(number), "{status}");
        assert_eq!(made(), None, "SIG{signal}");
    }
}
