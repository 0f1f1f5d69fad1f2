//! The examples do what their head comments say, as the processes that a person would start.

use std::{
    env,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::Once,
    thread,
};

/// Cargo builds the examples along with the tests, into the folder beside theirs; but not where it was asked for this
/// test alone, so they are built here if they are missing.
fn example(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    let test = env::current_exe().expect("a test has a path");
    let folder = test.ancestors().nth(2).expect("a test is in deps, in the folder of its profile");
    let path = folder.join("examples").join(name).with_extension(env::consts::EXE_EXTENSION);
    BUILT.call_once(|| {
        if !path.exists() {
            let profile = folder.file_name().filter(|name| *name != "debug").unwrap_or("dev".as_ref());
            let target = folder.parent().expect("the folder of a profile is in the target's");
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--examples", "--profile"]).arg(profile).arg("--target-dir").arg(target);
            if cfg!(feature = "tokio") {
                cargo.args(["--features", "tokio"]);
            }
            let built = cargo.status().expect("cargo runs");
            assert!(built.success(), "the examples can't be built");
        }
    });
    path
}

fn run(name: &str) -> (String, Output) {
    let path = example(name);
    let output = Command::new(&path).output().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{name}: {}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    (text, output)
}

/// The number that stands before a word.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or_default();
    let number = before.trim_end().rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
    number.parse().unwrap_or_else(|_| panic!("no number before {word:?} in:\n{text}"))
}

#[test]
fn quickstart_loses_no_job_and_doubles_none() {
    let (text, output) = run("quickstart");
    assert!(text.contains("20 jobs, 20 runs, "), "{text}");
    assert!(text.ends_with(" hijacks, 0 lost, 0 doubled\n"), "{text}");
    // Whether there were hijacks is up to chance; each one was told.
    let told = text.lines().filter(|line| line.contains(": someone hijacked my job ")).collect::<Vec<_>>();
    assert!(told.iter().all(|line| line.starts_with("worker ") && line.ends_with("; grabbing another")), "{told:?}");
    assert_eq!(told.len() as u64, number_before(&text, " hijacks"), "each is told once: {text}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn transfer_keeps_the_sum() {
    let (text, _) = run("transfer");
    assert!(text.contains("4 processes, 400 transfers, "), "{text}");
    assert!(text.contains("the accounts hold 500 of 500; 0 of "), "{text}");
}

#[test]
fn exactly_once_counts_exactly() {
    let (text, _) = run("exactly_once");
    assert!(text.trim_end().ends_with("counter 300"), "{text}");
    assert!(text.contains("300 jobs, "), "{text}");
}

#[cfg(feature = "cron")]
#[test]
fn cron_prints_each_slot_once_though_a_worker_is_killed() {
    let (text, _) = run("cron");
    assert!(text.trim_end().ends_with(" slots, 0 of them twice"), "{text}");
    assert!(number_before(&text, " slots, 0 of them twice") >= 6, "{text}");
    assert!(text.contains(" is killed"), "{text}");
    assert_eq!(text.matches("which is 4:30 in Berlin").count(), 3, "{text}");
    assert_eq!(text.matches(" makes the report").count(), 1, "{text}");
}

#[test]
fn limits_are_kept_by_all_processes() {
    let (text, _) = run("limits");
    assert!(text.contains("4 processes ran 112 of 112 jobs of 10 customers"), "{text}");
    assert!(text.contains("ran at once; the limit is 3") && text.contains("at most 1 of one customer"), "{text}");
    assert!(number_before(&text, " ran at once") <= 3, "{text}");
}

#[test]
fn workflow_publishes_once_when_all_have_ended() {
    let (text, _) = run("workflow");
    assert_eq!(text, "a book: 39 jobs completed, 1 died, 1 were cancelled\n");
}

#[test]
fn sql_queue_gives_each_request_its_own_number() {
    let (text, _) = run("sql_queue");
    assert!(text.contains("12 different numbers, from 1 to 12: true"), "{text}");
    assert!(text.contains("12 requests, and the last number is 12"), "{text}");
    assert!(text.contains(" is completed") && text.contains(" has bill 12"), "{text}");
}

#[cfg(feature = "tokio")]
#[test]
fn async_handlers_run_beside_a_blocking_one_and_a_cancelled_one_is_dropped() {
    let (text, _) = run("async_handlers");
    assert!(text.contains("10 pages fetched, ") && text.contains("the sum is 500500\n"), "{text}");
    assert!(text.contains("the page that takes an hour is cancelled\n11 jobs completed\n"), "{text}");
}

#[cfg(unix)]
#[test]
fn isolation_fails_each_job_alone_and_leaves_nothing() {
    let (text, output) = run("isolation");
    assert!(text.contains(": 10 completed, 30 failed\n"), "{text}");
    for why in ["abort is dead: ", "SIGABRT", "leak is dead: ", "more memory than 67108864", "hang is dead: timed out"]
    {
        assert!(text.contains(why), "{why} in {text}");
    }
    let workers: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("worker ")).collect();
    let pids: Vec<&str> = workers.iter().map(|line| line.split([' ', ':']).next().unwrap_or_default()).collect();
    assert_eq!((pids.len(), pids[0]), (2, pids[1]), "it is one process from beginning to end: {text}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told.matches(" aborts its process ").count(), 10, "{told}");
}

#[cfg(unix)]
#[test]
fn progress_follows_a_job_in_a_process_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder for the store");
    let store = folder.path().join("demo.redb");
    let output = Command::new(example("progress")).arg(&store).output().expect("the example runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let own = number_before(text.strip_prefix("process ").expect("it says who it is"), " spawned job");
    assert!(text.contains(" % frame ") && text.contains("done: cat.mp4, cat.webm, by process "), "{text}");
    let runner = text.trim_end().rsplit(' ').next().unwrap_or_default();
    assert_ne!(runner, own.to_string(), "{text}");
}

#[test]
fn three_workers_run_what_producer_enqueued_and_inspect_shows_it() {
    let folder = tempfile::tempdir().expect("a folder for the store");
    let store = folder.path().join("demo.redb");
    let run = |name: &str, options: &[&str]| {
        let output = Command::new(example(name)).args(options).arg(&store).output().expect("the example runs");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(run("producer", &[]).contains("20 jobs are ready"));
    let before = run("inspect", &[]);
    assert!(before.contains("queue default: 0 scheduled, 20 ready, 0 running"), "{before}");
    let told: Vec<String> = thread::scope(|scope| {
        let workers = [(); 3].map(|()| scope.spawn(|| run("worker", &["--strict", "--drain"])));
        workers.into_iter().map(|worker| worker.join().expect("the worker ends well")).collect()
    });
    assert_eq!(told.iter().map(|text| number_before(text, " jobs run")).sum::<u64>(), 20, "{told:?}");
    let after = run("inspect", &[]);
    assert!(after.contains("0 ready, 0 running, 0 dead; 20 ever completed"), "{after}");
}

#[test]
fn examples_tell_their_usage_and_refuse_what_they_do_not_know() {
    let asked_for: &[&str] = if cfg!(feature = "tokio") { &["async_handlers"] } else { &[] };
    for name in asked_for.iter().chain(&[
        "cron",
        "exactly_once",
        "inspect",
        "isolation",
        "limits",
        "producer",
        "progress",
        "quickstart",
        "sql_queue",
        "transfer",
        "worker",
        "workflow",
    ]) {
        let usage = format!("cargo run --release --example {name}");
        let run = |arg: &str| Command::new(example(name)).arg(arg).output().expect("the example runs");
        let help = run("--help");
        assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains(&usage), "{help:?}");
        let refused = run("--colour");
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2));
        assert!(told.contains("there is no option --colour") && told.contains(&usage), "{told}");
    }
    let refused = Command::new(example("inspect")).arg("no/such/store").output().expect("the example runs");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("no/such") && !told.contains("Error {"), "{told}");
}

#[cfg(unix)]
#[test]
fn worker_stops_in_order_and_inspect_reads_after_one_that_was_killed() {
    use std::io::{BufRead as _, BufReader, Read as _};

    let folder = tempfile::tempdir().expect("a folder for the store");
    let store = folder.path().join("demo.redb");
    let started = || {
        let mut command = Command::new(example("worker"));
        let mut worker = command.arg(&store).stdout(Stdio::piped()).spawn().expect("the example runs");
        let mut stdout = BufReader::new(worker.stdout.take().expect("it is piped"));
        stdout.read_line(&mut String::new()).expect("it says that it begins");
        (worker, stdout)
    };
    let (mut killed, _stdout) = started();
    killed.kill().expect("it can be killed");
    killed.wait().expect("it has ended");
    let inspected = Command::new(example("inspect")).arg(&store).output().expect("the example runs");
    assert!(inspected.status.success(), "{inspected:?}");

    let (mut stopped, mut stdout) = started();
    let signalled = Command::new("kill").arg(stopped.id().to_string()).status().expect("kill runs");
    assert!(signalled.success());
    let mut told = String::new();
    stdout.read_to_string(&mut told).expect("it says what it did");
    assert!(stopped.wait().expect("it has ended").success());
    assert!(told.contains("0 jobs run, 0 hijacks"), "{told}");
}
