//! What jobs that can't run cost those that can: a store with a million scheduled, a million finished and a million
//! dead jobs beside one with none of them, at the same work in turns.
//!
//! Bytes are those that the stone writes, to the store's file and to its log. Each window that goes into the file
//! writes redb's allocator state, which is as large as the file asks for; what a window with next to nothing in it
//! takes is measured in each store, and taken off.

use std::{path::Path, time::Duration};

use casque::{JobRequest, Registry, Store, TaskError, Worker};
use serde_json::json;

use crate::{
    FILL_BATCH, Place,
    common::{Options, Report, file_bytes, float, mebibytes},
    rounds::{self, Site, USUAL},
};

const SPEED_PROMISED: f64 = 0.8;
const BYTES_PROMISED: f64 = 0.05;
/// When the scheduled jobs would run.
const FAR: Duration = Duration::from_hours(10 * 365 * 24);

pub fn measure(options: &Options, report: &mut Report, empty: &Place, folder: &Path) {
    let each = options.jobs.unwrap_or(if options.quick { 20_000 } else { 1_000_000 });
    let crowded = crowd(&folder.join("crowded.redb"), each, empty.depth);
    report.line(
        &format!("the store with {each} each of scheduled, finished and dead jobs"),
        &format!("{:>9.1} MiB", mebibytes(file_bytes(&crowded.path))),
        &json!({ "bytes": file_bytes(&crowded.path) }),
    );
    let places = [empty.clone(), crowded];
    let mut sites = places.each_ref().map(|place| Site::new(place, Some(USUAL)));
    let trivial = sites.each_mut().map(Site::trivial_window);
    let before = sites.each_mut().map(Site::written);
    let costs = rounds::compare(options, report, &places, &mut sites);
    let after = sites.each_mut().map(Site::written);
    for (doing, cost) in rounds::DOINGS.iter().zip(costs).filter(|(doing, _)| **doing == "claim") {
        let name = format!("{doing}: how fast beside the crowd");
        report.verdict(&name, 1.0 / cost, "at least 0.8", 1.0 / cost >= SPEED_PROMISED);
    }
    let per_job: [f64; 2] = std::array::from_fn(|index| {
        let (bytes, windows) = (after[index].bytes - before[index].bytes, after[index].windows - before[index].windows);
        let allocator = windows * trivial[index];
        let per_job = (bytes - allocator) / float(sites[index].jobs_done());
        report.line(
            &format!("bytes written per job, {}", places[index].name),
            &format!("{per_job:>9.0}     beyond {:.0} KiB for each of {windows:.0} windows", trivial[index] / 1024.0),
            &json!({ "bytes": per_job, "windows": windows, "bytes_of_a_window": trivial[index] }),
        );
        per_job
    });
    let difference = (per_job[1] / per_job[0] - 1.0).abs();
    report.verdict("bytes per job: how different", difference, "below 0.05", difference < BYTES_PROMISED);
    for (place, site) in places.iter().zip(sites) {
        site.tell_memory(report, &place.name);
    }
}

/// A store with so many scheduled, finished and dead jobs, and some that are ready.
fn crowd(path: &Path, each: u64, ready: u64) -> Place {
    let store = Store::open(path).expect("the store opens");
    {
        let _serving = store.serve().expect("this process serves");
        let queue = store.queue("default");
        let mut left = each;
        while left > 0 {
            let batch = left.min(FILL_BATCH);
            let of = |task: &'static str| move || JobRequest::new(task, &[7_u8; crate::PAYLOAD_BYTES][..]);
            for job in [&(|| of("noop")().delay(FAR)) as &dyn Fn() -> JobRequest, &|| of("finishes")().keep(), &|| {
                of("dies")()
            }] {
                queue.enqueue_batch((0..batch).map(|_| job())).expect("a batch is enqueued");
            }
            left -= batch;
        }
        let mut tasks = Registry::new();
        tasks.register("finishes", |_, _: Vec<u8>| Ok(())).expect("it is the first");
        tasks
            .register("dies", |_, _: Vec<u8>| Err::<(), _>(TaskError::fatal("it is to die")))
            .expect("it is the second");
        let report = Worker::new(&store).tasks(tasks).drain(true).run().expect("the worker runs");
        assert_eq!((report.completed, report.failed), (each, each));
        crate::enqueue(&queue, ready, FILL_BATCH);
    }
    store.close().expect("the store closes");
    Place { name: format!("beside 3 x {each} that can't run"), path: path.to_owned(), depth: ready }
}
