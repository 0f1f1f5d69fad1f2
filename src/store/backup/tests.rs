//! What a copy keeps of the life of the store that it is of, and for how long it pins the pages of that.

use std::{io, sync::Arc, time::Duration};

use crate::{
    codec,
    engine::redb::pinned_transactions,
    engine::{Engine as _, StorageHook, StorageOperation, memory::Memory},
    queue::{JobRequest, id::SessionId, record::JobRecord},
    store::{
        Store,
        change::ClientId,
        conflict::Version,
        keys::{self, ById},
        life::new_life,
        object::{FormatRecord, LogRecord},
        open::StoreOptions,
        verdict::{ClientRecord, HorizonRecord},
        view::{first_rows, get_record},
    },
};

/// A store in which somebody works: a job runs, a lock is held, a client may ask again, a log is in use.
fn busy() -> (Store, Memory, Vec<Box<dyn std::any::Any>>) {
    let store = Store::in_memory().unwrap();
    let queue = store.queue("q");
    queue.enqueue_batch((0..3).map(|_| JobRequest::new("t", &()))).unwrap();
    let held = queue.claim(1, Duration::ZERO).unwrap();
    let lock = store.lock("lock").unwrap();
    let all = first_rows(store.inner.rows().unwrap().as_ref(), &keys::Range { start: vec![], end: vec![u8::MAX] }, 100);
    let engine = Memory::new();
    let mut rows: crate::engine::RowSet = all.unwrap().into_iter().map(|(key, row)| (key, Some(row))).collect();
    let client = keys::client(ClientId { born: Version(1), random: 7 });
    rows.insert(client, Some(codec::encode(&ClientRecord::default()).unwrap()));
    rows.insert(keys::LOG.to_vec(), Some(codec::encode(&LogRecord::InUse { log: [7; 16] }).unwrap()));
    engine.write(None, &rows).unwrap();
    (store, engine, vec![Box::new(held), Box::new(lock)])
}

fn holder(engine: &Memory) -> SessionId {
    let rows = engine.latest().unwrap();
    let (_, row) = first_rows(rows.as_ref(), &ById::Held.all(), 1).unwrap().remove(0);
    codec::decode::<JobRecord>(&row).unwrap().lease.unwrap().session
}

fn store_id(engine: &Memory) -> [u8; 16] {
    get_record::<FormatRecord>(engine.latest().unwrap().as_ref(), keys::FORMAT).unwrap().unwrap().store
}

#[test]
fn copy_has_a_life_of_its_own_and_nothing_of_the_old_one_is_said_of_it() {
    let (store, engine, _held) = busy();
    let (old_holder, old_id) = (holder(&engine), store_id(&engine));
    engine.write(None, &new_life(engine.latest().unwrap().as_ref()).unwrap()).unwrap();
    let rows = engine.latest().unwrap();
    assert_ne!(store_id(&engine), old_id);
    assert_ne!(holder(&engine), old_holder);
    assert_eq!(get_record(rows.as_ref(), keys::LOG).unwrap(), Some(LogRecord::None));
    for range in [keys::clients(), keys::locks(), keys::lock_sessions()] {
        assert_eq!(first_rows(rows.as_ref(), &range, 1).unwrap(), []);
    }
    // A2: whoever was born before this version may have a change in it whose answer is gone.
    let horizon: HorizonRecord = get_record(rows.as_ref(), keys::CLIENT_HORIZON).unwrap().unwrap();
    assert_eq!(horizon.born, store.version().unwrap());
    assert_eq!(crate::check::check_rows(rows.as_ref()).unwrap(), []);
}

#[test]
fn two_copies_of_one_store_are_two_stores() {
    let (_store, engine, _held) = busy();
    let ids = [(); 2].map(|()| {
        engine.write(None, &new_life(engine.latest().unwrap().as_ref()).unwrap()).unwrap();
        (store_id(&engine), holder(&engine))
    });
    assert!(ids[0].0 != ids[1].0 && ids[0].1 != ids[1].1);
}

/// Looks who reads the store, while another file is written.
#[derive(Debug)]
struct Looker {
    store: std::path::PathBuf,
    writes: std::sync::atomic::AtomicU64,
}

impl StorageHook for Looker {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        if operation == StorageOperation::Write {
            self.writes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let pinned = pinned_transactions(&self.store).unwrap_or_default();
            assert_eq!(pinned, Vec::<u64>::new(), "pages of the store are pinned while its copy is made");
        }
        Ok(())
    }
}

#[test]
fn pages_are_pinned_while_the_rows_are_read_and_not_while_a_store_is_made_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.redb");
    let store = Store::open(&path).unwrap();
    let jobs = (0..100).map(|_| JobRequest::new("t", &"x".repeat(1_000)));
    store.queue("q").enqueue_batch(jobs).unwrap();
    store.close().unwrap();
    let looker = Arc::new(Looker { store: path.clone(), writes: 0.into() });
    let store = StoreOptions::new().storage_hook(looker.clone()).read_only().open(&path).unwrap();
    store.backup(folder.path().join("copy.redb")).unwrap();
    assert!(looker.writes.load(std::sync::atomic::Ordering::Relaxed) > 10);
    store.close().unwrap();
}
