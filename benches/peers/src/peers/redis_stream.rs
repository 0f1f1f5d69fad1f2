//! A Redis stream with a group of consumers: read, acknowledged and deleted.

use std::{
    path::Path,
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::{
    Commands as _, Connection, Pipeline, RedisResult,
    streams::{StreamReadOptions, StreamReadReply},
};

use crate::{
    peer::{Client, Peer, Purpose, Running},
    peers::redis_server,
};

const STREAM: &str = "jobs";
const GROUP: &str = "workers";
const FIELD: &str = "job";

pub struct RedisStream;

impl Peer for RedisStream {
    fn name(&self) -> &'static str {
        "Redis stream, AOF always"
    }

    fn durability(&self) -> &'static str {
        "all synced at the answer"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn program(&self) -> Option<&'static str> {
        Some(redis_server::PROGRAM)
    }

    fn start(&self, folder: &Path, _: bool) -> Running {
        let running = redis_server::start(folder, "always");
        let made: RedisResult<()> = redis_server::connect(&running.address).xgroup_create_mkstream(STREAM, GROUP, "0");
        made.expect("Redis makes a stream");
        running
    }

    fn clients(&self, address: &str, count: usize, _: Purpose) -> Vec<Box<dyn Client>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let client = |_| {
            let name = format!("{}:{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            let connection = redis_server::connect(address);
            Box::new(Consumer { connection, name, in_hand: Vec::new() }) as Box<dyn Client>
        };
        (0..count).map(client).collect()
    }
}

struct Consumer {
    connection: Connection,
    name: String,
    in_hand: Vec<String>,
}

impl Consumer {
    fn take(&mut self, reply: Option<StreamReadReply>, handle: &mut dyn FnMut(&[u8])) -> usize {
        for entry in reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids) {
            handle(&entry.get::<Vec<u8>>(FIELD).expect("an entry has its job"));
            self.in_hand.push(entry.id);
        }
        self.in_hand.len()
    }
}

impl Client for Consumer {
    fn enqueue(&mut self, payload: &[u8], jobs: usize) {
        let mut pipeline = redis::pipe();
        for _ in 0..jobs {
            pipeline.xadd(STREAM, "*", &[(FIELD, payload)]).ignore();
        }
        pipeline.exec(&mut self.connection).expect("Redis takes jobs");
    }

    fn claim(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        let wait_ms = usize::try_from(wait.as_millis()).expect("a short wait").max(1);
        let options = StreamReadOptions::default().group(GROUP, &self.name).count(jobs).block(wait_ms);
        let reply = self.connection.xread_options(&[STREAM], &[">"], &options).expect("Redis reads a stream");
        self.take(reply, handle)
    }

    fn complete(&mut self) {
        let in_hand = std::mem::take(&mut self.in_hand);
        if in_hand.is_empty() {
            return;
        }
        removes(&in_hand).exec(&mut self.connection).expect("Redis removes jobs");
    }

    fn turn(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        let in_hand = std::mem::take(&mut self.in_hand);
        if in_hand.is_empty() {
            return self.claim(jobs, wait, handle);
        }
        let options = StreamReadOptions::default().group(GROUP, &self.name).count(jobs);
        let mut pipeline = removes(&in_hand);
        pipeline.xread_options(&[STREAM], &[">"], &options);
        let (reply,) = pipeline.query(&mut self.connection).expect("Redis removes and reads");
        self.take(reply, handle)
    }

    fn left(&mut self) -> u64 {
        self.connection.xlen(STREAM).expect("Redis counts jobs")
    }
}

fn removes(jobs: &[String]) -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.xack(STREAM, GROUP, jobs).ignore().xdel(STREAM, jobs).ignore();
    pipeline
}
