//! Runs the jobs of `producer`, and says when another worker took its job.
//!
//! ```text
//! cargo run --release --example worker -- [--race] [--strict] [--drain] [STORE]
//! ```
//!
//! What to look at: run `worker --race --strict` in three terminals and `producer` in a fourth. `--race` sleeps for up
//! to three seconds between the snapshot and the commit, so the workers shift the same job; one gets it, the others are
//! hijacked, and all twenty jobs run once. Without `--strict` a hijack costs nothing: the claim takes the next job in
//! the same commit. Kill one with `kill -9` while it runs a job: another takes the job over in under a second.

mod common;

use std::{
    env,
    error::Error,
    path::PathBuf,
    process::{self, ExitCode},
    thread,
    time::Duration,
};

use casque::{Event, Policy, Registry, Store, Worker};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

fn main() -> ExitCode {
    common::run(include_str!("worker.rs"), &["--race", "--strict", "--drain"], play)
}

fn play(args: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    let mut path = env::temp_dir().join("casque-demo.redb");
    let (mut race, mut strict, mut drain) = (false, false, false);
    for arg in args {
        match *arg {
            "--race" => race = true,
            "--strict" => strict = true,
            "--drain" => drain = true,
            store => path = PathBuf::from(store),
        }
    }

    let mut tasks = Registry::new();
    tasks.register("say", |job, text: String| {
        println!("job {} (token {}): {text}", job.id(), job.token());
        thread::sleep(Duration::from_millis(300));
        Ok(())
    })?;

    let store = Store::open(&path)?;
    let mut worker = Worker::new(&store)
        .tasks(tasks)
        .policy(if strict { Policy::Strict } else { Policy::Rebase })
        .drain(drain)
        .listen(|event| match event {
            // A strict worker says so by itself, on stderr.
            Event::Hijacked(hijack) => {
                let by = hijack.by.as_ref().map_or_else(|| "another".to_owned(), ToString::to_string);
                println!("{by} hijacked job {}; took the next one in the same commit", hijack.job);
            }
            Event::Recovered { jobs, .. } => println!("took back {} jobs of a dead worker", jobs.len()),
            Event::Trouble { doing, message } => eprintln!("failed to {doing}: {message}"),
            _ => {}
        });
    if race {
        worker = worker.pause_before_commit(|| thread::sleep(Duration::from_millis(fastrand::u64(0..3_000))));
    }

    let (mut signals, stop) = (Signals::new([SIGINT, SIGTERM])?, worker.stop_handle());
    // The first signal lets it finish what it has begun, a second one stops it at once.
    thread::spawn(move || signals.forever().for_each(|_| stop.stop()));

    println!("worker {} on {}; stop it with Ctrl-C", process::id(), path.display());
    let report = worker.run()?;
    println!("{} jobs run, {} hijacks", report.completed, report.hijacks);
    store.close()?;
    Ok(ExitCode::SUCCESS)
}
