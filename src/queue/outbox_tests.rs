//! Jobs that are enqueued with a settlement, or not at all; and a change that moves a job, as readers see it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::rig_tests::{Rig, claim, job};
use crate::{
    codec::Payload,
    queue::{
        Flow, JobRequest,
        claim::Claim,
        enqueue::{Dependency, NewExtra, NewJob},
        id::JobId,
        info::stats,
        settle::{Each, Ending, Settle},
        state::State,
    },
    store::{
        Store,
        change::{CHANGE_BYTES_MAX, Intent, Outcome},
        keys,
        object::ObjectRecord,
        open::StoreOptions,
        view::get_record,
    },
};

/// Jobs that run, all under one token, and settlements that complete them and enqueue each two jobs.
fn running(rig: &mut Rig, jobs: usize) -> Vec<Settle> {
    for _ in 0..jobs {
        rig.enqueue(job("task"));
    }
    let claimed = rig.claim(claim(jobs));
    let token = claimed.token.unwrap();
    let next = |queue: &str| NewJob { queue: queue.into(), ..job("next") };
    let settle = |job: JobId| Settle {
        job,
        token,
        started_at: None,
        how: Ending::Complete { result: None },
        enqueues: vec![next("a"), next("b")],
    };
    claimed.jobs.iter().map(|job| settle(job.record.id)).collect()
}

#[test]
fn jobs_of_a_settlement_are_enqueued_with_it_or_not_at_all() {
    let mut rig = Rig::new();
    let mut settlements = running(&mut rig, 4);
    // One lease is lost, and one run enqueues what can't be, after what can.
    settlements[1].token.0 -= 1;
    let never = Dependency::Job(JobId { version: 1_000, index: 0 });
    let wrong = NewExtra { after: vec![never], ..NewExtra::default() };
    settlements[2].enqueues.push(NewJob {
        queue: "new".into(),
        extra: Some(Box::new(wrong)),
        ..job("never seen before")
    });
    settlements[2].enqueues[0].task = "not seen before".into();
    let next = Claim { queues: vec!["a".into(), "b".into()], ..claim(10) };
    let outcomes = rig.change(vec![], vec![Intent::SettleEach(settlements.clone()), Intent::Claim(next)]).unwrap();
    let Outcome::SettledEach(each) = &outcomes.outcomes[0] else { panic!("{outcomes:?}") };
    assert!(matches!(&each[0], Each::Settled(settled) if settled.state == State::Completed), "{each:?}");
    assert!(matches!(&each[1], Each::Lost(_)), "{each:?}");
    assert!(
        matches!(&each[2], Each::Refused(why) if why.contains("\"never seen before\"") && why.contains("no job 1000")),
        "{each:?}"
    );
    assert!(matches!(&each[3], Each::Settled(_)), "{each:?}");
    let Outcome::Claimed(claimed) = &outcomes.outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!(claimed.jobs.len(), 4, "two of each that was settled");
    assert_eq!((rig.stats("q").running, rig.stats("new").scheduled + rig.stats("new").ready), (2, 0));
    assert_eq!(rig.state(settlements[2].job), Some(State::Running), "what was refused may be settled otherwise");
}

#[test]
fn settlement_that_fails_its_change_enqueues_nothing() {
    let mut rig = Rig::new();
    let mut settlement = running(&mut rig, 1).remove(0);
    settlement.how = Ending::Complete { result: Some(Payload::json(&"x".repeat(2 << 20)).unwrap()) };
    rig.intent(Intent::Settle(settlement)).unwrap_err();
    assert_eq!((rig.stats("a").ready, rig.stats("q").running), (0, 1));
}

/// S18.
#[test]
fn job_that_moves_from_queue_to_queue_is_always_in_one_of_them_and_the_counter_agrees() {
    const MOVES: u64 = 200;
    let folder = tempfile::tempdir().unwrap();
    for store in [Store::in_memory().unwrap(), StoreOptions::new().open(folder.path().join("app.redb")).unwrap()] {
        store.queue("a").enqueue(JobRequest::new("task", &())).unwrap();
        let (is_done, seen) = (AtomicBool::new(false), AtomicBool::new(false));
        let look = || {
            let rows = store.inner.rows().unwrap();
            let [a, b] = ["a", "b"].map(|queue| stats(rows.as_ref(), queue).unwrap());
            let there = [a.ready + a.running, b.ready + b.running];
            assert_eq!(there[0] + there[1], 1, "it is in one queue: {a:?} {b:?}");
            let moves: Option<ObjectRecord> = get_record(rows.as_ref(), &keys::root("moves")).unwrap();
            let moves = moves.map_or(0, |object| object.value.decode::<u64>().unwrap());
            assert_eq!((a.completed + b.completed, there[usize::try_from(moves % 2).unwrap()]), (moves, 1));
            moves
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::SeqCst) {
                        let moves = look();
                        seen.fetch_or(moves > 0 && moves < MOVES, Ordering::SeqCst);
                    }
                });
            }
            for number in 0..MOVES {
                let (from, to) = if number % 2 == 0 { ("a", "b") } else { ("b", "a") };
                let lease = store.queue(from).claim(1, Duration::from_secs(30)).unwrap().remove(0);
                lease
                    .complete_in(|tx| {
                        tx.add("moves", 1)?;
                        tx.enqueue(to, JobRequest::new("task", &()))
                    })
                    .unwrap();
            }
            is_done.store(true, Ordering::SeqCst);
        });
        assert_eq!(look(), MOVES);
        assert!(seen.into_inner(), "the readers looked while it moved");
    }
}

/// The job that waits is told of the end that its own enqueueing goes with.
#[test]
fn job_of_a_settlement_may_wait_for_the_very_job_that_is_settled() {
    for each in [false, true] {
        let mut rig = Rig::new();
        let mut settlement = running(&mut rig, 1).remove(0);
        let after = NewExtra { after: vec![Dependency::Job(settlement.job)], ..NewExtra::default() };
        settlement.enqueues = vec![NewJob { queue: "a".into(), extra: Some(Box::new(after)), ..job("next") }];
        let settle = if each { Intent::SettleEach(vec![settlement]) } else { Intent::Settle(settlement) };
        rig.intent(settle).unwrap();
        assert_eq!((rig.stats("a").waiting, rig.stats("a").ready), (0, 1));
    }
}

#[test]
fn flows_that_a_run_enqueues_from_several_threads_are_numbered_by_where_they_stand() {
    const FLOWS: usize = 500;
    let store = Store::in_memory().unwrap();
    let queue = store.queue("q");
    queue.enqueue(JobRequest::new("task", &())).unwrap();
    let lease = queue.claim(1, Duration::ZERO).unwrap().remove(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..FLOWS {
                    let mut flow = Flow::new();
                    flow.chain("q", ["first", "second"].map(|task| JobRequest::new(task, &())));
                    lease.enqueue_flow(flow).unwrap();
                }
            });
        }
    });
    let jobs = lease.outbox().to_vec();
    assert_eq!(jobs.len(), 4 * 2 * FLOWS);
    for (index, job) in jobs.iter().enumerate().filter(|(_, job)| job.task == "second") {
        let before = u32::try_from(index).unwrap() - 1;
        assert_eq!(job.extra.as_ref().unwrap().after, [Dependency::Enqueued(before)]);
    }
}

/// As another program may send it: references count the jobs of a change, not those of its settlements.
#[test]
fn job_of_a_settlement_has_no_reference() {
    let mut rig = Rig::new();
    let mut settlements = running(&mut rig, 2);
    for settlement in &mut settlements {
        settlement.enqueues[0].extra = Some(Box::new(NewExtra { is_referenced: true, ..NewExtra::default() }));
    }
    let Outcome::SettledEach(each) = rig.intent(Intent::SettleEach(settlements)).unwrap() else {
        panic!("not settled")
    };
    assert!(each.iter().all(|each| matches!(each, Each::Refused(why) if why.contains("reference"))), "{each:?}");
}

/// A turn takes as many endings along as fit: what one of them is refused for must be its own.
#[test]
fn settlement_tells_the_bytes_that_its_jobs_take_of_a_change() {
    let mut rig = Rig::new();
    let metadata = vec![("note".to_owned(), "x".repeat(4_000))];
    let mut settlements = running(&mut rig, 3);
    for settlement in &mut settlements {
        let after = vec![Dependency::Job(settlement.job); 1_000];
        let extra = Some(Box::new(NewExtra { after, ..NewExtra::default() }));
        settlement.enqueues = vec![NewJob { metadata: metadata.clone(), extra, ..job("next") }; 200];
    }
    let fitting = CHANGE_BYTES_MAX / settlements[0].payload_bytes();
    assert_eq!(fitting, 2);
    let Outcome::SettledEach(each) = rig.intent(Intent::SettleEach(settlements)).unwrap() else {
        panic!("not settled")
    };
    let settled = each.iter().filter(|each| matches!(each, Each::Settled(_))).count();
    assert_eq!(settled, fitting, "{each:?}");
}
