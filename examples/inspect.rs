//! Shows what is in a store: the objects on its root, its queues in numbers, and their jobs.
//!
//! ```text
//! cargo run --release --example inspect [STORE]
//! ```
//!
//! What to look at: this reads a snapshot, and keeps nobody waiting. Run it while `worker` and `producer` are busy, or
//! after one of them was killed: it recovers what that one left. All objects are of one snapshot: each has the version
//! of the commit that wrote it, and none is newer than the snapshot. What a Rust program stored as a type of its own
//! shows as hex: only that program can read it.

mod common;

use std::{env, error::Error, path::Path, process::ExitCode};

use casque::{JobFilter, StoreOptions};

const JOBS_SHOWN: usize = 50;

fn main() -> ExitCode {
    common::run(include_str!("inspect.rs"), &[], |args| match *args {
        [] => play(&env::temp_dir().join("casque-demo.redb")),
        [store] => play(Path::new(store)),
        _ => Err("usage: inspect [STORE]".into()),
    })
}

fn play(path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let store = StoreOptions::new().create(false).open(path)?;

    let snapshot = store.snapshot()?;
    println!("{} at version {}, last changed {}", path.display(), snapshot.version(), snapshot.stamp());
    for object in snapshot.list_json("")? {
        println!("  {} = {} (version {})", object.key, object.value, object.version);
    }

    for queue in store.queues()? {
        let paused = if queue.paused { ", paused" } else { "" };
        println!(
            "queue {}{paused}: {} scheduled, {} ready, {} running, {} dead; {} ever completed, {} hijacks",
            queue.queue, queue.scheduled, queue.ready, queue.running, queue.dead, queue.completed, queue.hijacks
        );
        for job in store.jobs(&JobFilter::new().queue(&queue.queue), JOBS_SHOWN)? {
            let holder = job.held_by.map(|(_, label, token)| format!(" by {label}, token {token}")).unwrap_or_default();
            println!("  job {}: {} {}, {}{holder}", job.id, job.task, job.args.to_json(), job.state);
        }
    }
    Ok(ExitCode::SUCCESS)
}
