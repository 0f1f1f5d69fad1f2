//! PostgreSQL: a table of jobs, claimed by one statement with `FOR UPDATE SKIP LOCKED`, deleted when completed.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use postgres::{NoTls, Row, Statement, fallible_iterator::FallibleIterator as _};

use crate::{
    peer::{Client, Peer, Purpose, Running},
    server::{Server, is_installed},
};

/// Where Debian has it, the newest first.
const PLACES: [&str; 4] = [
    "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/16/bin",
    "/usr/lib/postgresql/15/bin",
    "/usr/lib/postgresql/14/bin",
];
const USER: &str = "postgres";

const TABLE: &str = "create table jobs
         (id bigserial primary key, payload bytea not null, held boolean not null default false);
     create index ready on jobs (id) where not held;";
const ENQUEUE: &str = "insert into jobs (payload) values ($1)";
const ENQUEUE_MANY: &str = "insert into jobs (payload) select $1 from generate_series(1, $2)";
const ENQUEUE_AND_NOTIFY: &str = "with added as (insert into jobs (payload) values ($1)) select pg_notify('jobs', '')";
const CLAIM: &str = "with taken as materialized
         (select id from jobs where not held order by id limit $1 for update skip locked)
     update jobs set held = true from taken where jobs.id = taken.id returning jobs.id, payload";
const COMPLETE_AND_CLAIM: &str = "with gone as (delete from jobs where id = any($2)), taken as materialized
         (select id from jobs where not held order by id limit $1 for update skip locked)
     update jobs set held = true from taken where jobs.id = taken.id returning jobs.id, payload";
const COMPLETE: &str = "delete from jobs where id = any($1)";

pub struct Postgres;

impl Peer for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL, SKIP LOCKED"
    }

    fn durability(&self) -> &'static str {
        "all synced at the answer (synchronous_commit on, as it comes)"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn program(&self) -> Option<&'static str> {
        static PROGRAM: OnceLock<&'static str> = OnceLock::new();
        Some(PROGRAM.get_or_init(|| match place() {
            Some(place) => format!("{place}/postgres").leak(),
            None => "postgres",
        }))
    }

    fn start(&self, folder: &Path, _: bool) -> Running {
        let place = place().expect("it was looked for before");
        let data = folder.join("data");
        fs::create_dir(&data).expect("the folder is writable");
        // It does not run as root; its user must get to its folder.
        let owner = owner();
        if let Some((user, group)) = owner {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("the folder is ours");
            chown(&data, Some(user), Some(group)).expect("root may give a folder away");
        }
        let data = data.to_str().expect("a path of text");
        let as_user = owner
            .map(|(user, group)| [format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()]);
        let as_user: Vec<&str> = as_user.iter().flatten().map(String::as_str).collect();
        make(place, data, &as_user);
        let program = format!("{place}/postgres");
        let mut command = if as_user.is_empty() { Vec::new() } else { vec!["setpriv"] };
        command.extend(as_user);
        // The signal is given up where a process changes its user, so it is asked for in the same step.
        if !command.is_empty() {
            command.extend(["--pdeathsig", "QUIT"]);
        }
        command.extend([program.as_str(), "-D", data, "-k", data, "-c", "listen_addresses="]);
        let mut server = Server::start(&command, folder, "QUIT");
        let address = format!("host={data} user={USER} dbname={USER}");
        let mut client = server.wait_for(|| postgres::Client::connect(&address, NoTls));
        client.batch_execute(TABLE).expect("PostgreSQL makes a table");
        Running { address, server: Some(server) }
    }

    fn clients(&self, address: &str, count: usize, purpose: Purpose) -> Vec<Box<dyn Client>> {
        (0..count).map(|_| Box::new(Session::open(address, purpose)) as Box<dyn Client>).collect()
    }
}

fn place() -> Option<&'static str> {
    PLACES.into_iter().find(|place| is_installed(&format!("{place}/initdb")))
}

/// The user that it runs as, where this process is root.
fn owner() -> Option<(u32, u32)> {
    let number = |what: &str, of: &[&str]| {
        let out = Command::new("id").arg(what).args(of).stderr(Stdio::null()).output().ok()?;
        String::from_utf8(out.stdout).ok()?.trim().parse::<u32>().ok()
    };
    (number("-u", &[])? == 0).then(|| number("-u", &[USER]).zip(number("-g", &[USER])))?
}

fn make(place: &str, data: &str, as_user: &[&str]) {
    let program = PathBuf::from(place).join("initdb");
    let mut command = Command::new(if as_user.is_empty() { program.as_os_str() } else { "setpriv".as_ref() });
    command.args(as_user);
    if !as_user.is_empty() {
        command.arg(&program);
    }
    let made = command.args(["-D", data, "-U", USER, "-A", "trust", "--no-sync"]).current_dir("/").output();
    let made = made.expect("initdb can be started");
    assert!(made.status.success(), "initdb says {}", String::from_utf8_lossy(&made.stderr));
}

struct Session {
    client: postgres::Client,
    enqueue: Statement,
    enqueue_many: Statement,
    claim: Statement,
    complete: Statement,
    complete_and_claim: Statement,
    listens: bool,
    in_hand: Vec<i64>,
}

impl Session {
    fn open(address: &str, purpose: Purpose) -> Self {
        let mut client = postgres::Client::connect(address, NoTls).expect("PostgreSQL listens");
        let wakes = purpose == Purpose::Wakeup;
        if wakes {
            client.batch_execute("listen jobs").expect("PostgreSQL notifies");
        }
        let mut prepare = |text| client.prepare_typed(text, &[]).expect("PostgreSQL knows the statement");
        let enqueue = prepare(if wakes { ENQUEUE_AND_NOTIFY } else { ENQUEUE });
        let enqueue_many = prepare(ENQUEUE_MANY);
        let (claim, complete) = (prepare(CLAIM), prepare(COMPLETE));
        let complete_and_claim = prepare(COMPLETE_AND_CLAIM);
        let in_hand = Vec::new();
        Self { client, enqueue, enqueue_many, claim, complete, complete_and_claim, listens: wakes, in_hand }
    }

    fn claim_now(&mut self, jobs: usize, handle: &mut dyn FnMut(&[u8])) -> usize {
        let jobs = i64::try_from(jobs).expect("a small number");
        let rows = self.client.query(&self.claim, &[&jobs]).expect("PostgreSQL claims");
        self.take(&rows, handle)
    }

    fn take(&mut self, rows: &[Row], handle: &mut dyn FnMut(&[u8])) -> usize {
        rows.iter().for_each(|row| handle(row.get(1)));
        self.in_hand = rows.iter().map(|row| row.get(0)).collect();
        rows.len()
    }
}

impl Client for Session {
    fn enqueue(&mut self, payload: &[u8], jobs: usize) {
        if jobs == 1 {
            self.client.execute(&self.enqueue, &[&payload]).expect("PostgreSQL takes a job");
        } else {
            let jobs = i32::try_from(jobs).expect("a small number");
            self.client.execute(&self.enqueue_many, &[&payload, &jobs]).expect("PostgreSQL takes jobs");
        }
    }

    fn claim(&mut self, jobs: usize, wait: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        let claimed = self.claim_now(jobs, handle);
        if claimed > 0 || wait.is_zero() {
            return claimed;
        }
        if self.listens {
            let mut notifications = self.client.notifications();
            let told = notifications.timeout_iter(wait).next().expect("PostgreSQL notifies");
            // One look is enough for all that was told by now.
            if told.is_some() {
                while notifications.iter().next().expect("PostgreSQL notifies").is_some() {}
            }
        } else {
            std::thread::sleep(super::POLL);
        }
        self.claim_now(jobs, handle)
    }

    fn complete(&mut self) {
        let in_hand = std::mem::take(&mut self.in_hand);
        if in_hand.is_empty() {
            return;
        }
        let removed = self.client.execute(&self.complete, &[&in_hand]).expect("PostgreSQL removes jobs");
        assert_eq!(removed, in_hand.len() as u64, "a job was not there any more");
    }

    fn turn(&mut self, jobs: usize, _: Duration, handle: &mut dyn FnMut(&[u8])) -> usize {
        let jobs = i64::try_from(jobs).expect("a small number");
        let in_hand = std::mem::take(&mut self.in_hand);
        let rows = self.client.query(&self.complete_and_claim, &[&jobs, &in_hand]).expect("PostgreSQL claims");
        self.take(&rows, handle)
    }

    fn left(&mut self) -> u64 {
        let count: i64 = self.client.query_one("select count(*) from jobs", &[]).expect("PostgreSQL counts").get(0);
        u64::try_from(count).expect("a count")
    }

    fn settle_down(&mut self) {
        // One by one: several statements at once are a transaction, in which there is no vacuum.
        for statement in ["vacuum analyze jobs", "checkpoint"] {
            self.client.batch_execute(statement).expect("PostgreSQL tidies up");
        }
    }
}
