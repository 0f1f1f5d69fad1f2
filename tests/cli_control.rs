//! The commands by which an operator controls jobs, and those of named locks.

mod cli_support;

use cli_support::{Cli, until};
use serde_json::{Value, json};

#[test]
fn paused_task_is_told_and_run_by_nobody_until_it_is_resumed() {
    let cli = Cli::new();
    let id = cli.id(&["exec", "--", "true"]);
    assert_eq!(cli.one(&["pause", "--task", "exec"]), json!({ "task": "exec", "paused": true }));
    assert_eq!(cli.json(&["stats"]).last().unwrap()["paused_tasks"], json!(["exec"]));
    let stats = cli.run(&["stats"]).succeeds().stdout;
    assert!(stats.contains("paused tasks: exec"), "{stats}");
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    assert_eq!(cli.state(&id), "ready");
    assert_eq!(cli.one(&["resume", "--task", "exec"]), json!({ "task": "exec", "paused": false }));
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    assert_eq!(cli.json(&["stats"])[0]["completed"], 1);
}

#[test]
fn pause_wants_a_queue_or_a_task() {
    let cli = Cli::new();
    cli.id(&["enqueue", "a"]);
    cli.run(&["pause"]).fails(2, &["Q", "--task"]);
    cli.run(&["resume", "q", "--task", "t"]).fails(2, &["--task"]);
    cli.run(&["pause", "--task", ""]).fails(2, &["task name is empty"]);
    cli.run(&["pause", "a\nb"]).fails(2, &["control character"]);
}

#[test]
fn rescheduled_job_has_its_new_priority_and_time() {
    let cli = Cli::new();
    let id = cli.id(&["enqueue", "a"]);
    let at = "2100-01-01T00:00:00.000Z";
    assert_eq!(
        cli.one(&["reschedule", &id, "--priority", "-5", "--at", at]),
        json!({ "id": id, "state": "scheduled" })
    );
    let job = cli.one(&["show", &id]);
    assert_eq!((&job["priority"], &job["run_at"]), (&json!(-5), &json!(at)));
    assert_eq!(cli.one(&["reschedule", &id, "--delay", "0"])["state"], "ready");
    assert_eq!(cli.run(&["reschedule", &id, "--priority", "9"]).succeeds().stdout, format!("{id} ready\n"));

    cli.run(&["reschedule", &id]).fails(2, &["--priority", "--delay", "--at"]);
    cli.run(&["reschedule", &id, "--priority", "101"]).fails(2, &["101", "-100 to 100"]);
    cli.run(&["reschedule", &id, "--delay", "soon"]).fails(2, &["soon", "30s"]);
    cli.run(&["reschedule", &id, "--delay", "1s", "--at", at]).fails(2, &["--delay", "--at"]);
    cli.run(&["reschedule", "77", "--delay", "1s"]).fails(3, &["77"]);
    cli.run(&["cancel", &id]).succeeds();
    cli.run(&["reschedule", &id, "--delay", "1s"]).fails(4, &[&id, "cancelled", "retry"]);
    let completed = cli.id(&["exec", "--keep", "--", "true"]);
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    for verb in [&["reschedule", &completed, "--delay", "1s"][..], &["requeue", &completed], &["retry", &completed]] {
        cli.run(verb).fails(4, &["is completed", "it has succeeded; enqueue it anew"]);
    }
}

#[test]
fn purge_removes_what_has_not_begun_in_one_queue_and_asks_before() {
    let cli = Cli::new();
    for args in [&["a"][..], &["b", "--delay", "1h"], &["b"]] {
        cli.id(&[&["enqueue"], args].concat());
        cli.id(&[&["enqueue", "--queue", "other"], args].concat());
    }
    cli.run(&["purge", "--queue", "other"]).fails(2, &["--yes"]);
    cli.run(&["purge", "--queue", "other", "--state", "running", "--yes"]).fails(2, &["cancel"]);
    cli.run(&["purge", "--state", "lost", "--yes"]).fails(2, &["lost", "ready"]);
    let purged = |args: &[&str]| cli.one(&[&["purge", "--yes", "--queue", "other"], args].concat());
    assert_eq!(purged(&["--task", "b", "--state", "ready"]), json!({ "queue": "other", "purged": 1 }));
    assert_eq!(purged(&[])["purged"], 2);
    assert_eq!(purged(&[])["purged"], 0);
    assert_eq!(cli.json(&["list"]).len(), 3, "the jobs of another queue are there");
    let absent = cli.run(&["purge", "--yes", "--queue", "nowhere"]).succeeds();
    assert_eq!(absent.stdout, "0 removed from nowhere\n");
    assert!(absent.stderr.contains("no queue \"nowhere\""), "{absent:?}");
    let cancelled = cli.id(&["enqueue", "a", "--queue", "other"]);
    cli.run(&["cancel", &cancelled]).succeeds();
    assert_eq!(purged(&["--state", "cancelled"])["purged"], 1);
    assert!(cli.run(&["check"]).succeeds().stderr.is_empty());
}

#[test]
fn retry_puts_all_back_that_a_filter_admits() {
    let cli = Cli::new();
    for queue in ["one", "two"] {
        cli.id(&["exec", "--queue", queue, "--max-attempts", "1", "--", "false"]);
    }
    cli.run(&["work", "--drain", "--allow-exec", "--queue", "one", "--queue", "two"]).succeeds();
    assert_eq!(cli.one(&["retry", "--all", "--task", "other"]), json!({ "retried": 0, "refused": 0 }));
    assert_eq!(cli.one(&["retry", "--all", "--queue", "two"]), json!({ "retried": 1, "refused": 0 }));
    assert_eq!(cli.run(&["retry", "--all"]).succeeds().stdout, "1 retried\n");

    // A unique key that another job has taken since.
    let first = cli.id(&["enqueue", "a", "--unique", "k"]);
    cli.run(&["cancel", &first]).succeeds();
    cli.id(&["enqueue", "a", "--unique", "k"]);
    let ran = cli.run(&["retry", "--all", "--state", "cancelled"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, "0 retried\n"));
    assert!(ran.stderr.contains("unique"), "{ran:?}");

    cli.run(&["retry"]).fails(2, &["ID"]);
    cli.run(&["retry", "1", "--all"]).fails(2, &["--all"]);
    cli.run(&["retry", "1", "--state", "dead"]).fails(2, &["--all"]);
    cli.run(&["retry", "--state", "cancelled"]).fails(2, &["<ID>", "add --all to retry all that are cancelled"]);
    cli.run(&["retry", "--all", "--state", "running"]).fails(2, &["running", "dead"]);
}

#[test]
fn lock_runs_a_command_and_ends_as_it_does() {
    let cli = Cli::new();
    let ran = cli.run(&["lock", "report", "--", "sh", "-c", "echo fence $CASQUE_LOCK_FENCE; exit 3"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (3, "fence 1\n", ""));
    let next = cli.run(&["lock", "report", "sh", "-c", "echo $CASQUE_LOCK_FENCE"]).succeeds();
    assert_eq!(next.stdout, "3\n", "the number grows with the store's version");
    assert_eq!(cli.run(&["lock", "report", "--", "sh", "-c", "kill -9 $$"]).code, 128 + 9);
    cli.run(&["lock", "report", "--", "no-such-command"]).fails(127, &["no-such-command", "not found"]);
    cli.write("script", "true");
    cli.run(&["lock", "report", "--", "./script"]).fails(126, &["./script"]);
    cli.run(&["lock", "report"]).fails(2, &["COMMAND"]);
    cli.run(&["lock", "", "--", "true"]).fails(2, &["lock name is empty"]);
    cli.run(&["lock", "report", "--wait", "soon", "--", "true"]).fails(2, &["soon", "30s"]);
    assert_eq!(cli.json(&["locks"]), [] as [Value; 0]);
}

#[test]
fn lock_that_another_has_is_waited_for_and_told_of() {
    let cli = Cli::new();
    let held = cli.start(&["lock", "report", "--", "sleep", "100"]);
    let lock = until("the lock", || cli.path("app.redb").exists().then(|| cli.json(&["locks", "--fresh"]).pop())?);
    assert_eq!((&lock["name"], &lock["pid"], &lock["waiting"]), (&json!("report"), &json!(held.pid()), &json!(0)));
    assert!(lock["fence"].as_u64().is_some() && lock["since"].is_string() && lock["holder"].is_string(), "{lock}");
    let table = cli.run(&["locks"]).succeeds().stdout;
    assert!(table.contains("LOCK") && table.contains("report"), "{table}");
    cli.run(&["lock", "other", "--", "true"]).succeeds();
    for wait in ["0", "30ms"] {
        cli.run(&["lock", "report", "--wait", wait, "--", "echo", "never"]).fails(7, &["report", "holds it"]);
    }
    let waiting = cli.start(&["lock", "report", "--", "echo", "mine"]);
    until("somebody to wait", || (cli.one(&["locks", "--fresh"])["waiting"] == 1).then_some(()));
    // Whoever holds it is killed: the lock is free, though the command still sleeps.
    held.kill();
    assert_eq!(waiting.end().succeeds().stdout, "mine\n");
}

#[test]
fn lock_passes_signals_on_to_its_command() {
    let cli = Cli::new();
    let script = "trap 'echo told; exit 5' TERM; touch begun; while :; do sleep 0.01; done";
    let held = cli.start(&["lock", "report", "--", "sh", "-c", script]);
    until("it to begin", || cli.path("begun").exists().then_some(()));
    held.signal("TERM");
    let ran = held.end();
    assert_eq!((ran.code, ran.stdout.as_str()), (5, "told\n"));
}

#[test]
fn lock_that_was_lost_ends_its_command_and_says_so() {
    let cli = Cli::new();
    cli.id(&["enqueue", "a"]);
    cli.run(&["config", "lease", "500ms"]).succeeds();
    let script = "trap 'touch told; exit 0' TERM; touch begun; while :; do sleep 0.01; done";
    let lost = cli.start(&["lock", "report", "--", "sh", "-c", script]);
    until("it to begin", || cli.path("begun").exists().then_some(()));
    lost.signal("STOP");
    cli.run(&["lock", "report", "--", "true"]).succeeds();
    assert!(!cli.path("told").exists());
    lost.signal("CONT");
    lost.end().fails(4, &["report", "taken over"]);
    assert!(cli.path("told").exists());
}
