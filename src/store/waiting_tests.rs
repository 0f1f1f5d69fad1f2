//! A claim and the job that satisfies it in one group, in either order.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{JobRequest, StoreOptions, hooks::Step, store::inner::Inner};

/// Much longer than a commit takes, and much shorter than a claim waits.
const PROMPTLY: Duration = Duration::from_secs(10);

/// Holds the stone's thread in a commit, so that what is asked meanwhile becomes one group.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
    held: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        let mut is_shut = self.is_shut.lock().unwrap();
        while *is_shut {
            self.held.store(1, Ordering::SeqCst);
            is_shut = self.opened.wait(is_shut).unwrap();
        }
    }

    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.opened.notify_all();
    }
}

#[test]
fn claim_gets_the_job_that_is_enqueued_behind_it_in_the_same_group() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let passing = gate.clone();
    let options = StoreOptions::new().step_hook(move |step| {
        if step == Step::Applied && thread::current().name() == Some("casque-stone") {
            passing.pass();
        }
    });
    let store = options.open(folder.path().join("app.redb")).unwrap();
    let _serving = store.serve().unwrap();
    while store.stone().is_none() {
        thread::yield_now();
    }
    let queue = store.queue("q");
    gate.set(true);
    thread::scope(|scope| {
        scope.spawn(|| store.add("held up", 1).unwrap());
        while gate.held.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        let inner: &Arc<Inner> = &store.inner;
        let claim = crate::store::change::Intent::Claim(crate::queue::claim::Claim {
            session: inner.session().unwrap().id,
            queues: vec!["q".into()],
            wanted: crate::queue::select::Wanted { tasks: crate::queue::select::Tasks::Any, jobs_max: 1, idle: true },
            candidates: Vec::new(),
            fill: true,
            conflicts: 0,
        });
        let ticket = inner.submit_turn(vec![claim], Duration::from_mins(1)).unwrap();
        let enqueue = crate::store::change::Intent::Enqueue(JobRequest::new("t", &()).for_queue(queue.name()).unwrap());
        let enqueued = inner.submit_turn(vec![enqueue], Duration::ZERO).unwrap();
        let asked = crate::clock::monotonic();
        gate.set(false);
        enqueued.wait(&inner.site).unwrap();
        let applied = ticket.wait(&inner.site).unwrap();
        assert!(crate::clock::monotonic().duration_since(asked) < PROMPTLY, "it waited beside a job for it");
        assert!(applied.version.is_some(), "it was given the job");
    });
}
