//! The table of states and events: every pair, also the refused. The compiler finds a pair that is missing.

use std::time::Duration;

use super::rig_tests::{QUEUE, Rig, claim, job, reclaim};
use crate::{
    codec::Payload,
    engine::{Engine, conformance::in_file, memory::Memory},
    error::{ErrorKind, Result},
    queue::{
        admin::Admin,
        enqueue::{Dependency, NewExtra, NewJob, When},
        id::{JobId, Token},
        lane::Lane,
        settle::Ending,
        state::State,
    },
    store::{
        change::{Candidate, Intent, Outcome},
        keys,
    },
};

/// An enum that can list its variants, so that none is left out of a loop.
macro_rules! listed {
    (enum $name:ident { $($variant:ident),* $(,)? }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum $name { $($variant),* }

        impl $name {
            const ALL: &[Self] = &[$(Self::$variant),*];
        }
    };
}

listed! {
    enum From {
        Waiting,
        // It waits for nothing but to be sealed.
        Open,
        Scheduled,
        Ready,
        BehindItsKey,
        Running,
        Cancelling,
        CompletedKept,
        Dead,
        Cancelled,
        Gone,
    }
}

listed! {
    enum Event {
        ClaimById,
        Complete,
        CompleteWithResult,
        Fail,
        FailForGood,
        Snooze,
        Release,
        EndCancelled,
        ReleaseByOperator,
        Cancel,
        Retry,
        Requeue,
        Prioritize,
        PutOff,
        Advance,
        Purge,
        RetryAllDead,
        Promote,
        Reclaim,
        Prune,
        Extend,
        Progress,
        Seal,
        // Another job, which those that wait do wait for, completes.
        OtherCompletes,
        OtherDies,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Becomes(State),
    /// No row is left of it.
    Goes,
    /// The event is no error, and the job is as it was but for what a mark on it says.
    Stays,
    /// The event is an error of this kind, and every row is as it was.
    Refused(ErrorKind),
}

const LOST: Then = Then::Refused(ErrorKind::LeaseLost);
const INVALID: Then = Then::Refused(ErrorKind::Invalid);
const NOT_FOUND: Then = Then::Refused(ErrorKind::NotFound);

#[allow(clippy::match_same_arms, reason = "a table has a line for each state")]
fn expected(from: From, event: Event) -> Then {
    use Event as E;
    use Then::{Becomes, Goes, Stays};
    match (from, event) {
        (From::Waiting, E::OtherCompletes) | (From::Open, E::Seal) => Becomes(State::Ready),
        (From::Waiting, E::OtherDies) => Becomes(State::Cancelled),
        (From::Waiting | From::Open, E::Cancel) => Becomes(State::Cancelled),
        (From::Waiting | From::Open, E::Retry | E::Requeue) => INVALID,
        (From::Waiting | From::Open, E::ClaimById | E::Promote) | (From::Waiting, E::Seal) => Stays,
        (From::Gone, E::Seal) => NOT_FOUND,
        (
            From::Scheduled
            | From::Ready
            | From::BehindItsKey
            | From::Running
            | From::Cancelling
            | From::CompletedKept
            | From::Dead
            | From::Cancelled,
            E::Seal,
        ) => INVALID,
        (
            From::Open
            | From::Scheduled
            | From::Ready
            | From::BehindItsKey
            | From::Running
            | From::Cancelling
            | From::CompletedKept
            | From::Dead
            | From::Cancelled
            | From::Gone,
            E::OtherCompletes | E::OtherDies,
        ) => Stays,

        (From::Scheduled, E::Promote | E::Retry | E::Requeue) => Becomes(State::Ready),
        (From::Scheduled | From::Ready | From::BehindItsKey, E::Cancel) => Becomes(State::Cancelled),
        (From::Scheduled, E::ClaimById) => Stays,

        (From::Waiting | From::Open, E::Prioritize | E::PutOff | E::Advance) => Stays,
        (From::Scheduled | From::Ready | From::BehindItsKey, E::Prioritize) => Stays,
        (From::Scheduled, E::PutOff) | (From::Ready | From::BehindItsKey, E::Advance) => Stays,
        (From::Scheduled, E::Advance) => Becomes(State::Ready),
        (From::Ready | From::BehindItsKey, E::PutOff) => Becomes(State::Scheduled),
        (From::Running | From::Cancelling, E::Prioritize | E::PutOff | E::Advance) => INVALID,
        (From::CompletedKept | From::Dead | From::Cancelled, E::Prioritize | E::PutOff | E::Advance) => INVALID,
        (From::Gone, E::Prioritize | E::PutOff | E::Advance) => NOT_FOUND,

        (From::Waiting | From::Open | From::Scheduled | From::Ready | From::BehindItsKey, E::Purge) => Goes,
        (From::Running | From::Cancelling | From::Gone, E::Purge) => Stays,
        (From::CompletedKept | From::Dead | From::Cancelled, E::Purge) => Stays,
        (From::Dead, E::RetryAllDead) => Becomes(State::Ready),
        (_, E::RetryAllDead) => Stays,

        (From::Ready, E::ClaimById) => Becomes(State::Running),
        (From::Ready | From::BehindItsKey, E::Requeue | E::Retry | E::Promote) => Stays,
        // Its key is at its limit.
        (From::BehindItsKey, E::ClaimById) => Stays,

        (From::Running | From::Cancelling, E::Complete) => Goes,
        (From::Running | From::Cancelling, E::CompleteWithResult) => Becomes(State::Completed),
        (From::Running, E::Fail | E::Snooze) => Becomes(State::Scheduled),
        (From::Running, E::FailForGood) => Becomes(State::Dead),
        (From::Running, E::Release | E::ReleaseByOperator | E::Reclaim) => Becomes(State::Ready),
        (From::Running, E::EndCancelled) => Becomes(State::Cancelled),
        (From::Running | From::Cancelling, E::Cancel | E::Extend | E::Progress) => Stays,
        (From::Running | From::Cancelling, E::Retry | E::Requeue) => INVALID,
        (From::Running | From::Cancelling, E::ClaimById | E::Promote | E::Prune) => Stays,

        // P7: whoever holds it, or recovers it, ends it; work that was done counts.
        (
            From::Cancelling,
            E::Fail | E::FailForGood | E::Snooze | E::Release | E::ReleaseByOperator | E::Reclaim | E::EndCancelled,
        ) => Becomes(State::Cancelled),

        (From::CompletedKept, E::Cancel | E::Retry | E::Requeue) => INVALID,
        (From::Dead | From::Cancelled, E::Retry) => Becomes(State::Ready),
        (From::Dead, E::Cancel | E::Requeue) | (From::Cancelled, E::Requeue) => INVALID,
        (From::Cancelled, E::Cancel) => Stays,
        (From::CompletedKept | From::Dead | From::Cancelled, E::Prune) => Goes,
        (From::CompletedKept | From::Dead | From::Cancelled, E::ClaimById | E::Promote | E::Reclaim) => Stays,

        (From::Gone, E::Cancel | E::Retry | E::Requeue) => NOT_FOUND,
        (From::Gone, E::ClaimById | E::Promote | E::Reclaim | E::Prune) => Stays,

        // INV-11: waiting jobs are never pruned.
        (From::Waiting | From::Open | From::Scheduled | From::Ready | From::BehindItsKey, E::Reclaim | E::Prune) => {
            Stays
        }
        // P6: nobody holds it, so no token settles it.
        (
            From::Waiting
            | From::Open
            | From::Scheduled
            | From::Ready
            | From::BehindItsKey
            | From::CompletedKept
            | From::Dead
            | From::Cancelled
            | From::Gone,
            E::Complete
            | E::CompleteWithResult
            | E::Fail
            | E::FailForGood
            | E::Snooze
            | E::Release
            | E::EndCancelled
            | E::ReleaseByOperator
            | E::Extend
            | E::Progress,
        ) => LOST,
    }
}

/// The queue of a job that others may wait for.
const OTHER_QUEUE: &str = "other";
const HOUR: Duration = Duration::from_hours(1);

/// A job in a state, and the token of its last lease.
fn put(rig: &mut Rig, from: From) -> (JobId, Token) {
    let when = if from == From::Scheduled { When::After(HOUR) } else { When::Now };
    let other = rig.enqueue(NewJob { queue: OTHER_QUEUE.into(), ..job("other") });
    let extra = match from {
        From::Waiting => Some(NewExtra { after: vec![Dependency::Job(other)], ..NewExtra::default() }),
        From::Open => Some(NewExtra { is_open: true, ..NewExtra::default() }),
        From::BehindItsKey => Some(NewExtra { key: Some("key".into()), ..NewExtra::default() }),
        _ => None,
    };
    let new = NewJob { when, extra: extra.map(Box::new), ..job("task") };
    if from == From::BehindItsKey {
        rig.enqueue(new.clone());
        rig.claim_one();
    }
    let id = rig.enqueue(new);
    if matches!(from, From::Waiting | From::Open | From::Scheduled | From::Ready | From::BehindItsKey) {
        return (id, Token(rig.version.0));
    }
    let (_, token) = rig.claim_one();
    match from {
        From::Waiting | From::Open | From::Scheduled | From::Ready | From::BehindItsKey | From::Running => {}
        From::Cancelling => {
            rig.administer(Admin::Cancel { job: id }).unwrap();
        }
        From::CompletedKept => {
            let result = Some(Payload::json(&1).unwrap());
            rig.settle(id, token, Ending::Complete { result }).unwrap();
        }
        From::Dead => {
            rig.settle(id, token, Ending::Fail { message: "no".into(), retry_after: None }).unwrap();
        }
        From::Cancelled => {
            rig.settle(id, token, Ending::Cancel).unwrap();
        }
        From::Gone => {
            rig.settle(id, token, Ending::Complete { result: None }).unwrap();
        }
    }
    (id, token)
}

fn happen(rig: &mut Rig, event: Event, job: JobId, token: Token) -> Result<()> {
    let fail = |retry_after| Ending::Fail { message: "no".into(), retry_after };
    let mut settle = |how| rig.settle(job, token, how).map(|_| ());
    match event {
        Event::Complete => settle(Ending::Complete { result: None }),
        Event::CompleteWithResult => settle(Ending::Complete { result: Some(Payload::json(&1).unwrap()) }),
        Event::Fail => settle(fail(Some(HOUR))),
        Event::FailForGood => settle(fail(None)),
        Event::Snooze => settle(Ending::Snooze { delay: HOUR }),
        Event::Release => settle(Ending::Release),
        Event::EndCancelled => settle(Ending::Cancel),
        Event::ClaimById => {
            let key = rig.find(job).map_or_else(
                || keys::ready(QUEUE, Lane::new(0, 0, false), job),
                |(_, record)| record.key_in(crate::queue::record::Home::Ready),
            );
            let claim =
                crate::queue::claim::Claim { candidates: vec![Candidate { job, key }], fill: false, ..claim(1) };
            let claimed = rig.claim(claim);
            // What is not ready is a candidate lost; what is behind its key still is there.
            let is_behind = rig.state(job) == Some(State::Ready);
            assert_eq!(claimed.jobs.len() + claimed.hijacks.len(), usize::from(!is_behind));
            Ok(())
        }
        Event::ReleaseByOperator => rig.administer(Admin::Release { job, token }).map(|_| ()),
        Event::Cancel => rig.administer(Admin::Cancel { job }).map(|_| ()),
        Event::Retry => rig.administer(Admin::Retry { job }).map(|_| ()),
        Event::Requeue => rig.administer(Admin::Requeue { job }).map(|_| ()),
        Event::Prioritize => rig.reschedule(job, Some(7), None),
        Event::PutOff => rig.reschedule(job, None, Some(When::After(HOUR))),
        Event::Advance => rig.reschedule(job, None, Some(When::Now)),
        Event::Purge => {
            for state in [State::Waiting, State::Scheduled, State::Ready] {
                rig.sweep(Admin::Purge, state);
            }
            Ok(())
        }
        Event::RetryAllDead => {
            rig.sweep(Admin::RetryAll, State::Dead);
            Ok(())
        }
        Event::Promote => {
            rig.advance(2 * HOUR);
            rig.promote();
            Ok(())
        }
        Event::Reclaim => {
            rig.reclaim(reclaim());
            Ok(())
        }
        Event::Prune => {
            rig.advance(24 * 365 * HOUR);
            assert!(matches!(rig.administer(Admin::Prune { limit: 10 }).unwrap(), Outcome::Pruned { .. }));
            Ok(())
        }
        Event::Seal => rig.administer(Admin::Seal { job }).map(|_| ()),
        Event::OtherCompletes => end_other(rig, Ending::Complete { result: None }),
        Event::OtherDies => end_other(rig, Ending::Fail { message: "no".into(), retry_after: None }),
        Event::Extend => rig.intent(Intent::Extend { job, token }).map(|_| ()),
        Event::Progress => {
            rig.intent(Intent::Progress { job, token, fraction: 0.5, message: "half".into() }).map(|_| ())
        }
    }
}

fn end_other(rig: &mut Rig, how: Ending) -> Result<()> {
    let claimed = rig.claim(crate::queue::claim::Claim { queues: vec![OTHER_QUEUE.into()], ..claim(1) });
    rig.settle(claimed.jobs[0].record.id, claimed.token.unwrap(), how).map(|_| ())
}

#[test]
fn every_event_in_every_state_does_what_the_table_says_in_memory() {
    go_through_the_table(|_| Box::new(Memory::new()));
}

#[test]
fn every_event_in_every_state_does_what_the_table_says_on_redb() {
    let folder = tempfile::tempdir().unwrap();
    go_through_the_table(|number| in_file(&folder.path().join(number.to_string())));
}

/// Each pair of a state and an event, on an engine of its own.
fn go_through_the_table(engine: impl Fn(usize) -> Box<dyn Engine>) {
    for (number, from) in From::ALL.iter().enumerate() {
        for (index, event) in Event::ALL.iter().enumerate() {
            let mut rig = Rig::on(engine(number * Event::ALL.len() + index));
            let (id, token) = put(&mut rig, *from);
            let (state, rows) = (rig.state(id), rig.rows.all().clone());
            let outcome = happen(&mut rig, *event, id, token);
            let found = match (outcome, rig.state(id)) {
                (Err(error), _) => {
                    assert_eq!(*rig.rows.all(), rows, "INV-5: {event:?} of a job that is {from:?} left a trace");
                    Then::Refused(error.kind())
                }
                (Ok(()), now) if now == state => Then::Stays,
                (Ok(()), Some(state)) => Then::Becomes(state),
                (Ok(()), None) => Then::Goes,
            };
            assert_eq!(found, expected(*from, *event), "{event:?} of a job that is {from:?}");
        }
    }
}

#[test]
fn settling_with_another_token_is_a_lost_lease_and_leaves_no_trace() {
    for event in Event::ALL {
        let mut rig = Rig::new();
        let (id, token) = put(&mut rig, From::Running);
        let by_token = expected(From::Ready, *event) == LOST;
        if !by_token {
            continue;
        }
        for other in [Token(token.0 - 1), Token(token.0 + 1), Token(0)] {
            let rows = rig.rows.all().clone();
            assert_eq!(happen(&mut rig, *event, id, other).unwrap_err().kind(), ErrorKind::LeaseLost, "{event:?}");
            assert_eq!(*rig.rows.all(), rows);
        }
        happen(&mut rig, *event, id, token).unwrap();
    }
}
