//! Async and blocking handlers side by side in one worker, on the program's own tokio runtime.
//!
//! ```text
//! cargo run --release --example async_handlers --features tokio
//! ```
//!
//! What to look at: ten jobs wait, as a request to a slow server does, all at once on one thread of the runtime, beside
//! a blocking one that computes. One more would take an hour; it is cancelled, which drops its future where it waits,
//! and the worker, which was only to work off what there is, leaves.

mod common;

use std::{error::Error, process::ExitCode, time::Duration};

use casque::{AsyncTask, Job, JobRequest, Registry, Store, TaskError, Worker};
use serde::{Deserialize, Serialize};

const PATIENCE: Duration = Duration::from_secs(30);

/// Stands for a request to a server that takes its time.
#[derive(Serialize, Deserialize)]
struct Fetch {
    page: String,
    takes: Duration,
}

impl AsyncTask for Fetch {
    const ID: &'static str = "fetch";
    type Output = usize;

    async fn run(self, job: Job) -> Result<usize, TaskError> {
        job.progress_async(0.1, "asked the server").await?;
        tokio::time::sleep(self.takes).await;
        Ok(self.page.len())
    }
}

fn main() -> ExitCode {
    common::run(include_str!("async_handlers.rs"), &[], |args| match *args {
        [] => play(),
        _ => Err("usage: async_handlers".into()),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn play() -> Result<ExitCode, Box<dyn Error>> {
    let store = Store::in_memory()?;
    let queue = store.queue("default");
    let mut pages = Vec::new();
    for number in 1..=10 {
        let fetch = Fetch { page: format!("page {number}"), takes: Duration::from_millis(50) };
        pages.push(queue.enqueue_async(fetch.request()).await?);
    }
    let sum = queue.enqueue_async(JobRequest::new("sum", &1_000_u64)).await?;
    let slow = Fetch { page: "slow".to_owned(), takes: Duration::from_hours(1) };
    let slow = queue.enqueue_async(slow.request()).await?;

    let mut tasks = Registry::new();
    tasks.async_task::<Fetch>()?;
    tasks.register("sum", |_, up_to: u64| Ok((1..=up_to).sum::<u64>()))?;
    let worker = tokio::spawn(Worker::new(&store).tasks(tasks).concurrency(12).drain(true).run_async());

    let mut letters = 0;
    for page in pages {
        letters += store.wait_async::<usize>(page, PATIENCE).await?;
    }
    println!("10 pages fetched, {letters} letters in their names");
    println!("the sum is {}", store.wait_async::<u64>(sum, PATIENCE).await?);

    store.cancel(slow)?;
    let mut changes = store.watch(slow);
    while let Some(status) = changes.next_async().await {
        if let Some(state) = status?.state {
            println!("the page that takes an hour is {state}");
        }
    }
    let report = worker.await??;
    println!("{} jobs completed", report.completed);
    Ok(ExitCode::SUCCESS)
}
