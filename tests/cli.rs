//! The command line's contract: what each command prints as JSON, exit codes, and what goes where.

mod cli_support;

use std::{io::Read as _, process::Stdio};

use cli_support::{Cli, Ran, until};
use serde_json::{Value, json};

const JOB_FIELDS: [&str; 25] = [
    "id",
    "task",
    "queue",
    "state",
    "priority",
    "attempt",
    "max_attempts",
    "args",
    "metadata",
    "enqueued_at",
    "run_at",
    "started_at",
    "finished_at",
    "session",
    "progress",
    "message",
    "result",
    "errors",
    "unique",
    "key",
    "at_most_once",
    "awaited",
    "timeout_ms",
    "cancelling",
    "suspect",
];

fn fields(value: &Value) -> Vec<&str> {
    let mut fields: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}

fn sorted<const N: usize>(mut names: [&str; N]) -> Vec<&str> {
    names.sort_unstable();
    names.into()
}

#[test]
fn enqueue_prints_the_id_and_show_tells_all_that_was_asked_for() {
    let cli = Cli::new();
    assert_eq!(cli.run(&["enqueue", "resize"]).succeeds().stdout, "1\n");
    let args = ["enqueue", "resize", "--args", r#"{"width": 640}"#, "--priority", "-7", "--max-attempts", "3"];
    let more = ["--at", "2100-01-01T00:00:00Z", "--unique", "cat", "--metadata", "tenant=a", "--queue", "media"];
    let more = [&more[..], &["--timeout", "1m30s"]].concat();
    let id = cli.one(&[&args[..], &more].concat())["id"].clone();
    assert_eq!(id, "2");
    assert_eq!(cli.one(&[&args[..], &more].concat())["id"], "2", "the unique key is taken");

    let job = cli.one(&["show", "2"]);
    assert_eq!(fields(&job), sorted(JOB_FIELDS));
    for (field, value) in [
        ("task", json!("resize")),
        ("queue", json!("media")),
        ("state", json!("scheduled")),
        ("priority", json!(-7)),
        ("attempt", json!(0)),
        ("max_attempts", json!(3)),
        ("args", json!({ "width": 640 })),
        ("metadata", json!({ "tenant": "a" })),
        ("run_at", json!("2100-01-01T00:00:00.000Z")),
        ("session", Value::Null),
        ("result", Value::Null),
        ("errors", json!([])),
        ("unique", json!("cat")),
        ("timeout_ms", json!(90_000)),
        ("cancelling", json!(false)),
        ("suspect", json!(false)),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    let page = cli.run(&["show", "2"]).succeeds().stdout;
    assert!(page.contains("state     scheduled") && page.contains("unique    cat"), "{page}");
    cli.run(&["show", "99"]).fails(3, &["99"]);
}

#[test]
fn arguments_come_from_stdin_too_and_may_be_many() {
    let cli = Cli::new();
    let ran = cli.run_with_stdin(&["enqueue", "a", "--args", "-", "--count", "2500"], "[1, 2]");
    assert_eq!(ran.succeeds().stdout.lines().count(), 2500);
    assert_eq!(cli.json(&["stats"])[0]["ready"], 2500);
    assert_eq!(cli.one(&["show", "1"])["args"], json!([1, 2]));
}

#[test]
fn delayed_job_is_scheduled_and_retry_makes_it_ready() {
    let cli = Cli::new();
    let id = cli.id(&["enqueue", "a", "--delay", "24h"]);
    assert_eq!(cli.state(&id), "scheduled");
    assert_eq!(cli.one(&["retry", &id]), json!({ "id": id, "state": "ready" }));
    cli.run(&["enqueue", "a", "--delay", "1h", "--at", "2100-01-01T00:00:00Z"]).fails(2, &["--delay"]);
    let ran = cli.run(&["enqueue", "a", "--delay", "-5m"]).fails(2, &["--delay", "\"-5m\" begins with a minus", "30s"]);
    assert!(!ran.stderr.contains("tip:"), "no other way to write it is any better: {ran:?}");
}

#[test]
fn listing_filters_and_goes_on_where_it_was() {
    let cli = Cli::new();
    for (task, queue) in [("a", "one"), ("b", "one"), ("a", "two"), ("a", "one")] {
        cli.id(&["enqueue", task, "--queue", queue]);
    }
    let ids = |args: &[&str]| -> Vec<String> {
        let lines = cli.json(&[&["list"], args].concat());
        assert!(lines.iter().all(|line| fields(line) == sorted(JOB_FIELDS)));
        lines.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]), ["1", "2", "3", "4"]);
    assert_eq!(ids(&["--queue", "one", "--task", "a"]), ["1", "4"]);
    assert_eq!(ids(&["--state", "dead"]), [""; 0]);
    assert_eq!(ids(&["--limit", "2"]), ["1", "2"]);
    assert_eq!(ids(&["--limit", "2", "--after", "2"]), ["3", "4"]);
    let ran = cli.run(&["list", "--limit", "2"]).succeeds();
    assert!(ran.stdout.starts_with("ID "), "{ran:?}");
    assert!(ran.stderr.contains("--after 2"), "{ran:?}");
    cli.run(&["list", "--state", "running?"]).fails(2, &["running?", "completed"]);
    // A requeued job is on the page where it now stands.
    cli.run(&["requeue", "1"]).succeeds();
    assert_eq!(ids(&["--limit", "3"]), ["2", "3", "4"]);
    assert_eq!(ids(&["--after", "4"]), ["1"]);
    assert_eq!(ids(&["--after", "1"]), [""; 0]);
}

#[test]
fn jobs_are_tended_each_in_turn_and_the_first_failure_gives_the_code() {
    let cli = Cli::new();
    for _ in 0..3 {
        cli.id(&["enqueue", "a"]);
    }
    assert_eq!(cli.json(&["cancel", "1"]), [json!({ "id": "1", "state": "cancelled" })]);
    assert_eq!(cli.one(&["retry", "1"])["state"], "ready");
    assert_eq!(cli.one(&["requeue", "1"])["state"], "ready");
    let ran = cli.run(&["cancel", "99", "2"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (3, "2 cancelled\n"), "{ran:?}");
    assert!(ran.stderr.contains("99"));
    cli.run(&["requeue", "2"]).fails(4, &["job 2 is cancelled", "retry it"]);
    cli.run(&["release", "3"]).fails(4, &["job 3 is ready", "nobody holds it"]);
    let ids = cli.id(&["enqueue", "a", "--count", "1200"]);
    let version = || cli.figures().last().unwrap()["version"].as_u64().unwrap();
    let before = version();
    let mut args = vec!["cancel", "3", "98", "2", "97"];
    args.extend(ids.lines());
    let ran = cli.run(&args);
    assert_eq!((ran.code, ran.stdout.lines().count()), (3, 1202), "the exit code is that of the first failure");
    for id in ["98", "97"] {
        assert!(ran.stderr.contains(&format!("there is no job {id}")), "every failure is told: {}", ran.stderr);
    }
    assert_eq!(version(), before + 2, "a thousand jobs are one change");
    let ran = cli.run(&["retry", "98", "3"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (3, "3 ready\n"), "{ran:?}");
    cli.run(&["cancel"]).fails(2, &["<ID>"]);
    cli.run(&["cancel", "x"]).fails(2, &["\"x\" is not a job id"]);
}

#[test]
fn stats_and_queues_tell_numbers_and_the_store() {
    let cli = Cli::new();
    cli.id(&["enqueue", "a", "--queue", "one", "--count", "3"]);
    cli.id(&["enqueue", "a", "--queue", "two", "--delay", "1h"]);
    assert_eq!(cli.one(&["pause", "two"]), json!({ "queue": "two", "paused": true }));
    let lines = cli.json(&["stats"]);
    assert_eq!(lines.len(), 3);
    let [one, two, store] = &lines[..] else { unreachable!() };
    let names =
        ["queue", "paused", "waiting", "scheduled", "ready", "running", "completed", "dead", "cancelled", "hijacks"];
    assert_eq!(fields(one), sorted(names));
    assert_eq!((&one["queue"], &one["ready"], &one["paused"]), (&json!("one"), &json!(3), &json!(false)));
    assert_eq!((&two["queue"], &two["scheduled"], &two["paused"]), (&json!("two"), &json!(1), &json!(true)));
    assert_eq!(store["version"], 3);
    assert!(store["file_bytes"].as_u64().unwrap() > 0);
    assert_eq!(cli.json(&["stats", "--queue", "two"]).len(), 2);

    let queues = cli.json(&["queues"]);
    assert_eq!(fields(&queues[0]), sorted(["queue", "paused", "live", "kept", "oldest_ready_at"]));
    assert_eq!((&queues[0]["live"], &queues[1]["live"]), (&json!(3), &json!(1)));
    assert_eq!(queues[1]["oldest_ready_at"], Value::Null);
    assert_eq!(cli.one(&["resume", "two"]), json!({ "queue": "two", "paused": false }));
    cli.run(&["resume", "three"]).fails(3, &["there is no queue \"three\" so far; there are one, two"]);
    cli.run(&["resume", "--task", "b"]).fails(3, &["there is no task \"b\" so far"]);
    assert_eq!(cli.one(&["resume", "--task", "a"]), json!({ "task": "a", "paused": false }));
    assert_eq!(cli.json(&["queues"]).len(), 2, "resuming makes no queue");
    for command in ["stats", "queues", "list"] {
        let ran = cli.run(&[command, "--queue", "three"]).succeeds();
        assert!(ran.stderr.contains("there is no queue \"three\" so far; there are one, two"), "{ran:?}");
    }
    for table in ["stats", "queues", "sessions"] {
        cli.run(&[table]).succeeds();
    }
}

#[test]
fn queue_is_as_old_as_its_oldest_job_and_not_as_the_time_that_this_was_for() {
    let cli = Cli::new();
    cli.id(&["enqueue", "a", "--at", "2001-01-01T00:00:00Z"]);
    let queues = cli.one(&["queues"]);
    let job = cli.json(&["list"]).remove(0);
    assert_eq!(queues["oldest_ready_at"], job["enqueued_at"]);
    assert_eq!(job["run_at"], "2001-01-01T00:00:00.000Z");
}

#[test]
fn settings_are_read_and_written_in_their_units() {
    let cli = Cli::new();
    cli.id(&["enqueue", "a"]);
    let all = cli.json(&["config"]);
    assert_eq!(fields(&all[0]), sorted(["key", "value", "unit", "default", "about"]));
    assert_eq!(cli.run(&["config", "lease"]).succeeds().stdout, "30s\n");
    assert_eq!(cli.one(&["config", "lease", "1h30m"])["value"], 5_400_000);
    assert_eq!(cli.run(&["config", "lease"]).succeeds().stdout, "1h30m\n");
    assert_eq!(cli.run(&["config", "payload-max", "64KiB"]).succeeds().stdout, "64KiB\n");
    cli.run(&["config", "lease", "30"]).fails(2, &["lease = 30: \"30\" is not a duration", "30s"]);
    cli.run(&["config", "payload-max", "many"]).fails(2, &["payload-max = many: "]);
    cli.run(&["config", "rate", "10/1s"]).fails(2, &["rate is a setting of a queue", "casque config --queue Q rate"]);
    cli.run(&["config", "lease", "1ms"]).fails(2, &["lease = 1ms is out of range", "from 500ms to 1d"]);
    cli.run(&["config", "payload-max", "1GiB"]).fails(2, &["payload-max = 1GiB", "from 1KiB to 4MiB"]);
    cli.run(&["config", "colour"]).fails(3, &["colour", "retention-dead"]);
    cli.id(&["enqueue", "a", "--args", &format!("\"{}\"", "x".repeat(60_000))]);
    let large = format!("\"{}\"", "x".repeat(70_000));
    cli.run(&["enqueue", "a", "--args", &large]).fails(2, &["65536", "payload-max"]);
}

#[test]
fn root_is_read_and_written() {
    let cli = Cli::new();
    assert_eq!(cli.one(&["root", "put", "app/a", r#"{"x": 1}"#]), json!({ "key": "app/a", "version": 1 }));
    cli.run_with_stdin(&["root", "put", "app/b", "-"], "[2]").succeeds();
    assert_eq!(cli.one(&["root", "get", "app/a"]), json!({ "key": "app/a", "version": 1, "value": { "x": 1 } }));
    assert_eq!(cli.run(&["root", "get", "app/b"]).succeeds().stdout, "[2]\n");
    assert_eq!(cli.json(&["root", "ls", "app/"]).len(), 2);
    assert_eq!(cli.json(&["root", "ls", "other/"]).len(), 0);
    assert!(cli.run(&["root", "ls"]).succeeds().stdout.contains("app/b"));
    assert_eq!(cli.one(&["root", "rm", "app/b"])["key"], "app/b");
    cli.run(&["root", "rm", "app/b"]).fails(3, &["app/b"]);
    cli.run(&["root", "get", "app/b"]).fails(3, &["app/b"]);
    cli.run(&["root", "watch", "app/a", "--timeout", "50ms"]).fails(7, &["app/a"]);
    let known = cli.one(&["root", "watch", "app/a", "--from", "0", "--count", "1"]);
    assert_eq!(known, json!({ "key": "app/a", "version": 1, "value": { "x": 1 } }));
}

#[test]
fn watch_prints_a_change_when_it_happens() {
    let cli = Cli::new();
    cli.run(&["root", "put", "a", "1"]).succeeds();
    let mut watching = cli.start(&["root", "watch", "a", "--from", "1", "--count", "2"]);
    let mut last = 1;
    // Changes may pass before the watch looks: it is to see one, and then another.
    until("two changes are seen", || {
        last += 1;
        cli.run(&["root", "put", "a", &last.to_string()]).succeeds();
        (!watching.runs()).then_some(())
    });
    let ran = watching.end().succeeds();
    let seen: Vec<i32> = ran.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert!(seen.len() == 2 && seen[0] < seen[1], "{seen:?}");
}

#[test]
fn check_says_that_a_store_is_sound() {
    let cli = Cli::new();
    cli.id(&["enqueue", "a", "--count", "10"]);
    assert_eq!(cli.one(&["check"]), json!({ "findings": 0, "version": 1 }));
    assert!(cli.run(&["check"]).succeeds().stdout.contains("sound"));
}

#[test]
fn wait_tells_how_a_job_has_ended_by_its_exit_code() {
    let cli = Cli::new();
    let good = cli.id(&["exec", "--", "echo", "hi"]);
    let bad = cli.id(&["exec", "--max-attempts", "1", "--", "sh", "-c", "echo sorry >&2; exit 3"]);
    let other = cli.id(&["enqueue", "unknown"]);
    cli.run(&["wait", &good, "--timeout", "20ms"]).fails(7, &[&good]);
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    assert_eq!(cli.run(&["wait", &good]).succeeds().stdout, "{\"exit_code\":0,\"stderr\":\"\",\"stdout\":\"hi\\n\"}\n");
    assert_eq!(cli.one(&["wait", &good])["result"]["stdout"], "hi\n");
    cli.run(&["wait", &bad]).fails(1, &["dead", "exit status: 3", "sorry"]);
    cli.run(&["cancel", &other]).succeeds();
    cli.run(&["wait", &other]).fails(1, &[&format!("job {other} was cancelled at 20")]);
    // What failed before is not why a job was cancelled.
    let again = cli.id(&["exec", "--", "sh", "-c", "echo sorry >&2; exit 3"]);
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    cli.run(&["cancel", &again]).succeeds();
    let ran = cli.run(&["wait", &again]).fails(1, &["was cancelled at"]);
    assert!(!ran.stderr.contains("sorry"), "{ran:?}");
    cli.run(&["wait", "9999"]).fails(3, &["9999"]);
    // No row of it, but below the store's version: it has ended and was not kept.
    let gone = cli.one(&["wait", "4"]);
    assert_eq!(gone["state"], "gone");
    let ran = cli.run(&["wait", "4"]).succeeds();
    assert!(ran.stderr.contains("job 4 is gone: it has completed and was not kept, or was pruned, or"), "{ran:?}");
    assert!(cli.run(&["help", "wait"]).succeeds().stdout.contains("0 completed or gone"));
}

#[test]
fn log_prints_what_the_handler_wrote_and_follows_until_the_end() {
    let cli = Cli::new();
    let id = cli.id(&["enqueue", "other"]);
    cli.run(&["log", &id]).succeeds();
    cli.run(&["log", "999"]).fails(3, &["999"]);
    let store = casque::Store::open(cli.store()).unwrap();
    let lease = store.queue("default").claim(1, std::time::Duration::ZERO).unwrap().remove(0);
    lease.log("first").unwrap();
    let line = cli.one(&["log", &id]);
    assert_eq!((&line["number"], &line["attempt"], &line["text"]), (&json!(0), &json!(1), &json!("first")));
    let following = cli.start(&["log", &id, "--follow"]);
    lease.log("second\u{1b}[2J").unwrap();
    lease.complete_with(&1).unwrap();
    let printed = following.end().succeeds().stdout;
    let ends: Vec<_> = printed.lines().map(|line| line.rsplit(": ").next().unwrap()).collect();
    assert_eq!(ends, ["first", "second\u{fffd}[2J"], "what commands a terminal is not printed");
}

#[test]
fn work_says_what_it_did_and_what_stays() {
    let cli = Cli::new();
    cli.id(&["exec", "--count", "3", "--", "true"]);
    cli.id(&["enqueue", "other"]);
    cli.id(&["exec", "--delay", "1h", "--", "true"]);
    let ran = cli.run(&["--json", "work", "--drain", "--allow-exec", "--concurrency", "2"]).succeeds();
    let summary = &ran.json()[0];
    let names = ["completed", "failed", "given_back", "leases_lost", "hijacks", "left", "not_run_here"];
    assert_eq!(fields(summary), sorted(names));
    assert_eq!(summary["completed"], 3);
    assert_eq!((&summary["left"][0]["ready"], &summary["left"][0]["scheduled"]), (&json!(1), &json!(1)));
    assert_eq!(summary["not_run_here"], json!(["other"]));
    assert_eq!(ran.stderr.matches("task \"other\"").count(), 1, "{ran:?}");
    let begins = format!("works on default of {}; tasks: exec; Ctrl-C to stop", cli.store().display());
    assert!(ran.stderr.contains(&begins), "{ran:?}");
    let ran = cli.run(&["work", "--drain", "-v", "--strict", "--queue", "empty"]).succeeds();
    assert!(ran.stdout.contains("completed 0"), "{ran:?}");
    assert!(ran.stderr.contains("there is no queue \"empty\" so far"), "{ran:?}");
    for table in ["list", "stats"] {
        let ran = cli.run(&[table, "--queue", "empty"]).succeeds();
        assert!(ran.stderr.contains("there is no queue \"empty\" so far"), "{ran:?}");
    }
    let new = Cli::new();
    let ran = new.run(&["work", "--drain"]).succeeds();
    assert!(ran.stderr.contains("a new store") && ran.stderr.contains("tasks: none"), "{ran:?}");
    cli.run(&["work", "--concurrency", "0"]).fails(2, &["concurrency"]);
    cli.run(&["work", "--with-scheduled"]).fails(2, &["--drain"]);
}

#[test]
fn scheduled_jobs_are_drained_where_asked_for() {
    let cli = Cli::new();
    let id = cli.id(&["exec", "--delay", "300ms", "--", "true"]);
    cli.run(&["work", "--drain", "--with-scheduled", "--allow-exec"]).succeeds();
    assert_eq!(cli.state(&id), "completed");
}

#[test]
fn file_is_imported_in_batches_and_goes_on_behind_a_bad_line() {
    let cli = Cli::new();
    let mut lines: Vec<String> = (0..2300).map(|number| format!(r#"{{"args": [{number}]}}"#)).collect();
    lines[1] =
        r#"{"task": "other", "queue": "media", "priority": 9, "metadata": {"a": "b"}, "max_attempts": 2}"#.into();
    lines[2] = String::new();
    lines[2100] = r#"{"args": 1, "colour": "red"}"#.into();
    cli.write("jobs.jsonl", lines.join("\n"));
    let ran = cli.run(&["enqueue", "a", "--from", "jobs.jsonl"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (2, 2000), "{}", ran.stderr);
    for part in ["line 2101 of jobs.jsonl", "colour", "2000 jobs", "--skip 2001"] {
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    let other = cli.one(&["show", "1-1"]);
    assert_eq!((&other["task"], &other["queue"], &other["priority"]), (&json!("other"), &json!("media"), &json!(9)));
    assert_eq!(other["metadata"], json!({ "a": "b" }));
    lines[2100] = "{}".into();
    let ran = cli.run_with_stdin(&["enqueue", "a", "--from", "-", "--skip", "2001"], &lines.join("\n"));
    assert_eq!(ran.succeeds().stdout.lines().count(), 299);
    assert_eq!(cli.json(&["stats", "--queue", "default"])[0]["ready"], 2298);
}

#[test]
fn import_that_is_wrong_at_once_changes_nothing() {
    let cli = Cli::new();
    for (name, text, says) in [
        ("bad.jsonl", "{}\n{", "line 2 of bad.jsonl: not valid JSON"),
        ("priority.jsonl", r#"{"priority": 101}"#, "priority 101"),
        ("both.jsonl", r#"{"delay": "1s", "run_at": "2100-01-01T00:00:00Z"}"#, "run_at"),
        ("task.jsonl", r#"{"task": ""}"#, "task name is empty"),
        ("array.jsonl", "[1]", "line 1"),
    ] {
        cli.write(name, text);
        cli.run(&["enqueue", "a", "--from", name]).fails(2, &[says, "nothing was enqueued"]);
        assert!(!cli.store().exists(), "{name}");
    }
    cli.run(&["enqueue", "a", "--from", "none.jsonl"]).fails(2, &["none.jsonl", "can't be read"]);
    cli.run(&["enqueue", "a", "--from", "."]).fails(2, &["can't be read"]);
}

#[test]
fn command_that_reads_makes_no_store() {
    let cli = Cli::new();
    for args in [
        &["list"][..],
        &["stats"],
        &["queues"],
        &["sessions"],
        &["show", "1"],
        &["wait", "1"],
        &["config"],
        &["check"],
        &["root", "ls"],
        &["cancel", "1"],
        &["resume", "a"],
        &["pause", "a"],
        &["config", "lease", "10s"],
        &["root", "rm", "a"],
    ] {
        cli.run(args).fails(5, &["there is no store at", "app.redb", "--store"]);
        assert_eq!(std::fs::read_dir(cli.path("")).unwrap().count(), 0, "{args:?} made something");
    }
}

#[test]
fn reader_leaves_no_trace() {
    let cli = Cli::new();
    cli.id(&["enqueue", "a"]);
    std::fs::remove_dir_all(cli.path("app.redb.d")).unwrap();
    let before = std::fs::read(cli.store()).unwrap();
    for args in [&["list"][..], &["stats"], &["show", "1"], &["config"], &["root", "ls"], &["sessions"], &["doctor"]] {
        cli.run(args).succeeds();
    }
    assert_eq!(std::fs::read(cli.store()).unwrap(), before);
    assert!(!cli.path("app.redb.d").exists());
}

#[test]
fn closed_pipe_ends_a_command_quietly() {
    let cli = Cli::new();
    cli.id(&["enqueue", "a", "--args", &format!("\"{}\"", "x".repeat(200)), "--count", "5000"]);
    let mut command = cli.command(&["--json", "list", "--limit", "5000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    // Whoever gives up on the ids gets all the jobs.
    let mut command = cli.command(&["enqueue", "b", "--count", "5000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    Ran::of(child.wait_with_output().unwrap()).succeeds();
    assert_eq!(cli.json(&["stats"])[0]["ready"], 10_000);
}

#[test]
fn help_is_data_and_wrong_usage_is_not() {
    let cli = Cli::new();
    let help = cli.run(&["help"]).succeeds();
    assert!(help.stdout.contains("Exit codes") && help.stderr.is_empty(), "{help:?}");
    assert!(cli.run(&["help", "work"]).succeeds().stdout.contains("Example"));
    assert!(cli.run(&["--version"]).succeeds().stdout.starts_with("casque "));
    cli.run(&["frobnicate"]).fails(2, &["frobnicate", "try 'casque help'"]);
    let told = cli.run(&["queus"]).fails(2, &["queues"]).stderr;
    assert!(told.find("'queues'") < told.find("'requeue'"), "the closest is first: {told}");
    cli.run(&["enqueue"]).fails(2, &["try 'casque help enqueue'"]);
    let ran = cli.run(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    cli.id(&["enqueue", "a"]);
    cli.run(&["list", "--queue", "a", "--queue", "b"]).fails(2, &["--queue"]);
}

#[cfg(unix)]
#[test]
fn binary_of_another_name_names_itself() {
    let cli = Cli::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_casque"), cli.path("app")).unwrap();
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(cli.path("app"));
        Ran::of(command.args(args).env("CASQUE_STORE", cli.store()).output().unwrap())
    };
    for args in [&["help"][..], &["help", "exec"], &["help", "root", "put"], &["work", "--help"]] {
        let help = run(args).succeeds().stdout;
        assert!(help.contains("app ") && !help.contains("casque "), "{help}");
    }
    let told = run(&["wait"]).stderr;
    assert!(told.contains("Usage: app wait") && told.contains("'app help wait'") && !told.contains("casque"), "{told}");
    assert!(run(&["--version"]).succeeds().stdout.starts_with("app, with casque "));
}
