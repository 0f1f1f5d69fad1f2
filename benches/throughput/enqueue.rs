//! Enqueueing: one by one, by threads and by processes, in batches, and by the command.

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    bare::timed,
    common::{Crew, Options, Report, answer, float, open_counted, ready, repeat_for, sum},
    job, rate_line, time_line,
};

const BATCH: u64 = 100;

pub fn measure(options: &Options, report: &mut Report) {
    by_command(options, report);
    for threads in [1, 4, 16] {
        by_threads(options, report, threads);
    }
    by_processes(options, report, 4);
    in_batches(options, report);
}

/// `casque enqueue`, from the start of the process to its end. What it syncs is counted in this process, which opens,
/// enqueues and closes as the command does.
fn by_command(options: &Options, report: &mut Report) {
    const NAME: &str = "one-shot `casque enqueue`, start to end";
    let folder = options.fresh_folder();
    let path = folder.path().join("command.redb");
    let mut syncs = 0;
    // The first one makes the store.
    for _ in 0..2 {
        let (store, counted) = open_counted(&path);
        store.queue("default").enqueue(job()).expect("a job is enqueued");
        store.close().expect("the store closes");
        syncs = counted.count();
    }
    let run = || {
        let program = option_env!("CARGO_BIN_EXE_casque")?;
        let output = Command::new(program).arg("--store").arg(&path).args(["enqueue", "noop"]).output().ok()?;
        (output.status.success() && !output.stdout.is_empty()).then_some(())
    };
    if run().is_none() {
        return report.line(NAME, "skipped: there is no command that enqueues", &json!(null));
    }
    let runs = if options.quick { 20 } else { 200 };
    let times: Vec<f64> = (0..runs).map(|_| timed(|| run().expect("it ran before"))).collect();
    time_line(report, NAME, &times, float(syncs));
}

fn by_threads(options: &Options, report: &mut Report, threads: usize) {
    let folder = options.fresh_folder();
    let (store, syncs) = open_counted(&folder.path().join("threads.redb"));
    store.queue("default").enqueue(job()).expect("a first job");
    let (before, count, began) = (syncs.count(), AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let queue = store.queue("default");
                let (done, _) = repeat_for(options.duration(), || {
                    queue.enqueue(job()).expect("a job is enqueued");
                });
                count.fetch_add(done, Ordering::Relaxed);
            });
        }
    });
    let name = format!("enqueue one by one, {threads} threads");
    rate_line(report, &name, count.into_inner(), began.elapsed(), syncs.count() - before);
}

fn by_processes(options: &Options, report: &mut Report, processes: usize) {
    let folder = options.fresh_folder();
    let path = folder.path().join("processes.redb");
    let (store, _) = open_counted(&path);
    let queue = store.queue("default");
    queue.enqueue(job()).expect("a first job");
    let path = path.to_str().expect("a path of text");
    let mut crew = Crew::start(processes, "producer", &[path, &options.seconds.to_string()]);
    let before = queue.stats().expect("the queue is counted").ready;
    crew.go();
    let answers = crew.answers();
    let count = queue.stats().expect("the queue is counted").ready - before;
    let name = format!("enqueue one by one, {processes} processes");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    rate_line(report, &name, count, options.duration(), sum(&answers, "syncs") as u64);
}

pub fn produce(args: &[String]) -> ! {
    let [path, seconds] = args else { panic!("a producer has two arguments") };
    let seconds: f64 = seconds.parse().expect("a number");
    let (store, syncs) = open_counted(Path::new(path));
    let queue = store.queue("default");
    queue.enqueue(job()).expect("a first job");
    ready();
    let before = syncs.count();
    repeat_for(Duration::from_secs_f64(seconds), || {
        queue.enqueue(job()).expect("a job is enqueued");
    });
    answer(&json!({ "syncs": syncs.count() - before }))
}

fn in_batches(options: &Options, report: &mut Report) {
    let folder = options.fresh_folder();
    let (store, syncs) = open_counted(&folder.path().join("batches.redb"));
    let queue = store.queue("default");
    queue.enqueue(job()).expect("a first job");
    let before = syncs.count();
    let (batches, took) = repeat_for(options.duration(), || {
        drop(queue.enqueue_batch((0..BATCH).map(|_| job())).expect("a batch is enqueued"));
    });
    rate_line(report, "enqueue in batches of 100", BATCH * batches, took, syncs.count() - before);
}
