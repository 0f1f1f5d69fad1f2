//! A store by each of the ways in which a change may get to where it is kept, with a clock that is moved by hand. One
//! in a file can be closed and opened again, or have all its processes killed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    clock::{Clock, Timestamp, deadline_after, monotonic, sleep},
    engine::{StorageHook, StorageOperation},
    store::{Store, inner::Serving, open::StoreOptions},
};

/// How long anything may take that must happen.
const SOON: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Memory,
    /// Each change is a commit of its own.
    Direct,
    /// This process is the stone.
    Stone,
    /// Another opening of the store is the stone, and this one its client.
    Client,
}

pub(super) struct World {
    way: Way,
    clock: Clock,
    gate: Arc<Gate>,
    folder: Option<tempfile::TempDir>,
    open: Option<Open>,
}

struct Open {
    store: Store,
    serving: Option<Serving>,
    /// The stone, where it is another.
    server: Option<Store>,
}

/// Nothing is done to the storage while this is shut: what is in the files then is what a kill would leave.
#[derive(Debug, Default)]
struct Gate(Mutex<()>);

impl StorageHook for Gate {
    fn before(&self, _: StorageOperation, _: u64) -> io::Result<()> {
        drop(self.0.lock().unwrap());
        Ok(())
    }
}

impl World {
    pub(super) fn new(way: Way, now: Timestamp) -> Self {
        let folder = (way != Way::Memory).then(new_folder);
        let mut world = Self { way, clock: Clock::manual(now), gate: Arc::default(), folder, open: None };
        world.open();
        world
    }

    pub(super) fn store(&self) -> &Store {
        &self.open.as_ref().expect("it is open").store
    }

    pub(super) fn way(&self) -> Way {
        self.way
    }

    pub(super) fn advance(&self, by: Duration) -> Timestamp {
        self.clock.advance(by);
        self.clock.now()
    }

    pub(super) fn reopen(&mut self) {
        if self.folder.is_some() {
            self.close();
            self.open();
        }
    }

    /// Goes on with the files as they are at this moment.
    pub(super) fn kill(&mut self) {
        let Some(before) = &self.folder else { return };
        let after = new_folder();
        let shut = self.gate.0.lock().unwrap();
        copy(before.path(), after.path());
        drop(shut);
        self.close();
        self.folder = Some(after);
        self.open();
    }

    pub(super) fn close(&mut self) {
        let Some(Open { store, serving, server }) = self.open.take() else { return };
        let commits = store.commits_by_path();
        let (direct, own, other) = (commits.direct, commits.own_stone, commits.stone);
        match self.way {
            Way::Memory | Way::Direct => assert_eq!((own, other), (0, 0), "the commits went another way"),
            Way::Stone => assert_eq!((direct, other), (0, 0), "the commits went another way"),
            Way::Client => assert_eq!((direct, own), (0, 0), "the commits went another way"),
        }
        store.close().unwrap();
        drop(serving);
        if let Some(server) = server {
            server.close().unwrap();
        }
    }

    fn open(&mut self) {
        let options = StoreOptions::new().label("model").clock(self.clock.clone()).storage_hook(self.gate.clone());
        let Some(folder) = &self.folder else {
            self.open = Some(Open { store: options.open_in_memory().unwrap(), serving: None, server: None });
            return;
        };
        let path = folder.path().join("app.redb");
        let store = options.open_apart(&path).unwrap();
        let serve = |store: &Store| {
            let serving = store.inner.stand().unwrap();
            until("the stone", || store.inner.is_stone());
            serving
        };
        self.open = Some(match self.way {
            Way::Memory | Way::Direct => Open { store, serving: None, server: None },
            Way::Stone => Open { serving: Some(serve(&store)), store, server: None },
            Way::Client => {
                let serving = serve(&store);
                let client = options.open_apart(&path).unwrap();
                until("the client's connection", || client.inner.has_stone());
                Open { store: client, serving: Some(serving), server: Some(store) }
            }
        });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A test that has failed has left the gate as it was, and says why by itself.
        if !std::thread::panicking() {
            self.close();
        }
    }
}

/// On no disk, where there is such a place.
fn new_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.unwrap()
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, to): (_, PathBuf) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            fs::DirBuilder::new().create(&to).unwrap();
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            fs::copy(entry.path(), &to).unwrap();
        }
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = deadline_after(SOON);
    while !is_so() {
        assert!(monotonic() < deadline, "{what} did not come");
        sleep(Duration::from_micros(200));
    }
}
