//! The crate rustqueue on its redb storage, in its durable setting. One process alone can open its file, so its clients
//! are threads of one.

use std::{path::Path, sync::Arc, time::Duration};

use rustqueue::{
    JobId, JobOptions, QueueManager,
    engine::queue::{BatchAckItem, BatchPushItem},
    storage::{RedbDurability, RedbStorage},
};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    peer::{Client, Peer, Purpose, Running},
    peers::poll,
};

const QUEUE: &str = "jobs";

pub struct RustQueue;

impl Peer for RustQueue {
    fn name(&self) -> &'static str {
        "rustqueue on redb (one process)"
    }

    fn durability(&self) -> &'static str {
        "all synced at the answer; its clients are threads of one process"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn start(&self, folder: &Path, _: bool) -> Running {
        Running::file(&folder.join("jobs.redb"))
    }

    fn clients(&self, address: &str, count: usize, _: Purpose) -> Vec<Box<dyn Client>> {
        let storage = RedbStorage::new_with_durability(address, RedbDurability::Immediate);
        let manager = QueueManager::new(Arc::new(storage.expect("rustqueue opens its file")));
        let queue = Arc::new((Runtime::new().expect("tokio starts"), manager));
        let client = |_| Box::new(Handle { queue: queue.clone(), in_hand: Vec::new() }) as Box<dyn Client>;
        (0..count).map(client).collect()
    }
}

struct Handle {
    queue: Arc<(Runtime, QueueManager)>,
    in_hand: Vec<JobId>,
}

impl Handle {
    fn claim_now(&mut self, jobs: usize, handle: &mut dyn FnMut(&[u8])) -> usize {
        let (runtime, manager) = &*self.queue;
        let jobs = u32::try_from(jobs).expect("a small number");
        for job in runtime.block_on(manager.pull(QUEUE, jobs)).expect("rustqueue claims") {
            let text = job.data.as_str().expect("a job is text");
            handle(&payload_of(text));
            self.in_hand.push(job.id);
        }
        self.in_hand.len()
    }
}

impl Client for Handle {
    fn enqueue(&mut self, payload: &[u8], jobs: usize) {
        let (runtime, manager) = &*self.queue;
        let data = Value::String(text_of(payload));
        let options = JobOptions { remove_on_complete: Some(true), ..JobOptions::default() };
        if jobs == 1 {
            runtime.block_on(manager.push(QUEUE, "noop", data, Some(options))).expect("rustqueue takes a job");
            return;
        }
        let item = |_| BatchPushItem { name: "noop".to_owned(), data: data.clone(), options: Some(options.clone()) };
        let items = (0..jobs).map(item).collect();
        runtime.block_on(manager.push_batch(QUEUE, items)).expect("rustqueue takes jobs");
    }

    fn claim(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        poll(wait, || self.claim_now(jobs, handle))
    }

    fn complete(&mut self) {
        let (runtime, manager) = &*self.queue;
        match &std::mem::take(&mut self.in_hand)[..] {
            [] => {}
            [id] => runtime.block_on(manager.ack(*id, None)).expect("rustqueue completes a job"),
            ids => {
                let items = ids.iter().map(|id| BatchAckItem { id: *id, result: None }).collect();
                let results = runtime.block_on(manager.ack_batch(items)).expect("rustqueue completes jobs");
                assert!(results.iter().all(|result| result.ok), "a job was not completed");
            }
        }
    }

    fn left(&mut self) -> u64 {
        let (runtime, manager) = &*self.queue;
        let counts = runtime.block_on(manager.get_queue_stats(QUEUE)).expect("rustqueue counts");
        counts.waiting + counts.active
    }
}

/// Its jobs are JSON: the stamp's eight bytes become letters of their own, and the rest are letters already.
fn text_of(payload: &[u8]) -> String {
    payload.iter().map(|byte| char::from(*byte)).collect()
}

fn payload_of(text: &str) -> Vec<u8> {
    text.chars().map(|letter| u8::try_from(letter).expect("each letter was a byte")).collect()
}
