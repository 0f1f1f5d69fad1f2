//! Jobs that are tended several in one change: each is judged by itself, and none of them fails the others.

use super::rig_tests::{QUEUE, Rig, claim, job};
use crate::{
    error::ErrorKind,
    queue::{
        admin::{Admin, Tend},
        depend::TELLS_MAX,
        enqueue::{Dependency, NewExtra, NewJob},
        id::JobId,
        settle::{Each, Ending},
        state::State,
    },
    store::{
        change::{Intent, Outcome},
        keys::ById,
    },
};

fn tend(rig: &mut Rig, verb: Tend, jobs: &[JobId]) -> Vec<Each> {
    match rig.administer(Admin::Each { verb, jobs: jobs.to_vec() }).unwrap() {
        Outcome::SettledEach(each) => each,
        other => panic!("not tended: {other:?}"),
    }
}

#[test]
fn each_job_of_a_change_is_cancelled_retried_or_refused_by_its_own_state() {
    let mut rig = Rig::new();
    let ids: Vec<JobId> = (0..4).map(|_| rig.enqueue(job("task"))).collect();
    let (running, _) = rig.claim_one();
    let nowhere = JobId { version: 1_000, index: 0 };
    let each = tend(&mut rig, Tend::Cancel, &[running, nowhere, ids[1], ids[1], ids[2]]);
    let [Each::Settled(first), Each::NotFound(why), Each::Settled(second), Each::Settled(again), Each::Settled(_)] =
        each.as_slice()
    else {
        panic!("{each:?}")
    };
    assert_eq!((first.job, first.state), (running, State::Running), "its holder settles it");
    assert!(why.contains("there is no job 1000"), "{why}");
    assert_eq!((second.state, again.state), (State::Cancelled, State::Cancelled));
    assert_eq!(rig.stats(QUEUE).cancelled, 2);

    let each = tend(&mut rig, Tend::Retry, &[running, ids[1], ids[3]]);
    assert!(matches!(&each[0], Each::Refused(why) if why.contains("it runs now")), "{each:?}");
    assert!(matches!(&each[1..], [Each::Settled(_), Each::Settled(_)]), "{each:?}");
    let states: Vec<_> = ids.iter().map(|id| rig.state(*id)).collect();
    assert_eq!(states, [Some(State::Running), Some(State::Ready), Some(State::Cancelled), Some(State::Ready)]);
}

#[test]
fn jobs_requeued_in_one_change_stand_behind_the_others_in_the_order_named() {
    let mut rig = Rig::new();
    let ids: Vec<JobId> = (0..4).map(|_| rig.enqueue(job("task"))).collect();
    tend(&mut rig, Tend::Requeue, &[ids[2], ids[0]]);
    let claimed: Vec<JobId> = rig.claim(claim(10)).jobs.iter().map(|job| job.record.id).collect();
    assert_eq!(claimed, [ids[1], ids[3], ids[2], ids[0]]);
}

#[test]
fn damaged_row_fails_only_itself() {
    let mut rig = Rig::new();
    let (damaged, sound) = (rig.enqueue(job("task")), rig.enqueue(job("task")));
    assert_eq!(rig.claim_one().0, damaged);
    rig.rows.write([(ById::Held.key(damaged), Some(vec![1, 2, 3]))].into());
    let both = |verb| Intent::Administer(Admin::Each { verb, jobs: vec![damaged, sound] });
    let (applied, _) = rig.try_change(Vec::new(), vec![both(Tend::Cancel)]).unwrap();
    let Outcome::SettledEach(each) = &applied.outcomes[0] else { panic!("{applied:?}") };
    assert!(matches!(each.as_slice(), [Each::Damaged(_), Each::Settled(_)]), "{each:?}");
    let error = rig.administer(Admin::Cancel { job: damaged }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn dead_job_whose_end_is_not_told_to_all_yet_is_refused_and_the_others_are_retried() {
    let mut rig = Rig::new();
    rig.is_checked = false;
    let fail = || Ending::Fail { message: "no".into(), retry_after: None };
    let [plain, awaited] = [(); 2].map(|()| {
        let id = rig.enqueue(job("task"));
        let (_, token) = rig.claim_one();
        (id, token)
    });
    rig.settle(plain.0, plain.1, fail()).unwrap();
    let extra = NewExtra { after: vec![Dependency::Job(awaited.0)], ..NewExtra::default() };
    let waits = NewJob { extra: Some(Box::new(extra)), ..job("task") };
    rig.change(Vec::new(), vec![Intent::Enqueue(waits); TELLS_MAX + 1]).unwrap();
    rig.settle(awaited.0, awaited.1, fail()).unwrap();
    let both = Intent::Administer(Admin::Each { verb: Tend::Retry, jobs: vec![awaited.0, plain.0] });
    let (applied, _) = rig.try_change(Vec::new(), vec![both]).unwrap();
    let Outcome::SettledEach(each) = &applied.outcomes[0] else { panic!("{applied:?}") };
    let [Each::Refused(why), Each::Settled(_)] = each.as_slice() else { panic!("{each:?}") };
    assert!(why.contains("retry it in a moment"), "{why}");
    let swept = rig.sweep(Admin::RetryAll, State::Dead);
    assert_eq!((swept.jobs, swept.refused), (1, 1));
    rig.promote();
    assert_eq!(rig.sweep(Admin::RetryAll, State::Dead).jobs, 1);
}

#[test]
fn change_in_which_all_are_refused_is_no_commit() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("task"));
    rig.claim_one();
    let jobs = vec![id, JobId { version: 1_000, index: 0 }];
    let tending = Intent::Administer(Admin::Each { verb: Tend::Requeue, jobs });
    assert_eq!(rig.change(Vec::new(), vec![tending]).unwrap().version, None);
}

#[test]
fn holders_look_at_what_they_hold_when_several_jobs_are_cancelled_in_one_change() {
    let mut rig = Rig::new();
    let job = rig.enqueue(job("task"));
    for (verb, is_for_holders) in [(Tend::Cancel, true), (Tend::Retry, false), (Tend::Requeue, false)] {
        assert_eq!(Admin::Each { verb, jobs: vec![job] }.is_for_holders(), is_for_holders, "{verb:?}");
    }
}
