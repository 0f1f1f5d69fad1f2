//! Random lives of jobs that want one unique key by different policies, against a model that knows nothing of rows: who
//! holds the key after each step, who gets it, and how long who has ended is kept.

use std::time::Duration;

use proptest::prelude::*;

use super::rig_tests::{QUEUE, Rig, claim, job};
use crate::{
    clock::Timestamp,
    error::ErrorKind,
    queue::{
        admin::Admin,
        claim::Claim,
        enqueue::{NewExtra, NewJob, NewUnique, When},
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

const KEY: &str = "key";
const DAY: Duration = Duration::from_hours(24);
const POLICIES: [(StateSet, Option<u64>); 6] = [
    (StateSet::UNENDED, None),
    (StateSet::UNENDED_OR_COMPLETED, Some(100)),
    (StateSet::of(&[State::Scheduled, State::Ready]), None),
    (StateSet::of(&[State::Running, State::Dead, State::Cancelled]), Some(300)),
    (StateSet::of(&State::ALL), None),
    (StateSet::of(&[State::Ready, State::Completed]), Some(3 * 24 * 3_600)),
];

#[derive(Clone, Copy, Debug)]
enum Verb {
    Enqueue { policy: usize, delay: u64 },
    Claim(usize),
    Settle(usize, How),
    Cancel(usize),
    Retry(usize),
    Promote,
    Prune,
    Advance(u64),
}

#[derive(Clone, Copy, Debug)]
enum How {
    Complete,
    Fail(u64),
    Die,
    Release,
}

#[derive(Debug)]
struct Job {
    id: JobId,
    states: StateSet,
    until: Option<Timestamp>,
    /// `None`: gone.
    state: Option<State>,
    run_at: Timestamp,
    expires_at: Timestamp,
    token: Token,
    /// The key's row names it, perhaps beyond its time.
    holds: bool,
}

#[derive(Default)]
struct Model {
    jobs: Vec<Job>,
    now: Timestamp,
}

impl Model {
    /// Who stands in the way of others.
    fn holder(&self) -> Option<JobId> {
        let holds = |job: &&Job| job.holds && job.until.is_none_or(|until| until > self.now);
        self.jobs.iter().find(holds).map(|job| job.id)
    }

    fn take(&mut self, index: usize) {
        if self.holder().is_none() && self.jobs[index].until.is_none_or(|until| until > self.now) {
            self.jobs.iter_mut().for_each(|job| job.holds = false);
            self.jobs[index].holds = true;
        }
    }

    fn enter(&mut self, index: usize, state: State) {
        let now = self.now;
        let job = &mut self.jobs[index];
        job.state = Some(state);
        if !job.states.contains(state) {
            job.holds = false;
        } else if !job.holds {
            self.take(index);
        }
        if state.is_final() {
            let job = &mut self.jobs[index];
            let until = job.until.filter(|_| job.states.contains(state));
            let kept = if state != State::Completed {
                Some(now.after(30 * DAY))
            } else if job.states.contains(state) && job.until.is_none() {
                Some(now.after(DAY))
            } else {
                None
            };
            match kept.max(until.filter(|until| *until > now)) {
                Some(expires_at) => job.expires_at = expires_at,
                None => self.forget(index),
            }
        }
    }

    fn forget(&mut self, index: usize) {
        self.jobs[index].state = None;
        self.jobs[index].holds = false;
    }
}

fn step(rig: &mut Rig, model: &mut Model, verb: Verb) {
    let now = rig.now;
    model.now = now;
    let (Verb::Claim(which) | Verb::Settle(which, _) | Verb::Cancel(which) | Verb::Retry(which)) = verb else {
        return step_of_all(rig, model, verb);
    };
    if model.jobs.is_empty() {
        return;
    }
    let index = which % model.jobs.len();
    let (id, state, token) = (model.jobs[index].id, model.jobs[index].state, model.jobs[index].token);
    match verb {
        Verb::Claim(_) if state == Some(State::Ready) => {
            let claimed = rig.claim(Claim { candidates: vec![rig.candidate(id)], fill: false, ..claim(1) });
            model.jobs[index].token = claimed.token.unwrap();
            model.enter(index, State::Running);
        }
        Verb::Settle(_, how) if state == Some(State::Running) => {
            let fail = |retry_after| Ending::Fail { message: "no".into(), retry_after };
            let (ending, then) = match how {
                How::Complete => (Ending::Complete { result: None }, State::Completed),
                How::Fail(delay) => (fail(Some(Duration::from_secs(delay))), State::Scheduled),
                How::Die => (fail(None), State::Dead),
                How::Release => (Ending::Release, State::Ready),
            };
            assert_eq!(rig.settle(id, token, ending).unwrap(), then);
            if let How::Fail(delay) = how {
                model.jobs[index].run_at = now.after(Duration::from_secs(delay));
            }
            model.enter(index, then);
        }
        Verb::Cancel(_) if matches!(state, Some(State::Ready | State::Scheduled)) => {
            rig.administer(Admin::Cancel { job: id }).unwrap();
            model.enter(index, State::Cancelled);
        }
        Verb::Retry(_) if matches!(state, Some(State::Dead | State::Cancelled)) => {
            let other =
                model.holder().filter(|holder| *holder != id && model.jobs[index].states.contains(State::Ready));
            let retried = rig.administer(Admin::Retry { job: id });
            if let Some(other) = other {
                let error = retried.unwrap_err();
                assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(&other.to_string()));
            } else {
                retried.unwrap();
                model.enter(index, State::Ready);
            }
        }
        _ => {}
    }
}

fn step_of_all(rig: &mut Rig, model: &mut Model, verb: Verb) {
    let now = rig.now;
    match verb {
        Verb::Enqueue { policy, delay } => enqueue(rig, model, policy, delay),
        Verb::Promote => {
            rig.promote();
            // In the order of their times.
            let is_due = |job: &Job| job.state == Some(State::Scheduled) && job.run_at <= now;
            let mut due: Vec<usize> = (0..model.jobs.len()).filter(|index| is_due(&model.jobs[*index])).collect();
            due.sort_by_key(|index| (model.jobs[*index].run_at, model.jobs[*index].id));
            due.into_iter().for_each(|index| model.enter(index, State::Ready));
        }
        Verb::Prune => {
            rig.administer(Admin::Prune { limit: 1_000 }).unwrap();
            for index in 0..model.jobs.len() {
                let job = &model.jobs[index];
                if job.state.is_some_and(State::is_final) && job.expires_at <= now {
                    model.forget(index);
                }
            }
        }
        Verb::Advance(seconds) => rig.advance(Duration::from_secs(seconds)),
        _ => {}
    }
}

fn enqueue(rig: &mut Rig, model: &mut Model, policy: usize, delay: u64) {
    let (states, seconds) = POLICIES[policy];
    let within = seconds.map(Duration::from_secs);
    let unique = Some(NewUnique { key: KEY.into(), scope: UniqueScope::Queue, states, within });
    let extra = Some(Box::new(NewExtra { unique, ..NewExtra::default() }));
    let new = NewJob { when: When::After(Duration::from_secs(delay)), extra, attempts_max: 1_000, ..job("a") };
    let outcome = rig.intent(Intent::Enqueue(new)).unwrap();
    let Outcome::Enqueued { job: id, existing } = outcome else { panic!("not enqueued: {outcome:?}") };
    assert_eq!(existing.then_some(id), model.holder(), "the holder of the key, or a new job");
    if existing {
        return;
    }
    let run_at = rig.now.after(Duration::from_secs(delay));
    let until = within.map(|within| rig.now.after(within));
    let (state, expires_at) = (None, rig.now);
    model.jobs.push(Job { id, states, until, state, run_at, expires_at, token: Token(0), holds: false });
    model.enter(model.jobs.len() - 1, if delay > 0 { State::Scheduled } else { State::Ready });
}

fn compare(rig: &Rig, model: &Model) {
    use crate::engine::Rows as _;

    for job in &model.jobs {
        assert_eq!(rig.state(job.id), job.state, "job {}", job.id);
    }
    let row = rig.rows.get(&keys::unique(QUEUE, KEY)).unwrap();
    let named = row.map(|bytes| Holder::from_bytes(&bytes).unwrap().job);
    let holder = model.jobs.iter().find(|job| job.holds).map(|job| job.id);
    assert_eq!(named, holder, "the job that the key's row names");
}

fn verbs() -> impl Strategy<Value = Verb> {
    let delay = || prop_oneof![2 => Just(0u64), 1 => Just(60)];
    let how = prop_oneof![
        2 => Just(How::Complete),
        2 => Just(How::Fail(60)),
        2 => Just(How::Die),
        1 => Just(How::Release),
    ];
    let which = 0usize..32;
    prop_oneof![
        6 => (0..POLICIES.len(), delay()).prop_map(|(policy, delay)| Verb::Enqueue { policy, delay }),
        5 => which.clone().prop_map(Verb::Claim),
        6 => (which.clone(), how).prop_map(|(which, how)| Verb::Settle(which, how)),
        2 => which.clone().prop_map(Verb::Cancel),
        3 => which.prop_map(Verb::Retry),
        2 => Just(Verb::Promote),
        1 => Just(Verb::Prune),
        3 => prop_oneof![Just(60u64), Just(200), Just(25 * 3_600), Just(40 * 24 * 3_600)].prop_map(Verb::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn one_job_at_most_holds_the_key_and_it_is_the_one_that_the_model_says(
        verbs in prop::collection::vec(verbs(), 1..60),
    ) {
        let mut rig = Rig::new();
        let mut model = Model::default();
        for verb in verbs {
            step(&mut rig, &mut model, verb);
            compare(&rig, &model);
        }
    }
}
