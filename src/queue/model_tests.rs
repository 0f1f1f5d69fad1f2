//! Random sequences of all verbs, over stores of each kind, against a model that knows nothing of rows: the same
//! answers, the same refusals, and after each step all that can be seen of a store is what the model has.
//!
//! `CASQUE_SEED` repeats a run; `PROPTEST_CASES` has it go on for so many sequences. What fails is shrunk, and kept in
//! `proptest-regressions/queue/model_tests.txt`.

mod claims;
mod compare;
mod flows;
mod limits;
mod locks;
mod meant;
mod model;
mod operate;
mod root;
mod runs;
mod schedules;
mod verbs;
mod world;

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use proptest::{
    prelude::*,
    test_runner::{RngSeed, TestRunner},
};

use self::{
    compare::Watched,
    meant::{SCHEDULES, View},
    model::{Model, Told},
    verbs::{Act, QUEUES, Verb, sequences},
    world::{Way, World},
};
use crate::{
    clock::{Timestamp, monotonic},
    error::{ErrorKind, Result},
    queue::{
        admin::Admin,
        id::JobId,
        record::HeadRecord,
        schedule::{define::Definition, spec::Spec},
        select::{Tasks, Wanted},
        settle::Each,
        state::State,
        sweep::Sweep,
    },
    store::{
        change::{Applied, Candidate, Guard, Intent, Outcome},
        conflict::Version,
        keys,
        snapshot::Snapshot,
        view::get_record,
    },
    worker::enqueue_due_slots,
};

/// A snapshot keeps its pages for five seconds; after that it may refuse, and a busy machine may stop for a moment.
const SNAPSHOT_KEPT: Duration = Duration::from_secs(2);
const SNAPSHOTS_MAX: usize = 3;
const WATCHED_MAX: usize = 4;
/// Behind a stone, a look brings what was answered into the store's file; so that much of it is in the log alone when
/// processes are killed, it is not looked at after each step.
const LOOKS_EVERY: usize = 8;

/// A store and its model, and what was seen of them on the way.
struct Run {
    world: World,
    model: Model,
    view: View,
    snapshots: Vec<(Snapshot, Model, Instant)>,
    watched: Vec<Watched>,
    steps: usize,
}

impl Run {
    fn new(way: Way) -> Self {
        let now = Timestamp::from_millis(1_700_000_000_000);
        Self {
            world: World::new(way, now),
            model: Model::new(now, &QUEUES),
            view: View::default(),
            snapshots: Vec::new(),
            watched: Vec::new(),
            steps: 0,
        }
    }

    fn step(&mut self, verb: &Verb) {
        self.steps += 1;
        match verb {
            Verb::Change(checks, acts) => {
                if acts.iter().any(Act::looks) {
                    self.look();
                }
                let (guards, intents) = meant::change(&self.model, &self.view, checks, acts);
                self.change(guards, intents);
            }
            Verb::Sweep { purges, state, queue } => self.sweep(*purges, *state, queue.map(|queue| QUEUES[queue])),
            Verb::Look => self.look(),
            Verb::Snapshot => {
                self.snapshots.truncate(SNAPSHOTS_MAX - 1);
                self.snapshots.insert(0, (self.world.store().snapshot().unwrap(), self.model.clone(), monotonic()));
            }
            Verb::Advance(seconds) => self.model.set_now(self.world.advance(Duration::from_secs(*seconds))),
            Verb::Define { name, every, new, catch_up } => {
                let job = meant::new_job(&self.model, new);
                let spec = Spec::Every(Duration::from_secs(*every));
                let definition = Definition { name: SCHEDULES[*name].into(), spec, job, catch_up: *catch_up };
                let is_other = self.model.define(&definition);
                assert_eq!(self.world.store().define(&definition).unwrap(), is_other);
                self.model.version += u64::from(is_other);
            }
            Verb::Resume(name) => {
                let resumed = self.model.resume(SCHEDULES[*name]);
                let found = self.world.store().resume_schedule(SCHEDULES[*name]);
                assert_eq!(found.map_err(|error| error.kind()), resumed.map(drop));
                self.model.version += u64::from(resumed.unwrap_or(false));
            }
            Verb::Fire => {
                let fired = enqueue_due_slots(self.world.store()).map_err(|error| error.kind());
                assert_eq!(fired, self.model.fire());
            }
            Verb::Reopen => self.in_other_processes(World::reopen),
            Verb::Kill => self.in_other_processes(World::kill),
        }
        let is_stone = matches!(self.world.way(), Way::Stone | Way::Client);
        if !is_stone || self.steps.is_multiple_of(LOOKS_EVERY) {
            self.compare();
        }
    }

    fn change(&mut self, guards: Vec<Guard>, intents: Vec<Intent>) -> Option<Applied> {
        let before = self.model.clone();
        let expected = self.model.change(&guards, &intents);
        let found = self.world.store().inner.commit(guards, intents, None);
        judge(&before, &mut self.model, expected, found)
    }

    fn sweep(&mut self, purges: bool, state: State, queue: Option<&str>) {
        let newest = Version(self.model.version);
        let queue = queue.map(str::to_owned);
        let mut sweep = Sweep { state, queue, task: None, newest, after: None, limit: 1_000 };
        loop {
            let admin = if purges { Admin::Purge(sweep.clone()) } else { Admin::RetryAll(sweep.clone()) };
            let Some(applied) = self.change(Vec::new(), vec![Intent::Administer(admin)]) else { return };
            let Outcome::Swept(swept) = &applied.outcomes[0] else { panic!("not swept: {applied:?}") };
            sweep.after.clone_from(&swept.next);
            if sweep.after.is_none() {
                return;
            }
        }
    }

    fn look(&mut self) {
        let store = self.world.store();
        let mut queues = BTreeMap::new();
        for name in QUEUES {
            let wanted = Wanted { tasks: Tasks::Any, jobs_max: 4, idle: true };
            let (jobs, _) = store.peek(&[name.to_owned()], &wanted).unwrap();
            let ids: Vec<JobId> = jobs.iter().map(|candidate| candidate.job).collect();
            assert_eq!(ids, self.model.peek(name, &wanted), "what is next in queue {name}");
            let rows = store.inner.rows().unwrap();
            let head: HeadRecord = get_record(rows.as_ref(), &keys::head(name)).unwrap().unwrap_or_default();
            let known = self.model.queue(name).head.get_or_insert(head.version.0);
            assert_eq!(*known, head.version.0, "the head of queue {name}");
            for Candidate { job, key } in &jobs {
                let signature = self.model.jobs[job].signature();
                self.model.seen.insert(key.clone(), signature);
            }
            queues.insert(name.to_owned(), (head.version.0, jobs));
        }
        let fences = self.model.locks.iter().map(|(name, lock)| (name.clone(), lock.fence)).collect();
        self.view = View { version: self.model.version, root: self.model.root.clone(), fences, queues };
        let followed = self.model.jobs.keys().next_back().filter(|_| self.watched.len() < WATCHED_MAX);
        self.watched.extend(followed.map(|id| Watched::new(store, *id)));
    }

    fn in_other_processes(&mut self, change: fn(&mut World)) {
        self.snapshots.clear();
        self.watched.clear();
        change(&mut self.world);
        self.compare();
    }

    fn compare(&mut self) {
        compare::store(self.world.store(), &self.model, &mut self.watched);
        let now = monotonic();
        self.snapshots.retain(|(.., taken)| now.duration_since(*taken) < SNAPSHOT_KEPT);
        self.snapshots.iter().for_each(|(snapshot, model, _)| compare::snapshot(snapshot, model));
    }
}

/// That the store answers as the model does, and that who has nothing to change is no commit.
fn judge(
    before: &Model,
    model: &mut Model,
    expected: std::result::Result<Vec<Told>, ErrorKind>,
    found: Result<Applied>,
) -> Option<Applied> {
    let applied = match (expected, found) {
        (Ok(told), Ok(applied)) => {
            assert_eq!(applied.outcomes.len(), told.len());
            told.iter().zip(&applied.outcomes).for_each(|(told, outcome)| assert_answer(told, outcome, model));
            applied
        }
        (Err(kind), Err(error)) => {
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.conflict().is_some(), kind == ErrorKind::Conflict, "{error}");
            return None;
        }
        (expected, found) => panic!("the store says {found:?}, and the model {expected:?}"),
    };
    assert_eq!(applied.stamp, model.now);
    if let Some(version) = applied.version {
        assert_eq!(version.0, model.version + 1, "INV-2");
        model.version = version.0;
    } else {
        assert_eq!(before, model, "a change that is no commit changes nothing");
    }
    Some(applied)
}

fn assert_answer(told: &Told, outcome: &Outcome, model: &Model) {
    match (told, outcome) {
        (Told::Is(expected), outcome) => assert_eq!(outcome, expected),
        (Told::Claimed { jobs, hijacks, alone }, Outcome::Claimed(claimed)) => {
            let ids: Vec<JobId> = claimed.jobs.iter().map(|job| job.record.id).collect();
            assert_eq!(ids, *jobs, "INV-6: the jobs that are claimed");
            assert_eq!(claimed.hijacks.iter().map(|hijack| hijack.job).collect::<Vec<_>>(), *hijacks);
            assert_eq!(claimed.alone, *alone);
            assert_eq!(claimed.token.map(|token| token.0), (!jobs.is_empty()).then_some(model.version + 1));
        }
        (Told::Each(expected), Outcome::SettledEach(each)) => {
            let found = each.iter().map(|each| match each {
                Each::Settled(settled) => Ok(*settled),
                Each::Lost(_) => Err(ErrorKind::LeaseLost),
                Each::Refused(_) => Err(ErrorKind::Invalid),
                Each::NotFound(_) => Err(ErrorKind::NotFound),
                Each::Damaged(why) => panic!("{why}"),
            });
            assert_eq!(found.collect::<Vec<_>>(), *expected);
        }
        (Told::Swept { jobs, refused }, Outcome::Swept(swept)) => {
            assert_eq!((swept.jobs, swept.refused), (*jobs, *refused));
        }
        (told, outcome) => panic!("{outcome:?}, and the model says {told:?}"),
    }
}

/// Runs sequences over one way; as many as said, or as the environment does.
fn run(way: Way, cases: u32, lengths: Range<usize>) {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect(name));
    let seed = number("CASQUE_SEED").unwrap_or_else(|| crate::random::words()[0]);
    println!("CASQUE_SEED={seed}");
    let cases = number("PROPTEST_CASES").map_or(cases, |cases| u32::try_from(cases).expect("PROPTEST_CASES"));
    let config = ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        source_file: Some(file!()),
        test_name: Some(concat!(module_path!(), "::run")),
        ..ProptestConfig::default()
    };
    let (sequences_done, steps) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = TestRunner::new(config).run(&sequences(lengths), |verbs| {
        let mut run = Run::new(way);
        verbs.iter().for_each(|verb| run.step(verb));
        run.compare();
        sequences_done.fetch_add(1, Ordering::Relaxed);
        steps.fetch_add(verbs.len() as u64, Ordering::Relaxed);
        Ok(())
    });
    println!("{way:?}: {} sequences, {} steps", sequences_done.into_inner(), steps.into_inner());
    if let Err(failure) = done {
        panic!("{way:?}, CASQUE_SEED={seed}: {failure}");
    }
}

#[test]
fn any_sequence_of_verbs_does_what_the_model_says() {
    run(Way::Memory, 100, 1..160);
}

#[test]
fn any_sequence_of_direct_commits_does_what_the_model_says() {
    run(Way::Direct, 32, 1..160);
}

#[test]
fn any_sequence_through_a_stone_does_what_the_model_says() {
    run(Way::Stone, 32, 1..160);
}

#[test]
fn any_sequence_of_a_client_of_a_stone_does_what_the_model_says() {
    run(Way::Client, 32, 1..160);
}
