//! S27: a commit was made by a clock that was ahead, or the clock has stepped back since. Stamps go on from the latest
//! one; schedules go by the clock as it is, so that nothing runs early, and nothing later than it should.

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
fn one_commit_by_a_clock_that_was_ahead_shifts_nothing_that_comes_after() {
    let (store, stamp) = stepped_back();
    let queue = store.queue("q");
    let delayed = queue.enqueue(JobRequest::new("t", &()).delay(Duration::from_secs(60))).unwrap();
    assert!(store.job(delayed).unwrap().run_at.unwrap() < stamp, "in a minute by the clock as it is");
    let planned = queue.enqueue(JobRequest::new("t", &()).run_at(Timestamp::now().after(HOUR / 2))).unwrap();
    let ready = queue.enqueue(JobRequest::new("t", &())).unwrap();
    assert_eq!(promote(&store), 0);
    for job in [delayed, planned] {
        assert_eq!(store.job(job).unwrap().state, State::Scheduled, "its time has come by the stamp, not by the clock");
    }
    let lease = queue.claim(5, Duration::ZERO).unwrap().pop().unwrap();
    assert_eq!(lease.id(), ready);
    lease.fail("again", Some(Duration::from_secs(60))).unwrap();
    assert!(store.job(ready).unwrap().run_at.unwrap() < stamp, "its retry is not an hour late");
    store.retry(ready).unwrap();
    queue.claim_job(ready).unwrap().complete().unwrap();
    assert_eq!(queue.stats().unwrap().completed, 1);
}

#[test]
fn delayed_job_is_ready_when_the_clock_has_come_to_its_time() {
    let (store, _) = stepped_back();
    let id = store.queue("q").enqueue(JobRequest::new("t", &()).delay(Duration::from_millis(1))).unwrap();
    let at = store.job(id).unwrap().run_at.unwrap();
    while Timestamp::now() < at {
        std::hint::spin_loop();
    }
    assert_eq!((promote(&store), store.job(id).unwrap().state), (1, State::Ready));
}
