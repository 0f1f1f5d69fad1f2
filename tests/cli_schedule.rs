//! `casque schedule` and the options of unique keys: what they print, and what each mistake is told.

mod cli_support;

use std::time::Duration;

use casque::{JobRequest, Schedule, StoreOptions, Timestamp, testing::Clock};
use cli_support::{Cli, until};
use serde_json::{Value, json};

const NIGHTLY: [&str; 8] = ["schedule", "add", "nightly", "report", "--cron", "30 4 * * 1-5", "--tz", "europe/berlin"];

#[test]
fn schedule_is_added_listed_shown_and_removed() {
    let cli = Cli::new();
    let more = ["--args", r#"{"week": true}"#, "--priority", "7", "--queue", "reports", "--catch-up", "all"];
    let added = cli.one(&[&NIGHTLY[..], &more].concat());
    for (field, value) in [
        ("name", json!("nightly")),
        ("cron", json!("30 4 * * 1-5")),
        ("zone", json!("Europe/Berlin")),
        ("every_ms", Value::Null),
        ("catch_up", json!(100)),
        ("paused", json!(false)),
        ("task", json!("report")),
        ("queue", json!("reports")),
        ("priority", json!(7)),
        ("args", json!({ "week": true })),
        ("last", Value::Null),
        ("last_job", Value::Null),
    ] {
        assert_eq!(added[field], value, "{field}");
    }
    assert_eq!(added["upcoming"].as_array().unwrap().len(), 5);
    assert_eq!(added["upcoming"][0], added["next"]);
    assert_eq!(added.as_object().unwrap().len(), 22);
    assert_eq!(cli.one(&["schedule", "list"]), added);
    assert_eq!(cli.json(&["schedule", "list", "--queue", "other"]), [] as [Value; 0]);
    assert_eq!(cli.one(&["schedule", "show", "nightly"]), added);

    let listed = cli.run(&["schedule", "list"]).succeeds().stdout;
    assert!(listed.contains("30 4 * * 1-5 (Europe/Berlin)") && listed.contains(" 04:30:00 CE"), "{listed}");
    let shown = cli.run(&["schedule", "show", "nightly"]).succeeds().stdout;
    assert_eq!(shown.matches("04:30:00").count(), 5, "{shown}");

    assert_eq!(cli.run(&["schedule", "rm", "nightly"]).succeeds().stdout, "nightly removed\n");
    assert_eq!(cli.json(&["schedule", "list"]), [] as [Value; 0]);
}

#[test]
fn schedule_shows_all_that_its_jobs_are_enqueued_with() {
    let cli = Cli::new();
    let options = "--priority 7 --delay 90s --max-attempts 3 --unique-by args --unique-scope store --unique-within 1h \
                   --unique-while ready,running --key customer --timeout 5m --metadata tenant=acme --keep";
    let add: Vec<&str> =
        ["schedule", "add", "s", "task", "--every", "1h"].into_iter().chain(options.split_whitespace()).collect();
    cli.run(&add).succeeds();
    let shown = cli.one(&["schedule", "show", "s"]);
    let key = shown["unique"]["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with("task:"), "{shown}");
    for (field, value) in [
        ("priority", json!(7)),
        ("delay_ms", json!(90_000)),
        ("max_attempts", json!(3)),
        ("at_most_once", json!(false)),
        ("unique", json!({ "key": key, "scope": "store", "while": ["ready", "running"], "within_ms": 3_600_000 })),
        ("key", json!("customer")),
        ("timeout_ms", json!(300_000)),
        ("metadata", json!({ "tenant": "acme" })),
        ("keep", json!(true)),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    let page = cli.run(&["schedule", "show", "s"]).succeeds().stdout;
    for part in [
        "1m30s behind each slot",
        "5m per attempt",
        "in the store, while ready, running, for 1h at most",
        "tenant=acme",
        "customer",
        "keep",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    cli.run(&["schedule", "add", "once", "task", "--every", "1h", "--at-most-once"]).succeeds();
    assert_eq!(cli.one(&["schedule", "show", "once"])["max_attempts"], 1);
}

#[test]
fn help_shows_no_options_that_a_schedule_refuses() {
    let cli = Cli::new();
    let help = cli.run(&["schedule", "add", "--help"]).succeeds().stdout;
    for shown in ["--priority", "--delay", "--unique-by", "--catch-up", "--keep"] {
        assert!(help.contains(shown), "{shown}: {help}");
    }
    for option in [
        &["--wait", "1s"][..],
        &["--at", "2100-01-01T00:00:00Z"],
        &["--after", "1"],
        &["--before", "1"],
        &["--open"],
        &["--on-failure", "run"],
    ] {
        assert!(!help.contains(&format!("{} ", option[0])), "{option:?}: {help}");
        cli.run(&[&["schedule", "add", "s", "task", "--every", "1h"], option].concat()).fails(2, &[]);
    }
    assert!(cli.run(&["enqueue", "--help"]).succeeds().stdout.contains("--before"));
}

#[test]
fn schedule_is_paused_resumed_and_run_beside_its_slots() {
    let cli = Cli::new();
    let said =
        cli.run(&["schedule", "add", "sweep", "cleanup", "--every", "15m", "--catch-up", "skip"]).succeeds().stdout;
    assert!(said.starts_with("sweep: next ") && said.trim_end().ends_with("UTC (in 14m)"), "{said}");
    assert_eq!(cli.one(&["schedule", "pause", "sweep"]), json!({ "name": "sweep", "done": "paused" }));
    assert_eq!(cli.one(&["schedule", "show", "sweep"])["paused"], true);
    cli.run(&["schedule", "resume", "sweep"]).succeeds();
    assert_eq!(cli.one(&["schedule", "show", "sweep"])["paused"], false);
    let id = cli.id(&["schedule", "run", "sweep"]);
    let job = cli.one(&["show", &id]);
    assert_eq!(
        (&job["task"], &job["state"], &job["metadata"]),
        (&json!("cleanup"), &json!("ready"), &json!({ "schedule": "sweep" }))
    );
}

#[test]
fn worker_enqueues_and_runs_the_slots_of_a_schedule_that_was_added_by_command() {
    let cli = Cli::new();
    let args = ["schedule", "add", "beat", "exec", "--every", "200ms", "--keep", "--args", r#"{"command": ["true"]}"#];
    cli.run(&args).succeeds();
    let _worker = cli.start(&["work", "--allow-exec"]);
    until("two slots to be run", || {
        let jobs = cli.json(&["list", "--state", "completed"]);
        (jobs.len() >= 2).then(|| {
            assert_eq!(jobs[0]["metadata"]["schedule"], "beat");
            assert_eq!(jobs[0]["metadata"]["scheduled_for"], jobs[0]["run_at"]);
        })
    });
}

#[test]
fn mistakes_in_schedules_are_named_and_make_no_store() {
    let add = |more: &[&'static str]| [&["schedule", "add", "s", "task"][..], more].concat();
    for (args, names) in [
        (add(&[]), &["--cron", "--every"][..]),
        (add(&["--cron", "@daily", "--every", "1h"]), &["--cron", "--every"]),
        (add(&["--every", "1h", "--tz", "UTC"]), &["--tz"]),
        (
            add(&["--cron", "every day"]),
            &["schedule \"s\"", "\"every day\" is not a cron expression: it has 2 of five", "30 4 * * 1-5"],
        ),
        (add(&["--cron", "0 24 * * *"]), &["\"0 24 * * *\"", "\"24\" is no hour, which goes from 0 to 23"]),
        (add(&["--cron", "0 0 * * MO"]), &["\"MO\" is no day of the week", "MON,FRI"]),
        (add(&["--cron", "61 0 0 * * *"]), &["\"61\" is no second"]),
        (add(&["--cron", "0 0 1 13 *"]), &["\"13\" is no month"]),
        (add(&["--cron", "@midnight"]), &["\"@midnight\" is not a cron expression", "@daily"]),
        (add(&["--cron", "0 0 31 4 *"]), &["never comes"]),
        (add(&["--every", "1m", "--wait", "5s"]), &["--wait", "tried again"]),
        (add(&["--cron", "@daily", "--tz", "Berlin"]), &["no time zone \"Berlin\"", "Europe/Berlin"]),
        (add(&["--every", "0"]), &["schedule \"s\"", "out of range", "15m"]),
        (add(&["--every", "soon"]), &["soon", "1h30m"]),
        (add(&["--every", "1h", "--catch-up", "some"]), &["\"some\"", "skip, one, all"]),
        (add(&["--every", "1h", "--catch-up", "0"]), &["from 1 to 1000"]),
        (add(&["--every", "1h", "--args", "{"]), &["the arguments"]),
        (add(&["--every", "1h", "--at", "2100-01-01T00:00:00Z"]), &["a time of its own"]),
    ] {
        let cli = Cli::new();
        cli.run(&args).fails(2, names);
        assert!(!cli.store().exists(), "{args:?} made a store");
    }
    let cli = Cli::new();
    cli.id(&["enqueue", "a"]);
    for verb in ["show", "rm", "pause", "resume", "run"] {
        cli.run(&["schedule", verb, "nothing"]).fails(3, &["no schedule \"nothing\""]);
    }
}

#[test]
fn doctor_names_a_schedule_that_nobody_serves() {
    let cli = Cli::new();
    cli.run(&["schedule", "add", "later", "task", "--every", "1h"]).succeeds();
    cli.run(&["doctor"]).succeeds();
    // Two minutes are too long for a test: it was defined by a clock of long ago.
    let clock = Clock::manual(Timestamp::from_millis(1_700_000_000_000));
    let store = StoreOptions::new().clock(clock).open(cli.store()).unwrap();
    store.schedule(Schedule::every("beat", Duration::from_mins(1), JobRequest::new("task", &()))).unwrap();
    store.close().unwrap();
    let ran = cli.run(&["doctor"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let finding = "schedule \"beat\" was due at 2023-11-14T22:14:20.000Z, and nobody has enqueued its job";
    assert!(ran.stdout.contains(finding) && ran.stdout.contains("run a worker"), "{ran:?}");
    assert!(!ran.stdout.contains("later"), "{ran:?}");
}

#[test]
fn unique_keys_are_made_as_the_options_say() {
    let cli = Cli::new();
    let enqueue = |more: &[&str]| cli.id(&[&["enqueue", "resize"][..], more].concat());
    let args = |text: &'static str| ["--args", text, "--unique-by", "args"];
    let first = enqueue(&args(r#"{"a": 1, "b": [2]}"#));
    assert_eq!(enqueue(&args(r#"{"b":[2],"a":1}"#)), first, "the order of keys does not matter");
    assert_ne!(enqueue(&args(r#"{"a": 1, "b": [3]}"#)), first);
    let unique = cli.one(&["show", &first])["unique"].as_str().unwrap().to_owned();
    assert!(unique.starts_with("resize:") && unique.len() == 39, "{unique}");

    let fields = |text: &'static str| ["--args", text, "--unique-by", "user, day"];
    let by_fields = enqueue(&fields(r#"{"user": 7, "day": "mon", "n": 1}"#));
    assert_eq!(enqueue(&fields(r#"{"user": 7, "day": "mon", "n": 2}"#)), by_fields);
    assert_ne!(enqueue(&fields(r#"{"user": 7, "day": "tue", "n": 2}"#)), by_fields);

    let store = |queue: &'static str| ["--unique", "k", "--unique-scope", "store", "--queue", queue];
    assert_eq!(enqueue(&store("one")), enqueue(&store("two")));
    let queue = |queue: &'static str| ["--unique", "k", "--queue", queue];
    assert_ne!(enqueue(&queue("one")), enqueue(&queue("two")));

    let ended = ["--unique", "gone", "--unique-while", "ready,cancelled", "--unique-within", "1h"];
    let cancelled = enqueue(&ended);
    cli.run(&["cancel", &cancelled]).succeeds();
    assert_eq!(enqueue(&ended), cancelled, "it is held after the end");
}

#[test]
fn mistakes_in_unique_keys_are_named() {
    let enqueue = |more: &[&'static str]| [&["enqueue", "a"][..], more].concat();
    for (args, names) in [
        (enqueue(&["--unique-within", "1h"]), &["--unique-within", "--unique KEY", "--unique-by"][..]),
        (enqueue(&["--unique-scope", "store"]), &["--unique-scope", "--unique KEY"]),
        (enqueue(&["--unique-while", "ready"]), &["--unique-while", "--unique KEY"]),
        (enqueue(&["--unique", "k", "--unique-by", "args"]), &["--unique-by"]),
        (enqueue(&["--unique", "k", "--unique-while", "asleep"]), &["asleep", "waiting, scheduled"]),
        (enqueue(&["--unique", "k", "--unique-within", "0"]), &["no time"]),
        (enqueue(&["--unique-by", "user", "--args", r#"{"usr": 1}"#]), &["no field \"user\"", "usr"]),
        (enqueue(&["--unique-by", "user", "--args", "[1]"]), &["no JSON object"]),
    ] {
        let cli = Cli::new();
        cli.run(&args).fails(2, names);
        assert!(!cli.store().exists(), "{args:?} made a store");
    }
}
