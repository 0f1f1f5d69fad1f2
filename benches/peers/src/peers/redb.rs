//! redb alone, open to several processes: a table of ready jobs and one of those in hand.

use std::{path::Path, sync::Arc, time::Duration};

use redb::{
    Builder, ConcurrencyMode, Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    TableDefinition,
};

use crate::{
    peer::{Client, Peer, Purpose, Running},
    peers::poll,
};

const READY: TableDefinition<u64, &[u8]> = TableDefinition::new("ready");
const HELD: TableDefinition<u64, &[u8]> = TableDefinition::new("held");
/// As casque's handles.
const CACHE_BYTES: usize = 16 << 20;

pub struct Redb;

impl Peer for Redb {
    fn name(&self) -> &'static str {
        "redb MultiWriter, two tables"
    }

    fn durability(&self) -> &'static str {
        "all synced at the answer"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn start(&self, folder: &Path, _: bool) -> Running {
        let running = Running::file(&folder.join("jobs.redb"));
        let database = open(&running.address);
        let tx = database.begin_write().expect("redb begins");
        tx.open_table(READY).and_then(|_| tx.open_table(HELD)).map(drop).expect("redb makes tables");
        tx.commit().expect("redb commits");
        running
    }

    fn clients(&self, address: &str, count: usize, _: Purpose) -> Vec<Box<dyn Client>> {
        let database = Arc::new(open(address));
        let client = |_| Box::new(Handle { database: database.clone(), in_hand: Vec::new() }) as Box<dyn Client>;
        (0..count).map(client).collect()
    }
}

fn open(address: &str) -> Database {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_concurrency_mode(ConcurrencyMode::MultiWriter);
    builder.create(address).expect("redb opens its file")
}

struct Handle {
    database: Arc<Database>,
    in_hand: Vec<u64>,
}

impl Handle {
    fn complete_and_claim(&mut self, jobs: usize, handle: &mut dyn FnMut(&[u8])) -> usize {
        let completed = std::mem::take(&mut self.in_hand);
        let tx = self.database.begin_write().expect("redb begins");
        let mut claimed = Vec::new();
        {
            let mut ready = tx.open_table(READY).expect("redb has the table");
            let mut held = tx.open_table(HELD).expect("redb has the table");
            for id in &completed {
                assert!(held.remove(id).expect("redb removes a job").is_some(), "a job was not there any more");
            }
            while claimed.len() < jobs
                && let Some((id, payload)) = ready.pop_first().expect("redb reads")
            {
                claimed.push((id.value(), payload.value().to_vec()));
            }
            for (id, payload) in &claimed {
                held.insert(id, &payload[..]).expect("redb holds a job");
            }
        }
        if completed.is_empty() && claimed.is_empty() {
            tx.abort().expect("redb forgets a transaction");
            return 0;
        }
        tx.commit().expect("redb commits");
        claimed.iter().for_each(|(_, payload)| handle(payload));
        self.in_hand = claimed.into_iter().map(|(id, _)| id).collect();
        self.in_hand.len()
    }

    fn count(&self, table: TableDefinition<u64, &[u8]>) -> u64 {
        let tx = self.database.begin_read().expect("redb reads");
        tx.open_table(table).expect("redb has the table").len().expect("redb counts")
    }
}

impl Client for Handle {
    fn enqueue(&mut self, payload: &[u8], jobs: usize) {
        let tx = self.database.begin_write().expect("redb begins");
        {
            let mut ready = tx.open_table(READY).expect("redb has the table");
            let held = tx.open_table(HELD).expect("redb has the table");
            let last = ready.last().expect("redb reads").map_or(0, |(id, _)| id.value());
            let first = held.last().expect("redb reads").map_or(0, |(id, _)| id.value()).max(last) + 1;
            for id in first..first + jobs as u64 {
                ready.insert(id, payload).expect("redb takes a job");
            }
        }
        tx.commit().expect("redb commits");
    }

    fn claim(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        let claimed = self.complete_and_claim(jobs, handle);
        if claimed > 0 || wait.is_zero() {
            return claimed;
        }
        poll(wait, || if self.count(READY) > 0 { self.complete_and_claim(jobs, handle) } else { 0 })
    }

    fn complete(&mut self) {
        if !self.in_hand.is_empty() {
            self.complete_and_claim(0, &mut |_| {});
        }
    }

    fn turn(&mut self, jobs: usize, _: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        self.complete_and_claim(jobs, handle)
    }

    fn left(&mut self) -> u64 {
        self.count(READY) + self.count(HELD)
    }
}
