//! Limits of queues: how many of its jobs run at once, in which time, and how many may wait in it.

use std::time::Duration;

use super::rig_tests::{QUEUE, Rig, claim, ids, job, reclaim};
use crate::{
    clock::Timestamp,
    codec,
    engine::RowSet,
    error::ErrorKind,
    queue::{
        admin::Admin,
        claim::Claim,
        config::{QueueSetting, RateRecord},
        enqueue::{NewJob, When},
        id::JobId,
        rate::{bucket_of, next_token},
        settle::{Ending, Settle},
        state::State,
    },
    stone::parked_queues,
    store::{
        change::{Candidate, Intent},
        keys,
    },
};

const SECOND: Duration = Duration::from_secs(1);

fn configure(rig: &mut Rig, setting: QueueSetting) {
    rig.administer(Admin::ConfigureQueue { queue: QUEUE.into(), settings: vec![setting] }).unwrap();
}

fn rate(jobs: u32, period: Duration, burst: u32) -> QueueSetting {
    QueueSetting::Rate(Some(RateRecord { jobs, period, burst }))
}

fn enqueue(rig: &mut Rig, jobs: usize) -> Vec<JobId> {
    (0..jobs).map(|_| rig.enqueue(job("task"))).collect()
}

#[test]
fn no_more_jobs_of_a_queue_run_than_its_limit_however_they_are_claimed() {
    let mut rig = Rig::new();
    configure(&mut rig, QueueSetting::RunningMax(Some(3)));
    let jobs = enqueue(&mut rig, 6);
    let candidates: Vec<Candidate> = jobs.iter().map(|id| rig.candidate(*id)).collect();
    let claimed = rig.claim(Claim { candidates: candidates[..2].to_vec(), fill: false, ..claim(2) });
    assert_eq!(ids(&claimed), jobs[..2]);
    let more = rig.claim(Claim { candidates: candidates[2..].to_vec(), ..claim(4) });
    assert_eq!((ids(&more), more.hijacks), (jobs[2..3].to_vec(), Vec::new()));
    assert_eq!(ids(&rig.claim(claim(1))), []);
    let token = claimed.token.unwrap();
    rig.settle(jobs[0], token, Ending::Fail { message: "no".into(), retry_after: Some(SECOND) }).unwrap();
    assert_eq!(ids(&rig.claim(claim(9))), [jobs[3]]);
    rig.reclaim(reclaim());
    assert_eq!(rig.stats(QUEUE).running, 0, "the slots of a dead session are free");
    assert_eq!(ids(&rig.claim(claim(9))), jobs[1..4]);
}

#[test]
fn queue_at_its_limit_does_not_keep_a_claim_from_the_next_queue() {
    let mut rig = Rig::new();
    configure(&mut rig, QueueSetting::RunningMax(Some(1)));
    let jobs = enqueue(&mut rig, 2);
    let other = rig.enqueue(NewJob { queue: "other".into(), ..job("task") });
    let queues = vec![QUEUE.to_owned(), "other".to_owned()];
    assert_eq!(ids(&rig.claim(Claim { queues, ..claim(5) })), [jobs[0], other]);
}

#[test]
fn freeing_a_limit_is_told_to_claims_that_wait_and_settling_below_it_costs_nothing() {
    let mut rig = Rig::new();
    configure(&mut rig, QueueSetting::RunningMax(Some(2)));
    enqueue(&mut rig, 4);
    let claimed = rig.claim(claim(2));
    let token = claimed.token.unwrap();
    let settle = |job| {
        Intent::Settle(Settle {
            job,
            token,
            started_at: None,
            how: Ending::Complete { result: None },
            enqueues: Vec::new(),
        })
    };
    let jobs = ids(&claimed);
    let rows = rig.try_change(Vec::new(), vec![settle(jobs[0])]).unwrap().1;
    assert_eq!(parked_queues(&rows).into_iter().collect::<Vec<_>>(), [QUEUE]);
    let turn = vec![settle(jobs[0]), Intent::Claim(claim(1))];
    let rows = rig.try_change(Vec::new(), turn).unwrap().1;
    assert!(!rows.contains_key(&crate::store::keys::queue_config(QUEUE)), "who claims again frees nothing");
    rig.change(Vec::new(), vec![settle(jobs[0])]).unwrap();
    let rows = rig.try_change(Vec::new(), vec![settle(jobs[1])]).unwrap().1;
    assert!(parked_queues(&rows).is_empty(), "it was below its limit before");
}

#[test]
fn configuration_is_told_to_claims_that_wait() {
    let rig = Rig::new();
    for setting in [QueueSetting::RunningMax(Some(2)), QueueSetting::SizeMax(Some(1)), rate(1, SECOND, 1)] {
        let admin = Admin::ConfigureQueue { queue: QUEUE.into(), settings: vec![setting] };
        let rows = rig.try_change(Vec::new(), vec![Intent::Administer(admin)]).unwrap().1;
        assert_eq!(parked_queues(&rows).into_iter().collect::<Vec<_>>(), [QUEUE]);
    }
}

#[test]
fn tokens_come_evenly_and_to_the_millisecond() {
    let mut rig = Rig::new();
    // A token each 333 1/3 ms, which no whole number of milliseconds is.
    configure(&mut rig, rate(3, SECOND, 2));
    enqueue(&mut rig, 20);
    assert_eq!(rig.claim(claim(10)).jobs.len(), 2, "the burst");
    let begun = rig.now;
    for token in 1..=9_u64 {
        let due = begun.after(Duration::from_millis((token * 1_000).div_ceil(3)));
        assert_eq!(next_token(&rig.rows, rig.now).unwrap(), Some(due));
        rig.now = Timestamp::from_millis(due.as_millis() - 1);
        assert_eq!(ids(&rig.claim(claim(10))), [], "token {token} does not come before its time");
        rig.now = due;
        assert_eq!(rig.claim(claim(10)).jobs.len(), 1, "token {token}");
    }
}

#[test]
fn claim_that_finds_no_token_writes_nothing_and_the_bucket_is_filled_when_one_has_come() {
    let mut rig = Rig::new();
    configure(&mut rig, rate(1, SECOND, 1));
    enqueue(&mut rig, 2);
    rig.claim_one();
    let (applied, rows) = rig.try_change(Vec::new(), vec![Intent::Claim(claim(1))]).unwrap();
    assert!(applied.version.is_none() && rows.is_empty());
    let promote = || Intent::Promote { limit: 10 };
    assert!(rig.try_change(Vec::new(), vec![promote()]).unwrap().1.is_empty(), "no token has come");
    rig.advance(SECOND);
    let rows = rig.try_change(Vec::new(), vec![promote()]).unwrap().1;
    assert_eq!(parked_queues(&rows).into_iter().collect::<Vec<_>>(), [QUEUE]);
    rig.promote();
    assert_eq!(next_token(&rig.rows, rig.now).unwrap(), None, "who waits was told");
    assert!(rig.try_change(Vec::new(), vec![promote()]).unwrap().1.is_empty(), "and is told once");
    assert_eq!(rig.claim(claim(9)).jobs.len(), 1);
}

#[test]
fn batch_into_a_queue_of_limited_size_reads_its_numbers_once() {
    let reads = |size_max: Option<u64>, jobs: usize| {
        let mut rig = Rig::new();
        enqueue(&mut rig, 1);
        configure(&mut rig, QueueSetting::SizeMax(size_max));
        let batch = vec![Intent::Enqueue(job("task")); jobs];
        rig.rows.reads_of(|_| rig.try_change(Vec::new(), batch).unwrap()).0
    };
    assert_eq!(reads(Some(100), 20) - reads(Some(100), 10), reads(None, 20) - reads(None, 10));
}

/// S28.
#[test]
fn bucket_or_configuration_that_this_build_can_not_read_keeps_no_token_of_another_queue_back() {
    let mut rig = Rig::new();
    configure(&mut rig, rate(1, SECOND, 1));
    enqueue(&mut rig, 2);
    rig.claim_one();
    rig.is_checked = false;
    for strange in ["a", "b"] {
        let admin = Admin::ConfigureQueue { queue: strange.into(), settings: vec![rate(1, SECOND, 1)] };
        rig.administer(admin).unwrap();
        let [config, bucket] = [keys::queue_config(strange), keys::bucket(strange)];
        let sound = codec::encode(&bucket_of(0, rig.now)).unwrap();
        let mut key = config.clone();
        rig.rows.write(RowSet::from([(bucket.clone(), Some(sound))]));
        if strange == "b" {
            key = bucket;
        }
        let mut bytes = rig.rows.all()[&key].clone();
        bytes[1] = 99;
        rig.rows.write(RowSet::from([(key, Some(bytes))]));
    }
    assert_eq!(next_token(&rig.rows, rig.now).unwrap(), Some(rig.now.after(SECOND)));
    rig.advance(SECOND);
    rig.promote();
    assert_eq!(next_token(&rig.rows, rig.now).unwrap(), None, "who waits was told");
}

#[test]
fn clock_that_jumps_gives_no_more_than_a_burst_and_stops_nothing() {
    let mut rig = Rig::new();
    configure(&mut rig, rate(1, SECOND, 3));
    enqueue(&mut rig, 50);
    assert_eq!(rig.claim(claim(50)).jobs.len(), 3);
    let before = rig.now;
    rig.advance(Duration::from_hours(24));
    assert_eq!(rig.claim(claim(50)).jobs.len(), 3, "a day ahead fills the bucket and no more");
    rig.now = before;
    assert_eq!(ids(&rig.claim(claim(50))), [], "the step back gives nothing");
    assert_eq!(next_token(&rig.rows, rig.now).unwrap(), Some(rig.now), "and is told to the bucket at once");
    rig.promote();
    for _ in 0..5 {
        assert_eq!(ids(&rig.claim(claim(50))), []);
        rig.advance(SECOND);
        assert_eq!(rig.claim(claim(50)).jobs.len(), 1, "tokens come as before");
    }
}

#[test]
fn another_rate_keeps_what_is_in_the_bucket() {
    let mut rig = Rig::new();
    configure(&mut rig, rate(10, SECOND, 10));
    enqueue(&mut rig, 50);
    assert_eq!(rig.claim(claim(6)).jobs.len(), 6);
    configure(&mut rig, rate(1, 10 * SECOND, 20));
    assert_eq!(rig.claim(claim(50)).jobs.len(), 4, "a change of the rate is no second burst");
    configure(&mut rig, QueueSetting::Rate(None));
    assert_eq!(rig.claim(claim(7)).jobs.len(), 7);
}

#[test]
fn enqueue_beyond_the_size_is_refused_and_leaves_no_trace() {
    let mut rig = Rig::new();
    configure(&mut rig, QueueSetting::SizeMax(Some(3)));
    enqueue(&mut rig, 2);
    rig.enqueue(NewJob { when: When::After(SECOND), ..job("task") });
    let error = rig.intent(Intent::Enqueue(job("task"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    let message = error.to_string();
    assert!(message.contains("\"q\" is full") && message.contains("size-max is 3"), "{message}");
    rig.enqueue(NewJob { queue: "other".into(), ..job("task") });
    let (id, token) = rig.claim_one();
    let both = vec![Intent::Enqueue(job("task")); 2];
    let before = rig.rows.all().clone();
    assert_eq!(rig.change(Vec::new(), both).unwrap_err().kind(), ErrorKind::Full, "a batch goes in as a whole");
    assert_eq!(*rig.rows.all(), before);
    enqueue(&mut rig, 1);
    rig.settle(id, token, Ending::Release).unwrap();
    assert_eq!(rig.state(id), Some(State::Ready), "what was in it before is never refused");
}

#[test]
fn limit_that_lets_no_job_run_is_refused() {
    let mut rig = Rig::new();
    for (setting, says) in [
        (QueueSetting::RunningMax(Some(0)), "limit"),
        (QueueSetting::KeyRunningMax(Some(0)), "limit"),
        (rate(0, SECOND, 1), "rate"),
        (rate(1, Duration::from_micros(10), 1), "rate"),
        (rate(1, SECOND, 0), "rate"),
    ] {
        let admin = Admin::ConfigureQueue { queue: QUEUE.into(), settings: vec![setting] };
        let error = rig.administer(admin).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(says) && error.to_string().contains("\"q\""), "{error}");
    }
}

#[test]
fn queue_without_limits_writes_no_row_for_them() {
    let mut rig = Rig::new();
    let (id, token) = {
        enqueue(&mut rig, 1);
        rig.claim_one()
    };
    let how = Ending::Complete { result: None };
    let settle = Intent::Settle(Settle { job: id, token, started_at: None, how, enqueues: Vec::new() });
    let rows = rig.try_change(Vec::new(), vec![settle]).unwrap().1;
    let families: Vec<u8> = rows.keys().map(|key| key[0]).collect();
    assert_eq!(families, [0x21, 0x31], "the count, and the job");
}

#[test]
fn rates_of_any_size_can_be_changed_into_each_other() {
    let mut rig = Rig::new();
    let most = rate(u32::MAX, Duration::MAX, u32::MAX);
    configure(&mut rig, most);
    enqueue(&mut rig, 2);
    rig.claim(claim(1));
    configure(&mut rig, rate(1, Duration::MAX, u32::MAX));
    configure(&mut rig, most);
    assert_eq!(rig.claim(claim(1)).jobs.len(), 1);
}
