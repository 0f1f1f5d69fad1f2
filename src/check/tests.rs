//! Checking on a slow disk.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    clock::sleep,
    engine::{StorageHook, StorageOperation},
    store::open::StoreOptions,
};

const PATIENCE: Duration = Duration::from_secs(1);

/// Storage whose next operation takes longer than anybody waits for a lock.
#[derive(Debug, Default)]
struct Slow {
    is_next: AtomicBool,
}

impl StorageHook for Slow {
    fn before(&self, _: StorageOperation, _: u64) -> io::Result<()> {
        if self.is_next.swap(false, Ordering::SeqCst) {
            sleep(2 * PATIENCE); // waits: so that it takes longer than that
        }
        Ok(())
    }
}

#[test]
fn check_that_has_begun_is_waited_for_however_long_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Arc::new(Slow::default());
    let options = StoreOptions::new().timeout(PATIENCE).storage_hook(slow.clone());
    let store = options.open(folder.path().join("app.redb")).unwrap();
    slow.is_next.store(true, Ordering::SeqCst);
    assert_eq!(store.check().unwrap(), []);
    assert!(!slow.is_next.load(Ordering::SeqCst), "nothing was read");
}
