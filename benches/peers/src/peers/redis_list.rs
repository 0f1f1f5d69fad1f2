//! A Redis list as a reliable queue: a job moves to a list of its worker's, and is removed there.

use std::{
    path::Path,
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::{Commands as _, Connection, Direction, Pipeline};

use crate::{
    peer::{Client, Peer, Purpose, Running},
    peers::redis_server,
};

const QUEUE: &str = "queue";

pub struct RedisList {
    /// `appendfsync always`; else `everysec`, the default.
    pub syncs_each: bool,
}

impl Peer for RedisList {
    fn name(&self) -> &'static str {
        if self.syncs_each { "Redis list, AOF always" } else { "Redis list, AOF everysec (default)" }
    }

    fn durability(&self) -> &'static str {
        if self.syncs_each { "all synced at the answer" } else { "synced once a second" }
    }

    fn is_durable(&self) -> bool {
        self.syncs_each
    }

    fn program(&self) -> Option<&'static str> {
        Some(redis_server::PROGRAM)
    }

    fn start(&self, folder: &Path, _: bool) -> Running {
        redis_server::start(folder, if self.syncs_each { "always" } else { "everysec" })
    }

    fn clients(&self, address: &str, count: usize, _: Purpose) -> Vec<Box<dyn Client>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let client = |_| {
            let list = format!("worker:{}:{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            let connection = redis_server::connect(address);
            Box::new(Worker { connection, list, in_hand: Vec::new() }) as Box<dyn Client>
        };
        (0..count).map(client).collect()
    }
}

struct Worker {
    connection: Connection,
    /// Where what this worker has in hand is.
    list: String,
    in_hand: Vec<Vec<u8>>,
}

impl Worker {
    fn moves(&self, pipeline: &mut Pipeline, jobs: usize) {
        for _ in 0..jobs {
            pipeline.lmove(QUEUE, &self.list, Direction::Right, Direction::Left);
        }
    }

    fn take(&mut self, jobs: Vec<Option<Vec<u8>>>, handle: &mut dyn FnMut(&[u8])) -> usize {
        self.in_hand = jobs.into_iter().flatten().collect();
        self.in_hand.iter().for_each(|job| handle(job));
        self.in_hand.len()
    }

    fn wait_for_one(&mut self, wait: Duration) -> Option<Vec<u8>> {
        let (right, left) = (Direction::Right, Direction::Left);
        self.connection.blmove(QUEUE, &self.list, right, left, wait.as_secs_f64()).expect("Redis moves a job")
    }
}

impl Client for Worker {
    fn enqueue(&mut self, payload: &[u8], jobs: usize) {
        let _: usize = self.connection.lpush(QUEUE, vec![payload; jobs]).expect("Redis takes jobs");
    }

    fn claim(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        if jobs == 1 {
            let job = self.wait_for_one(wait);
            return self.take(vec![job], handle);
        }
        let mut pipeline = redis::pipe();
        self.moves(&mut pipeline, jobs);
        let moved = pipeline.query(&mut self.connection).expect("Redis moves jobs");
        self.take(moved, handle)
    }

    fn complete(&mut self) {
        match &std::mem::take(&mut self.in_hand)[..] {
            [] => {}
            [job] => {
                let removed: usize = self.connection.lrem(&self.list, 1, &job[..]).expect("Redis removes a job");
                assert_eq!(removed, 1, "a job was not where its worker had it");
            }
            // All that is in the worker's list.
            _ => {
                let _: usize = self.connection.del(&self.list).expect("Redis removes jobs");
            }
        }
    }

    fn turn(&mut self, jobs: usize, _: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        let mut pipeline = redis::pipe();
        pipeline.del(&self.list).ignore();
        self.moves(&mut pipeline, jobs);
        let moved = pipeline.query(&mut self.connection).expect("Redis moves jobs");
        self.take(moved, handle)
    }

    fn left(&mut self) -> u64 {
        let held: Vec<String> = self.connection.keys("worker:*").expect("Redis lists keys");
        let lists = held.into_iter().chain([QUEUE.to_owned()]);
        lists.map(|list| self.connection.llen::<_, u64>(list).expect("Redis counts jobs")).sum()
    }
}
