//! Commands as jobs, with real workers and children: who runs them, what comes of them, and who outlives whom.

mod cli_support;

use std::process::Stdio;

use cli_support::{Cli, until};
use serde_json::json;

/// Notes its begin, waits for the file `go`, notes its end.
const WAITS: &str = "echo begin >> log; until [ -e go ] || [ ! -e \"$PWD\" ]; do sleep 0.02; done; echo end >> log";

fn log(cli: &Cli) -> Vec<String> {
    std::fs::read_to_string(cli.path("log")).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn commands_are_refused_unless_allowed() {
    let cli = Cli::new();
    let id = cli.id(&["exec", "--count", "2", "--", "touch", "ran"]).lines().next().unwrap().to_owned();
    let ran = cli.run(&["work", "--drain"]).succeeds();
    assert_eq!(ran.stderr.matches("--allow-exec").count(), 1, "it is said once: {ran:?}");
    assert!(!cli.path("ran").exists());
    assert_eq!((cli.state(&id), cli.one(&["show", &id])["attempt"].clone()), ("ready".into(), json!(0)));
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    assert!(cli.path("ran").exists());
}

#[test]
fn output_of_a_command_is_its_result() {
    let cli = Cli::new();
    let script = "echo out; echo err >&2; cat; echo $NAME $CASQUE_JOB $CASQUE_ATTEMPT; pwd; ls /proc/self/fd/3";
    std::fs::create_dir(cli.path("here")).unwrap();
    let id = cli.id(&["exec", "--env", "NAME=x=y", "--cwd", "here", "--", "sh", "-c", script]);
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    let job = cli.one(&["show", &id]);
    assert_eq!((&job["state"], &job["attempt"], &job["task"]), (&json!("completed"), &json!(1), &json!("exec")));
    let result = &job["result"];
    assert_eq!((&result["exit_code"], &result["stderr"]), (&json!(0), &json!("err\n")));
    let here = std::fs::canonicalize(cli.path("here")).unwrap();
    let stdout = format!("out\nx=y {id} 1\n{}\n/proc/self/fd/3\n", here.display());
    assert_eq!(result["stdout"], stdout);
    // Its lock is gone with it.
    assert_eq!(std::fs::read_dir(cli.path("app.redb.d/children")).unwrap().count(), 0);
}

#[test]
fn only_the_end_of_much_output_is_kept_and_the_child_never_blocks() {
    let cli = Cli::new();
    let id = cli.id(&["exec", "--", "sh", "-c", "seq 1 200000; seq 1 200000 >&2; echo last"]);
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    let result = cli.one(&["show", &id])["result"].clone();
    for stream in ["stdout", "stderr"] {
        assert_eq!(result[stream].as_str().unwrap().len(), 64 << 10, "{stream}");
    }
    assert!(result["stdout"].as_str().unwrap().ends_with("200000\nlast\n"));
}

#[test]
fn what_outlives_the_command_does_not_hold_up_its_result() {
    let cli = Cli::new();
    let id =
        cli.id(&["exec", "--", "sh", "-c", "(until [ -e go ] || [ ! -e \"$PWD\" ]; do sleep 0.02; done) & echo hi"]);
    cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    assert_eq!(cli.one(&["show", &id])["result"]["stdout"], "hi\n");
    cli.write("go", "");
}

#[test]
fn failed_command_is_tried_again_and_one_that_cannot_run_is_not() {
    let cli = Cli::new();
    let fails = cli.id(&["exec", "--", "sh", "-c", "echo no good >&2; exit 7"]);
    let killed = cli.id(&["exec", "--max-attempts", "1", "--", "sh", "-c", "kill -9 $$"]);
    let missing = cli.id(&["exec", "no-such-command-here", "-la"]);
    let nowhere = cli.id(&["exec", "--cwd", "none", "--", "true"]);
    let empty = cli.id(&["enqueue", "exec", "--args", r#"{"command": []}"#]);
    let ran = cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    let line =
        format!("job {fails}: exec failed, attempt 1/20: \"sh\" ended with exit status: 7: no good; tried again in ");
    assert!(ran.stderr.contains(&line), "{ran:?}");
    assert!(ran.stderr.contains("attempt 1/1: ") && ran.stderr.contains("; it is dead"), "{ran:?}");
    let told = |id: &str| {
        let job = cli.one(&["show", id]);
        let message = job["errors"][0]["message"].as_str().unwrap().to_owned();
        (job["state"].as_str().unwrap().to_owned(), message)
    };
    let (state, message) = told(&fails);
    assert!(state == "scheduled" && message.contains("exit status: 7") && message.contains("no good"), "{message}");
    let (state, message) = told(&killed);
    assert!(state == "dead" && message.contains("signal: 9"), "{message}");
    for (id, says) in [(missing, "command not found"), (nowhere, "no such folder"), (empty, "empty list")] {
        let (state, message) = told(&id);
        assert!(state == "dead" && message.contains(says), "{message}");
    }
}

#[test]
fn running_job_shows_its_begin_and_attempt_before_any_commit() {
    let cli = Cli::new();
    // The worker is to be stopped, and so may not be the one that commits for all.
    let store = casque::Store::open(cli.store()).unwrap();
    let serving = store.serve().unwrap();
    until("the seat", || (store.stone()? == std::process::id()).then_some(()));
    let ids = cli.id(&["exec", "--count", "2", "--", "sh", "-c", WAITS]);
    let ids: Vec<&str> = ids.lines().collect();
    let worker = cli.start(&["work", "--allow-exec", "--prefetch", "1"]);
    until("the first command runs", || (log(&cli).len() == 1).then_some(()));
    let running = cli.one(&["show", ids[0]]);
    assert_eq!((&running["state"], &running["attempt"]), (&json!("running"), &json!(1)));
    assert!(running["started_at"].is_string(), "{running}");
    let claimed =
        until("the second is claimed", || Some(cli.one(&["show", ids[1]])).filter(|job| job["state"] == "running"));
    assert_eq!((&claimed["attempt"], &claimed["started_at"]), (&json!(0), &json!(null)));

    let session = cli.one(&["sessions"]);
    assert_eq!((&session["id"], &session["alive"]), (&running["session"], &json!(true)));
    assert_eq!((&session["held"], &session["running"]), (&json!(2), &json!([ids[0]])));
    worker.signal("STOP");
    until("it is seen to be stopped", || (cli.one(&["sessions"])["stopped"] == true).then_some(()));
    worker.signal("CONT");
    cli.write("go", "");
    cli.run(&["wait", ids[1], "--timeout", "60s"]).succeeds();
    worker.signal("TERM");
    assert_eq!(worker.end().code, 0);
    assert_eq!(cli.json(&["sessions"]).len(), 0);
    drop(serving);
}

#[test]
fn gentle_stop_finishes_what_has_begun_and_gives_the_rest_back() {
    let cli = Cli::new();
    let ids = cli.id(&["exec", "--count", "3", "--", "sh", "-c", WAITS]);
    let ids: Vec<&str> = ids.lines().collect();
    let worker = cli.start(&["work", "--allow-exec", "--prefetch", "5"]);
    until("the first command runs", || (log(&cli).len() == 1).then_some(()));
    worker.signal("INT");
    until("the others are given back", || (cli.state(ids[2]) == "ready").then_some(()));
    assert_eq!(cli.state(ids[0]), "running");
    cli.write("go", "");
    let ran = worker.end().succeeds();
    assert!(ran.stderr.contains("once more to stop at once"), "{ran:?}");
    assert!(ran.stdout.contains("completed 1"), "{ran:?}");
    assert_eq!(cli.state(ids[0]), "completed");
    assert_eq!(cli.one(&["show", ids[1]])["attempt"], 0);
}

#[test]
fn command_whose_job_is_cancelled_is_killed() {
    let cli = Cli::new();
    let id = cli.id(&["exec", "--", "sh", "-c", WAITS]);
    let worker = cli.start(&["work", "--allow-exec", "--drain"]);
    until("the command runs", || (log(&cli).len() == 1).then_some(()));
    let told = cli.one(&["cancel", &id]);
    assert_eq!(told, json!({ "id": id, "state": "running", "cancelling": true }));
    worker.end().succeeds();
    assert_eq!(cli.state(&id), "cancelled");
    assert_eq!(log(&cli), ["begin"]);
}

#[test]
fn cancel_of_what_runs_says_that_its_handler_is_to_end() {
    let cli = Cli::new();
    let id = cli.id(&["enqueue", "other"]);
    let store = casque::Store::open(cli.store()).unwrap();
    let lease = store.queue("default").claim(1, std::time::Duration::ZERO).unwrap().remove(0);
    let page = cli.run(&["cancel", &id]).succeeds().stdout;
    assert_eq!(page, format!("{id} running, to be cancelled when its handler ends\n"));
    assert_eq!(cli.one(&["show", &id])["cancelling"], true);
    lease.release().unwrap();
    assert_eq!(cli.state(&id), "cancelled");
}

#[test]
fn worker_that_stops_at_once_leaves_the_command_to_end_by_itself() {
    let cli = Cli::new();
    let id = cli.id(&["exec", "--", "sh", "-c", WAITS]);
    let worker = cli.start(&["work", "--allow-exec"]);
    until("the command runs", || (log(&cli).len() == 1).then_some(()));
    worker.signal("TERM");
    worker.signal("INT");
    let ran = worker.end().succeeds();
    assert!(ran.stderr.contains(&format!("stopping at once; commands go on by themselves: jobs {id}\n")), "{ran:?}");
    assert_eq!(cli.state(&id), "running");
    cli.run(&["release", &id]).fails(4, &["child process", "--force"]);

    let next = cli.start(&["work", "--allow-exec", "--drain"]);
    let neighbour = cli.id(&["exec", "--", "true"]);
    cli.run(&["wait", &neighbour, "--timeout", "60s"]).succeeds();
    assert_eq!(log(&cli), ["begin"]);
    cli.write("go", "");
    next.end().succeeds();
    assert_eq!(log(&cli), ["begin", "end", "begin", "end"]);
    let job = cli.one(&["show", &id]);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("completed"), &json!(1)), "nothing was charged for the stop");
}

#[test]
fn draining_worker_says_once_that_it_waits_for_another() {
    let cli = Cli::new();
    let id = cli.id(&["exec", "--", "sh", "-c", WAITS]);
    let worker = cli.start(&["work", "--allow-exec"]);
    until("the command runs", || (log(&cli).len() == 1).then_some(()));
    let told = std::fs::File::create(cli.path("told")).unwrap();
    let mut draining =
        cli.command(&["work", "--drain", "--allow-exec"]).stdout(Stdio::null()).stderr(told).spawn().unwrap();
    let line = format!("only waits for jobs that run elsewhere: {id}\n");
    until("it is said", || std::fs::read_to_string(cli.path("told")).unwrap().contains(&line).then_some(()));
    cli.write("go", "");
    assert!(draining.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(cli.path("told")).unwrap().matches("elsewhere").count(), 1);
    worker.signal("TERM");
    worker.end().succeeds();
}

/// S41.
#[test]
fn job_of_a_killed_worker_waits_for_its_child_and_its_neighbours_do_not() {
    let cli = Cli::new();
    let id = cli.id(&["exec", "--", "sh", "-c", WAITS]);
    let neighbours = cli.id(&["exec", "--count", "3", "--", "sh", "-c", "echo neighbour >> neighbours"]);
    let neighbours: Vec<&str> = neighbours.lines().collect();
    let worker = cli.start(&["work", "--allow-exec", "--prefetch", "3"]);
    until("the command runs", || (log(&cli).len() == 1).then_some(()));
    until("its neighbours are held", || (cli.one(&["sessions"])["held"] == 4).then_some(()));
    worker.kill();

    // Whoever reads now recovers what the killed writer left.
    assert_eq!(cli.state(&id), "running");
    assert_eq!(cli.one(&["sessions"])["alive"], false);

    let next = cli.start(&["work", "--allow-exec", "--drain"]);
    for neighbour in neighbours {
        cli.run(&["wait", neighbour, "--timeout", "60s"]).succeeds();
        assert_eq!(cli.one(&["show", neighbour])["attempt"], 1);
    }
    // The child still works, and what waits for it was tried to be taken more than once by now.
    assert_eq!(log(&cli), ["begin"]);
    assert_eq!(cli.state(&id), "running");
    cli.write("go", "");
    next.end().succeeds();
    assert_eq!(log(&cli), ["begin", "end", "begin", "end"], "it ran again only after the child had ended");
    let job = cli.one(&["show", &id]);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("completed"), &json!(2)));
    assert_eq!(std::fs::read_to_string(cli.path("neighbours")).unwrap().lines().count(), 3);
    assert_eq!(std::fs::read_dir(cli.path("app.redb.d/children")).unwrap().count(), 0);
    assert_eq!(cli.one(&["check"])["findings"], 0);
}

#[test]
fn command_that_takes_too_long_is_killed_with_all_that_it_started() {
    let cli = Cli::new();
    let script = "sleep 1000 & echo $! > pid; wait";
    let id = cli.id(&["exec", "--timeout", "3s", "--max-attempts", "1", "--", "sh", "-c", script]);
    assert_eq!(cli.one(&["show", &id])["timeout_ms"], 3_000);
    let ran = cli.run(&["work", "--drain", "--allow-exec"]).succeeds();
    assert!(ran.stderr.contains("timed out after 3 s; it is dead"), "{ran:?}");
    let job = cli.one(&["show", &id]);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("dead"), &json!(1)));
    let pid = std::fs::read_to_string(cli.path("pid")).unwrap();
    let is_gone = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    };
    until("what it started to end", is_gone);
    let page = cli.run(&["show", &id]).succeeds().stdout;
    assert!(page.contains("3s per attempt"), "{page}");
    cli.run(&["exec", "--timeout", "0s", "--", "true"]).fails(2, &["timeout of 0"]);
}
