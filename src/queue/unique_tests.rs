//! Unique keys: in which states they hold, until when, among which jobs, and that nobody is robbed of one.

use std::time::Duration;

use super::rig_tests::{QUEUE, Rig, job};
use crate::{
    check::check_rows,
    clock::Timestamp,
    engine::RowSet,
    error::ErrorKind,
    queue::{
        admin::Admin,
        enqueue::{NewExtra, NewJob, NewUnique},
        extra::{StateSet, UniqueScope},
        id::{JobId, Token},
        settle::Ending,
        state::State,
        unique::Holder,
    },
    store::{
        change::{Intent, Outcome},
        keys,
    },
};

const HOUR: Duration = Duration::from_hours(1);
const MONTH: Duration = Duration::from_hours(30 * 24);

fn held_in(states: &[State], within: Option<Duration>) -> NewJob {
    let unique = NewUnique { key: "key".into(), scope: UniqueScope::Queue, states: StateSet::of(states), within };
    NewJob { extra: Some(Box::new(NewExtra { unique: Some(unique), ..NewExtra::default() })), ..job("a") }
}

fn unended_and(more: &[State], within: Option<Duration>) -> NewJob {
    let states: Vec<State> = State::ALL.into_iter().filter(|state| !state.is_final() || more.contains(state)).collect();
    held_in(&states, within)
}

fn run(rig: &mut Rig, how: Ending) -> JobId {
    let (id, token): (JobId, Token) = rig.claim_one();
    rig.settle(id, token, how).unwrap();
    id
}

fn die() -> Ending {
    Ending::Fail { message: "no".into(), retry_after: None }
}

fn prune(rig: &mut Rig) -> usize {
    match rig.administer(Admin::Prune { limit: 100 }).unwrap() {
        Outcome::Pruned { jobs } => jobs,
        other => panic!("not pruned: {other:?}"),
    }
}

fn done() -> Ending {
    Ending::Complete { result: None }
}

#[test]
fn key_holds_in_its_states_and_in_no_other() {
    for end in [done(), die(), Ending::Cancel] {
        let mut rig = Rig::new();
        let first = rig.enqueue(held_in(&[State::Ready], None));
        assert_eq!(rig.enqueue(held_in(&[State::Ready], None)), first, "ready");
        let (_, token) = rig.claim_one();
        let second = rig.enqueue(held_in(&[State::Ready], None));
        assert_ne!(second, first, "the first one runs, and so holds nothing");
        rig.settle(first, token, end).unwrap();
        assert_eq!(rig.enqueue(held_in(&[State::Ready], None)), second, "the end of the first frees nothing");
    }
}

#[test]
fn job_that_gave_its_key_up_takes_it_again_only_if_nobody_else_has() {
    let holding = || held_in(&[State::Scheduled, State::Ready], None);
    for taken in [false, true] {
        let mut rig = Rig::new();
        let first = rig.enqueue(holding());
        let (_, token) = rig.claim_one();
        let second = taken.then(|| rig.enqueue(holding()));
        rig.settle(first, token, Ending::Fail { message: "no".into(), retry_after: Some(HOUR) }).unwrap();
        assert_eq!(rig.state(first), Some(State::Scheduled));
        assert_eq!(rig.enqueue(holding()), second.unwrap_or(first));
        if let Some(second) = second {
            // The second one's end frees its own key, and the first goes on without.
            rig.administer(Admin::Cancel { job: second }).unwrap();
            assert!(![first, second].contains(&rig.enqueue(holding())));
        }
    }
}

#[test]
fn ended_jobs_whose_states_hold_the_key_are_kept_as_long_as_it_holds() {
    for (how, state) in [(done(), State::Completed), (die(), State::Dead), (Ending::Cancel, State::Cancelled)] {
        let mut rig = Rig::new();
        let holding = || unended_and(&[state], Some(2 * MONTH));
        let first = rig.enqueue(holding());
        assert_eq!(run(&mut rig, how), first);
        for _ in 0..2 {
            assert_eq!((prune(&mut rig), rig.state(first)), (0, Some(state)));
            assert_eq!(rig.enqueue(holding()), first, "{state}");
            rig.advance(MONTH.checked_sub(Duration::from_millis(1)).unwrap());
        }
        rig.advance(Duration::from_millis(2));
        assert_eq!(prune(&mut rig), 1, "{state}");
        assert_ne!(rig.enqueue(holding()), first);
    }
}

#[test]
fn ended_jobs_without_a_time_hold_the_key_until_they_are_pruned() {
    let mut rig = Rig::new();
    let holding = || unended_and(&[State::Completed], None);
    let first = rig.enqueue(holding());
    run(&mut rig, done());
    assert_eq!(rig.enqueue(holding()), first);
    rig.advance(24 * HOUR);
    assert_eq!(rig.enqueue(holding()), first, "nobody has pruned it so far");
    assert_eq!(prune(&mut rig), 1);
    assert_ne!(rig.enqueue(holding()), first);
}

#[test]
fn ended_jobs_in_no_state_of_the_key_free_it_and_are_not_kept_for_it() {
    let mut rig = Rig::new();
    let holding = || unended_and(&[State::Dead], Some(HOUR));
    let first = rig.enqueue(holding());
    run(&mut rig, done());
    assert_eq!(rig.state(first), None);
    assert_ne!(rig.enqueue(holding()), first);
}

#[test]
fn key_may_be_taken_over_after_its_time_and_its_new_holder_is_never_robbed_of_it() {
    for (name, end) in [("done", done()), ("dead", die()), ("cancelled", Ending::Cancel)] {
        let mut rig = Rig::new();
        let holding = || unended_and(&[], Some(HOUR));
        let first = rig.enqueue(holding());
        let (_, token) = rig.claim_one();
        rig.advance(HOUR.checked_sub(Duration::from_millis(1)).unwrap());
        assert_eq!(rig.enqueue(holding()), first);
        rig.advance(Duration::from_millis(1));
        let second = rig.enqueue(holding());
        assert_ne!(second, first);
        rig.settle(first, token, end).unwrap();
        assert_eq!(rig.enqueue(holding()), second, "{name}");
    }
}

#[test]
fn job_whose_keys_time_has_passed_does_not_take_it_again() {
    let mut rig = Rig::new();
    let holding = || unended_and(&[], Some(HOUR));
    let first = rig.enqueue(holding());
    let (_, token) = rig.claim_one();
    rig.advance(HOUR);
    rig.settle(first, token, Ending::Release).unwrap();
    let second = rig.enqueue(holding());
    assert_ne!(second, first);
    rig.administer(Admin::Cancel { job: second }).unwrap();
    let (again, token) = rig.claim_one();
    assert_eq!(again, first);
    rig.settle(first, token, Ending::Release).unwrap();
    assert!(![first, second].contains(&rig.enqueue(holding())));
}

#[test]
fn keys_of_the_store_hold_in_all_queues_and_those_of_queues_in_theirs() {
    let mut rig = Rig::new();
    let holding = |queue: &str, scope| {
        let mut new = unended_and(&[], None);
        new.extra.as_mut().unwrap().unique.as_mut().unwrap().scope = scope;
        NewJob { queue: queue.into(), ..new }
    };
    let first = rig.enqueue(holding(QUEUE, UniqueScope::Store));
    assert_eq!(rig.enqueue(holding("other", UniqueScope::Store)), first);
    let of_queue = rig.enqueue(holding(QUEUE, UniqueScope::Queue));
    let of_other = rig.enqueue(holding("other", UniqueScope::Queue));
    assert!(first != of_queue && of_queue != of_other && first != of_other);
}

#[test]
fn dead_job_is_not_retried_while_another_holds_its_key_and_keeps_the_one_that_it_has() {
    let mut rig = Rig::new();
    let holding = || unended_and(&[State::Dead], None);
    let first = rig.enqueue(holding());
    run(&mut rig, die());
    rig.administer(Admin::Retry { job: first }).unwrap();
    assert_eq!(rig.enqueue(holding()), first, "it had its key all the time");
    run(&mut rig, die());

    let mut rig = Rig::new();
    let holding = || unended_and(&[], None);
    let first = rig.enqueue(holding());
    run(&mut rig, die());
    let second = rig.enqueue(holding());
    let error = rig.administer(Admin::Retry { job: first }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains(&second.to_string()), "{error}");
}

#[test]
fn keys_that_keep_nothing_apart_are_refused() {
    let mut rig = Rig::new();
    for (new, says) in [(held_in(&[], None), "no state"), (unended_and(&[], Some(Duration::ZERO)), "no time")] {
        let error = rig.intent(Intent::Enqueue(new)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn claiming_and_settling_a_job_reads_nothing_of_a_key_that_it_holds_to_its_end() {
    let mut rig = Rig::new();
    rig.enqueue(unended_and(&[], None));
    rig.enqueue(unended_and(&[], None));
    let plain = rig.enqueue(job("a"));
    let reads = |rig: &mut Rig, id| {
        let claim = super::claim::Claim { candidates: vec![rig.candidate(id)], ..super::rig_tests::claim(1) };
        let change = |rows: &Rig| rows.try_change(Vec::new(), vec![Intent::Claim(claim.clone())]).map(|_| ());
        let (reads, done) = rig.rows.reads_of(|_| change(rig));
        done.unwrap();
        reads
    };
    let unique = JobId { version: 1, index: 0 };
    assert_eq!(reads(&mut rig, unique), reads(&mut rig, plain));
}

#[test]
fn check_finds_keys_that_nobody_holds_and_jobs_that_lost_theirs() {
    let id = JobId { version: 1, index: 0 };
    let found = |key: &str, holder: Option<Holder>| {
        let mut rig = Rig::new();
        assert_eq!(rig.enqueue(unended_and(&[], None)), id);
        rig.rows.write(RowSet::from([(keys::unique(QUEUE, key), holder.map(Holder::to_bytes))]));
        check_rows(&rig.rows).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(found("key", None), ["job 1 does not hold its unique key"]);
    let other = found("key", Some(Holder { job: JobId { version: 9, index: 0 }, until: None }));
    let timed = found("key", Some(Holder { job: id, until: Some(Timestamp::from_millis(1)) }));
    for wrong in [other, timed] {
        assert!(wrong.len() == 2 && wrong[0].contains("held by no job that has it"), "{wrong:?}");
    }
    let stray = found("other", Some(Holder { job: id, until: None }));
    assert!(stray.len() == 1 && stray[0].contains("held by no job that has it"), "{stray:?}");
}
