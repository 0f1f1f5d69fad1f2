//! The peers, each in a file of its own.

mod beanstalkd;
mod casque;
mod lmdb;
mod nats;
mod postgres;
mod redb;
mod redis_list;
mod redis_server;
mod redis_stream;
mod rustqueue;
mod sqlite;

use std::{thread, time::Duration};

pub use self::casque::{COMMAND, Casque};
use crate::peer::Peer;

/// Those that casque is measured beside, the durable ones first.
pub fn all() -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(beanstalkd::Beanstalkd { syncs_each: true }),
        Box::new(redis_list::RedisList { syncs_each: true }),
        Box::new(redis_stream::RedisStream),
        Box::new(postgres::Postgres),
        Box::new(sqlite::Sqlite { syncs_each: true }),
        Box::new(lmdb::Lmdb),
        Box::new(redb::Redb),
        Box::new(rustqueue::RustQueue),
        Box::new(beanstalkd::Beanstalkd { syncs_each: false }),
        Box::new(redis_list::RedisList { syncs_each: false }),
        Box::new(nats::Nats),
        Box::new(sqlite::Sqlite { syncs_each: false }),
    ]
}

/// The peer of that name, casque included.
pub fn named(name: &str) -> Option<Box<dyn Peer>> {
    if name == Casque.name() {
        return Some(Box::new(Casque));
    }
    all().into_iter().find(|peer| peer.name() == name)
}

/// How often a peer that can't wake its workers looks for jobs. Each look takes locks that enqueuers want.
const POLL: Duration = Duration::from_micros(500);

/// Claims until there is something, or the wait is over, for a peer that has no way to wait.
fn poll(wait: Duration, mut claim: impl FnMut() -> usize) -> usize {
    let began = std::time::Instant::now();
    loop {
        let claimed = claim();
        if claimed > 0 || began.elapsed() >= wait {
            return claimed;
        }
        thread::sleep(POLL);
    }
}
