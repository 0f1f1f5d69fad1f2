//! P3 and P4: what becomes of the jobs of a session that died or stopped, and how a suspect job is claimed.

use super::rig_tests::{OTHER_SESSION, QUEUE, Rig, SESSION, claim, ids, job, reclaim, unique};
use crate::queue::{
    admin::Admin,
    claim::Claim,
    enqueue::NewJob,
    id::{JobId, Token},
    reclaim::{Reclaim, Reclaimed},
    select::Wanted,
    settle::Ending,
    state::State,
};

fn busy(jobs_max: usize) -> Claim {
    let claim = claim(jobs_max);
    Claim { wanted: Wanted { idle: false, ..claim.wanted.clone() }, ..claim }
}

/// A job whose process died while it ran, ready again.
fn suspect(rig: &mut Rig, new: NewJob) -> JobId {
    let id = rig.enqueue(new);
    let (_, token) = rig.claim_one();
    let reclaimed = rig.reclaim(Reclaim { started: vec![(id, token, rig.now)], ..reclaim() });
    assert_eq!(reclaimed.suspects, [id]);
    id
}

#[test]
fn started_job_of_a_dead_session_is_charged_and_suspect() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("a"));
    let (_, token) = rig.claim_one();
    let started = rig.now;
    rig.advance(std::time::Duration::from_secs(5));
    let reclaimed = rig.reclaim(Reclaim { started: vec![(id, token, started)], ..reclaim() });
    assert_eq!(reclaimed, Reclaimed { suspects: vec![id], ..Reclaimed::default() });
    let record = rig.record(id);
    assert_eq!((record.attempt, record.suspect, record.started_at), (1, true, Some(started)));
    assert_eq!((record.place, rig.state(id)), (id, Some(State::Ready)));
    assert_eq!((record.errors[0].attempt, record.errors[0].session.as_str()), (1, "rig"));
}

#[test]
fn unstarted_job_of_a_dead_session_goes_back_uncharged_under_its_old_place() {
    let mut rig = Rig::new();
    let (first, second) = (rig.enqueue(job("a")), rig.enqueue(job("a")));
    rig.claim_one();
    let third = rig.enqueue(job("a"));
    assert_eq!(rig.reclaim(reclaim()).requeued, [first]);
    let record = rig.record(first);
    assert_eq!((record.attempt, record.suspect, record.lease), (0, false, None));
    assert_eq!(ids(&rig.claim(claim(5))), [first, second, third]);
}

#[test]
fn note_of_an_earlier_lease_charges_nobody() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("a"));
    let (_, old) = rig.claim_one();
    rig.settle(id, old, Ending::Release).unwrap();
    rig.claim_one();
    let reclaimed = rig.reclaim(Reclaim { started: vec![(id, old, rig.now)], ended: vec![(id, old)], ..reclaim() });
    assert_eq!(reclaimed.requeued, [id]);
    assert_eq!(rig.record(id).attempt, 0);
}

#[test]
fn job_that_had_ended_well_is_completed() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("a"));
    let (_, token) = rig.claim_one();
    let notes = Reclaim { started: vec![(id, token, rig.now)], ended: vec![(id, token)], ..reclaim() };
    assert_eq!(rig.reclaim(notes).completed, [id]);
    assert_eq!((rig.state(id), rig.stats(QUEUE).completed), (None, 1));
}

#[test]
fn power_cut_charges_nobody_and_makes_all_held_jobs_suspect() {
    let mut rig = Rig::new();
    let (begun, unbegun) = (rig.enqueue(job("a")), rig.enqueue(job("a")));
    let claimed = rig.claim(claim(2));
    let started = vec![(begun, claimed.token.unwrap(), rig.now)];
    let reclaimed = rig.reclaim(Reclaim { started, power_cut: true, ..reclaim() });
    assert_eq!(reclaimed.suspects, [begun, unbegun]);
    for id in [begun, unbegun] {
        let record = rig.record(id);
        assert_eq!((record.attempt, record.suspect, record.errors.len()), (0, true, 0));
    }
}

/// S41.
#[test]
fn job_with_a_child_process_stays_held_and_its_neighbours_go_back() {
    let mut rig = Rig::new();
    let (working, neighbour) = (rig.enqueue(job("a")), rig.enqueue(job("a")));
    let claimed = rig.claim(claim(2));
    let token = claimed.token.unwrap();
    let started = vec![(working, token, rig.now)];
    let reclaimed = rig.reclaim(Reclaim { started, busy: vec![working], ..reclaim() });
    assert_eq!((reclaimed.busy.as_slice(), reclaimed.requeued.as_slice()), (&[working][..], &[neighbour][..]));
    assert_eq!(rig.record(working).lease.unwrap().token, token);
    rig.settle(working, token, Ending::Complete { result: None }).unwrap();
}

#[test]
fn reclaimed_job_that_was_being_cancelled_is_cancelled() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("a"));
    let (_, token) = rig.claim_one();
    rig.administer(Admin::Cancel { job: id }).unwrap();
    let reclaimed = rig.reclaim(Reclaim { started: vec![(id, token, rig.now)], ..reclaim() });
    assert_eq!((reclaimed.cancelled.as_slice(), rig.state(id)), (&[id][..], Some(State::Cancelled)));
}

/// S3, S24.
#[test]
fn job_that_died_with_its_process_at_its_last_attempt_is_dead_and_frees_its_unique_key() {
    let mut rig = Rig::new();
    let new = || NewJob { attempts_max: 1, extra: Some(Box::new(unique("one"))), ..job("a") };
    let id = rig.enqueue(new());
    let (_, token) = rig.claim_one();
    let reclaimed = rig.reclaim(Reclaim { started: vec![(id, token, rig.now)], ..reclaim() });
    assert_eq!((reclaimed.dead.as_slice(), rig.state(id), rig.record(id).attempt), (&[id][..], Some(State::Dead), 1));
    assert_ne!(rig.enqueue(new()), id);
}

/// S7.
#[test]
fn attempt_reads_one_more_than_the_crashes_and_stops_at_the_limit() {
    let mut rig = Rig::new();
    let id = rig.enqueue(NewJob { attempts_max: 4, ..job("a") });
    for crashes in 0..4 {
        let claimed = rig.claim(claim(1));
        assert_eq!(claimed.jobs[0].record.attempt, crashes, "the run that follows is the next one");
        let started = vec![(id, claimed.token.unwrap(), rig.now)];
        rig.reclaim(Reclaim { started, ..reclaim() });
    }
    assert_eq!((rig.state(id), rig.record(id).attempt, rig.stats(QUEUE).dead), (Some(State::Dead), 4, 1));
    assert_eq!(rig.claim(claim(1)).jobs, []);
}

#[test]
fn jobs_of_other_sessions_are_left_alone() {
    let mut rig = Rig::new();
    let (ours, theirs) = (rig.enqueue(job("a")), rig.enqueue(job("a")));
    rig.claim(claim(1));
    let other = rig.claim(Claim { session: OTHER_SESSION, ..claim(1) });
    assert_eq!(ids(&other), [theirs]);
    assert_eq!(rig.reclaim(reclaim()).requeued, [ours]);
    assert_eq!(rig.record(theirs).lease.unwrap().session, OTHER_SESSION);
    rig.settle(theirs, other.token.unwrap(), Ending::Release).unwrap();
}

#[test]
fn slices_walk_every_held_job_once() {
    let mut rig = Rig::new();
    let jobs: Vec<JobId> = (0..10).map(|_| rig.enqueue(job("a"))).collect();
    for index in 0..10 {
        let session = if index % 3 == 0 { OTHER_SESSION } else { SESSION };
        rig.claim(Claim { session, ..claim(1) });
    }
    let (mut after, mut back, mut slices) = (None, Vec::new(), 0);
    loop {
        let reclaimed = rig.reclaim(Reclaim { after, limit: 3, ..reclaim() });
        slices += 1;
        back.extend(reclaimed.requeued);
        after = reclaimed.next;
        if after.is_none() {
            break;
        }
    }
    let ours: Vec<JobId> = jobs.iter().enumerate().filter(|(index, _)| index % 3 != 0).map(|(_, id)| *id).collect();
    assert_eq!((back, slices), (ours, 4));
    assert_eq!((rig.stats(QUEUE).running, rig.stats(QUEUE).ready), (4, 6));
}

#[test]
fn reclaiming_twice_changes_nothing_more() {
    let mut rig = Rig::new();
    let id = rig.enqueue(job("a"));
    let (_, token) = rig.claim_one();
    let notes = Reclaim { started: vec![(id, token, rig.now)], ..reclaim() };
    rig.reclaim(notes.clone());
    let version = rig.version;
    assert_eq!(rig.reclaim(notes), Reclaimed::default());
    assert_eq!((rig.version, rig.record(id).attempt), (version, 1));
}

/// S40.
#[test]
fn one_job_that_kills_its_process_does_not_take_its_prefetched_neighbours_with_it() {
    let mut rig = Rig::new();
    let jobs: Vec<JobId> = (0..64).map(|_| rig.enqueue(NewJob { attempts_max: 1, ..job("a") })).collect();
    let claimed = rig.claim(claim(64));
    assert_eq!(ids(&claimed), jobs);
    let token = claimed.token.unwrap();
    // Concurrency 1: twenty had ended and were not settled yet, the next one aborted, the others had not begun.
    let (done, killer, innocent) = (&jobs[..20], jobs[20], &jobs[21..]);
    let noted = |ids: &[JobId]| ids.iter().map(|id| (*id, token)).collect::<Vec<(JobId, Token)>>();
    let mut started: Vec<_> = done.iter().map(|id| (*id, token, rig.now)).collect();
    started.push((killer, token, rig.now));
    let reclaimed = rig.reclaim(Reclaim { started, ended: noted(done), ..reclaim() });
    assert_eq!(reclaimed.completed, done);
    assert_eq!(reclaimed.dead, [killer]);
    assert_eq!(reclaimed.requeued, innocent);
    assert!(innocent.iter().all(|id| rig.record(*id).attempt == 0));
    // The others run, each for its first and only time.
    let claimed = rig.claim(claim(64));
    assert_eq!(ids(&claimed), innocent);
    for id in innocent {
        rig.settle(*id, claimed.token.unwrap(), Ending::Complete { result: None }).unwrap();
    }
    let stats = rig.stats(QUEUE);
    assert_eq!((stats.completed, stats.dead, stats.ready, stats.running), (63, 1, 0, 0));
}

#[test]
fn suspect_job_is_claimed_alone_by_an_idle_worker() {
    let mut rig = Rig::new();
    let suspect = suspect(&mut rig, job("a"));
    let (second, third) = (rig.enqueue(job("a")), rig.enqueue(job("b")));
    let claimed = rig.claim(claim(5));
    assert_eq!((ids(&claimed), claimed.alone), (vec![suspect], true));
    let claimed = rig.claim(claim(5));
    assert_eq!((ids(&claimed), claimed.alone, claimed.suspects_wait), (vec![second, third], false, false));
}

#[test]
fn busy_worker_skips_a_suspect_job_and_learns_that_it_waits() {
    let mut rig = Rig::new();
    let suspect = suspect(&mut rig, job("a"));
    let others = [rig.enqueue(job("a")), rig.enqueue(job("a"))];
    let claimed = rig.claim(busy(5));
    assert_eq!((ids(&claimed), claimed.suspects_wait), (others.to_vec(), true));
    assert_eq!(rig.state(suspect), Some(State::Ready));
    // Named as a candidate it is no hijack either.
    let candidates = vec![rig.candidate(suspect)];
    let claimed = rig.claim(Claim { candidates, ..busy(1) });
    assert_eq!((ids(&claimed), claimed.hijacks, claimed.suspects_wait), (vec![], vec![], true));
}

#[test]
fn jobs_before_a_suspect_one_go_first_and_none_behind_it_overtakes() {
    let mut rig = Rig::new();
    let first = rig.enqueue(job("b"));
    let suspect = {
        let id = rig.enqueue(job("a"));
        let candidates = vec![rig.candidate(id)];
        let token = rig.claim(Claim { candidates, ..claim(1) }).token.unwrap();
        rig.reclaim(Reclaim { started: vec![(id, token, rig.now)], ..reclaim() });
        id
    };
    let behind = rig.enqueue(job("a"));
    let lower = rig.enqueue(NewJob { priority: -1, ..job("a") });
    let claimed = rig.claim(claim(5));
    assert_eq!((ids(&claimed), claimed.alone, claimed.suspects_wait), (vec![first], false, true));
    assert_eq!(ids(&rig.claim(claim(5))), [suspect]);
    assert_eq!(ids(&rig.claim(claim(5))), [behind, lower]);
}

#[test]
fn suspect_named_behind_other_candidates_is_not_taken_with_them() {
    let mut rig = Rig::new();
    let suspect = suspect(&mut rig, job("a"));
    let other = rig.enqueue(job("a"));
    let candidates = vec![rig.candidate(other), rig.candidate(suspect)];
    let claimed = rig.claim(Claim { candidates, fill: false, ..claim(5) });
    assert_eq!((ids(&claimed), claimed.alone, claimed.suspects_wait), (vec![other], false, true));
}

#[test]
fn suspicion_ends_with_a_run_that_its_process_survives() {
    let mut rig = Rig::new();
    let id = suspect(&mut rig, job("a"));
    let (_, token) = rig.claim_one();
    let retry_after = Some(std::time::Duration::ZERO);
    rig.settle(id, token, Ending::Fail { message: "no".into(), retry_after }).unwrap();
    assert_eq!((rig.record(id).suspect, rig.record(id).attempt), (false, 2));
}

#[test]
fn released_suspect_stays_suspect() {
    let mut rig = Rig::new();
    let id = suspect(&mut rig, job("a"));
    let (_, token) = rig.claim_one();
    rig.settle(id, token, Ending::Release).unwrap();
    assert!(rig.record(id).suspect);
    assert_eq!(ids(&rig.claim(busy(1))), []);
}
