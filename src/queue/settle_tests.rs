//! Settlements that travel together with the next claim: each fails by itself, and none of them the change.

use std::time::Duration;

use super::rig_tests::{QUEUE, Rig, claim, job};
use crate::{
    codec::Payload,
    error::ErrorKind,
    queue::{
        id::{JobId, Token},
        settle::{Each, Ending, Settle},
        state::State,
    },
    store::{
        change::{Intent, Outcome},
        keys::ById,
    },
};

fn settle(job: JobId, token: Token, how: Ending) -> Settle {
    Settle { job, token, started_at: None, how, enqueues: Vec::new() }
}

fn complete(job: JobId, token: Token) -> Settle {
    settle(job, token, Ending::Complete { result: None })
}

#[test]
fn lost_lease_in_a_turn_fails_only_itself() {
    let mut rig = Rig::new();
    let ids: Vec<JobId> = (0..5).map(|_| rig.enqueue(job("task"))).collect();
    let held: Vec<(JobId, Token)> = (0..4).map(|_| rig.claim_one()).collect();
    let too_large = Payload::json(&"x".repeat(2 << 20)).unwrap();
    let settlements = vec![
        complete(held[0].0, held[0].1),
        complete(held[1].0, Token(held[1].1.0 + 1_000)),
        settle(held[2].0, held[2].1, Ending::Complete { result: Some(too_large) }),
        settle(held[3].0, held[3].1, Ending::Fail { message: "no".into(), retry_after: Some(Duration::ZERO) }),
    ];
    let outcomes = rig.change(Vec::new(), vec![Intent::SettleEach(settlements), Intent::Claim(claim(10))]).unwrap();
    let [Outcome::SettledEach(each), Outcome::Claimed(claimed)] = outcomes.outcomes.as_slice() else {
        panic!("{outcomes:?}")
    };
    assert!(matches!(&each[0], Each::Settled(settled) if settled.state == State::Completed), "{each:?}");
    assert!(matches!(&each[1], Each::Lost(why) if why.contains("is lost")), "{each:?}");
    assert!(matches!(&each[2], Each::Refused(why) if why.contains("payload-max")), "{each:?}");
    assert!(matches!(&each[3], Each::Settled(settled) if settled.state == State::Ready), "{each:?}");
    let states: Vec<_> = ids.iter().map(|id| rig.state(*id)).collect();
    assert_eq!(states, [None, Some(State::Running), Some(State::Running), Some(State::Running), Some(State::Running)]);
    // What the settlements freed is there for the claim of the same change.
    let claimed: Vec<JobId> = claimed.jobs.iter().map(|job| job.record.id).collect();
    assert_eq!(claimed, [ids[3], ids[4]]);
}

#[test]
fn damaged_row_in_a_turn_fails_only_itself() {
    let mut rig = Rig::new();
    rig.enqueue(job("task"));
    rig.enqueue(job("task"));
    let (damaged, sound) = (rig.claim_one(), rig.claim_one());
    rig.rows.write([(ById::Held.key(damaged.0), Some(vec![1, 2, 3]))].into());
    let settlements = || vec![complete(damaged.0, damaged.1), complete(sound.0, sound.1)];
    let (applied, _) = rig.try_change(Vec::new(), vec![Intent::SettleEach(settlements())]).unwrap();
    let Outcome::SettledEach(each) = &applied.outcomes[0] else { panic!("{applied:?}") };
    assert!(matches!(each.as_slice(), [Each::Damaged(_), Each::Settled(_)]), "{each:?}");
    let strictly = settlements().into_iter().map(Intent::Settle).collect();
    assert_eq!(rig.try_change(Vec::new(), strictly).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn turn_that_settles_nothing_and_claims_nothing_is_no_commit() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("task"));
    let (_, token) = rig.claim_one();
    let lost = complete(id, Token(token.0 + 1));
    let applied = rig.change(Vec::new(), vec![Intent::SettleEach(vec![lost]), Intent::Claim(claim(1))]).unwrap();
    assert_eq!(applied.version, None);
    assert_eq!(rig.stats(QUEUE).running, 1);
}
