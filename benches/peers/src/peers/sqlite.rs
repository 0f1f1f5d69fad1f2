//! SQLite in WAL mode: one table, claims and completions each an immediate transaction.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, TransactionBehavior, params};

use crate::{
    peer::{Client, Peer, Purpose, Running},
    peers::poll,
};

const TABLE: &str = "create table jobs
         (id integer primary key, payload blob not null, held integer not null default 0);
     create index ready on jobs (id) where held = 0;";
const ENQUEUE: &str = "insert into jobs (payload) values (?1)";
const CLAIM: &str = "update jobs set held = 1 where id in (select id from jobs where held = 0 order by id limit ?1)
     returning id, payload";
const COMPLETE: &str = "delete from jobs where id = ?1";
const IS_ANY_READY: &str = "select exists (select 1 from jobs where held = 0)";
const BUSY_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Sqlite {
    /// `synchronous=FULL`; else `NORMAL`, which leaves the newest changes to luck.
    pub syncs_each: bool,
}

impl Peer for Sqlite {
    fn name(&self) -> &'static str {
        if self.syncs_each { "SQLite WAL, FULL" } else { "SQLite WAL, NORMAL" }
    }

    fn durability(&self) -> &'static str {
        if self.syncs_each { "all synced at the answer" } else { "synced at checkpoints only" }
    }

    fn is_durable(&self) -> bool {
        self.syncs_each
    }

    fn start(&self, folder: &Path, _: bool) -> Running {
        let running = Running::file(&folder.join("jobs.sqlite"));
        open(&running.address, self.syncs_each).execute_batch(TABLE).expect("SQLite makes a table");
        running
    }

    fn clients(&self, address: &str, count: usize, _: Purpose) -> Vec<Box<dyn Client>> {
        let client = |_| {
            let connection = open(address, self.syncs_each);
            Box::new(Handle { connection, in_hand: Vec::new() }) as Box<dyn Client>
        };
        (0..count).map(client).collect()
    }
}

fn open(address: &str, syncs_each: bool) -> Connection {
    let connection = Connection::open(address).expect("SQLite opens its file");
    connection.busy_timeout(BUSY_TIMEOUT).expect("SQLite waits");
    let synchronous = if syncs_each { "FULL" } else { "NORMAL" };
    let pragmas = format!("pragma journal_mode = WAL; pragma synchronous = {synchronous};");
    connection.execute_batch(&pragmas).expect("SQLite takes its settings");
    connection
}

struct Handle {
    connection: Connection,
    in_hand: Vec<i64>,
}

impl Handle {
    /// Both in one transaction, each only where there is something to do.
    fn complete_and_claim(&mut self, jobs: usize, handle: &mut dyn FnMut(&[u8])) -> usize {
        let completed = std::mem::take(&mut self.in_hand);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = transaction.expect("SQLite's lock comes in time");
        let mut complete = transaction.prepare_cached(COMPLETE).expect("the statement is right");
        for id in &completed {
            assert_eq!(complete.execute([id]).expect("SQLite removes a job"), 1, "a job was not there any more");
        }
        drop(complete);
        let mut claimed = Vec::new();
        if jobs > 0 {
            let mut claim = transaction.prepare_cached(CLAIM).expect("the statement is right");
            let jobs = i64::try_from(jobs).expect("a small number");
            let rows = claim.query_map(params![jobs], |row| Ok((row.get(0)?, row.get(1)?)));
            let rows: Result<Vec<(i64, Vec<u8>)>, _> = rows.expect("SQLite claims").collect();
            claimed = rows.expect("SQLite claims");
        }
        transaction.commit().expect("SQLite commits");
        claimed.iter().for_each(|(_, payload)| handle(payload));
        self.in_hand = claimed.into_iter().map(|(id, _)| id).collect();
        self.in_hand.len()
    }

    fn is_any_ready(&self) -> bool {
        let mut look = self.connection.prepare_cached(IS_ANY_READY).expect("the statement is right");
        look.query_row([], |row| row.get(0)).expect("SQLite reads")
    }
}

impl Client for Handle {
    fn enqueue(&mut self, payload: &[u8], jobs: usize) {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = transaction.expect("SQLite's lock comes in time");
        let mut enqueue = transaction.prepare_cached(ENQUEUE).expect("the statement is right");
        for _ in 0..jobs {
            enqueue.execute([payload]).expect("SQLite takes a job");
        }
        drop(enqueue);
        transaction.commit().expect("SQLite commits");
    }

    fn claim(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        // The look that takes no lock is only for idle workers.
        let claimed = self.complete_and_claim(jobs, handle);
        if claimed > 0 || wait.is_zero() {
            return claimed;
        }
        poll(wait, || if self.is_any_ready() { self.complete_and_claim(jobs, handle) } else { 0 })
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
        self.connection.query_row("select count(*) from jobs", [], |row| row.get(0)).expect("SQLite counts")
    }

    fn settle_down(&mut self) {
        let result = self.connection.query_row("pragma wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        result.expect("SQLite writes its log back");
    }
}
