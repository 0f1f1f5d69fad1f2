//! S27: the clock of the machine steps back. The committer's stamps go on from the latest one, so that nothing runs
//! early and nothing is stuck.

use std::time::Duration;

use super::Store;
use crate::{
    clock::Timestamp,
    codec,
    engine::RowSet,
    queue::{JobRequest, state::State},
    store::{
        change::{Intent, Outcome},
        keys,
        object::StoreRecord,
        view::get_record,
    },
};

const HOUR: Duration = Duration::from_hours(1);

/// A store whose last commit was made an hour from now: its clock has been stepped back by that since.
fn stepped_back() -> (Store, Timestamp) {
    let store = Store::in_memory().unwrap();
    store.put("before", &()).unwrap();
    let site = &store.inner.site;
    let before: StoreRecord = get_record(store.inner.rows().unwrap().as_ref(), keys::STORE).unwrap().unwrap();
    let stamp = Timestamp::now().after(HOUR);
    let record = codec::encode(&StoreRecord { stamp, ..before }).unwrap();
    site.engine.write(None, &RowSet::from([(keys::STORE.to_vec(), Some(record))])).unwrap();
    (store, stamp)
}

fn promote(store: &Store) -> usize {
    match store.inner.perform(Intent::Promote { limit: 10 }).unwrap() {
        Outcome::Promoted { jobs } => jobs,
        other => panic!("not promoted: {other:?}"),
    }
}

#[test]
fn stamps_never_go_back() {
    let (store, stamp) = stepped_back();
    for _ in 0..3 {
        store.put("after", &()).unwrap();
        assert_eq!(store.snapshot().unwrap().stamp(), stamp);
    }
}

#[test]
fn clock_that_steps_back_starts_no_delayed_job_early_and_holds_up_no_ready_one() {
    let (store, stamp) = stepped_back();
    let queue = store.queue("q");
    let delayed = queue.enqueue(JobRequest::new("t", &()).delay(HOUR)).unwrap();
    let ready = queue.enqueue(JobRequest::new("t", &())).unwrap();
    assert_eq!(store.job(delayed).unwrap().run_at, Some(stamp.after(HOUR)));
    assert_eq!(promote(&store), 0);
    assert_eq!(store.job(delayed).unwrap().state, State::Scheduled);
    let lease = queue.claim(5, Duration::ZERO).unwrap().pop().unwrap();
    assert_eq!(lease.id(), ready);
    lease.fail("again", Some(Duration::ZERO)).unwrap();
    queue.claim_job(ready).unwrap().complete().unwrap();
    assert_eq!(queue.stats().unwrap().completed, 1);
}

#[test]
fn delayed_job_runs_when_the_clock_has_come_to_its_time() {
    let (store, stamp) = stepped_back();
    let queue = store.queue("q");
    let id = queue.enqueue(JobRequest::new("t", &()).run_at(stamp.after(Duration::from_millis(1)))).unwrap();
    assert_eq!(promote(&store), 0);
    // The clock goes on to that time: told here by the stamp of the commit before.
    let before: StoreRecord = get_record(store.inner.rows().unwrap().as_ref(), keys::STORE).unwrap().unwrap();
    let later = StoreRecord { stamp: stamp.after(HOUR), ..before };
    let rows = RowSet::from([(keys::STORE.to_vec(), Some(codec::encode(&later).unwrap()))]);
    store.inner.site.engine.write(None, &rows).unwrap();
    assert_eq!((promote(&store), store.job(id).unwrap().state), (1, State::Ready));
}
