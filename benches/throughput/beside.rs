//! Opening a store and committing once, beside a process that commits in a loop: does it get its turn, and how soon?

use std::{path::Path, time::Duration};

use casque::Store;
use serde_json::json;

use crate::{
    bare::timed,
    common::{Crew, Options, Report, answer, float, open_counted, ready, repeat_for},
    job, time_line,
};

pub fn measure(options: &Options, report: &mut Report) {
    for committers in [0, 1] {
        let folder = options.fresh_folder();
        let path = folder.path().join("beside.redb");
        Store::open(&path).and_then(Store::close).expect("the store is made");
        let openings = if options.quick { 50 } else { 300 };
        let mut crew = Crew::start(committers, "committer", &[path.to_str().expect("a path of text"), "3600"]);
        crew.go();
        let (mut to_answer, mut to_close) = (Vec::new(), Vec::new());
        let (mut syncs_to_answer, mut syncs_to_close) = (0, 0);
        for _ in 0..openings {
            let mut opened = None;
            to_answer.push(timed(|| {
                let (store, syncs) = open_counted(&path);
                store.queue("default").enqueue(job()).expect("a job is enqueued");
                opened = Some((store, syncs));
            }));
            let (store, syncs) = opened.expect("it was opened");
            let answered = syncs.count();
            to_close.push(timed(|| store.close().expect("the store closes")));
            syncs_to_answer += answered;
            syncs_to_close += syncs.count() - answered;
        }
        let beside = if committers == 0 { "alone" } else { "beside a busy committer" };
        let each = |syncs| float(syncs) / float(openings);
        time_line(report, &format!("open and commit once, {beside}"), &to_answer, each(syncs_to_answer));
        time_line(report, &format!("... and close it, {beside}"), &to_close, each(syncs_to_close));
        crew.kill();
    }
}

pub fn commit_in_a_loop(args: &[String]) -> ! {
    let [path, seconds] = args else { panic!("a committer has two arguments") };
    let (store, _) = open_counted(Path::new(path));
    let queue = store.queue("default");
    ready();
    repeat_for(Duration::from_secs_f64(seconds.parse().expect("a number")), || {
        queue.enqueue(job()).expect("a job is enqueued");
    });
    answer(&json!(null))
}
