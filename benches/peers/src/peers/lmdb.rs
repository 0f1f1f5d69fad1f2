//! LMDB: a table of ready jobs and one of those in hand; each step moves a row in a write transaction.
#![allow(unsafe_code, reason = "a file that is mapped must not be changed by anybody else, which no type can promise")]

use std::{path::Path, time::Duration};

use heed::{
    Database, Env, EnvOpenOptions, RwTxn, WithoutTls,
    byteorder::BigEndian,
    types::{Bytes, U64},
};

use crate::{
    peer::{Client, Peer, Purpose, Running},
    peers::poll,
};

const MAP_BYTES: usize = 16 << 30;

type Table = Database<U64<BigEndian>, Bytes>;

pub struct Lmdb;

impl Peer for Lmdb {
    fn name(&self) -> &'static str {
        "LMDB, two tables"
    }

    fn durability(&self) -> &'static str {
        "all synced at the answer"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn start(&self, folder: &Path, _: bool) -> Running {
        let running = Running::file(folder);
        drop(open(&running.address));
        running
    }

    fn clients(&self, address: &str, count: usize, _: Purpose) -> Vec<Box<dyn Client>> {
        // One process opens a file once.
        let (env, ready, held) = open(address);
        let client = |_| Box::new(Handle { env: env.clone(), ready, held, in_hand: Vec::new() }) as Box<dyn Client>;
        (0..count).map(client).collect()
    }
}

fn open(address: &str) -> (Env<WithoutTls>, Table, Table) {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP_BYTES).max_dbs(2);
    // SAFETY: the file is in a folder of this run's own, and only LMDB in processes of this program opens it.
    let env = unsafe { options.open(address) }.expect("LMDB opens its file");
    let mut tx = env.write_txn().expect("LMDB begins");
    let ready = env.create_database(&mut tx, Some("ready")).expect("LMDB makes a table");
    let held = env.create_database(&mut tx, Some("held")).expect("LMDB makes a table");
    tx.commit().expect("LMDB commits");
    (env, ready, held)
}

struct Handle {
    env: Env<WithoutTls>,
    ready: Table,
    held: Table,
    in_hand: Vec<u64>,
}

impl Handle {
    fn complete_and_claim(&mut self, jobs: usize, handle: &mut dyn FnMut(&[u8])) -> usize {
        let completed = std::mem::take(&mut self.in_hand);
        let mut tx = self.env.write_txn().expect("LMDB begins");
        for id in &completed {
            assert!(self.held.delete(&mut tx, id).expect("LMDB removes a job"), "a job was not there any more");
        }
        let mut claimed = Vec::new();
        while claimed.len() < jobs
            && let Some((id, payload)) = self.take_first(&mut tx)
        {
            self.held.put(&mut tx, &id, &payload).expect("LMDB holds a job");
            claimed.push((id, payload));
        }
        if completed.is_empty() && claimed.is_empty() {
            return 0;
        }
        tx.commit().expect("LMDB commits");
        claimed.iter().for_each(|(_, payload)| handle(payload));
        self.in_hand = claimed.into_iter().map(|(id, _)| id).collect();
        self.in_hand.len()
    }

    fn take_first(&self, tx: &mut RwTxn) -> Option<(u64, Vec<u8>)> {
        let (id, payload) = self.ready.first(tx).expect("LMDB reads")?;
        let payload = payload.to_vec();
        self.ready.delete(tx, &id).expect("LMDB removes a row");
        Some((id, payload))
    }

    fn is_any_ready(&self) -> bool {
        let tx = self.env.read_txn().expect("LMDB reads");
        !self.ready.is_empty(&tx).expect("LMDB reads")
    }
}

impl Client for Handle {
    fn enqueue(&mut self, payload: &[u8], jobs: usize) {
        let mut tx = self.env.write_txn().expect("LMDB begins");
        let last = |table: &Table| table.last(&tx).expect("LMDB reads").map_or(0, |(id, _)| id);
        let first = last(&self.ready).max(last(&self.held)) + 1;
        for id in first..first + jobs as u64 {
            self.ready.put(&mut tx, &id, payload).expect("LMDB takes a job");
        }
        tx.commit().expect("LMDB commits");
    }

    fn claim(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        let claimed = self.complete_and_claim(jobs, handle);
        if claimed > 0 || wait.is_zero() {
            return claimed;
        }
        poll(wait, || if self.is_any_ready() { self.complete_and_claim(jobs, handle) } else { 0 })
    }

    fn complete(&mut self) {
        self.complete_and_claim(0, &mut |_| {});
    }

    fn turn(&mut self, jobs: usize, _: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        self.complete_and_claim(jobs, handle)
    }

    fn left(&mut self) -> u64 {
        let tx = self.env.read_txn().expect("LMDB reads");
        let count = |table: &Table| table.len(&tx).expect("LMDB counts");
        count(&self.ready) + count(&self.held)
    }
}
