//! Jobs that come again and again: one each second, one by a cron expression with a time zone, and two workers.
//!
//! ```text
//! cargo run --release --example cron [STORE]
//! ```
//!
//! What to look at: both workers define the same two schedules, and both keep the store in order, so each of them could
//! enqueue every slot. Yet each slot is printed once, since the slot and its job are one change. One of the workers is
//! killed after some slots, and nothing is missing: the other goes on. The last lines tell the next slots of the
//! nightly report, by the clocks of Berlin; the job of that one is run now, beside its slots.

mod common;

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{self, Child, Command, ExitCode, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use casque::{CatchUp, JobRequest, Registry, Schedule, Store, Worker};

/// How many slots are waited for, and after how many a worker is killed.
const SLOTS: usize = 6;
const SLOTS_BEFORE_THE_KILL: usize = 3;
const PATIENCE: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    common::run(include_str!("cron.rs"), &[], |args| match *args {
        [] => {
            let folder = tempfile::tempdir()?;
            play(&folder.path().join("cron.redb"))
        }
        ["worker", store] => work(&Store::open(store)?),
        [store] => play(Path::new(store)),
        _ => Err("usage: cron [STORE]".into()),
    })
}

/// What all workers define: the same again changes nothing.
fn schedules() -> [Schedule; 2] {
    let tick = Schedule::every("tick", Duration::from_secs(1), JobRequest::new("tick", &()));
    let report = Schedule::cron("report", "30 4 * * 1-5", JobRequest::new("report", &()));
    // Each second counts here, also those in which nobody was there.
    [tick.catch_up(CatchUp::All(60)), report.zone("Europe/Berlin")]
}

/// Starts two workers, kills one, and counts what they print.
fn play(path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    if path.exists() {
        return Err(format!("{} is there already; name a fresh store", path.display()).into());
    }
    let store = Store::open(path)?;
    let (mut first, lines) = start(path)?;
    let mut slots: BTreeMap<String, usize> = BTreeMap::new();
    let mut take = |lines: &Receiver<String>, upto: usize| -> Result<(), Box<dyn Error>> {
        while slots.len() < upto {
            let line = lines.recv_timeout(PATIENCE)?;
            println!("{line}");
            if let Some((_, slot)) = line.split_once("slot ") {
                *slots.entry(slot.to_owned()).or_default() += 1;
            }
        }
        Ok(())
    };
    take(&lines, 1)?;
    let (mut second, others) = start(path)?;
    let lines = merged([lines, others]);
    take(&lines, SLOTS_BEFORE_THE_KILL)?;
    first.kill()?;
    first.wait()?;
    println!("worker {} is killed", first.id());
    take(&lines, SLOTS)?;

    let report = store.schedule_named("report")?;
    for slot in report.upcoming(3)? {
        println!("report: {slot}, which is 4:30 in Berlin");
    }
    let id = store.run_schedule("report")?;
    store.wait_ended(id, PATIENCE)?;
    store.put("finished", &true)?;
    second.wait()?;
    let left: Vec<String> = lines.iter().collect();
    left.iter().for_each(|line| println!("{line}"));
    for slot in left.iter().filter_map(|line| line.split_once("slot ")).map(|(_, slot)| slot) {
        *slots.entry(slot.to_owned()).or_default() += 1;
    }
    let twice = slots.values().filter(|times| **times > 1).count();
    println!("{} slots, {twice} of them twice", slots.len());
    store.close()?;
    Ok(if twice == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn start(store: &Path) -> Result<(Child, Receiver<String>), Box<dyn Error>> {
    let mut worker = Command::new(env::current_exe()?).arg("worker").arg(store).stdout(Stdio::piped()).spawn()?;
    let stdout = BufReader::new(worker.stdout.take().expect("it is piped"));
    let (told, lines) = channel();
    thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| told.send(line)));
    Ok((worker, lines))
}

fn merged(sources: [Receiver<String>; 2]) -> Receiver<String> {
    let (told, lines) = channel();
    for source in sources {
        let told = told.clone();
        thread::spawn(move || source.iter().try_for_each(|line| told.send(line)));
    }
    lines
}

/// Serves the schedules and runs their jobs, until the root says that all is finished.
fn work(store: &Store) -> Result<ExitCode, Box<dyn Error>> {
    let pid = process::id();
    let mut tasks = Registry::new();
    tasks.register("tick", move |job, (): ()| {
        let slot = job.metadata().iter().find(|(key, _)| key == "scheduled_for").map_or("none", |(_, slot)| slot);
        println!("worker {pid}: slot {slot}");
        Ok(())
    })?;
    tasks.register("report", move |job, (): ()| {
        println!("worker {pid}: job {} makes the report", job.id());
        Ok(())
    })?;
    let worker = schedules().into_iter().fold(Worker::new(store).tasks(tasks), Worker::schedule);
    let (stop, root) = (worker.stop_handle(), store.clone());
    thread::spawn(move || {
        // Also when the wait fails: a worker that can't be told to stop should not stay.
        let _ = root.watch_key::<bool>("finished", None, 2 * PATIENCE);
        stop.stop();
    });
    worker.run()?;
    Ok(ExitCode::SUCCESS)
}
