//! The hijack, played by two real processes: both have shifted the same job before either commits.

mod processes;

use casque::{JobRequest, Policy, Registry, Worker};
use processes::{
    Actor, Scene, argument, assert_sound, await_line, close_here, observer_here, options, path_here, play, say,
    say_event,
};

#[test]
fn actor() {
    play(&[("worker", worker)]);
}

/// Works until the queue is empty. Says `shifted` between snapshot and commit, and commits when told `commit`; its
/// handlers end when told `end`.
fn worker() {
    let store = options().label(argument("label")).open(path_here("app.redb")).unwrap();
    let policy = if argument("policy") == "strict" { Policy::Strict } else { Policy::Rebase };
    let observer = observer_here();
    let mut tasks = Registry::new();
    tasks
        .register("note", move |job, (): ()| {
            observer.note_run(job);
            await_line("end");
            Ok(())
        })
        .unwrap();
    let pause = || {
        say("shifted");
        await_line("commit");
    };
    let worker = Worker::new(&store).tasks(tasks).policy(policy).pause_before_commit(pause).listen(say_event);
    let report = worker.drain(true).run().unwrap();
    say(format!("report {} {}", report.hijacks, report.completed));
    close_here(store);
}

/// Two jobs, and two workers that have both shifted the first of them.
fn both_shifted(policy: &str) -> (Scene, Vec<String>, Actor, Actor) {
    let scene = Scene::new();
    let queue = scene.store().queue("default");
    let jobs = [(); 2].map(|()| queue.enqueue(JobRequest::new("note", &())).unwrap().to_string());
    let [mut winner, mut loser] =
        ["winner", "loser"].map(|label| scene.actor("worker", &[("label", label), ("policy", policy)]));
    winner.expect("shifted");
    loser.expect("shifted");
    (scene, jobs.into(), winner, loser)
}

/// Lets both handlers end; each worker completed one job, and each job ran once, the first by the winner. Gives how
/// often the loser complained.
fn both_end(scene: &Scene, jobs: &[String], mut winner: Actor, mut loser: Actor) -> usize {
    let pids = [winner.pid(), loser.pid()].map(|pid| pid.to_string());
    winner.tell("end");
    loser.tell("end");
    assert_eq!(winner.expect("report"), "0 1");
    assert_eq!(loser.expect("report"), "1 1");
    let rest = winner.finish();
    let (rest_of_loser, errors) = loser.finish_with_errors();
    let claimed_again = rest.iter().chain(&rest_of_loser).any(|line| line == "shifted" || line.starts_with("claimed"));
    assert!(!claimed_again, "{rest:?} {rest_of_loser:?}");
    let runs = scene.observer().lines();
    let who_ran_what: Vec<(&str, &str)> =
        runs.iter().map(|line| (line.split(' ').next().unwrap(), line.split(' ').nth(2).unwrap())).collect();
    let expected: Vec<(&str, &str)> = jobs.iter().map(String::as_str).zip(pids.iter().map(String::as_str)).collect();
    assert_eq!(who_ran_what, expected);
    let stats = scene.store().queue("default").stats().unwrap();
    assert_eq!((stats.completed, stats.hijacks, stats.ready, stats.running), (2, 1, 0, 0));
    assert_sound(&scene.store());
    errors.iter().filter(|line| line.contains("someone hijacked my job; grabbing another")).count()
}

/// S10.
#[test]
fn strict_loser_gets_one_conflict_and_then_the_next_job() {
    let (scene, jobs, mut winner, mut loser) = both_shifted("strict");
    let store = scene.store();
    let read = store.snapshot().unwrap().queue("default").version().unwrap();

    winner.tell("commit");
    let claimed = winner.expect("claimed");
    let (token, job) = claimed.split_once(' ').unwrap();
    assert_eq!(job, jobs[0]);
    let found = store.snapshot().unwrap().queue("default").version().unwrap();
    assert_eq!(found.to_string(), token, "the queue's version is that of the claim");

    let before = store.version().unwrap();
    loser.tell("commit");
    let conflict = loser.expect("conflict");
    let expected = format!(
        "someone hijacked job {} of queue \"default\": read at version {read}, found at version {found}, written by \
         winner; retry on a fresh snapshot",
        jobs[0]
    );
    assert_eq!(conflict, expected);
    loser.expect("shifted");
    assert_eq!(store.version().unwrap(), before, "a conflict changes nothing");

    loser.tell("commit");
    let claimed = loser.expect("claimed");
    assert_eq!(claimed.split_once(' ').unwrap().1, jobs[1]);
    assert_eq!(loser.said("conflict"), None, "there was one conflict");
    let told = both_end(&scene, &jobs, winner, loser);
    assert_eq!(told, 1, "the loser says so on stderr, once");
}

#[test]
fn rebase_loser_gets_the_next_job_in_the_same_commit() {
    let (scene, jobs, mut winner, mut loser) = both_shifted("rebase");
    let store = scene.store();

    winner.tell("commit");
    assert_eq!(winner.expect("claimed").split_once(' ').unwrap().1, jobs[0]);

    let before = store.version().unwrap();
    loser.tell("commit");
    assert_eq!(loser.expect("hijacked"), format!("{} winner", jobs[0]));
    let claimed = loser.expect("claimed");
    assert_eq!(claimed, format!("{} {}", before.0 + 1, jobs[1]), "one commit for the loss and the next job");
    assert_eq!(loser.said("shifted"), None, "it did not look again");
    assert_eq!(loser.said("hijacked"), None, "there was one hijack");
    let told = both_end(&scene, &jobs, winner, loser);
    assert_eq!(told, 0, "only strict workers complain");
}
