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

use std::{env, error::Error, path::PathBuf, process, thread, time::Duration};

use casque::{Event, Policy, Registry, Store, Worker};

fn main() -> Result<(), Box<dyn Error>> {
    let mut path = env::temp_dir().join("casque-demo.redb");
    let (mut race, mut strict, mut drain) = (false, false, false);
    for arg in env::args().skip(1) {
        match arg.as_str() {
            "--race" => race = true,
            "--strict" => strict = true,
            "--drain" => drain = true,
            option if option.starts_with('-') => return Err(format!("there is no option {option}").into()),
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

    println!("worker {} on {}; stop it with Ctrl-C", process::id(), path.display());
    let report = worker.run()?;
    println!("{} jobs run, {} hijacks", report.completed, report.hijacks);
    store.close()?;
    Ok(())
}
