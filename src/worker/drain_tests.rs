//! A worker that is to leave when all is done, over an engine that can't be read for a moment.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use crate::{
    StoreOptions,
    engine::{Basis, Engine, RowSet, Rows, SnapshotError, memory::Memory},
    error::{Error, Result},
    queue::JobRequest,
    task::Registry,
    worker::{Event, Worker},
};

/// Which reads fail.
#[derive(Default)]
struct Outage {
    /// So many of the handlers' threads.
    of_handlers: AtomicUsize,
    /// All of the worker's own thread.
    of_keeper: AtomicBool,
}

struct Flaky {
    memory: Memory,
    outage: Arc<Outage>,
}

impl Engine for Flaky {
    fn snapshot(&self) -> Result<Box<dyn Rows + Send>, SnapshotError> {
        let current = thread::current();
        let fails = match current.name() {
            Some("keeper") => self.outage.of_keeper.load(Ordering::SeqCst),
            Some(name) if name.starts_with("casque-handler") => {
                let left = &self.outage.of_handlers;
                left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
            }
            _ => false,
        };
        if fails { Err(SnapshotError::Failed(Error::unavailable("made to fail"))) } else { self.memory.snapshot() }
    }

    fn latest(&self) -> Result<Box<dyn Rows + Send>> {
        self.memory.latest()
    }

    fn write(&self, basis: Option<&Basis>, rows: &RowSet) -> Result<()> {
        self.memory.write(basis, rows)
    }

    fn recover(&self) -> Result<()> {
        self.memory.recover()
    }

    fn close_if_only_read(&self) -> Result<bool> {
        self.memory.close_if_only_read()
    }

    fn close(&self) -> Result<()> {
        self.memory.close()
    }

    fn check(&self) -> Result<Vec<String>> {
        self.memory.check()
    }
}

#[test]
fn draining_worker_goes_on_where_it_can_not_read_for_a_moment_and_its_report_is_not_lost() {
    let outage: Arc<Outage> = Arc::default();
    let engine = Flaky { memory: Memory::new(), outage: outage.clone() };
    let store = StoreOptions::new().open_on(Box::new(engine)).unwrap();
    store.queue("default").enqueue(JobRequest::new("note", &())).unwrap();
    let mut tasks = Registry::new();
    tasks.register("note", |_, ()| Ok(())).unwrap();
    let (tell, troubles) = mpsc::channel();
    let worker = Worker::new(&store).tasks(tasks).drain(true).listen(move |event| match event {
        // What is looked at next is whether all is done.
        Event::Completed { .. } => {
            outage.of_handlers.store(1, Ordering::SeqCst);
            outage.of_keeper.store(true, Ordering::SeqCst);
        }
        Event::Trouble { doing, .. } => tell.send(*doing).unwrap(),
        _ => {}
    });
    let run = thread::Builder::new().name("keeper".into()).spawn(move || worker.run()).unwrap();
    let report = run.join().unwrap().unwrap();
    assert_eq!((report.completed, report.left.len()), (1, 0));
    let troubles: Vec<&str> = troubles.try_iter().collect();
    for doing in ["see whether all is done", "count what is left"] {
        assert!(troubles.contains(&doing), "{troubles:?}");
    }
}
