//! What a writer that died in mid-commit left behind, and the next group.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    codec,
    engine::{Basis, Engine, RowSet, Rows, SnapshotError, memory::Memory},
    error::{Error, ErrorKind, Result},
    stone::Commits,
    store::{
        change::{Change, ChangeId, ClientId, Intent},
        committer::Committer,
        conflict::{Version, Writer},
        desk::{Desk, write_and_know},
        group::{Proposal, decide},
        keys,
        object::{LogRecord, ObjectRecord, StoreRecord, Value},
        site::Site,
        ticket::hand_in,
        verdict::Asked,
        view::get_record,
    },
};

/// An engine whose last writer died: what it left shows only after a recovery, and yet a write falls on it.
struct AfterDeath {
    rows: Memory,
    stale: Mutex<Option<Box<dyn Rows + Send>>>,
}

impl Engine for AfterDeath {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send>, SnapshotError> {
        self.rows.snapshot()
    }

    fn latest(&self) -> Result<Box<dyn Rows + Send>> {
        let stale = self.stale.lock().unwrap().take();
        stale.map_or_else(|| self.rows.latest(), Ok)
    }

    fn write(&self, basis: Option<&Basis>, rows: &RowSet) -> Result<()> {
        self.rows.write(basis, rows)
    }

    fn recover(&self) -> Result<()> {
        self.rows.recover()
    }

    fn close_if_only_read(&self) -> Result<bool> {
        Ok(false)
    }

    fn close(&self) -> Result<()> {
        self.rows.close()
    }

    fn check(&self) -> Result<Vec<String>> {
        self.rows.check()
    }
}

fn store_row(version: u64) -> RowSet {
    let record = StoreRecord { version: Version(version), ..StoreRecord::default() };
    RowSet::from([(keys::STORE.to_vec(), Some(codec::encode(&record).unwrap()))])
}

#[test]
fn group_is_applied_again_on_what_a_dead_writer_left() {
    let rows = Memory::new();
    rows.write(None, &store_row(7)).unwrap();
    let stale = Mutex::new(Some(rows.latest().unwrap()));
    rows.write(None, &store_row(8)).unwrap();
    let site = Arc::new(Site::in_memory(Box::new(AfterDeath { rows, stale })));
    let committer = Committer::start(site.clone(), None, Commits::DirectOnly).unwrap();

    let client = ClientId { born: Version(7), random: 1 };
    let change = Change {
        id: ChangeId { client, number: 1 },
        writer: Writer::default(),
        guards: Vec::new(),
        intents: vec![Intent::Add { key: "n".to_owned(), delta: 1 }],
    };
    let applied = committer.commit(change, Duration::from_secs(10)).unwrap();
    committer.stop();

    assert_eq!(applied.version, Some(Version(9)));
    let rows = site.engine.latest().unwrap();
    let object: ObjectRecord = get_record(rows.as_ref(), &keys::root("n")).unwrap().unwrap();
    assert_eq!((object.version, object.value), (Version(9), Value::Counter(1)));
}

/// A2: the first of two changes that are sent again was not committed, and the second was.
#[test]
fn what_was_committed_is_not_done_again_though_what_comes_before_it_in_the_group_is() {
    let site = Arc::new(Site::in_memory(Box::new(Memory::new())));
    site.engine.write(None, &store_row(7)).unwrap();
    let client = ClientId { born: Version(7), random: 1 };
    let change = |number| Change {
        id: ChangeId { client, number },
        writer: Writer::default(),
        guards: Vec::new(),
        intents: vec![Intent::Add { key: format!("n{number}"), delta: 1 }],
    };
    let second = change(2);
    let asked = Asked { awaited: 1, parked: Vec::new(), resent: false };
    let proposals = [Proposal { change: &second, asked: Some(asked) }];
    let before = StoreRecord { version: Version(7), ..StoreRecord::default() };
    let decided = decide(&site, &proposals, site.engine.latest().unwrap().as_ref(), before).unwrap();
    site.engine.write(None, &decided.rows).unwrap();

    let desk = Desk::new(site.clone(), None, Arc::default());
    let (group, tickets): (Vec<_>, Vec<_>) = [change(1), change(2)]
        .map(|change| {
            let (mut pending, ticket) = hand_in(change, Duration::from_secs(10), Duration::ZERO);
            pending.replier.resent = true;
            (pending, ticket)
        })
        .into_iter()
        .unzip();
    desk.commit_group(group, || ());
    let versions: Vec<_> = tickets.iter().map(|ticket| ticket.wait(&site).unwrap().version).collect();
    assert_eq!(versions, [Some(Version(9)), Some(Version(8))]);
    let rows = site.engine.latest().unwrap();
    for key in ["n1", "n2"] {
        let object: ObjectRecord = get_record(rows.as_ref(), &keys::root(key)).unwrap().unwrap();
        assert_eq!(object.value, Value::Counter(1), "{key}");
    }
}

/// An engine whose next write fails as a commit does: whether the rows are there is not known.
struct Doubtful {
    rows: Memory,
    writes_all_the_same: bool,
}

impl Engine for Doubtful {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send>, SnapshotError> {
        self.rows.snapshot()
    }

    fn latest(&self) -> Result<Box<dyn Rows + Send>> {
        self.rows.latest()
    }

    fn write(&self, basis: Option<&Basis>, rows: &RowSet) -> Result<()> {
        if self.writes_all_the_same {
            self.rows.write(basis, rows)?;
        }
        Err(Error::new(ErrorKind::Unknown, "the commit failed"))
    }

    fn recover(&self) -> Result<()> {
        self.rows.recover()
    }

    fn close_if_only_read(&self) -> Result<bool> {
        Ok(false)
    }

    fn close(&self) -> Result<()> {
        self.rows.close()
    }

    fn check(&self) -> Result<Vec<String>> {
        self.rows.check()
    }
}

/// L1, L6: the word of a log leaves the store's version as it is, which then tells nothing of whether it is there.
#[test]
fn failed_write_of_rows_without_a_version_is_known_by_the_rows() {
    let version = Version(7);
    let log = |record: &LogRecord| RowSet::from([(keys::LOG.to_vec(), Some(codec::encode(record).unwrap()))]);
    for writes_all_the_same in [false, true] {
        let rows = Memory::new();
        rows.write(None, &store_row(version.0)).unwrap();
        rows.write(None, &log(&LogRecord::None)).unwrap();
        let basis = (keys::STORE.to_vec(), rows.latest().unwrap().get(keys::STORE).unwrap());
        let site = Site::in_memory(Box::new(Doubtful { rows, writes_all_the_same }));
        let in_use = log(&LogRecord::InUse { log: [1; 16] });
        let known = write_and_know(&site, &basis, &in_use, (version, version)).map_err(|error| error.kind());
        assert_eq!(known, if writes_all_the_same { Ok(()) } else { Err(ErrorKind::Unavailable) });
        // What changes nothing is there, whatever became of the write.
        let again = if writes_all_the_same { in_use } else { log(&LogRecord::None) };
        assert_eq!(write_and_know(&site, &basis, &again, (version, version)).map_err(|error| error.kind()), Ok(()));
    }
}
