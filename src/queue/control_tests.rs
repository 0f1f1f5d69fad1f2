//! What an operator does to many jobs, to tasks, and to jobs that have not begun.

use std::time::Duration;

use super::rig_tests::{QUEUE, Rig, SESSION, claim, ids, job, unique};
use crate::{
    error::ErrorKind,
    queue::{
        admin::Admin,
        claim::Claim,
        enqueue::{NewJob, When},
        id::JobId,
        select::{Tasks, Wanted},
        settle::Ending,
        state::State,
    },
    store::{
        change::{Guard, Intent},
        conflict::Version,
        keys,
        view::get_record,
    },
};

const HOUR: Duration = Duration::from_hours(1);

fn dead(rig: &mut Rig, new: NewJob) -> JobId {
    let id = rig.enqueue(new);
    let (claimed, token) = rig.claim_one();
    assert_eq!(claimed, id);
    rig.settle(id, token, Ending::Fail { message: "no".into(), retry_after: None }).unwrap();
    id
}

fn pause_task(rig: &mut Rig, task: &str) {
    rig.administer(Admin::PauseTask { task: task.into() }).unwrap();
}

#[test]
fn jobs_of_a_paused_task_are_claimed_by_nobody_and_cost_a_claim_nothing() {
    let mut rig = Rig::new();
    let open = rig.enqueue(job("open"));
    pause_task(&mut rig, "shut");
    rig.is_checked = false;
    for _ in 0..1_000 {
        rig.enqueue(job("shut"));
    }
    rig.is_checked = true;
    let named = |names: &[&str]| Wanted {
        tasks: Tasks::Named(names.iter().map(ToString::to_string).collect::<std::collections::HashSet<_>>().into()),
        jobs_max: 10,
        idle: true,
    };
    for wanted in [claim(10).wanted, named(&["open", "shut"])] {
        let try_claim = Intent::Claim(Claim { wanted, ..claim(10) });
        let (reads, claimed) = rig.rows.reads_of(|_| rig.try_change(Vec::new(), vec![try_claim]).unwrap());
        let crate::store::change::Outcome::Claimed(claimed) = &claimed.0.outcomes[0] else { panic!("not claimed") };
        assert_eq!(ids(claimed), [open]);
        assert!(reads < 20, "{reads} rows were read to claim one job");
    }
}

#[test]
fn resumed_task_is_claimed_again_and_whoever_waits_for_its_queues_is_told() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("t"));
    let candidate = rig.candidate(id);
    pause_task(&mut rig, "t");
    let by_candidate = Claim { candidates: vec![candidate], fill: false, ..claim(1) };
    let claimed = rig.claim(by_candidate.clone());
    assert_eq!((claimed.jobs.len(), claimed.hijacks.len()), (0, 0), "nobody has taken it");
    let version = rig.version;
    pause_task(&mut rig, "t");
    assert_eq!(rig.version, version, "it is paused already");
    rig.administer(Admin::ResumeTask { task: "t".into() }).unwrap();
    let head: crate::queue::record::HeadRecord = get_record(&rig.rows, &keys::head(QUEUE)).unwrap().unwrap();
    assert_eq!(head.version, rig.version, "which is what claims that wait are tried again for");
    assert_eq!(ids(&rig.claim(by_candidate)), [id]);
}

#[test]
fn strict_claim_loses_to_a_pause_of_its_task() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("t"));
    let shifted = vec![rig.candidate(id)];
    pause_task(&mut rig, "t");
    let guard = Guard::Queue { queue: QUEUE.into(), version: Version(0), shifted: shifted.clone() };
    let strict = Claim { candidates: shifted, fill: false, ..claim(1) };
    let error = rig.change(vec![guard], vec![Intent::Claim(strict)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn rescheduled_job_has_its_new_priority_and_time_and_its_old_place() {
    let mut rig = Rig::new();
    let [first, second, third] = [(); 3].map(|()| rig.enqueue(job("t")));
    rig.reschedule(third, Some(5), None).unwrap();
    rig.reschedule(first, None, Some(When::After(HOUR))).unwrap();
    rig.reschedule(first, Some(0), Some(When::Now)).unwrap();
    assert_eq!(ids(&rig.claim(claim(10))), [third, first, second]);

    let later = rig.enqueue(NewJob { when: When::After(HOUR), ..job("t") });
    rig.reschedule(later, Some(-3), None).unwrap();
    assert_eq!((rig.state(later), rig.record(later).priority), (Some(State::Scheduled), -3));
    let rows = rig.rows.all().clone();
    rig.reschedule(later, Some(-3), None).unwrap();
    assert_eq!(*rig.rows.all(), rows, "nothing was to change");
    for (priority, when) in [(Some(101), None), (None, None)] {
        assert_eq!(rig.reschedule(later, priority, when).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(*rig.rows.all(), rows);
}

#[test]
fn purge_removes_what_has_not_begun_with_its_unique_key_and_nothing_else() {
    let mut rig = Rig::new();
    let ended = dead(&mut rig, job("t"));
    let running = rig.enqueue(job("t"));
    rig.claim_one();
    for number in 0..5 {
        let requeued = rig.enqueue(NewJob { extra: Some(Box::new(unique(&number.to_string()))), ..job("t") });
        rig.administer(Admin::Requeue { job: requeued }).unwrap();
        rig.enqueue(NewJob { when: When::After(HOUR), ..job("u") });
    }
    let counts = [State::Ready, State::Scheduled, State::Waiting].map(|state| rig.sweep(Admin::Purge, state).jobs);
    assert_eq!(counts, [5, 5, 0]);
    let stats = rig.stats(QUEUE);
    assert_eq!((stats.ready, stats.scheduled, stats.running, stats.dead), (0, 0, 1, 1));
    assert_eq!((rig.state(ended), rig.state(running)), (Some(State::Dead), Some(State::Running)));
    let again = rig.enqueue(NewJob { extra: Some(Box::new(unique("0"))), ..job("t") });
    assert_eq!(rig.state(again), Some(State::Ready), "the key is free");
}

#[test]
fn purged_job_that_others_wait_for_is_cancelled_so_that_they_learn_of_it() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("t"));
    let (home, mut record) = rig.find(id).unwrap();
    record.extra.get_or_insert_default().has_dependents = true;
    let row = crate::codec::encode(&record).unwrap();
    rig.rows.write(crate::engine::RowSet::from([(record.key_in(home), Some(row))]));
    rig.is_checked = false;
    assert_eq!(rig.sweep(Admin::Purge, State::Ready).jobs, 1);
    assert_eq!(rig.state(id), Some(State::Cancelled));
}

#[test]
fn all_dead_jobs_are_retried_but_those_whose_unique_key_another_holds() {
    let mut rig = Rig::new();
    let all: Vec<JobId> = (0..5).map(|_| dead(&mut rig, job("t"))).collect();
    let taken = dead(&mut rig, NewJob { extra: Some(Box::new(unique("k"))), ..job("t") });
    let holder = rig.enqueue(NewJob { extra: Some(Box::new(unique("k"))), ..job("t") });
    let swept = rig.sweep(Admin::RetryAll, State::Dead);
    assert_eq!((swept.jobs, swept.refused), (5, 1));
    assert!(all.iter().all(|id| rig.state(*id) == Some(State::Ready) && rig.record(*id).attempt == 0));
    assert_eq!((rig.state(taken), rig.state(holder)), (Some(State::Dead), Some(State::Ready)));
}

#[test]
fn sweep_leaves_alone_what_came_after_it_began() {
    let mut rig = Rig::new();
    rig.enqueue(job("t"));
    let newest = rig.version;
    let late = rig.enqueue(job("t"));
    let sweep = crate::queue::sweep::Sweep {
        state: State::Ready,
        queue: Some(QUEUE.into()),
        task: Some("t".into()),
        newest,
        after: None,
        limit: 10,
    };
    rig.administer(Admin::Purge(sweep)).unwrap();
    assert_eq!((rig.stats(QUEUE).ready, rig.state(late)), (1, Some(State::Ready)));
    assert_eq!(rig.claim(claim(5)).jobs[0].record.lease.as_ref().unwrap().session, SESSION);
}
