//! What a job costs whose handler runs in a process of its own, beside one whose handler runs on a thread.

use std::time::Instant;

use casque::{Isolation, JobRequest, Registry, Worker};

use crate::{
    PAYLOAD_BYTES,
    common::{Options, Report, open_counted},
    rate_line,
};

/// How many jobs a second there must be for.
const SUPPLY: f64 = 60_000.0;
const BATCH: u64 = 10_000;

pub fn tasks() -> Registry {
    let mut tasks = Registry::new();
    tasks.register("thread", |_, _: Vec<u8>| Ok(())).expect("the registry is empty");
    tasks.register("process", |_, _: Vec<u8>| Ok(())).expect("the id is free").isolated(Isolation::PROCESS);
    tasks
}

pub fn measure(options: &Options, report: &mut Report) {
    for handlers in [1, 4] {
        for task in ["thread", "process"] {
            by_handlers(options, report, task, handlers);
        }
    }
}

fn by_handlers(options: &Options, report: &mut Report, task: &str, handlers: usize) {
    let folder = options.fresh_folder();
    let (store, syncs) = open_counted(&folder.path().join("isolated.redb"));
    let queue = store.queue("default");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let batches = (options.seconds * SUPPLY) as u64 / BATCH + 1;
    for _ in 0..batches {
        let job = || JobRequest::new(task, &[7_u8; PAYLOAD_BYTES][..]);
        queue.enqueue_batch((0..BATCH).map(|_| job())).expect("a batch is enqueued");
    }
    let worker = Worker::new(&store).tasks(tasks()).concurrency(handlers).drain(true);
    let (stop, duration) = (worker.stop_handle(), options.duration());
    std::thread::spawn(move || {
        std::thread::sleep(duration);
        stop.stop();
    });
    let (before, began) = (syncs.count(), Instant::now());
    let done = worker.run().expect("the worker runs").completed;
    let name = format!("Worker, {handlers} handlers, each a {task}");
    rate_line(report, &name, done, began.elapsed(), syncs.count() - before);
}
