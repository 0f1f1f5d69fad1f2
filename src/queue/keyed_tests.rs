//! Concurrency keys: how many of one key run at once, in which order, and that what may not run costs a claim nothing.

use std::{collections::HashSet, time::Duration};

use super::rig_tests::{QUEUE, Rig, claim, ids, job, reclaim};
use crate::{
    check::check_rows,
    codec,
    engine::RowSet,
    queue::{
        JobFilter,
        admin::Admin,
        claim::Claim,
        config::{QueueSetting, RateRecord},
        enqueue::{NewExtra, NewJob, When},
        id::{JobId, Token},
        keyed::KeyStateRecord,
        list::list,
        reclaim::Reclaim,
        select::{Tasks, Wanted},
        settle::Ending,
        state::State,
    },
    stone::parked_queues,
    store::{
        change::{BATCH_JOBS_MAX, Candidate, Intent},
        keys,
    },
};

const MINUTE: Duration = Duration::from_mins(1);

fn keyed(key: &str) -> NewJob {
    NewJob { extra: Some(Box::new(NewExtra { key: Some(key.into()), ..NewExtra::default() })), ..job("task") }
}

fn configure(rig: &mut Rig, setting: QueueSetting) {
    rig.administer(Admin::ConfigureQueue { queue: QUEUE.into(), settings: vec![setting] }).unwrap();
}

fn fail_later() -> Ending {
    Ending::Fail { message: "no".into(), retry_after: Some(MINUTE) }
}

fn complete(rig: &mut Rig, job: JobId, token: Option<Token>) {
    rig.settle(job, token.unwrap(), Ending::Complete { result: None }).unwrap();
}

#[test]
fn one_job_of_a_key_runs_at_once_and_the_next_when_it_has_ended() {
    let mut rig = Rig::new();
    let jobs: Vec<JobId> = ["a", "a", "b", "a"].map(|key| rig.enqueue(keyed(key))).to_vec();
    let free = rig.enqueue(job("task"));
    let claimed = rig.claim(claim(10));
    assert_eq!(ids(&claimed), [jobs[0], jobs[2], free]);
    assert_eq!(ids(&rig.claim(claim(10))), []);
    complete(&mut rig, jobs[0], claimed.token);
    assert_eq!(ids(&rig.claim(claim(10))), [jobs[1]]);
}

#[test]
fn claim_takes_as_many_jobs_of_a_key_as_may_run_in_their_order() {
    let mut rig = Rig::new();
    configure(&mut rig, QueueSetting::KeyRunningMax(Some(3)));
    let jobs: Vec<JobId> = (0..5).map(|_| rig.enqueue(keyed("a"))).collect();
    assert_eq!(ids(&rig.claim(claim(2))), jobs[..2]);
    assert_eq!(ids(&rig.claim(claim(10))), jobs[2..3]);
    configure(&mut rig, QueueSetting::KeyRunningMax(Some(4)));
    assert_eq!(ids(&rig.claim(claim(10))), jobs[3..4], "a higher limit lets one more run");
    configure(&mut rig, QueueSetting::KeyRunningMax(Some(1)));
    assert_eq!(ids(&rig.claim(claim(10))), [], "and a lower one takes nothing away and gives nothing more");
}

#[test]
fn what_a_change_frees_it_can_claim() {
    let mut rig = Rig::new();
    let jobs = [rig.enqueue(keyed("a")), rig.enqueue(keyed("a"))];
    let (id, token) = rig.claim_one();
    let settle = crate::queue::settle::Settle {
        job: id,
        token,
        started_at: None,
        how: Ending::Complete { result: None },
        enqueues: Vec::new(),
    };
    let turn = vec![Intent::SettleEach(vec![settle]), Intent::Claim(claim(5))];
    rig.change(Vec::new(), turn).unwrap();
    assert_eq!((rig.state(jobs[0]), rig.state(jobs[1])), (None, Some(State::Running)));
}

/// S46.
#[test]
fn jobs_of_a_customer_at_its_limit_cost_a_claim_nothing() {
    let reads = |behind: usize| {
        let mut rig = Rig::new();
        let running = rig.enqueue(keyed("busy"));
        rig.claim_one();
        rig.is_checked = false;
        for start in (0..behind).step_by(BATCH_JOBS_MAX) {
            let batch = vec![Intent::Enqueue(keyed("busy")); BATCH_JOBS_MAX.min(behind - start)];
            rig.change(Vec::new(), batch).unwrap();
        }
        let id = rig.enqueue(keyed("idle"));
        let tasks = Tasks::Named(HashSet::from(["task".to_owned()]).into());
        let claim = Claim { wanted: Wanted { tasks, jobs_max: 1, idle: true }, ..claim(1) };
        let (reads, applied) = rig.rows.reads_of(|_| rig.try_change(Vec::new(), vec![Intent::Claim(claim)]));
        let crate::store::change::Outcome::Claimed(claimed) = &applied.unwrap().0.outcomes[0] else { panic!() };
        assert_eq!(ids(claimed), [id]);
        assert_eq!(rig.state(running), Some(State::Running));
        reads
    };
    let (few, many) = (reads(1), reads(120_000));
    assert!(many <= few && few < 40, "{many} rows were read behind 120,000 jobs, {few} behind one");
}

/// S46.
#[test]
fn many_customers_at_their_limits_cost_a_claim_nothing() {
    let reads = |customers: usize| {
        let mut rig = Rig::new();
        rig.is_checked = false;
        for customer in 0..customers {
            rig.enqueue(keyed(&customer.to_string()));
        }
        while !rig.claim(claim(1_000)).jobs.is_empty() {}
        for customer in 0..customers {
            rig.enqueue(keyed(&customer.to_string()));
        }
        let id = rig.enqueue(keyed("idle"));
        let (reads, applied) = rig.rows.reads_of(|_| rig.try_change(Vec::new(), vec![Intent::Claim(claim(1))]));
        let crate::store::change::Outcome::Claimed(claimed) = &applied.unwrap().0.outcomes[0] else { panic!() };
        assert_eq!(ids(claimed), [id]);
        reads
    };
    assert_eq!(reads(1), reads(3_000));
}

#[test]
fn strict_order_has_those_behind_a_failed_job_wait_whatever_their_priority() {
    let mut rig = Rig::new();
    configure(&mut rig, QueueSetting::StrictByKey(true));
    let first = rig.enqueue(keyed("a"));
    let second = rig.enqueue(NewJob { priority: 50, ..keyed("a") });
    let other = rig.enqueue(keyed("b"));
    let claimed = rig.claim(claim(10));
    assert_eq!(ids(&claimed), [first, other], "by place within a key, not by priority");
    rig.settle(first, claimed.token.unwrap(), fail_later()).unwrap();
    assert_eq!(ids(&rig.claim(claim(10))), [], "it is to run again first");
    rig.advance(MINUTE);
    rig.promote();
    let claimed = rig.claim(claim(10));
    assert_eq!(ids(&claimed), [first]);
    rig.settle(first, claimed.token.unwrap(), Ending::Snooze { delay: MINUTE }).unwrap();
    assert_eq!(ids(&rig.claim(claim(10))), []);
    rig.administer(Admin::Cancel { job: first }).unwrap();
    assert_eq!(ids(&rig.claim(claim(10))), [second], "who is cancelled lets the others go");
}

#[test]
fn strict_order_goes_on_after_a_release_a_crash_and_a_death() {
    let mut rig = Rig::new();
    configure(&mut rig, QueueSetting::StrictByKey(true));
    let jobs = [rig.enqueue(keyed("a")), rig.enqueue(keyed("a"))];
    let (id, token) = rig.claim_one();
    rig.settle(id, token, Ending::Release).unwrap();
    let (again, token) = rig.claim_one();
    assert_eq!((id, again), (jobs[0], jobs[0]));
    rig.reclaim(Reclaim { started: vec![(id, token, rig.now)], ..reclaim() });
    assert_eq!(
        ids(&rig.claim(Claim { wanted: Wanted { tasks: Tasks::Any, jobs_max: 9, idle: false }, ..claim(9) })),
        []
    );
    let (suspect, token) = rig.claim_one();
    assert_eq!(suspect, jobs[0], "a suspect job keeps its place before those behind it");
    rig.settle(suspect, token, Ending::Fail { message: "no".into(), retry_after: None }).unwrap();
    assert_eq!(ids(&rig.claim(claim(9))), [jobs[1]]);
}

#[test]
fn job_that_was_given_back_and_is_put_off_holds_its_successors_back() {
    let mut rig = Rig::new();
    configure(&mut rig, QueueSetting::StrictByKey(true));
    let jobs = [rig.enqueue(keyed("a")), rig.enqueue(keyed("a")), rig.enqueue(keyed("a"))];
    // One that has not begun is put off as any, and those behind it run.
    rig.reschedule(jobs[0], None, Some(When::After(MINUTE))).unwrap();
    let (id, token) = rig.claim_one();
    assert_eq!(id, jobs[1]);
    rig.settle(id, token, Ending::Release).unwrap();
    rig.reschedule(id, None, Some(When::After(MINUTE))).unwrap();
    assert_eq!(ids(&rig.claim(claim(9))), [], "it ran, and is to run before those behind it");
    rig.reschedule(id, None, Some(When::After(2 * MINUTE))).unwrap();
    assert_eq!(ids(&rig.claim(claim(9))), []);
    rig.reschedule(id, None, Some(When::Now)).unwrap();
    assert_eq!(ids(&rig.claim(claim(9))), [id]);
}

#[test]
fn without_strict_order_a_failed_job_lets_the_next_one_run() {
    let mut rig = Rig::new();
    let jobs = [rig.enqueue(keyed("a")), rig.enqueue(keyed("a"))];
    let (id, token) = rig.claim_one();
    rig.settle(id, token, fail_later()).unwrap();
    assert_eq!(ids(&rig.claim(claim(9))), [jobs[1]]);
}

#[test]
fn another_order_holds_at_once_for_keys_with_jobs_of_several_priorities() {
    let mut rig = Rig::new();
    let low = rig.enqueue(keyed("a"));
    let high = rig.enqueue(NewJob { priority: 5, ..keyed("a") });
    let next = |rig: &Rig| {
        let applied = rig.try_change(Vec::new(), vec![Intent::Claim(claim(9))]).unwrap().0;
        let crate::store::change::Outcome::Claimed(claimed) = &applied.outcomes[0] else { panic!() };
        ids(claimed)
    };
    assert_eq!(next(&rig), [high]);
    configure(&mut rig, QueueSetting::StrictByKey(true));
    assert_eq!(next(&rig), [low]);
    configure(&mut rig, QueueSetting::StrictByKey(false));
    assert_eq!(next(&rig), [high]);
}

#[test]
fn candidate_whose_key_is_at_its_limit_is_neither_taken_nor_lost() {
    let mut rig = Rig::new();
    rig.enqueue(keyed("a"));
    rig.claim_one();
    let behind = rig.enqueue(keyed("a"));
    let candidates: Vec<Candidate> = vec![rig.candidate(behind)];
    let free = rig.enqueue(job("task"));
    let claimed = rig.claim(Claim { candidates, ..claim(1) });
    assert_eq!((ids(&claimed), claimed.hijacks), (vec![free], Vec::new()));
}

#[test]
fn candidates_of_one_key_are_taken_as_far_as_it_lets_them_run() {
    let mut rig = Rig::new();
    let jobs: Vec<JobId> = (0..3).map(|_| rig.enqueue(keyed("a"))).collect();
    let candidates: Vec<Candidate> = jobs.iter().map(|id| rig.candidate(*id)).collect();
    let claimed = rig.claim(Claim { candidates, fill: false, ..claim(3) });
    assert_eq!(ids(&claimed), jobs[..1]);
}

#[test]
fn keyed_jobs_are_found_listed_and_requeued_like_others() {
    let mut rig = Rig::new();
    let jobs: Vec<JobId> = ["b", "a", "a"].map(|key| rig.enqueue(keyed(key))).to_vec();
    let free = rig.enqueue(job("task"));
    rig.enqueue(NewJob { queue: "other".into(), ..keyed("a") });
    let listed = |rig: &Rig, filter: &JobFilter| {
        list(&rig.rows, filter, 10).unwrap().iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let of_queue = JobFilter::new().queue(QUEUE);
    assert_eq!(listed(&rig, &of_queue), [jobs[0], jobs[1], jobs[2], free]);
    assert_eq!(listed(&rig, &of_queue.clone().after(jobs[1])), [jobs[2], free]);
    rig.administer(Admin::Requeue { job: jobs[1] }).unwrap();
    assert_eq!(rig.state(jobs[1]), Some(State::Ready));
    assert_eq!(listed(&rig, &of_queue), [jobs[0], jobs[1], jobs[2], free]);
    let claimed = rig.claim(claim(10));
    assert_eq!(ids(&claimed), [jobs[0], jobs[2], free]);
    complete(&mut rig, jobs[2], claimed.token);
    assert_eq!(ids(&rig.claim(claim(10))), [jobs[1]], "it is at the back of its key");
}

#[test]
fn key_leaves_no_row_behind() {
    let mut rig = Rig::new();
    let before = rig.rows.all().len();
    for _ in 0..3 {
        rig.enqueue(keyed("a"));
    }
    while rig.stats(QUEUE).ready > 0 {
        let (id, token) = rig.claim_one();
        rig.settle(id, token, Ending::Complete { result: None }).unwrap();
    }
    // The queue's count and head, the lane, the task's number and name.
    assert_eq!(rig.rows.all().len(), before + 5);
}

#[test]
fn opening_of_a_key_is_told_to_claims_that_wait_and_closing_is_not() {
    let mut rig = Rig::new();
    rig.enqueue(keyed("a"));
    let (id, token) = rig.claim_one();
    let told = |rig: &Rig, intent: Intent| {
        let rows = rig.try_change(Vec::new(), vec![intent]).unwrap().1;
        parked_queues(&rows).into_iter().collect::<Vec<_>>()
    };
    assert!(told(&rig, Intent::Enqueue(keyed("a"))).is_empty(), "it may not run yet");
    assert_eq!(told(&rig, Intent::Enqueue(keyed("b"))), [QUEUE]);
    rig.enqueue(keyed("a"));
    let settle = |how| crate::queue::settle::Settle { job: id, token, started_at: None, how, enqueues: Vec::new() };
    assert_eq!(told(&rig, Intent::Settle(settle(Ending::Complete { result: None }))), [QUEUE]);
}

#[test]
fn check_tells_of_each_row_of_a_key_that_does_not_fit() {
    let scene = || {
        let mut rig = Rig::new();
        configure(&mut rig, QueueSetting::StrictByKey(true));
        configure(&mut rig, QueueSetting::Rate(Some(RateRecord { jobs: 1, period: MINUTE, burst: 9 })));
        let running = rig.enqueue(keyed("a"));
        rig.claim_one();
        let open = rig.enqueue(keyed("b"));
        (rig, running, open)
    };
    let (rig, running, open) = scene();
    assert_eq!(check_rows(&rig.rows).unwrap(), []);
    let lane = rig.record(open).lane();
    let state = |running, holding| codec::encode(&KeyStateRecord { running, holding }).unwrap();
    let wrong = [
        (keys::key_state(QUEUE, "a"), None, "counts 0 running jobs and has 1"),
        (keys::key_state(QUEUE, "a"), Some(state(2, Vec::new())), "counts 2 running jobs and has 1"),
        (keys::key_state(QUEUE, "a"), Some(state(1, vec![running])), "held back by a job that is not scheduled"),
        (keys::key_state(QUEUE, "c"), Some(state(1, Vec::new())), "counts 1 running jobs and has 0"),
        (keys::key_index(QUEUE, lane, open), None, "no claim finds it"),
        (keys::key_index(QUEUE, lane, running), Some(b"a".to_vec()), "leads claims to a job that may not run"),
        (keys::place(open), None, "no row tells the place"),
        (keys::lane(QUEUE, lane), None, "in a lane that has no row"),
    ];
    for (key, value, says) in wrong {
        let (mut rig, ..) = scene();
        rig.rows.write(RowSet::from([(key, value)]));
        let findings = check_rows(&rig.rows).unwrap();
        assert!(findings.iter().any(|finding| finding.to_string().contains(says)), "{says}: {findings:?}");
    }
    let (mut rig, ..) = scene();
    rig.rows.write(RowSet::from([(keys::queue_config(QUEUE), None)]));
    let findings = check_rows(&rig.rows).unwrap();
    assert!(findings.iter().any(|finding| finding.to_string().contains("has tokens and no rate")), "{findings:?}");
}
