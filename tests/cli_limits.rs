//! Limits on the command line: the settings of a queue, concurrency keys, and queues that are full.

mod cli_support;

use cli_support::Cli;
use serde_json::json;

fn with_queue(args: &[&str]) -> Cli {
    let cli = Cli::new();
    cli.run(&["enqueue", "t"]).succeeds();
    for setting in args {
        let mut all = vec!["config", "--queue", "q"];
        all.extend(setting.split(' '));
        cli.run(&all).succeeds();
    }
    cli
}

#[test]
fn settings_of_a_queue_are_set_shown_and_unset() {
    let cli = with_queue(&["concurrency 4", "rate 100/1m burst=20", "retention-dead 7d"]);
    let settings = cli.json(&["config", "--queue", "q"]);
    assert_eq!(settings.len(), 9);
    let values: Vec<_> = settings.iter().filter(|line| !line["value"].is_null()).collect();
    assert_eq!(
        values.iter().map(|line| line["key"].as_str().unwrap()).collect::<Vec<_>>(),
        ["concurrency", "rate", "retention-dead"]
    );
    assert_eq!(cli.run(&["config", "--queue", "q", "rate"]).succeeds().stdout, "100/1m burst=20\n");
    assert_eq!(cli.run(&["config", "--queue", "q", "concurrency", "none"]).succeeds().stdout, "none\n");
    assert_eq!(cli.one(&["config", "--queue", "other", "rate"])["value"], json!(null));
    assert!(cli.run(&["config"]).succeeds().stdout.contains("lease"), "without --queue they are the store's");
    let table = cli.run(&["config", "--queue", "q"]).succeeds().stdout;
    assert!(table.contains("retention-dead") && table.contains("7d"), "{table}");
}

#[test]
fn limits_are_shown_beside_the_numbers_of_a_queue() {
    let cli = with_queue(&["size-max 5", "order-per-key strict"]);
    for verb in ["stats", "queues"] {
        let line = &cli.json(&[verb, "--queue", "q"])[0];
        assert_eq!(line["limits"], json!({ "size-max": "5", "order-per-key": "strict" }), "{verb}");
        let text = cli.run(&[verb, "--queue", "q"]).succeeds().stdout;
        assert!(text.contains("order-per-key strict, size-max 5"), "{verb}: {text}");
        assert_eq!(cli.json(&[verb, "--queue", "default"])[0].get("limits"), None);
    }
}

#[test]
fn wrong_settings_of_a_queue_say_what_is_wrong_and_change_nothing() {
    let cli = with_queue(&["concurrency 4"]);
    for (args, code, says) in [
        (&["concurrency", "0"][..], 2, "concurrency = 0: give a whole number, 1 or more, or none"),
        (&["concurrency", "many"], 2, "give a whole number"),
        (&["rate", "100"], 2, "rate = 100: \"100\" is not a rate; one looks like 100/1m"),
        (&["rate", "1/0s"], 2, "one looks like 100/1m"),
        (&["rate", "1/1s", "20"], 2, "one looks like 100/1m"),
        (&["order-per-key", "loose"], 2, "order-per-key = loose: \"loose\" is no order; give strict or none"),
        (&["keep-completed", "yes"], 2, "keep-completed = yes: \"yes\" says neither; give true or false"),
        (&["retention-dead", "30"], 2, "retention-dead = 30: \"30\" is not a duration"),
        (&["lease", "5s"], 2, "lease is a setting of the store, not of a queue; leave --queue out"),
        (&["colour", "red"], 3, "there are concurrency, concurrency-per-key"),
    ] {
        let mut all = vec!["config", "--queue", "q"];
        all.extend(args);
        let ran = cli.run(&all);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
    }
    let ran = cli.run(&["config", "lease", "10s", "burst=2"]);
    assert!(ran.code == 2 && ran.stderr.contains("only a queue's rate"), "{}", ran.stderr);
    assert_eq!(cli.json(&["stats", "--queue", "q"])[0]["limits"], json!({ "concurrency": "4" }));
}

#[test]
fn jobs_have_their_key_from_the_command_or_the_line() {
    let cli = Cli::new();
    let id = cli.id(&["enqueue", "t", "--key", "customer-7"]);
    assert_eq!(cli.one(&["show", &id])["key"], "customer-7");
    assert!(cli.run(&["show", &id]).succeeds().stdout.contains("customer-7"));
    let lines = cli.write("jobs.jsonl", "{\"args\": 1, \"key\": \"a\"}\n{\"args\": 2}\n");
    cli.run(&["enqueue", "t", "--from", lines.to_str().unwrap(), "--key", "b"]).succeeds();
    let keys: Vec<_> = cli.json(&["list"]).iter().map(|job| job["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(keys, ["customer-7", "a", "b"]);
    let ran = cli.run(&["enqueue", "t", "--key", ""]);
    assert!(ran.code == 2 && ran.stderr.contains("concurrency key name is empty"), "{}", ran.stderr);
}

#[test]
fn full_queue_refuses_and_who_waits_gets_in_or_times_out() {
    let cli = with_queue(&["size-max 2"]);
    cli.run(&["enqueue", "t", "--queue", "q", "--count", "2"]).succeeds();
    let ran = cli.run(&["enqueue", "t", "--queue", "q"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("queue \"q\" is full") && ran.stderr.contains("size-max"), "{}", ran.stderr);
    let ran = cli.run(&["enqueue", "t", "--queue", "q", "--wait", "10ms"]);
    assert_eq!(ran.code, 7, "{}", ran.stderr);

    let waiting = cli.start(&["enqueue", "t", "--queue", "q", "--count", "3", "--wait", "1m"]);
    cli.run(&["config", "--queue", "q", "size-max", "5"]).succeeds();
    assert_eq!(waiting.end().succeeds().stdout.lines().count(), 3);
    assert_eq!(cli.json(&["stats", "--queue", "q"])[0]["ready"], 5);
}

#[test]
fn draining_worker_leaves_only_when_its_limits_have_let_all_jobs_run() {
    let cli = Cli::new();
    cli.run(&["exec", "--", "true"]).succeeds();
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    let limits: [&[&str]; 3] = [&["concurrency", "1"], &["rate", "20/1s", "burst=1"], &["order-per-key", "strict"]];
    for limit in limits {
        let before = cli.figures()[0].get("completed").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let mut config = vec!["config", "--queue", "default"];
        config.extend(limit);
        cli.run(&["exec", "--key", "a", "--count", "5", "--", "true"]).succeeds();
        cli.run(&config).succeeds();
        cli.run(&["work", "--drain", "--allow-exec", "--concurrency", "3"]).succeeds();
        let after = &cli.figures()[0];
        assert_eq!((&after["ready"], &after["completed"]), (&json!(0), &json!(before + 5)), "{limit:?}");
    }
}
