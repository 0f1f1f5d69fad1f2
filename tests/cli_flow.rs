//! Jobs that wait for each other, and jobs that run at most once, by the command line.

mod cli_support;

use cli_support::Cli;
use serde_json::json;

#[test]
fn job_waits_for_those_it_was_enqueued_after_and_tells_what_for() {
    let cli = Cli::new();
    let [first, second] = [(); 2].map(|()| cli.id(&["enqueue", "task"]));
    let last = cli.id(&["enqueue", "task", "--after", &first, "--after", &second, "--on-failure", "run"]);
    let strict = cli.id(&["enqueue", "task", "--after", &last]);
    assert_eq!(cli.state(&last), "waiting");
    let awaited = || {
        let awaited = cli.one(&["show", &last])["awaited"].clone();
        ["pending", "completed", "dead", "cancelled", "is_open"].map(|field| awaited[field].clone())
    };
    assert_eq!(awaited(), [json!(2), json!(0), json!(0), json!(0), json!(false)]);
    let shown = cli.one(&["show", &last]);
    assert_eq!((&shown["waits_for"], &shown["waited_for_by"]), (&json!([first, second]), &json!([strict])));
    let page = cli.run(&["show", &last]).succeeds().stdout;
    assert!(page.contains(&format!(" {first} {second}\n")) && page.contains(&format!("by {strict}\n")), "{page}");
    assert_eq!(cli.json(&["list", "--state", "waiting"]).len(), 2);
    cli.run(&["cancel", &first]).succeeds();
    assert_eq!(awaited(), [json!(1), json!(0), json!(0), json!(1), json!(false)]);
    cli.run(&["cancel", &second]).succeeds();
    assert_eq!(cli.state(&last), "ready");
    let page = cli.run(&["show", &last]).succeeds().stdout;
    assert!(page.contains("0 have not ended, 0 completed, 0 dead, 2 cancelled"), "{page}");
    cli.run(&["cancel", &last]).succeeds();
    let cancelled = cli.one(&["show", &strict]);
    assert_eq!(cancelled["state"], "cancelled");
    let why = cancelled["errors"][0]["message"].as_str().unwrap();
    assert_eq!(why, format!("job {last}, which it waited for, was cancelled"));
    let failed =
        cli.run(&["wait", &strict]).fails(1, &["was cancelled at", &format!("job {last}, which it waited for")]);
    assert!(!failed.stderr.contains("is cancelled"), "{failed:?}");
    cli.run(&["check"]).succeeds();
}

#[test]
fn batch_is_opened_filled_and_sealed() {
    let cli = Cli::new();
    let done = &["exec", "--keep", "--", "true"];
    let report = cli.id(&["exec", "--open", "--keep", "--", "true"]);
    for how in ["true", "false"] {
        cli.id(&["exec", "--before", &report, "--max-attempts", "1", "--", how]);
    }
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    assert_eq!(cli.one(&["show", &report])["awaited"]["is_open"], true);
    let sealed = cli.one(&["seal", &report]);
    assert_eq!(sealed, json!({ "id": report, "state": "ready" }));
    cli.run(&["seal", &report]).fails(4, &["is not open", "sealed before"]);
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    let ended = cli.one(&["show", &report]);
    assert_eq!(
        (&ended["state"], &ended["awaited"]["completed"], &ended["awaited"]["dead"]),
        (&json!("completed"), &json!(1), &json!(1))
    );
    let plain = cli.id(done);
    cli.run(&["seal", &plain]).fails(4, &["can't be sealed", "it waits for no other jobs"]);
    cli.run(&["exec", "--before", &report, "--", "true"]).fails(4, &[&report, "can't wait for another any more"]);
    cli.run(&["seal", "4711"]).fails(3, &["there is no job 4711"]);
}

#[test]
fn lines_of_a_file_say_what_they_wait_for() {
    let cli = Cli::new();
    let first = cli.id(&["enqueue", "task"]);
    let lines = format!("{{\"after\": [\"{first}\"]}}\n{{\"at_most_once\": true}}\n");
    let file = cli.write("jobs.jsonl", lines);
    let run = cli.run(&["enqueue", "task", "--from", file.to_str().unwrap()]).succeeds();
    let ids: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(
        (cli.state(ids[0]), cli.one(&["show", ids[1]])["at_most_once"].clone()),
        ("waiting".into(), json!(true))
    );
    let wrong = cli.write("wrong.jsonl", "{\"after\": [\"first\"]}\n");
    cli.run(&["enqueue", "task", "--from", wrong.to_str().unwrap()]).fails(2, &["line 1", "\"first\" is not a job id"]);
}

#[test]
fn what_can_not_be_is_refused_with_what_to_do() {
    let cli = Cli::new();
    cli.id(&["enqueue", "task"]);
    cli.run(&["enqueue", "task", "--after", "99"]).fails(3, &["there is no job 99", "version 1"]);
    cli.run(&["enqueue", "task", "--after", "x"]).fails(2, &["\"x\" is not a job id"]);
    cli.run(&["enqueue", "task", "--on-failure", "stop"]).fails(2, &["stop", "cancel, run"]);
    cli.run(&["enqueue", "task", "--at-most-once", "--max-attempts", "3"]).fails(2, &["--max-attempts"]);
    assert_eq!(cli.json(&["list"]).len(), 1);
}

#[test]
fn job_that_runs_at_most_once_is_not_tried_again_and_can_not_be_retried() {
    let cli = Cli::new();
    let id = cli.id(&["exec", "--at-most-once", "--", "false"]);
    cli.run(&["work", "--drain", "--allow-exec"]);
    let job = cli.one(&["show", &id]);
    assert_eq!((&job["state"], &job["attempt"], &job["max_attempts"]), (&json!("dead"), &json!(1), &json!(1)));
    assert!(cli.run(&["show", &id]).succeeds().stdout.contains("at most once"));
    cli.run(&["retry", &id]).fails(4, &["it runs at most once, and may have begun; enqueue it anew"]);
}
