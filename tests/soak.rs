//! Ten seconds of load by each way to commit that no other test takes: the stone without its log, and a process that
//! serves and does nothing else.

mod load;
mod processes;

use std::{thread, time::Duration};

use load::{ROLES, drain, judge_jobs, judge_single_runs, judge_sum, stop_all};
use processes::{Actor, Committer, Scene, expect_all, play};

const LENGTH: Duration = Duration::from_secs(10);

#[test]
fn actor() {
    play(&ROLES);
}

/// All kinds of load for a while, and none of it dies: what was answered is there, and was done once.
fn soak(committer: Committer) {
    let scene = Scene::by(committer);
    let roles = ["worker", "worker", "claimer", "producer", "producer", "adder"];
    let mut actors: Vec<Actor> = roles.map(|role| scene.actor(role, &[])).into();
    expect_all(&mut actors, "begun");
    thread::sleep(LENGTH); // waits: for that much load, which is the point
    let (told, sum) = stop_all(actors);
    assert!(told.is_empty(), "{told:#?}");
    let store = scene.store();
    drain(&scene, &store);
    judge_jobs(&scene, &store);
    judge_single_runs(&scene);
    judge_sum(&store, sum);
    let [direct, own, other] = scene.check_paths();
    assert!(own + other > 10 * direct, "a stone commits");
}

#[test]
fn load_by_a_stone_without_its_log_is_done_once() {
    soak(Committer::WorkerWithoutLog);
}

#[test]
fn load_by_a_process_that_serves_is_done_once() {
    soak(Committer::Server);
}
