//! Jobs that wait for others: when they go on, what they are told, and what that costs.

use std::time::Duration;

use super::rig_tests::{Rig, claim, ids, job, reclaim};
use crate::{
    check::check_rows,
    codec::{self, Payload},
    engine::RowSet,
    error::ErrorKind,
    queue::{
        admin::Admin,
        depend::{End, TELLS_MAX},
        enqueue::{Dependency, NewExtra, NewJob, When},
        extra::{OnFailure, WaitsRecord},
        id::{JobId, Token},
        settle::Ending,
        state::State,
    },
    store::{
        change::{ChangeId, ClientId, Intent, Outcome},
        conflict::Version,
        keys::{self, ById},
    },
};

const HOUR: Duration = Duration::from_hours(1);
const DONE: Ending = Ending::Complete { result: None };

fn linked(extra: NewExtra) -> NewJob {
    NewJob { extra: Some(Box::new(extra)), ..job("task") }
}

fn after(jobs: &[JobId], on_failure: OnFailure) -> NewJob {
    let after = jobs.iter().copied().map(Dependency::Job).collect();
    linked(NewExtra { after, on_failure, ..NewExtra::default() })
}

fn before(waiting: JobId) -> NewJob {
    linked(NewExtra { before: vec![Dependency::Job(waiting)], ..NewExtra::default() })
}

fn open() -> NewJob {
    linked(NewExtra { is_open: true, on_failure: OnFailure::Run, ..NewExtra::default() })
}

fn fatal() -> Ending {
    Ending::Fail { message: "no".into(), retry_after: None }
}

/// Rows of what jobs have to do with each other, and of references: an end that was not told to all yet is among them.
fn linked_rows() -> Rig {
    let mut rig = Rig::new();
    rig.is_checked = false;
    let first = rig.enqueue(linked(NewExtra { is_referenced: true, ..NewExtra::default() }));
    rig.enqueue(after(&[first], OnFailure::Cancel));
    rig.enqueue(open());
    let told = rig.enqueue(job("task"));
    let waiting = after(&[told], OnFailure::Cancel);
    rig.change(vec![], vec![Intent::Enqueue(waiting); TELLS_MAX + 2]).unwrap();
    rig.administer(Admin::Cancel { job: told }).unwrap();
    rig
}

/// Claims a job, which is the next one, and ends it.
fn end(rig: &mut Rig, job: JobId, how: Ending) -> State {
    let (claimed, token) = rig.claim_one();
    assert_eq!(claimed, job);
    rig.settle(job, token, how).unwrap()
}

fn waits(rig: &Rig, job: JobId) -> WaitsRecord {
    rig.record(job).extra.unwrap().waits.unwrap()
}

/// How the jobs that one waited for have ended: completed, dead, cancelled.
fn told(rig: &Rig, job: JobId) -> (u32, u32, u32) {
    let waits = waits(rig, job);
    (waits.completed, waits.dead, waits.cancelled)
}

#[test]
fn job_waits_until_all_have_ended_and_keeps_its_place() {
    let mut rig = Rig::new();
    let [a, b] = [(); 2].map(|()| rig.enqueue(job("task")));
    let waiting = rig.enqueue(after(&[a, b, a], OnFailure::Cancel));
    let behind = rig.enqueue(job("task"));
    assert_eq!((rig.state(waiting), waits(&rig, waiting).pending), (Some(State::Waiting), 2));
    assert_eq!(rig.stats("q").waiting, 1);
    end(&mut rig, a, DONE);
    assert_eq!(rig.state(waiting), Some(State::Waiting));
    end(&mut rig, b, DONE);
    assert_eq!((rig.state(waiting), told(&rig, waiting)), (Some(State::Ready), (2, 0, 0)));
    assert_eq!(ids(&rig.claim(claim(9))), [waiting, behind]);
}

#[test]
fn job_is_cancelled_with_the_first_that_dies_or_runs_all_the_same_when_all_have_ended() {
    let mut rig = Rig::new();
    let [a, b] = [(); 2].map(|()| rig.enqueue(job("task")));
    let strict = rig.enqueue(after(&[a, b], OnFailure::Cancel));
    let lenient = rig.enqueue(after(&[a, b], OnFailure::Run));
    let next = rig.enqueue(after(&[strict], OnFailure::Cancel));
    end(&mut rig, a, fatal());
    assert_eq!(
        [strict, lenient, next].map(|id| rig.state(id).unwrap()),
        [State::Cancelled, State::Waiting, State::Cancelled]
    );
    let errors = rig.record(strict).errors;
    assert_eq!(errors[0].message, format!("job {a}, which it waited for, is dead"));
    assert_eq!(rig.record(next).errors[0].message, format!("job {strict}, which it waited for, was cancelled"));
    rig.administer(Admin::Cancel { job: b }).unwrap();
    assert_eq!((rig.state(lenient), told(&rig, lenient)), (Some(State::Ready), (0, 1, 1)));
}

#[test]
fn what_has_ended_counts_at_once_and_what_is_gone_was_completed() {
    let mut rig = Rig::new();
    let gone = rig.enqueue(job("task"));
    end(&mut rig, gone, DONE);
    let dead = rig.enqueue(job("task"));
    end(&mut rig, dead, fatal());
    let ready = rig.enqueue(after(&[gone], OnFailure::Cancel));
    assert_eq!((rig.state(ready), told(&rig, ready)), (Some(State::Ready), (1, 0, 0)));
    let runs = rig.enqueue(after(&[gone, dead], OnFailure::Run));
    assert_eq!((rig.state(runs), told(&rig, runs)), (Some(State::Ready), (1, 1, 0)));
    let unique = super::rig_tests::unique("key").unique;
    let after_dead = NewExtra { unique, after: vec![Dependency::Job(dead)], ..NewExtra::default() };
    let cancelled = rig.enqueue(linked(after_dead.clone()));
    assert_eq!(rig.state(cancelled), Some(State::Cancelled));
    assert_ne!(rig.enqueue(linked(after_dead)), cancelled, "S24: no unique key outlives its job");
    let never = JobId { version: rig.version.0 + 1, index: 0 };
    let refused = rig.intent(Intent::Enqueue(after(&[never], OnFailure::Run))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
}

#[test]
fn delay_counts_from_when_the_job_is_let_go() {
    let mut rig = Rig::new();
    let first = rig.enqueue(job("task"));
    let delayed = rig.enqueue(NewJob { when: When::After(HOUR), ..after(&[first], OnFailure::Cancel) });
    let past = rig.enqueue(NewJob { when: When::At(rig.now.after(HOUR)), ..after(&[first], OnFailure::Cancel) });
    rig.advance(2 * HOUR);
    assert_eq!(rig.promote(), 0, "what waits is not due");
    end(&mut rig, first, DONE);
    assert_eq!((rig.state(delayed), rig.state(past)), (Some(State::Scheduled), Some(State::Ready)));
    assert_eq!(rig.record(delayed).run_at, Some(rig.now.after(HOUR)));
    rig.advance(HOUR);
    assert_eq!((rig.promote(), rig.state(delayed)), (1, Some(State::Ready)));
}

#[test]
fn settlement_and_claim_of_one_change_claim_what_was_waiting() {
    let mut rig = Rig::new();
    let first = rig.enqueue(job("task"));
    let second = rig.enqueue(after(&[first], OnFailure::Cancel));
    let (_, token) = rig.claim_one();
    let settle = crate::queue::settle::Settle { job: first, token, started_at: None, how: DONE, enqueues: vec![] };
    let applied = rig.change(vec![], vec![Intent::SettleEach(vec![settle]), Intent::Claim(claim(1))]).unwrap();
    assert!(matches!(&applied.outcomes[1], Outcome::Claimed(claimed) if ids(claimed) == [second]));
}

#[test]
fn jobs_that_wait_can_be_cancelled_and_not_requeued_or_retried_and_a_retried_one_waits_no_more() {
    let mut rig = Rig::new();
    let first = rig.enqueue(job("task"));
    let waiting = rig.enqueue(after(&[first], OnFailure::Cancel));
    for admin in [Admin::Requeue { job: waiting }, Admin::Retry { job: waiting }] {
        assert_eq!(rig.administer(admin).unwrap_err().kind(), ErrorKind::Invalid);
    }
    rig.advance(24 * 60 * HOUR);
    rig.administer(Admin::Prune { limit: 10 }).unwrap();
    assert_eq!(rig.state(waiting), Some(State::Waiting), "INV-11");
    rig.administer(Admin::Cancel { job: waiting }).unwrap();
    rig.administer(Admin::Retry { job: waiting }).unwrap();
    assert_eq!(rig.state(waiting), Some(State::Ready));
    end(&mut rig, first, fatal());
    assert_eq!(rig.state(waiting), Some(State::Ready));
}

#[test]
fn open_job_takes_more_to_wait_for_until_it_is_sealed_and_all_have_ended() {
    let mut rig = Rig::new();
    let completion = rig.enqueue(open());
    let a = rig.enqueue(before(completion));
    end(&mut rig, a, DONE);
    assert_eq!(rig.state(completion), Some(State::Waiting), "it is open");
    let b = rig.enqueue(before(completion));
    rig.administer(Admin::Seal { job: completion }).unwrap();
    rig.administer(Admin::Seal { job: completion }).unwrap();
    let (_, token) = rig.claim_one();
    let more = rig.enqueue(before(completion));
    rig.settle(b, token, fatal()).unwrap();
    assert_eq!(rig.state(completion), Some(State::Waiting), "one that was added by another has not ended");
    end(&mut rig, more, Ending::Cancel);
    assert_eq!((rig.state(completion), told(&rig, completion)), (Some(State::Ready), (1, 1, 1)));
    let refused = rig.intent(Intent::Enqueue(before(completion))).unwrap_err();
    assert!(refused.to_string().contains("is ready, and can't wait for another any more"), "{refused}");
}

#[test]
fn empty_batch_ends_when_it_is_sealed_and_a_cancelled_one_can_not_be() {
    let mut rig = Rig::new();
    let completion = rig.enqueue(open());
    rig.administer(Admin::Seal { job: completion }).unwrap();
    assert_eq!(rig.state(completion), Some(State::Ready));
    let cancelled = rig.enqueue(open());
    rig.administer(Admin::Cancel { job: cancelled }).unwrap();
    let plain = rig.enqueue(job("task"));
    for job in [cancelled, plain] {
        assert_eq!(rig.administer(Admin::Seal { job }).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// As after an update that was begun and gone back on.
#[test]
fn job_that_could_not_be_read_when_the_last_ended_goes_on_when_it_can_be() {
    for (on_failure, how, state) in [
        (OnFailure::Cancel, DONE, State::Ready),
        (OnFailure::Run, fatal(), State::Ready),
        (OnFailure::Cancel, fatal(), State::Cancelled),
    ] {
        let mut rig = Rig::new();
        let [first, second] = [(); 2].map(|()| rig.enqueue(job("task")));
        let sealed = rig.enqueue(after(&[first], on_failure));
        let ended = rig.enqueue(after(&[first, second], on_failure));
        rig.is_checked = false;
        let rows = [sealed, ended].map(|id| ById::Waiting.key(id));
        let readable = rows.clone().map(|key| rig.rows.all()[&key].clone());
        for key in &rows {
            let mut bytes = rig.rows.all()[key].clone();
            bytes[1] = 99;
            rig.rows.write(RowSet::from([(key.clone(), Some(bytes))]));
        }
        end(&mut rig, first, how);
        assert_eq!(rig.administer(Admin::Seal { job: sealed }).unwrap_err().kind(), ErrorKind::Corrupt);
        for (key, bytes) in rows.into_iter().zip(readable) {
            rig.rows.write(RowSet::from([(key, Some(bytes))]));
        }
        let found: Vec<String> = check_rows(&rig.rows).unwrap().iter().map(ToString::to_string).collect();
        assert!(found.iter().any(|found| found.contains(&format!("`casque seal {sealed}`"))), "{found:?}");
        rig.administer(Admin::Seal { job: sealed }).unwrap();
        assert_eq!(rig.state(sealed), Some(state));
        end(&mut rig, second, DONE);
        assert_eq!(rig.state(ended), Some(state), "the next end has it go on too");
        rig.is_checked = true;
        rig.enqueue(job("task"));
    }
}

#[test]
fn purged_job_that_others_wait_for_tells_how_those_ended_that_it_waited_for_itself() {
    let mut rig = Rig::new();
    let [first, second] = [(); 2].map(|()| rig.enqueue(job("task")));
    let waiting = rig.enqueue(after(&[first, second], OnFailure::Cancel));
    rig.enqueue(after(&[waiting], OnFailure::Cancel));
    end(&mut rig, first, DONE);
    rig.sweep_queue(Admin::Purge, State::Waiting, "q");
    assert_eq!((rig.state(waiting), waits(&rig, waiting).pending), (Some(State::Cancelled), 1));
    assert_eq!(told(&rig, waiting), (1, 0, 0));
}

#[test]
fn no_circle_can_be_made() {
    let mut rig = Rig::new();
    let waited_for = rig.enqueue(open());
    let waiting = rig.enqueue(after(&[waited_for], OnFailure::Cancel));
    let circle = NewExtra {
        after: vec![Dependency::Job(waiting)],
        before: vec![Dependency::Job(waited_for)],
        ..NewExtra::default()
    };
    let refused = rig.intent(Intent::Enqueue(linked(circle.clone()))).unwrap_err();
    assert!(refused.to_string().contains("it might be a circle"), "{refused}");
    let itself = NewExtra { after: circle.before.clone(), before: circle.before.clone(), ..NewExtra::default() };
    assert_eq!(rig.intent(Intent::Enqueue(linked(itself))).unwrap_err().kind(), ErrorKind::Invalid);
    // What waits for nobody may come before it, and so may what waits where nobody waits for it.
    rig.enqueue(before(waited_for));
    let unwaited = rig.enqueue(open());
    rig.enqueue(linked(NewExtra { before: vec![Dependency::Job(unwaited)], ..circle }));
}

#[test]
fn unique_job_that_there_is_already_is_waited_for_by_a_batch() {
    let mut rig = Rig::new();
    let unique = super::rig_tests::unique("key");
    let existing = rig.enqueue(linked(unique.clone()));
    let completion = rig.enqueue(open());
    let member = NewExtra { before: vec![Dependency::Job(completion)], ..unique };
    for _ in 0..2 {
        assert_eq!(rig.enqueue(linked(member.clone())), existing);
    }
    rig.administer(Admin::Seal { job: completion }).unwrap();
    assert_eq!(waits(&rig, completion).pending, 1);
    end(&mut rig, existing, DONE);
    assert_eq!(rig.state(completion), Some(State::Ready));
}

#[test]
fn end_that_many_wait_for_is_told_in_steps() {
    let mut rig = Rig::new();
    rig.is_checked = false;
    let first = rig.enqueue(job("task"));
    let extra = NewExtra { after: vec![Dependency::Job(first)], ..NewExtra::default() };
    let count = 2 * TELLS_MAX + 5;
    rig.change(vec![], vec![Intent::Enqueue(linked(extra)); count]).unwrap();
    rig.is_checked = true;
    end(&mut rig, first, fatal());
    let retried = rig.administer(Admin::Retry { job: first }).unwrap_err();
    assert_eq!(retried.kind(), ErrorKind::Unavailable);
    let mut cancelled = vec![rig.stats("q").cancelled];
    while crate::queue::promote::has_untold(&rig.rows).unwrap() {
        assert_eq!(rig.promote(), 0, "none was scheduled");
        cancelled.push(rig.stats("q").cancelled);
    }
    assert_eq!(cancelled, [TELLS_MAX as u64, 2 * TELLS_MAX as u64, count as u64]);
    rig.administer(Admin::Retry { job: first }).unwrap();
}

#[test]
fn chain_as_deep_as_can_be_is_cancelled_in_steps_of_one_size() {
    const DEPTH: u32 = 10_000;
    let mut rig = Rig::new();
    rig.is_checked = false;
    let first = rig.enqueue(job("task"));
    let mut intents = Vec::new();
    for index in 0..DEPTH {
        let on = if index == 0 { Dependency::Job(first) } else { Dependency::Enqueued(index - 1) };
        intents.push(Intent::Enqueue(linked(NewExtra { after: vec![on], ..NewExtra::default() })));
    }
    rig.change(vec![], intents).unwrap();
    rig.administer(Admin::Cancel { job: first }).unwrap();
    let mut steps = 1;
    while rig.stats("q").waiting > 0 {
        let (applied, rows) = rig.try_change(vec![], vec![Intent::Promote { limit: 100 }]).unwrap();
        assert!(applied.version.is_some() && rows.len() < 6 * TELLS_MAX, "{} rows", rows.len());
        rig.promote();
        steps += 1;
    }
    assert_eq!(steps, (DEPTH as usize).div_ceil(TELLS_MAX));
    rig.is_checked = true;
    assert_eq!(rig.stats("q").cancelled, u64::from(DEPTH) + 1);
    rig.enqueue(job("task"));
}

#[test]
fn end_in_a_batch_costs_the_same_however_many_and_however_large_it_is() {
    let cost = |jobs: usize, args: usize| {
        let mut rig = Rig::new();
        rig.is_checked = false;
        let completion = NewJob { args: Payload::json(&"x".repeat(args)).unwrap(), ..open() };
        let mut intents = vec![Intent::Enqueue(completion)];
        let member = NewExtra { before: vec![Dependency::Enqueued(0)], ..NewExtra::default() };
        intents.extend((1..jobs).map(|_| Intent::Enqueue(linked(member.clone()))));
        rig.change(vec![], intents).unwrap();
        let (job, token) = rig.claim_one();
        let settle = crate::queue::settle::Settle { job, token, started_at: None, how: DONE, enqueues: vec![] };
        let (_, rows) = rig.try_change(vec![], vec![Intent::Settle(settle)]).unwrap();
        let bytes: usize = rows.iter().map(|(key, row)| key.len() + row.as_ref().map_or(0, Vec::len)).sum();
        (rows.len(), bytes)
    };
    let (rows, bytes) = cost(10, 10);
    assert_eq!(rows, 4, "its own row, the count, what leads to the last job and the numbers of that");
    assert!(bytes < 200, "{bytes} bytes");
    let (many_rows, many_bytes) = cost(10_000, 100_000);
    assert_eq!(many_rows, rows);
    assert!(many_bytes <= bytes + 16, "{many_bytes} bytes, not {bytes}");
}

#[test]
fn ends_without_dependents_look_at_nothing_more() {
    let reads = |extra: Option<Box<NewExtra>>| {
        let mut rig = Rig::new();
        let id = rig.enqueue(NewJob { extra, ..job("task") });
        let (_, token) = rig.claim_one();
        let settle = crate::queue::settle::Settle { job: id, token, started_at: None, how: DONE, enqueues: Vec::new() };
        let (reads, _) = rig.rows.reads_of(|_| rig.try_change(vec![], vec![Intent::Settle(settle)]).unwrap());
        reads
    };
    assert_eq!(reads(None), reads(Some(Box::new(NewExtra { timeout: Some(HOUR), ..NewExtra::default() }))));
    assert_eq!(reads(None), 3, "its row, the queue's configuration and the count");
}

#[test]
fn job_that_runs_at_most_once_never_runs_again_after_it_may_have_begun() {
    let once = || linked(NewExtra { at_most_once: true, ..NewExtra::default() });
    let begun = |rig: &mut Rig| {
        let id = rig.enqueue(once());
        let (_, token) = rig.claim_one();
        (id, token)
    };
    let dead = |rig: &mut Rig, id: JobId, why: &str| {
        assert_eq!(rig.state(id), Some(State::Dead), "{why}");
        let errors = rig.record(id).errors;
        assert!(errors[0].message.contains(why), "{errors:?}");
        assert_eq!(rig.administer(Admin::Retry { job: id }).unwrap_err().kind(), ErrorKind::Invalid);
    };
    let mut rig = Rig::new();
    let (id, token) = begun(&mut rig);
    rig.settle(id, token, Ending::Fail { message: "no".into(), retry_after: Some(HOUR) }).unwrap();
    dead(&mut rig, id, "no");
    for how in [Ending::Release, Ending::Snooze { delay: HOUR }] {
        let (id, token) = begun(&mut rig);
        rig.settle(id, token, how).unwrap();
        dead(&mut rig, id, "its handler gave it up");
    }
    let (id, token) = begun(&mut rig);
    rig.administer(Admin::Release { job: id, token }).unwrap();
    dead(&mut rig, id, "it was taken from its holder");
    let (id, token) = begun(&mut rig);
    rig.reclaim(crate::queue::reclaim::Reclaim { started: vec![(id, token, rig.now)], ..reclaim() });
    dead(&mut rig, id, "its worker process died");
    let (id, _) = begun(&mut rig);
    rig.reclaim(crate::queue::reclaim::Reclaim { power_cut: true, ..reclaim() });
    dead(&mut rig, id, "the machine was restarted, or its session left no notes");

    // What has not begun goes back, and one that was called off before it began can be retried.
    let (id, _) = begun(&mut rig);
    rig.reclaim(reclaim());
    assert_eq!(rig.state(id), Some(State::Ready));
    let (_, token) = rig.claim_one();
    let release =
        crate::queue::settle::Settle { job: id, token, started_at: None, how: Ending::Release, enqueues: vec![] };
    rig.intent(Intent::Settle(release)).unwrap();
    assert_eq!(rig.state(id), Some(State::Ready));
    rig.administer(Admin::Cancel { job: id }).unwrap();
    rig.administer(Admin::Retry { job: id }).unwrap();
    assert_eq!((rig.state(id), rig.record(id).attempt), (Some(State::Ready), 0));
    let _: Token = rig.claim_one().1;
}

#[test]
fn check_misses_each_row_and_finds_what_is_too_many() {
    let rows = linked_rows().rows.all().clone();
    assert_eq!(check_rows(&linked_rows().rows).unwrap(), []);
    let stray = JobId { version: 9_999, index: 0 };
    let change = ChangeId { client: ClientId { born: Version(1), random: 2 }, number: 3 };
    let extra = [
        (keys::dependent(stray, stray), Vec::new()),
        (keys::wait(stray), codec::encode(&WaitsRecord::default()).unwrap()),
        (keys::untold(stray), End::Dead.to_bytes()),
        (keys::job_ref(change, 0), stray.to_bytes().to_vec()),
    ];
    for (key, bytes) in extra {
        let family = key[0];
        let mut rig = linked_rows();
        rig.rows.write(RowSet::from([(key, Some(bytes))]));
        assert_ne!(check_rows(&rig.rows).unwrap(), [], "a row of family {family:#x} too many");
        // One of each kind: the last of its family, which is none of a scheduled job here.
        let last = rows.keys().rfind(|key| key[0] == family).expect("there is one").clone();
        let mut rig = linked_rows();
        rig.rows.write(RowSet::from([(last, None)]));
        assert_ne!(check_rows(&rig.rows).unwrap(), [], "a row of family {family:#x} too few");
    }
}
