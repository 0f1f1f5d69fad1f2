//! Jobs in processes of their own: what such a process takes with it when it dies, who outlives whom, and that nothing
//! is left of it.
#![cfg(all(unix, feature = "isolation"))]

mod handlers;
mod isolated;
mod kin;
#[path = "../processes/mod.rs"]
mod processes;
mod spawned;
mod thousands;

use std::{fs::File, os::fd::AsRawFd as _, thread, time::Duration};

use casque::{JobRequest, Worker};
use processes::{argument, await_line, close_here, number_or, play, say, say_event, store_here};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn actor() {
    if number_or("takes-part", 1) == 1 {
        casque::child::run_if_child(&handlers::tasks());
    }
    play(&[("worker", worker), ("spawner", spawner)]);
}

/// Works until it has been told `stop`, once or twice.
fn worker() {
    let store = store_here();
    let worker = Worker::new(&store)
        .tasks(handlers::tasks())
        .concurrency(number_or("concurrency", 1))
        .prefetch(number_or("prefetch", 0))
        .listen(say_event);
    let stop = worker.stop_handle();
    thread::spawn(move || {
        loop {
            await_line("stop");
            stop.stop();
            say("stopping");
        }
    });
    match worker.run() {
        Ok(report) => {
            say(format!("report {} {} {}", report.completed, report.failed, report.given_back));
            await_line("leave");
        }
        Err(error) => say(format!("error {:?} {}", error.kind(), error.full_message())),
    }
    close_here(store);
}

/// Spawns a job of the task that the test names, says its id, and lives on until told to leave.
fn spawner() {
    let store = store_here();
    let request = JobRequest::new(&argument("task"), &()).metadata("folder", argument("folder"));
    let limit = getrlimit(Resource::Nofile);
    if number_or("files", 1) == 0 {
        // What the enqueue needs is open from here on.
        store.queue("other").enqueue(JobRequest::new("note", &())).unwrap();
        let free = File::open("/dev/null").unwrap().as_raw_fd();
        setrlimit(Resource::Nofile, Rlimit { current: Some(u64::try_from(free).unwrap()), ..limit }).unwrap();
    }
    match store.queue("default").spawn(request.timeout(Duration::from_mins(1))) {
        Ok(id) => say(format!("spawned {id}")),
        Err(error) => say(format!("error {:?} {}", error.kind(), error.full_message())),
    }
    setrlimit(Resource::Nofile, limit).unwrap();
    await_line("leave");
    close_here(store);
}
