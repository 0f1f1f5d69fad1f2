//! Times: when scheduled jobs become ready, how long ended ones are kept, and what strange rows hold up.

use std::time::Duration;

use super::rig_tests::{OTHER_SESSION, QUEUE, Rig, claim, ids, job, unique};
use crate::{
    clock::Timestamp,
    engine::RowSet,
    error::ErrorKind,
    queue::{
        JobFilter,
        admin::{Admin, has_expired},
        claim::Claim,
        enqueue::{NewJob, When},
        id::JobId,
        list::list,
        promote::next_due,
        settle::Ending,
        state::State,
    },
    store::{
        change::{Guard, Intent, Outcome},
        keys::ById,
    },
};

const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

fn after(delay: Duration) -> NewJob {
    NewJob { when: When::After(delay), ..job("a") }
}

fn prune(rig: &mut Rig, limit: usize) -> usize {
    match rig.administer(Admin::Prune { limit }).unwrap() {
        Outcome::Pruned { jobs } => jobs,
        other => panic!("not pruned: {other:?}"),
    }
}

/// Three ended jobs: completed with a result, dead, cancelled.
fn ended(rig: &mut Rig) -> [JobId; 3] {
    let jobs = [rig.enqueue(NewJob { keep: true, ..job("a") }), rig.enqueue(job("a")), rig.enqueue(job("a"))];
    let candidates = jobs.map(|id| rig.candidate(id)).to_vec();
    let token = rig.claim(Claim { candidates, ..claim(3) }).token.unwrap();
    let fail = Ending::Fail { message: "no".into(), retry_after: None };
    for (id, how) in jobs.into_iter().zip([Ending::Complete { result: None }, fail, Ending::Cancel]) {
        rig.settle(id, token, how).unwrap();
    }
    jobs
}

/// S25.
#[test]
fn job_becomes_ready_when_its_time_has_come_and_not_a_millisecond_before() {
    let mut rig = Rig::new();
    let id = rig.enqueue(after(MINUTE));
    assert_eq!(next_due(&rig.rows, rig.now).unwrap(), Some(rig.now.after(MINUTE)));
    rig.advance(MINUTE.checked_sub(Duration::from_millis(1)).unwrap());
    assert_eq!((rig.promote(), rig.state(id)), (0, Some(State::Scheduled)));
    rig.advance(Duration::from_millis(1));
    assert_eq!((rig.promote(), rig.state(id), rig.promote()), (1, Some(State::Ready), 0));
    assert_eq!(next_due(&rig.rows, rig.now).unwrap(), None);
}

#[test]
fn job_whose_time_has_passed_at_its_enqueue_is_ready_at_once() {
    let mut rig = Rig::new();
    let past = NewJob { when: When::At(Timestamp::from_millis(1)), ..job("a") };
    let now = NewJob { when: When::At(rig.now), ..job("a") };
    let zero = after(Duration::ZERO);
    for new in [past, now, zero] {
        let id = rig.enqueue(new);
        assert_eq!(rig.state(id), Some(State::Ready));
    }
}

#[test]
fn promoted_jobs_stand_under_their_old_place() {
    let mut rig = Rig::new();
    let late = rig.enqueue(after(2 * MINUTE));
    let early = rig.enqueue(after(MINUTE));
    let ready = rig.enqueue(job("a"));
    rig.advance(2 * MINUTE);
    assert_eq!(rig.promote(), 2);
    assert_eq!(ids(&rig.claim(claim(5))), [late, early, ready]);
}

#[test]
fn promotion_goes_in_slices_soonest_first() {
    let mut rig = Rig::new();
    let jobs: Vec<JobId> = (1..=5).rev().map(|minutes| rig.enqueue(after(minutes * MINUTE))).collect();
    rig.advance(4 * MINUTE);
    for (limit, promoted) in [(3, 3), (3, 1), (3, 0)] {
        assert_eq!(rig.intent(Intent::Promote { limit }).unwrap(), Outcome::Promoted { jobs: promoted });
    }
    assert_eq!(rig.state(jobs[0]), Some(State::Scheduled));
    assert_eq!((rig.stats(QUEUE).ready, rig.stats(QUEUE).scheduled), (4, 1));
}

/// S6.
#[test]
fn job_with_a_backoff_longer_than_the_lease_waits_for_all_of_it() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("a"));
    let (_, token) = rig.claim_one();
    let how = Ending::Fail { message: "no".into(), retry_after: Some(5 * MINUTE) };
    assert_eq!(rig.settle(id, token, how).unwrap(), State::Scheduled);
    rig.advance(4 * MINUTE);
    assert_eq!(rig.promote(), 0);
    rig.advance(MINUTE);
    assert_eq!(rig.promote(), 1);
    assert_eq!((rig.claim_one().0, rig.record(id).attempt), (id, 1));
}

/// S42.
#[test]
fn clock_that_jumps_an_hour_ahead_takes_no_running_job_from_its_owner() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("a"));
    let (_, token) = rig.claim_one();
    rig.advance(Duration::from_hours(1));
    assert_eq!((rig.promote(), prune(&mut rig, 10)), (0, 0));
    assert_eq!(ids(&rig.claim(Claim { session: OTHER_SESSION, ..claim(1) })), []);
    assert_eq!(rig.settle(id, token, Ending::Complete { result: None }).unwrap(), State::Completed);
}

#[test]
fn ended_jobs_are_kept_for_their_time_and_then_pruned() {
    let mut rig = Rig::new();
    let [completed, dead, cancelled] = ended(&mut rig);
    assert!(!has_expired(&rig.rows, rig.now).unwrap());
    rig.advance(DAY.checked_sub(Duration::from_millis(1)).unwrap());
    assert_eq!(prune(&mut rig, 10), 0);
    rig.advance(Duration::from_millis(1));
    assert!(has_expired(&rig.rows, rig.now).unwrap());
    assert_eq!((prune(&mut rig, 10), rig.state(completed)), (1, None));
    rig.advance(29 * DAY);
    assert_eq!((prune(&mut rig, 1), prune(&mut rig, 1), prune(&mut rig, 1)), (1, 1, 0), "in slices");
    assert_eq!((rig.state(dead), rig.state(cancelled)), (None, None));
    let stats = rig.stats(QUEUE);
    assert_eq!((stats.kept, stats.dead, stats.cancelled, stats.completed), (0, 0, 0, 1));
}

#[test]
fn retention_is_a_setting_of_the_store() {
    let mut rig = Rig::new();
    for (setting, value) in [("retention-completed", 0), ("retention-dead", 1_000), ("retention-cancelled", 2_000)] {
        rig.administer(Admin::Configure { setting: setting.into(), value }).unwrap();
    }
    let [completed, dead, cancelled] = ended(&mut rig);
    for gone in [completed, dead, cancelled] {
        assert_eq!((prune(&mut rig, 10), rig.state(gone)), (1, None));
        rig.advance(Duration::from_secs(1));
    }
}

/// S38.
#[test]
fn waiting_jobs_are_still_there_after_sixty_days() {
    let mut rig = Rig::new();
    let waiting = [rig.enqueue(job("a")), rig.enqueue(after(100 * DAY)), rig.enqueue(job("b"))];
    let candidates = vec![rig.candidate(waiting[2])];
    rig.claim(Claim { candidates, ..claim(1) });
    let retried = ended(&mut rig)[1];
    rig.administer(Admin::Retry { job: retried }).unwrap();
    for _ in 0..60 {
        rig.advance(DAY);
        rig.promote();
        prune(&mut rig, 100);
    }
    // INV-11: what has not ended, or was taken back from its end, is never pruned.
    let states: Vec<_> = waiting.into_iter().chain([retried]).map(|id| rig.state(id)).collect();
    let expected = [State::Ready, State::Scheduled, State::Running, State::Ready];
    assert_eq!(states, expected.map(Some));
}

#[test]
fn requeued_job_leaves_no_row_behind_when_it_is_gone() {
    let mut rig = Rig::new();
    let before = rig.rows.all().len();
    for how in [None, Some(1)] {
        let id = rig.enqueue(NewJob { keep: how.is_some(), extra: Some(Box::new(unique("key"))), ..job("a") });
        rig.administer(Admin::Requeue { job: id }).unwrap();
        let (_, token) = rig.claim_one();
        rig.settle(id, token, Ending::Complete { result: None }).unwrap();
        rig.advance(2 * DAY);
        assert_eq!(prune(&mut rig, 10), how.unwrap_or(0));
    }
    // The queue's head and count rows, its lane, and the two rows of the task.
    assert_eq!(rig.rows.all().len(), before + 5);
}

/// S28.
#[test]
fn job_that_this_build_can_not_read_holds_up_no_other() {
    let mut rig = Rig::new();
    let (strange, sound) = (rig.enqueue(job("a")), rig.enqueue(job("a")));
    let key = rig.candidate(strange).key;
    let mut bytes = rig.rows.all()[&key].clone();
    bytes[1] = 99;
    rig.rows.write(RowSet::from([(key, Some(bytes))]));
    rig.is_checked = false;
    assert_eq!(ids(&rig.claim(claim(5))), [sound]);
    let listed = list(&rig.rows, &JobFilter::new(), 10).unwrap();
    assert_eq!(listed.iter().map(|job| job.id).collect::<Vec<_>>(), [sound]);
    let error = crate::queue::moves::find(&rig.rows, strange).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("schema 99"), "{error}");
}

/// S28: the jobs in front are more than one change promotes or prunes.
#[test]
fn jobs_that_this_build_can_not_read_keep_none_behind_them_from_being_promoted_or_pruned() {
    let mut rig = Rig::new();
    rig.is_checked = false;
    let strange = |rig: &mut Rig, home: ById, id| {
        let key = home.key(id);
        let mut bytes = rig.rows.all()[&key].clone();
        bytes[1] = 99;
        rig.rows.write(RowSet::from([(key, Some(bytes))]));
    };
    for _ in 0..3 {
        let id = rig.enqueue(after(MINUTE));
        strange(&mut rig, ById::Due, id);
    }
    let [first, second] = [2, 3].map(|minutes| rig.enqueue(after(MINUTE * minutes)));
    rig.advance(MINUTE * 2);
    assert_eq!(next_due(&rig.rows, rig.now).unwrap(), Some(rig.now), "what can't be read is not waited for");
    let Outcome::Promoted { jobs } = rig.intent(Intent::Promote { limit: 1 }).unwrap() else { panic!("not promoted") };
    assert_eq!((jobs, rig.state(first)), (1, Some(State::Ready)));
    assert_eq!(next_due(&rig.rows, rig.now).unwrap(), Some(rig.now.after(MINUTE)));
    assert_eq!(rig.promote(), 0);
    rig.advance(MINUTE);
    assert_eq!((rig.promote(), rig.state(second)), (1, Some(State::Ready)));

    for _ in 0..4 {
        let id = rig.enqueue(job("a"));
        rig.administer(Admin::Cancel { job: id }).unwrap();
        strange(&mut rig, ById::Finished, id);
    }
    rig.advance(MINUTE);
    for job in [first, second] {
        rig.administer(Admin::Cancel { job }).unwrap();
    }
    rig.advance(DAY * 30);
    assert_eq!([prune(&mut rig, 1), prune(&mut rig, 2), prune(&mut rig, 2)], [1, 1, 0]);
    assert_eq!([first, second].map(|id| rig.state(id)), [None; 2]);
}

#[test]
fn strict_conflicts_are_counted_by_the_next_claim_also_where_it_gets_nothing() {
    let mut rig = Rig::new();
    rig.claim(Claim { conflicts: 3, ..claim(1) });
    rig.enqueue(job("a"));
    rig.claim(Claim { conflicts: 2, ..claim(1) });
    rig.claim(claim(1));
    assert_eq!(rig.stats(QUEUE).hijacks, 5);
}

#[test]
fn lost_candidate_names_its_holder_and_the_claim_takes_the_next() {
    let mut rig = Rig::new();
    let (first, second) = (rig.enqueue(job("a")), rig.enqueue(job("a")));
    let candidates = vec![rig.candidate(first)];
    rig.claim(claim(1));
    let claimed = rig.claim(Claim { session: OTHER_SESSION, candidates: candidates.clone(), ..claim(1) });
    assert_eq!((ids(&claimed), claimed.hijacks.len()), (vec![second], 1));
    let hijack = &claimed.hijacks[0];
    assert_eq!((hijack.job, hijack.by.as_ref().unwrap().label.as_str()), (first, "rig"));
    // With nothing to take in its place it is a hijack all the same, and no lease.
    let claimed = rig.claim(Claim { candidates, ..claim(1) });
    assert_eq!((claimed.jobs.len(), claimed.hijacks.len(), claimed.token), (0, 1, None));
    assert_eq!(rig.stats(QUEUE).hijacks, 2);
}

#[test]
fn candidate_that_was_requeued_is_lost_at_its_old_place() {
    let mut rig = Rig::new();
    let (first, second) = (rig.enqueue(job("a")), rig.enqueue(job("a")));
    let candidates = vec![rig.candidate(first)];
    rig.administer(Admin::Requeue { job: first }).unwrap();
    let claimed = rig.claim(Claim { candidates, ..claim(1) });
    assert_eq!((ids(&claimed), claimed.hijacks.len()), (vec![second], 1));
}

#[test]
fn change_whose_guard_fails_does_none_of_its_intents() {
    let mut rig = Rig::new();
    rig.enqueue(job("a"));
    let guard = Guard::Object { key: "key".into(), version: Some(rig.version) };
    let error = rig.try_change(vec![guard], vec![Intent::Enqueue(job("a"))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let error = rig.change(Vec::new(), vec![Intent::Enqueue(job("a")), Intent::Enqueue(job(""))]).unwrap_err();
    assert_eq!((error.kind(), rig.stats(QUEUE).ready), (ErrorKind::Invalid, 1), "INV-5");
}
