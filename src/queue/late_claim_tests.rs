//! Claims that are committed after their callers have given up waiting.

use std::{
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use crate::{
    JobRequest, StoreOptions,
    clock::{deadline_after, monotonic},
    error::ErrorKind,
    hooks::Step,
    queue::{Policy, id::JobId, state::State},
    store::Store,
};

/// Holds the stone's thread while it is shut.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let is_shut = self.is_shut.lock().unwrap();
        drop(self.opened.wait_while(is_shut, |is_shut| *is_shut).unwrap());
    }

    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.opened.notify_all();
    }
}

/// Whether the job comes back to its queue by two changes more than there were: the claim, and what gives it back.
fn comes_back(store: &Store, job: JobId, before: u64) -> bool {
    let (since, deadline) = (monotonic(), deadline_after(Duration::from_secs(10)));
    while monotonic() < deadline {
        let seen = store.inner.site.wakes();
        if store.version().unwrap().0 >= before + 2 && store.job(job).unwrap().state == State::Ready {
            return true;
        }
        store.inner.wait_for_commit(seen, since, deadline);
    }
    false
}

#[test]
fn lease_of_a_claim_that_was_given_up_goes_back_when_it_is_committed() {
    let folder = tempfile::tempdir().unwrap();
    let gate: Arc<Gate> = Arc::default();
    let passing = gate.clone();
    let options = StoreOptions::new().timeout(Duration::from_millis(100)).step_hook(move |step| {
        if step == Step::Applied && thread::current().name() == Some("casque-stone") {
            passing.pass();
        }
    });
    let store = options.open(folder.path().join("app.redb")).unwrap();
    // Nothing keeps the store in order here.
    let _standing = store.inner.stand().unwrap();
    while store.stone().is_none() {
        thread::yield_now();
    }
    let queue = store.queue("q");
    let job = queue.enqueue(JobRequest::new("task", &())).unwrap();
    for strictly in [false, true] {
        let before = store.version().unwrap().0;
        let snapshot = store.snapshot().unwrap();
        let mut view = snapshot.queue("q");
        assert_eq!(view.shift().unwrap().unwrap().id, job);
        // What comes before the claim reads, which a stone that is held does not answer.
        gate.set(true);
        let claimed = if strictly { view.commit(Policy::Strict) } else { queue.claim(1, Duration::ZERO) };
        assert_eq!(claimed.unwrap_err().kind(), ErrorKind::Unknown);
        gate.set(false);
        assert!(comes_back(&store, job, before), "nobody has it in hand");
    }
}
