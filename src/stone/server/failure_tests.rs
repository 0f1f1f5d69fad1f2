//! A stone whose store's file, or whose place, fails: nobody who waits for it is forgotten.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

use crate::{
    engine::{StorageHook, StorageOperation},
    queue::record::HeadRecord,
    store::{
        Store,
        inner::{Call, Serving},
        keys,
        open::StoreOptions,
        view::get_record,
    },
};

/// How long a test waits for what must happen.
const DEADLINE: Duration = Duration::from_secs(30);

/// A store whose stone is this process.
fn serving(options: &StoreOptions, folder: &tempfile::TempDir) -> (Store, Serving) {
    let store = options.open(folder.path().join("app.redb")).unwrap();
    let serving = store.serve().unwrap();
    while store.stone().is_none() {
        thread::yield_now();
    }
    (store, serving)
}

/// Fails so many of the writes that bring windows into the store's file.
#[derive(Debug, Default)]
struct Faults {
    left: AtomicUsize,
}

impl StorageHook for Faults {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        if operation != StorageOperation::Write || thread::current().name() != Some("casque-flusher") {
            return Ok(());
        }
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Err(io::Error::other("a planted fault")),
            Err(_) => Ok(()),
        }
    }
}

#[test]
fn holders_are_called_when_a_window_that_failed_once_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let (store, _serving) = serving(&StoreOptions::new().storage_hook(faults.clone()), &folder);
    let (tell, told) = channel();
    let looking = store.clone();
    let call: Arc<Call> = Arc::new(move || {
        let rows = looking.inner.peek().unwrap();
        let head: HeadRecord = get_record(rows.as_ref(), &keys::head("default")).unwrap().unwrap_or_default();
        tell.send(head.paused).unwrap();
    });
    store.inner.add_holder(&call);
    faults.left.store(1, Ordering::SeqCst);
    store.queue("default").pause().unwrap();
    while !told.recv_timeout(DEADLINE).expect("nobody is called when it shows") {}
    assert_eq!(faults.left.load(Ordering::SeqCst), 0, "nothing failed");
}
