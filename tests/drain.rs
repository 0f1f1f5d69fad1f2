//! A draining worker ends when its own queue is drained, whatever others do meanwhile.

mod processes;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

use casque::{JobRequest, Registry, Store, Worker};
use processes::{Committer, Scene, assert_sound, await_line, close_here, expect_all, play, say, store_here, until};

const JOBS: usize = 50;
/// Processes that commit all the time.
const OTHERS: usize = 4;
/// Longer than a worker needs by far that is not kept by what is none of its business.
const SOON: Duration = Duration::from_secs(8);

#[test]
fn actor() {
    play(&[("other", other)]);
}

/// Enqueues, claims and completes in a queue of its own, and writes to the root, without a pause.
fn other() {
    let store = store_here();
    let queue = store.queue("others");
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = is_over.clone();
    thread::spawn(move || {
        await_line("stop");
        ends.store(true, Ordering::SeqCst);
    });
    let mut has_begun = false;
    while !is_over.load(Ordering::SeqCst) {
        queue.enqueue(JobRequest::new("theirs", &())).unwrap();
        store.add("n", 1).unwrap();
        for lease in queue.claim(1, Duration::ZERO).unwrap() {
            lease.complete().unwrap();
        }
        if !has_begun {
            say("begun");
            has_begun = true;
        }
    }
    close_here(store);
}

fn drains(committer: Committer) {
    let scene = Scene::without_disk(committer);
    let store: Store = scene.store();
    let queue = store.queue("own");
    queue.enqueue_batch((0..JOBS).map(|_| JobRequest::new("mine", &()))).unwrap();
    // Nobody here runs this one, and so nobody waits for it.
    queue.enqueue(JobRequest::new("unknown", &())).unwrap();
    let mut others: Vec<_> = (0..OTHERS).map(|_| scene.actor("other", &[])).collect();
    expect_all(&mut others, "begun");

    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let mut tasks = Registry::new();
    tasks
        .register("mine", move |_, ()| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
    let worker = Worker::new(&store).tasks(tasks).queue("own").drain(true);
    let stop = worker.stop_handle();
    let (tell, drained) = channel();
    let version = store.version().unwrap();
    let working = thread::spawn(move || tell.send(worker.run()));
    let report = drained.recv_timeout(SOON);
    if report.is_err() {
        stop.stop();
    }
    let report = report.expect("it drains beside the others").unwrap();
    working.join().unwrap().unwrap();
    assert_eq!((report.completed, runs.load(Ordering::SeqCst)), (JOBS as u64, JOBS));
    assert_eq!(report.left[0].ready, 1, "{:?}", report.left);
    let theirs = store.version().unwrap().0 - version.0;
    println!("{committer:?}: {theirs} changes meanwhile");
    until("the others go on", || (store.version().unwrap().0 > version.0 + theirs + 20).then_some(()));
    processes::tell_all(&mut others, "stop");
    processes::finish_all(others);
    assert_sound(&store);
    store.close().unwrap();
}

#[test]
fn worker_that_drains_beside_the_traffic_of_others_ends() {
    drains(Committer::Worker);
}

#[test]
fn worker_that_drains_through_a_stone_beside_the_traffic_of_others_ends() {
    drains(Committer::Server);
}

#[test]
fn worker_that_drains_beside_direct_commits_of_others_ends() {
    drains(Committer::Itself);
}
