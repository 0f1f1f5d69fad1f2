//! S46: what can't run costs nothing to skip, told by the rows that a claim reads.

use std::{collections::HashSet, time::Duration};

use super::rig_tests::{QUEUE, Rig, claim, ids, job, reclaim};
use crate::{
    clock::Timestamp,
    queue::{
        admin::{Admin, EMPTY_LANES_KEPT, lanes_to_sweep},
        claim::Claim,
        enqueue::{NewJob, When},
        id::JobId,
        reclaim::Reclaim,
        select::{Selection, Tasks, Wanted, select},
        settle::Ending,
        state::State,
    },
    store::change::{BATCH_JOBS_MAX, Intent},
};

const MANY: usize = 50_000;
/// How many more rows a claim may read than in an empty queue: the lane that it skips, and its task's name.
const FEW: usize = 4;

fn enqueue_many(rig: &mut Rig, count: usize, new: &NewJob) {
    rig.is_checked = false;
    for start in (0..count).step_by(BATCH_JOBS_MAX) {
        let batch = vec![Intent::Enqueue(new.clone()); BATCH_JOBS_MAX.min(count - start)];
        rig.change(Vec::new(), batch).unwrap();
    }
}

fn only(task: &str) -> Wanted {
    Wanted { tasks: Tasks::Named(HashSet::from([task.to_owned()]).into()), jobs_max: 1, idle: true }
}

/// The rows that a worker which knows one task reads to find the next job: for its peek, and for the claim.
fn reads_to_claim(rig: &Rig, task: &str) -> (usize, usize, Vec<JobId>) {
    let (peeked, selection) = rig.rows.reads_of(|rows| {
        let mut selection = Selection::default();
        select(rows, QUEUE, &only(task), Timestamp::now(), &mut selection).unwrap();
        selection
    });
    let found = selection.jobs.iter().map(|job| job.id).collect();
    let claim = Claim { wanted: only(task), ..claim(1) };
    let (claimed, applied) = rig.rows.reads_of(|_| rig.try_change(Vec::new(), vec![Intent::Claim(claim)]));
    applied.unwrap();
    (peeked, claimed, found)
}

/// S46.
#[test]
fn jobs_of_an_unknown_task_cost_a_claim_nothing() {
    let mut empty = Rig::new();
    let id = empty.enqueue(job("known"));
    let (peeked, claimed, found) = reads_to_claim(&empty, "known");
    assert_eq!(found, [id]);

    for behind in [1, MANY] {
        let mut rig = Rig::new();
        enqueue_many(&mut rig, behind, &job("unknown"));
        let id = rig.enqueue(job("known"));
        let (peeked_behind, claimed_behind, found) = reads_to_claim(&rig, "known");
        assert_eq!(found, [id]);
        assert!(peeked_behind <= peeked + FEW, "the peek read {peeked_behind} rows, {peeked} in an empty queue");
        assert!(claimed_behind <= claimed + FEW, "the claim read {claimed_behind} rows, {claimed} in an empty queue");
    }
}

/// S29, S46.
#[test]
fn unknown_task_of_a_higher_priority_holds_up_nobody_and_runs_when_somebody_knows_it() {
    let mut rig = Rig::new();
    let high = rig.enqueue(NewJob { priority: 50, ..job("unknown") });
    let low = rig.enqueue(job("known"));
    assert_eq!(ids(&rig.claim(Claim { wanted: only("known"), ..claim(1) })), [low]);
    assert_eq!(ids(&rig.claim(Claim { wanted: only("known"), ..claim(1) })), []);
    assert_eq!(ids(&rig.claim(Claim { wanted: only("unknown"), ..claim(1) })), [high]);
}

/// S36.
#[test]
fn scheduled_and_ended_jobs_cost_a_claim_nothing() {
    let fill = |count: usize| {
        let mut rig = Rig::new();
        enqueue_many(&mut rig, count, &NewJob { when: When::After(Duration::from_hours(1)), ..job("known") });
        enqueue_many(&mut rig, count, &NewJob { keep: true, ..job("known") });
        while rig.stats(QUEUE).ready > 0 {
            let claimed = rig.claim(claim(1_000));
            for (index, id) in ids(&claimed).into_iter().enumerate() {
                let token = claimed.token.unwrap();
                let fail = Ending::Fail { message: "no".into(), retry_after: None };
                let how = if index % 2 == 0 { Ending::Complete { result: None } } else { fail };
                rig.settle(id, token, how).unwrap();
            }
        }
        rig.enqueue(job("known"));
        let (peeked, claimed, _) = reads_to_claim(&rig, "known");
        (peeked, claimed)
    };
    assert_eq!(fill(4), fill(2_000));
}

#[test]
fn jobs_of_a_paused_queue_cost_a_claim_nothing() {
    let mut rig = Rig::new();
    enqueue_many(&mut rig, 1_000, &job("known"));
    rig.administer(crate::queue::admin::Admin::Pause { queue: QUEUE.into() }).unwrap();
    let (claimed, applied) = rig.rows.reads_of(|_| rig.try_change(Vec::new(), vec![Intent::Claim(claim(10))]).unwrap());
    assert_eq!(applied.0.version, None, "an empty claim writes nothing");
    assert!(claimed <= 2, "{claimed}");
}

#[test]
fn claim_reads_few_rows_more_than_it_takes() {
    let mut rig = Rig::new();
    enqueue_many(&mut rig, 5_000, &job("known"));
    let (reads, selection) = rig.rows.reads_of(|rows| {
        let mut selection = Selection::default();
        let wanted = Wanted { tasks: Tasks::Any, jobs_max: 100, idle: true };
        select(rows, QUEUE, &wanted, Timestamp::now(), &mut selection).unwrap();
        selection
    });
    assert_eq!(selection.jobs.len(), 100);
    assert!(reads <= 100 + 20, "{reads}");
}

#[test]
fn many_suspect_jobs_cost_a_busy_worker_nothing() {
    let reads = |suspects: usize| {
        let mut rig = Rig::new();
        let jobs: Vec<JobId> = (0..suspects).map(|_| rig.enqueue(job("known"))).collect();
        let token = rig.claim(claim(suspects)).token.unwrap();
        let started = jobs.iter().map(|id| (*id, token, rig.now)).collect();
        rig.reclaim(Reclaim { started, ..reclaim() });
        let id = rig.enqueue(job("known"));
        let wanted = Wanted { idle: false, ..only("known") };
        let (reads, selection) = rig.rows.reads_of(|rows| {
            let mut selection = Selection::default();
            select(rows, QUEUE, &wanted, Timestamp::now(), &mut selection).unwrap();
            selection
        });
        assert_eq!(selection.jobs[0].id, id);
        reads
    };
    assert_eq!(reads(1), reads(500));
}

#[test]
fn empty_lanes_are_given_up_so_that_old_priorities_cost_nothing_for_ever() {
    let mut rig = Rig::new();
    for priority in -100..=100 {
        rig.enqueue(NewJob { priority, ..job("known") });
    }
    while rig.stats(QUEUE).ready > 0 {
        let (id, token) = rig.claim_one();
        rig.settle(id, token, Ending::Complete { result: None }).unwrap();
    }
    assert_eq!(lanes_to_sweep(&rig.rows).unwrap().len(), 201 - EMPTY_LANES_KEPT);
    rig.administer(Admin::SweepLanes).unwrap();
    assert!(lanes_to_sweep(&rig.rows).unwrap().is_empty());
    let id = rig.enqueue(NewJob { priority: -100, ..job("known") });
    let (peeked, _, found) = reads_to_claim(&rig, "known");
    assert_eq!(found, [id]);
    assert!(peeked <= 3 * (EMPTY_LANES_KEPT + 3), "{peeked} rows read for one job");
}

#[test]
fn higher_priority_goes_first_and_within_one_the_order_is_by_place_across_tasks() {
    let mut rig = Rig::new();
    let low = rig.enqueue(NewJob { priority: -5, ..job("a") });
    let first = rig.enqueue(job("b"));
    let second = rig.enqueue(job("a"));
    let third = rig.enqueue(job("b"));
    let high = rig.enqueue(NewJob { priority: 5, ..job("a") });
    assert_eq!(ids(&rig.claim(claim(10))), [high, first, second, third, low]);
}

#[test]
fn jobs_that_never_failed_are_claimed_in_commit_order() {
    // INV-6, with several lanes, more jobs than one chunk of a lane, and claims of odd sizes.
    let mut rig = Rig::new();
    let enqueued: Vec<JobId> = (0..200).map(|index| rig.enqueue(job(["a", "b", "c"][index * index % 3]))).collect();
    let mut claimed = Vec::new();
    for size in [1, 7, 16, 17, 33, 1, 1_000] {
        claimed.extend(ids(&rig.claim(claim(size))));
    }
    assert_eq!(claimed, enqueued);
}

#[test]
fn queues_of_a_claim_are_taken_in_the_order_they_are_named() {
    let mut rig = Rig::new();
    let low = rig.enqueue(NewJob { queue: "second".into(), priority: 100, ..job("a") });
    let high = rig.enqueue(NewJob { queue: "first".into(), priority: -100, ..job("a") });
    let queues = vec!["first".to_owned(), "second".to_owned(), "none".to_owned()];
    let claimed = rig.claim(Claim { queues, ..claim(5) });
    assert_eq!(ids(&claimed), [high, low]);
    assert_eq!((rig.state(low), rig.stats("first").running, rig.stats("second").running), (Some(State::Running), 1, 1));
}

/// As another program may send it.
#[test]
fn claim_of_a_queue_whose_name_is_none_is_refused() {
    let mut rig = Rig::new();
    rig.enqueue(job("task"));
    for name in ["", "a\0b", "a\nb"] {
        let wrong = Claim { queues: vec![QUEUE.into(), name.into()], conflicts: 1, ..claim(1) };
        assert_eq!(rig.try_claim(wrong).unwrap_err().kind(), crate::error::ErrorKind::Invalid, "{name:?}");
        let counted = Claim { queues: vec![name.into()], conflicts: 1, ..claim(1) };
        assert_eq!(rig.try_claim(counted).unwrap_err().kind(), crate::error::ErrorKind::Invalid, "{name:?}");
    }
}
