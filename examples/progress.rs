//! Spawns a job that runs at once in a process of its own, follows its progress, and takes its result: what a web page
//! does that has a video converted.
//!
//! ```text
//! cargo run --release --example progress -- [STORE]
//! ```
//!
//! What to look at: nobody runs a worker. `queue.spawn` enqueues the job and starts a process for it, which shares
//! nothing with this one: kill this one with `kill -9` while it polls, and look at the job with `inspect` a little
//! later: it was completed all the same. Nothing waits for the process, and no zombie is left.

mod common;

use std::{env, error::Error, path::PathBuf, process, process::ExitCode, thread, time::Duration};

use casque::{Job, Registry, Store, Task, TaskError};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Video {
    name: String,
    frames: u32,
}

impl Task for Video {
    const ID: &'static str = "video";
    type Output = Vec<String>;

    fn run(self, job: &Job) -> Result<Vec<String>, TaskError> {
        for frame in 1..=self.frames {
            thread::sleep(Duration::from_millis(20));
            if frame % 10 == 0 {
                #[allow(clippy::cast_precision_loss, reason = "a fraction need not be exact")]
                let fraction = frame as f32 / self.frames as f32;
                job.progress(fraction, &format!("frame {frame} of {}", self.frames))?;
            }
        }
        Ok(vec![format!("{}.mp4", self.name), format!("{}.webm", self.name), format!("by process {}", process::id())])
    }
}

fn main() -> ExitCode {
    let mut tasks = Registry::new();
    if tasks.task::<Video>().is_err() {
        return ExitCode::FAILURE;
    }
    // In the process that is to run the job this never returns.
    casque::child::run_if_child(&tasks);
    common::run(include_str!("progress.rs"), &[], play)
}

fn play(args: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    let path = args.first().map_or_else(|| env::temp_dir().join("casque-progress.redb"), PathBuf::from);
    let store = Store::open(&path)?;
    let id = store.queue("videos").spawn(&Video { name: "cat".to_owned(), frames: 50 })?;
    println!("process {} spawned job {id} on {}", process::id(), path.display());

    let mut told = None;
    loop {
        let job = store.job(id)?;
        if job.progress.is_some() && job.progress != told {
            told = job.progress;
            let (fraction, message) = told.clone().unwrap_or_default();
            println!("{:>3.0} % {message}", 100.0 * fraction);
        }
        if job.state.is_final() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let files: Vec<String> = store.wait(id, Duration::from_secs(1))?;
    println!("done: {}", files.join(", "));
    store.close()?;
    Ok(ExitCode::SUCCESS)
}
