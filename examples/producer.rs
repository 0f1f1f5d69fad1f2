//! Enqueues twenty jobs for `worker`, one commit each.
//!
//! ```text
//! cargo run --release --example producer [STORE]
//! ```
//!
//! What to look at: start three of `worker` in three terminals first, and run this in a fourth. Each line is printed
//! after its job is on the disk: kill this at any moment, and the jobs that it has named will run.

mod common;

use std::{env, error::Error, path::Path, process::ExitCode};

use casque::{JobRequest, Store};

fn main() -> ExitCode {
    common::run(include_str!("producer.rs"), &[], |args| match *args {
        [] => play(&env::temp_dir().join("casque-demo.redb")),
        [store] => play(Path::new(store)),
        _ => Err("usage: producer [STORE]".into()),
    })
}

fn play(path: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let store = Store::open(path)?;
    let queue = store.queue("default");
    for number in 1..=20 {
        let id = queue.enqueue(JobRequest::new("say", &format!("hello from number {number}")))?;
        println!("enqueued job {id}");
    }
    println!("queue {} of {}: {} jobs are ready", queue.name(), path.display(), queue.stats()?.ready);
    store.close()?;
    Ok(ExitCode::SUCCESS)
}
