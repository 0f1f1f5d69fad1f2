//! What idle workers of casque cost together.

use std::{fs, thread, time::Duration};

use crate::{
    client::ErrandKind,
    crew::{Crew, errand},
    options::Options,
    peer::Peer as _,
    peers::Casque,
};

/// The kernel counts in hundredths of a second, on all machines that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// After a second, idle workers are at rest.
const SETTLE: Duration = Duration::from_secs(2);
const WATCHED: Duration = Duration::from_secs(5);

/// The part of one core that so many idle worker processes take together.
pub fn cores(options: &Options) -> f64 {
    let folder = tempfile::tempdir_in(&options.folder).expect("the folder is writable");
    let running = Casque.start(folder.path(), true);
    let mut idle = errand(Casque.name(), &running.address, ErrandKind::WorkAndTell);
    idle.seconds = 3600.0;
    let mut crew = Crew::start(options.idle_workers, &idle);
    crew.go();
    thread::sleep(SETTLE);
    let before = ticks(&crew);
    thread::sleep(WATCHED);
    (ticks(&crew) - before) / TICKS_PER_SECOND / WATCHED.as_secs_f64()
}

fn ticks(crew: &Crew) -> f64 {
    let ticks = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a worker is alive");
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        // Of the fields behind the name, these are the times in the program and in the kernel.
        behind.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>()
    };
    crew.pids().iter().map(ticks).sum()
}
