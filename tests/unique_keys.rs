//! S23: thirty-two processes enqueue the same unique key at once, again and again: one job each time, and all get its
//! id.

mod processes;

use std::collections::HashSet;

use casque::{JobFilter, JobId, JobRequest, Unique};
use processes::{
    Committer, Observer, Scene, assert_sound, await_line, close_here, expect_all, finish_all, number_or, path_here,
    play, say, store_here, tell_all,
};

const PROCESSES: usize = 32;
/// After how many rounds all wait for each other, so that they keep meeting.
const TOGETHER: usize = 50;

#[test]
fn actor() {
    play(&[("producer", producer)]);
}

/// Enqueues one job per round, with the round's key, and notes the ids that it got.
fn producer() {
    let store = store_here();
    let queue = store.queue("q");
    let observer = Observer::open(&path_here(&format!("ids-{}", std::process::id())));
    for round in 0..number_or("rounds", 0) {
        if round % TOGETHER == 0 {
            say("ready");
            await_line("go");
        }
        // Its own pid is among the arguments: the key makes it the same job, and nothing else.
        let unique = if round % 2 == 0 { Unique::key(format!("{round}")) } else { Unique::by(&round).across_queues() };
        let id = queue.enqueue(JobRequest::new("task", &std::process::id()).unique_by(unique)).unwrap();
        observer.note(&id.to_string());
    }
    close_here(store);
}

fn of_all_that_enqueue_one_key_at_once_all_get_one_job(committer: Committer, rounds: usize) {
    let scene = Scene::without_disk(committer);
    let store = scene.store();
    let number = rounds.to_string();
    let mut producers: Vec<_> = (0..PROCESSES).map(|_| scene.actor("producer", &[("rounds", &number)])).collect();
    for _ in 0..rounds.div_ceil(TOGETHER) {
        expect_all(&mut producers, "ready");
        tell_all(&mut producers, "go");
    }
    let pids: Vec<u32> = producers.iter().map(processes::Actor::pid).collect();
    finish_all(producers);
    let ids = pids.iter().map(|pid| Observer::open(&scene.path(&format!("ids-{pid}"))).lines());
    let mut seen: Vec<Vec<String>> = ids.collect();
    let first = seen.pop().unwrap();
    assert_eq!(first.len(), rounds);
    for other in seen {
        assert_eq!(other, first, "two processes got different jobs for one key");
    }
    let distinct: HashSet<JobId> = first.iter().map(|id| id.parse().unwrap()).collect();
    assert_eq!(distinct.len(), rounds, "one job for each key");
    let jobs = store.jobs(&JobFilter::new(), usize::MAX).unwrap();
    assert_eq!(jobs.len(), rounds, "and no others");
    let makers: HashSet<u32> = jobs.iter().map(|job| job.args.decode::<u32>().unwrap()).collect();
    println!("{} of {PROCESSES} processes were the first at some time", makers.len());
    assert!(makers.len() > 1, "they never met");
    assert_sound(&store);
    store.close().unwrap();
}

#[test]
fn of_32_processes_that_enqueue_one_key_at_once_a_thousand_times_all_get_one_job_where_one_commits_for_all() {
    of_all_that_enqueue_one_key_at_once_all_get_one_job(Committer::Server, 1_000);
}

#[test]
fn of_32_processes_that_enqueue_one_key_at_once_all_get_one_job_where_each_commits_for_itself() {
    of_all_that_enqueue_one_key_at_once_all_get_one_job(Committer::Itself, 100);
}
