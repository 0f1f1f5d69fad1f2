//! What `enqueue` tells and refuses, for one job and for the lines of a file.

mod cli_support;

use cli_support::Cli;
use serde_json::json;

#[test]
fn job_that_has_the_unique_key_already_is_told_from_a_new_one() {
    let cli = Cli::new();
    let enqueue = ["enqueue", "task", "--unique", "key"];
    assert_eq!(cli.one(&enqueue), json!({ "id": "1", "new": true }));
    assert_eq!(cli.one(&enqueue), json!({ "id": "1", "new": false }));
    let again = cli.run(&enqueue).succeeds();
    assert_eq!(
        (again.stdout.as_str(), again.stderr.as_str()),
        ("1\n", "casque: job 1 is not new: it has the unique key\n")
    );
    assert_eq!(cli.run(&["enqueue", "task"]).succeeds().stderr, "");
    let waited = cli.one(&["enqueue", "task", "--unique", "key", "--wait", "1s"]);
    assert_eq!(waited["new"], false);
    let file = cli.write("jobs.jsonl", "{\"unique\": \"key\"}\n{\"unique\": \"other\"}\n{\"unique\": \"other\"}\n");
    let import = ["enqueue", "task", "--from", file.to_str().unwrap()];
    let imported = cli.run(&import).succeeds();
    assert!(imported.stderr.contains("2 of them are not new"), "{imported:?}");
    let lines = cli.json(&import);
    assert!(lines.iter().all(|line| line["new"] == false), "{lines:?}");
}

#[test]
fn options_and_a_line_that_do_not_go_together_are_refused_with_the_line() {
    let cli = Cli::new();
    for (options, line, says) in [
        (&["--max-attempts", "3"][..], "{\"at_most_once\": true}", "has one attempt"),
        (&["--at-most-once"], "{\"max_attempts\": 3}", "has one attempt"),
        (&[], "{\"max_attempts\": 3, \"at_most_once\": true}", "has one attempt"),
        (&["--unique-within", "1h"], "{\"args\": 7}", "--unique-within is about a unique key, and none is named"),
        (&["--unique-scope", "store"], "{}", "--unique-scope is about a unique key"),
        (&["--unique-while", "ready"], "{}", "--unique-while is about a unique key"),
    ] {
        let file = cli.write("jobs.jsonl", format!("{{\"unique\": \"key\"}}\n{line}\n"));
        let import = [&["enqueue", "task", "--from", file.to_str().unwrap()], options].concat();
        cli.run(&import).fails(2, &["line 2", says, "nothing was enqueued"]);
    }
    assert!(!cli.store().exists());
}

/// What a job waits for counts too.
#[test]
fn batch_of_an_import_is_as_large_as_a_change_may_be() {
    let cli = Cli::new();
    let first = cli.id(&["enqueue", "task"]);
    let line = json!({ "after": vec![&first; 1_000] }).to_string();
    let file = cli.write("jobs.jsonl", format!("{line}\n").repeat(900));
    let imported = cli.run(&["enqueue", "task", "--from", file.to_str().unwrap()]).succeeds();
    assert_eq!(imported.stdout.lines().count(), 900);
    let many: Vec<&str> = [first.as_str(); 1_000].into_iter().flat_map(|id| ["--after", id]).collect();
    let repeated = cli.run(&[&["enqueue", "task", "--count", "900"], many.as_slice()].concat()).succeeds();
    assert_eq!(repeated.stdout.lines().count(), 900);
}

#[test]
fn job_that_can_not_wait_any_more_is_a_conflict() {
    let cli = Cli::new();
    let ready = cli.id(&["enqueue", "task"]);
    let refused = ["can't wait for another any more", &ready];
    cli.run(&["enqueue", "task", "--before", &ready]).fails(4, &refused);
    let file = cli.write("jobs.jsonl", "{}\n");
    cli.run(&["enqueue", "task", "--before", &ready, "--from", file.to_str().unwrap()]).fails(4, &refused);
    cli.run(&["enqueue", "task", "--before", "99"]).fails(3, &["there is no job 99"]);
    // What is wrong with the job itself is wrong usage all the same.
    let large = format!("\"{}\"", "x".repeat(100_000));
    cli.run(&["config", "payload-max", "64KiB"]).succeeds();
    cli.run(&["enqueue", "task", "--before", &ready, "--args", &large]).fails(2, &["payload-max"]);
}

#[test]
fn what_becomes_of_it_when_others_fail_is_said_of_a_job_that_waits_for_some() {
    let cli = Cli::new();
    for command in [&["enqueue", "task", "--on-failure", "run"][..], &["exec", "--on-failure", "cancel", "--", "true"]]
    {
        cli.run(command).fails(2, &["it waits for none", "--after ID or --open"]);
    }
    assert!(!cli.store().exists());
    let first = cli.id(&["enqueue", "task"]);
    cli.id(&["enqueue", "task", "--on-failure", "run", "--after", &first]);
    cli.id(&["enqueue", "task", "--on-failure", "run", "--open"]);
    // Lines that wait for none have nothing of it.
    let file = cli.write("jobs.jsonl", format!("{{}}\n{{\"after\": [\"{first}\"]}}\n"));
    cli.run(&["enqueue", "task", "--on-failure", "run", "--from", file.to_str().unwrap()]).succeeds();
}
