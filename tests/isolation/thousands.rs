//! Two thousand isolated jobs, of which three in ten take their process with them.

use std::time::Duration;

use casque::{JobFilter, JobRequest, State};

use crate::{
    kin::{children_of, is_there},
    processes::{Committer, Scene, assert_sound, until},
};

const JOBS: usize = 2_000;

#[test]
fn of_two_thousand_jobs_each_ends_as_it_must_and_nothing_is_left_of_their_processes() {
    let scene = Scene::without_disk(Committer::Worker);
    let store = scene.store();
    let queue = store.queue("default");
    let job = |number: usize| {
        let (task, timeout) = match number % 10 {
            0 => ("abort", 60_000),
            1 => ("hog", 60_000),
            2 => ("hang", 40),
            _ => ("whoami", 60_000),
        };
        JobRequest::new(task, &()).max_attempts(1).timeout(Duration::from_millis(timeout))
    };
    let jobs = queue.enqueue_batch((0..JOBS).map(job)).unwrap();
    let mut worker = scene.actor("worker", &[("concurrency", "4")]);
    let parent = worker.pid();
    until("all to end", || {
        let stats = queue.stats().unwrap();
        (stats.ready + stats.running + stats.scheduled == 0).then_some(())
    });
    // Nothing runs now, so whoever has ended was reaped.
    assert!(children_of(parent).iter().all(|child| !child.is_zombie));
    let mut children = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        let found = store.job(*job).unwrap();
        let says = match number % 10 {
            0 => "SIGABRT",
            1 => "asked for more memory than",
            2 => "timed out after 40 ms",
            _ => {
                assert_eq!((found.state, found.attempt), (State::Completed, 1), "{found:?}");
                let (child, its_parent) = store.wait::<(u32, u32)>(*job, Duration::ZERO).unwrap();
                assert_eq!(its_parent, parent, "the worker was never another process");
                children.push(child);
                continue;
            }
        };
        assert_eq!((found.state, found.attempt, found.errors.len()), (State::Dead, 1, 1), "{found:?}");
        assert!(found.errors[0].message.contains(says), "{found:?}");
    }
    let stats = queue.stats().unwrap();
    assert_eq!((stats.dead, stats.completed), (600, 1_400));
    assert_eq!(store.jobs(&JobFilter::new().state(State::Running), 1).unwrap(), []);
    worker.tell("stop");
    assert_eq!(worker.expect("report"), "1400 600 0");
    assert_eq!(children_of(parent), []);
    children.sort_unstable();
    children.dedup();
    assert!(children.len() < 1_400, "warm processes were used again");
    assert!(children.iter().all(|child| !is_there(*child)));
    worker.tell("leave");
    worker.finish();
    assert_sound(&store);
}
