//! Random sequences of verbs over the rows, against a model that knows nothing of rows: the same answers, the same jobs
//! in the same states, the same numbers, after each step.

use std::{collections::HashSet, time::Duration};

mod control;
mod limits;
mod recovery;
mod waits;

use proptest::prelude::*;

use self::limits::Limits;
use super::rig_tests::{OTHER_SESSION, Rig, SESSION, job};
use crate::{
    clock::Timestamp,
    codec::Payload,
    error::ErrorKind,
    queue::{
        admin::Admin,
        claim::Claim,
        config::QueueSetting,
        enqueue::{Dependency, NewExtra, NewJob, When},
        extra::OnFailure,
        id::{JobId, SessionId, Token},
        record::Home,
        select::{Tasks, Wanted},
        settle::Ending,
        state::State,
    },
    store::change::{Intent, Outcome},
};

const QUEUES: [&str; 2] = ["one", "two"];
const TASKS: [&str; 2] = ["a", "b"];
const SESSIONS: [SessionId; 2] = [SESSION, OTHER_SESSION];

#[derive(Clone, Debug)]
enum Verb {
    Enqueue {
        queue: usize,
        task: usize,
        priority: i64,
        delay: u64,
        unique: Option<u8>,
        key: Option<u8>,
        attempts_max: u32,
        keep: bool,
        /// The job that it waits for, and whether it runs though that failed.
        after: Option<(usize, bool)>,
    },
    Claim {
        session: usize,
        queues: usize,
        tasks: u8,
        jobs_max: usize,
        idle: bool,
    },
    /// How the `which`th job is settled, under its latest token or a stale one.
    Settle {
        which: usize,
        how: How,
        stale: bool,
    },
    Cancel(usize),
    Retry(usize),
    Requeue(usize),
    Release(usize),
    Pause(usize, bool),
    Configure(usize, QueueSetting),
    PauseTask(usize, bool),
    /// Another priority, another delay in seconds.
    Reschedule(usize, Option<i64>, Option<u64>),
    /// What has not begun in a queue.
    Purge(usize),
    /// What is dead.
    RetryAll,
    Promote,
    Prune,
    Advance(u64),
    /// The bits say which of the held jobs had started, and which of those had ended.
    Reclaim {
        session: usize,
        started: u16,
        ended: u16,
        power_cut: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum How {
    Complete,
    CompleteWithResult,
    Fail(u64),
    FailForGood,
    Snooze(u64),
    Release,
    Cancel,
}

#[derive(Clone, Debug)]
struct Model {
    jobs: Vec<Job>,
    paused: [bool; 2],
    paused_tasks: [bool; 2],
    completed: [u64; 2],
    limits: [Limits; 2],
    now: Timestamp,
}

#[allow(clippy::struct_excessive_bools, reason = "they are independent of each other")]
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Job {
    id: JobId,
    queue: usize,
    task: usize,
    priority: i64,
    place: JobId,
    unique: Option<u8>,
    key: Option<u8>,
    /// It waits to be tried again, and those of its key behind it wait for that.
    holds_back: bool,
    /// A run of it has begun.
    has_begun: bool,
    attempt: u32,
    attempts_max: u32,
    keep: bool,
    suspect: bool,
    cancelling: bool,
    /// `None`: gone.
    state: Option<State>,
    run_at: Timestamp,
    /// The job that it waits for, whether it runs though that failed, and how long it is put off then.
    after: Option<(JobId, bool)>,
    delay: u64,
    /// Those that wait for it know how it has ended.
    is_told: bool,
    expires_at: Timestamp,
    session: usize,
    token: Token,
}

const DAY: Duration = Duration::from_hours(24);

impl Job {
    fn end(&mut self, state: State, now: Timestamp) {
        let kept_for = if state == State::Completed { DAY } else { 30 * DAY };
        self.state = Some(state);
        self.suspect = false;
        self.cancelling = false;
        self.expires_at = now.after(kept_for);
    }

    fn complete(&mut self, has_result: bool, now: Timestamp) {
        self.attempt += 1;
        self.end(State::Completed, now);
        if !has_result && !self.keep {
            self.state = None;
        }
    }

    fn later(&mut self, delay: u64, is_strict: bool, now: Timestamp) {
        self.run_at = now.after(Duration::from_secs(delay));
        self.state = Some(if delay > 0 { State::Scheduled } else { State::Ready });
        self.holds_back = delay > 0 && is_strict;
    }

    fn is_over(&self) -> bool {
        self.state.is_none_or(State::is_final)
    }

    /// What a settlement makes of a running job.
    fn settle(&mut self, how: How, is_strict: bool, now: Timestamp) {
        match how {
            How::Complete => self.complete(false, now),
            How::CompleteWithResult => self.complete(true, now),
            How::Fail(delay) => {
                self.attempt += 1;
                self.suspect = false;
                if self.cancelling {
                    self.end(State::Cancelled, now);
                } else if self.attempt < self.attempts_max {
                    self.later(delay, is_strict, now);
                } else {
                    self.end(State::Dead, now);
                }
            }
            How::FailForGood => {
                self.attempt += 1;
                self.end(if self.cancelling { State::Cancelled } else { State::Dead }, now);
            }
            _ if self.cancelling => self.end(State::Cancelled, now),
            How::Snooze(delay) => self.later(delay, is_strict, now),
            How::Release => self.state = Some(State::Ready),
            How::Cancel => self.end(State::Cancelled, now),
        }
    }
}

impl Model {
    fn holder(&self, queue: usize, unique: Option<u8>) -> Option<JobId> {
        unique?;
        let holds = |job: &&Job| job.queue == queue && job.unique == unique && !job.is_over();
        self.jobs.iter().find(holds).map(|job| job.id)
    }

    /// Adds the indexes of the jobs that a claim takes from a queue, in order; false where it takes no more.
    fn pick(&self, queue: usize, tasks: u8, jobs_max: usize, idle: bool, picked: &mut Vec<usize>) -> bool {
        if self.paused[queue] {
            return true;
        }
        let limits = &self.limits[queue];
        let room = limits.running_max.map_or(usize::MAX, |most| {
            usize::try_from(u64::from(most).saturating_sub(self.count(queue, State::Running))).unwrap()
        });
        let most = picked.len().saturating_add(room.min(limits.tokens()));
        let runs = |task: usize| tasks & (1 << task) != 0 && !self.paused_tasks[task];
        let open = |job: &Job| job.queue == queue && job.state == Some(State::Ready) && runs(job.task);
        let mut ready: Vec<usize> = (0..self.jobs.len()).filter(|index| open(&self.jobs[*index])).collect();
        ready.sort_by_key(|index| (-self.jobs[*index].priority, self.jobs[*index].place));
        for index in ready {
            let alone = picked.first().is_some_and(|first| self.jobs[*first].suspect);
            if picked.len() == jobs_max || alone {
                return false;
            }
            if picked.len() == most {
                return true;
            }
            if !self.key_lets_run(index, picked) || (self.jobs[index].suspect && !idle) {
                continue;
            }
            if self.jobs[index].suspect && !picked.is_empty() {
                return false; // P4: it waits for what comes before it, and nothing behind it overtakes it
            }
            picked.push(index);
        }
        true
    }

    fn count(&self, queue: usize, state: State) -> u64 {
        self.jobs.iter().filter(|job| job.queue == queue && job.state == Some(state)).count() as u64
    }
}

/// A verb done to the rows and to the model.
fn step(rig: &mut Rig, model: &mut Model, verb: &Verb) {
    let now = rig.now;
    model.now = now;
    model.limits.iter_mut().for_each(|limits| limits.fill(now));
    match verb {
        Verb::Enqueue { .. } => enqueue(rig, model, verb),
        Verb::Claim { session, queues, tasks, jobs_max, idle } => {
            let order = if *queues == 0 { vec![0, 1] } else { vec![1, 0] };
            let names = TASKS.iter().enumerate().filter(|(index, _)| tasks & (1 << index) != 0);
            let tasks_named = names.map(|(_, name)| (*name).to_owned()).collect::<HashSet<_>>();
            let claimed = rig.claim(Claim {
                session: SESSIONS[*session],
                queues: order.iter().map(|queue| QUEUES[*queue].to_owned()).collect(),
                wanted: Wanted { tasks: Tasks::Named(tasks_named.into()), jobs_max: *jobs_max, idle: *idle },
                candidates: Vec::new(),
                fill: true,
                conflicts: 0,
            });
            let mut picked = Vec::new();
            let _ = order.iter().all(|queue| model.pick(*queue, *tasks, *jobs_max, *idle, &mut picked));
            let expected: Vec<JobId> = picked.iter().map(|index| model.jobs[*index].id).collect();
            let got: Vec<JobId> = claimed.jobs.iter().map(|job| job.record.id).collect();
            assert_eq!(got, expected);
            for queue in 0..2 {
                let taken = picked.iter().filter(|index| model.jobs[**index].queue == queue).count();
                model.limits[queue].take(taken);
            }
            for index in picked {
                let job = &mut model.jobs[index];
                job.state = Some(State::Running);
                (job.session, job.token) = (*session, claimed.token.unwrap());
            }
        }
        Verb::Settle { which, how, stale } => settle(rig, model, *which, *how, *stale),
        Verb::Cancel(_) | Verb::Retry(_) | Verb::Requeue(_) | Verb::Release(_) => operate(rig, model, verb),
        Verb::Pause(queue, paused) => {
            let queue_name = QUEUES[*queue].to_owned();
            let admin = if *paused { Admin::Pause { queue: queue_name } } else { Admin::Resume { queue: queue_name } };
            rig.administer(admin).unwrap();
            model.paused[*queue] = *paused;
        }
        Verb::Configure(queue, setting) => {
            let queue_name = QUEUES[*queue].to_owned();
            rig.administer(Admin::ConfigureQueue { queue: queue_name, settings: vec![*setting] }).unwrap();
            model.limits[*queue].set(*setting, now);
        }
        Verb::PauseTask(task, paused) => {
            let name = TASKS[*task].to_owned();
            let admin = if *paused { Admin::PauseTask { task: name } } else { Admin::ResumeTask { task: name } };
            rig.administer(admin).unwrap();
            model.paused_tasks[*task] = *paused;
        }
        Verb::Reschedule(which, priority, delay) => control::reschedule(rig, model, *which, *priority, *delay),
        Verb::Purge(queue) => {
            for state in [State::Scheduled, State::Ready] {
                rig.sweep_queue(Admin::Purge, state, QUEUES[*queue]);
            }
            model.purge(*queue, |job| rig.find(job).is_some());
        }
        Verb::RetryAll => control::retry_all(rig, model),
        Verb::Promote => {
            rig.promote();
            let due = |job: &&mut Job| job.state == Some(State::Scheduled) && job.run_at <= now;
            model.jobs.iter_mut().filter(due).for_each(|job| {
                (job.state, job.holds_back) = (Some(State::Ready), false);
            });
        }
        Verb::Prune => {
            rig.administer(Admin::Prune { limit: 1_000 }).unwrap();
            let over = |job: &&mut Job| job.state.is_some_and(State::is_final) && job.expires_at <= now;
            model.jobs.iter_mut().filter(over).for_each(|job| job.state = None);
        }
        Verb::Advance(seconds) => rig.advance(Duration::from_secs(*seconds)),
        Verb::Reclaim { session, started, ended, power_cut } => {
            recovery::reclaim(rig, model, *session, (*started, *ended), *power_cut);
        }
    }
    model.tell(now);
}

fn enqueue(rig: &mut Rig, model: &mut Model, verb: &Verb) {
    let Verb::Enqueue { queue, task, priority, delay, unique, key, attempts_max, keep, after } = verb else { return };
    let after = after.filter(|_| !model.jobs.is_empty());
    let after = after.map(|(which, runs)| (which % model.jobs.len(), runs));
    let on = after.map(|(which, runs)| (model.jobs[which].id, runs));
    let mut extra = unique.map_or_else(NewExtra::default, |unique| super::rig_tests::unique(&unique.to_string()));
    extra.key = key.map(|key| key.to_string());
    if let Some((on, runs)) = on {
        extra.after.push(Dependency::Job(on));
        extra.on_failure = if runs { OnFailure::Run } else { OnFailure::Cancel };
    }
    let before_it_runs = [State::Waiting, State::Scheduled, State::Ready];
    let waiting: u64 = before_it_runs.into_iter().map(|state| model.count(*queue, state)).sum();
    let is_full = model.limits[*queue].size_max.is_some_and(|most| waiting >= most);
    let enqueued = rig.intent(Intent::Enqueue(NewJob {
        queue: QUEUES[*queue].into(),
        priority: *priority,
        when: When::After(Duration::from_secs(*delay)),
        extra: (extra != NewExtra::default()).then(|| Box::new(extra)),
        attempts_max: *attempts_max,
        keep: *keep,
        ..job(TASKS[*task])
    }));
    if is_full && model.holder(*queue, *unique).is_none() {
        assert_eq!(enqueued.unwrap_err().kind(), ErrorKind::Full);
        return;
    }
    let outcome = enqueued.unwrap();
    let Outcome::Enqueued { job: id, existing } = outcome else { panic!("not enqueued: {outcome:?}") };
    assert_eq!(
        existing.then_some(id),
        model.holder(*queue, *unique),
        "INV-1: the holder of a unique key, or a new job"
    );
    if existing {
        return;
    }
    let waits_for = after.map(|(which, _)| model.jobs[which].clone());
    let mut new = Job {
        id,
        queue: *queue,
        task: *task,
        priority: *priority,
        place: id,
        unique: *unique,
        key: *key,
        holds_back: false,
        has_begun: false,
        attempt: 0,
        attempts_max: *attempts_max,
        keep: *keep,
        suspect: false,
        cancelling: false,
        state: Some(if *delay > 0 { State::Scheduled } else { State::Ready }),
        run_at: model.now.after(Duration::from_secs(*delay)),
        after: on,
        delay: *delay,
        is_told: false,
        expires_at: model.now,
        session: 0,
        token: Token(0),
    };
    match waits_for {
        Some(on) if on.is_over() => new.go_on(on.state, model.now),
        Some(_) => new.state = Some(State::Waiting),
        None => {}
    }
    model.jobs.push(new);
}

fn settle(rig: &mut Rig, model: &mut Model, which: usize, how: How, stale: bool) {
    let now = rig.now;
    // Mostly one that runs, so that something comes of it.
    let running: Vec<usize> =
        (0..model.jobs.len()).filter(|index| model.jobs[*index].state == Some(State::Running)).collect();
    let index = match running.as_slice() {
        [_, ..] if !which.is_multiple_of(4) => running[which % running.len()],
        _ => which % model.jobs.len().max(1),
    };
    let Some(job) = model.jobs.get_mut(index) else { return };
    let token = if stale { Token(job.token.0.wrapping_sub(1)) } else { job.token };
    let fail = |retry_after| Ending::Fail { message: "no".into(), retry_after };
    let ending = match how {
        How::Complete => Ending::Complete { result: None },
        How::CompleteWithResult => Ending::Complete { result: Some(Payload::json(&1).unwrap()) },
        How::Fail(delay) => fail(Some(Duration::from_secs(delay))),
        How::FailForGood => fail(None),
        How::Snooze(delay) => Ending::Snooze { delay: Duration::from_secs(delay) },
        How::Release => Ending::Release,
        How::Cancel => Ending::Cancel,
    };
    let settled = rig.settle(job.id, token, ending);
    if stale || job.state != Some(State::Running) {
        assert_eq!(settled.unwrap_err().kind(), ErrorKind::LeaseLost, "INV-3");
        return;
    }
    job.has_begun = true;
    job.settle(how, model.limits[job.queue].is_strict, now);
    if job.state == Some(State::Completed) || job.state.is_none() {
        model.completed[job.queue] += 1;
    }
    assert_eq!(settled.unwrap(), job.state.unwrap_or(State::Completed));
}

fn operate(rig: &mut Rig, model: &mut Model, verb: &Verb) {
    let (Verb::Cancel(which) | Verb::Retry(which) | Verb::Requeue(which) | Verb::Release(which)) = verb else {
        return;
    };
    if model.jobs.is_empty() {
        return;
    }
    let (now, index) = (rig.now, which % model.jobs.len());
    let job = model.jobs[index].clone();
    let key_is_free = model.holder(job.queue, job.unique).is_none();
    let admin = match verb {
        Verb::Cancel(_) => Admin::Cancel { job: job.id },
        Verb::Retry(_) => Admin::Retry { job: job.id },
        Verb::Requeue(_) => Admin::Requeue { job: job.id },
        _ => Admin::Release { job: job.id, token: job.token },
    };
    let found = rig.administer(admin).map(|_| ()).map_err(|error| error.kind());
    let place = JobId { version: rig.version.0, index: 0 };
    let job = &mut model.jobs[index];
    let expected = match (verb, job.state) {
        (Verb::Release(_), Some(State::Running)) => {
            job.settle(How::Release, false, now);
            Ok(())
        }
        (Verb::Release(_), _) => Err(ErrorKind::LeaseLost),
        (_, None) => Err(ErrorKind::NotFound),
        (Verb::Cancel(_), Some(State::Running)) => {
            job.cancelling = true;
            Ok(())
        }
        (Verb::Cancel(_), Some(State::Waiting | State::Ready | State::Scheduled)) => {
            job.holds_back = false;
            job.end(State::Cancelled, now);
            Ok(())
        }
        (Verb::Cancel(_), Some(State::Cancelled)) | (Verb::Retry(_), Some(State::Ready)) => Ok(()),
        (Verb::Retry(_), Some(State::Dead | State::Cancelled)) if key_is_free => {
            (job.state, job.attempt, job.is_told) = (Some(State::Ready), 0, false);
            Ok(())
        }
        (Verb::Retry(_), Some(State::Scheduled)) => {
            (job.state, job.holds_back) = (Some(State::Ready), false);
            Ok(())
        }
        (Verb::Requeue(_), Some(State::Ready | State::Scheduled)) => {
            (job.state, job.place, job.holds_back) = (Some(State::Ready), place, false);
            Ok(())
        }
        _ => Err(ErrorKind::Invalid),
    };
    assert_eq!(found, expected, "{verb:?} of a job that was {:?}", model.jobs[index].state);
}

fn compare(rig: &Rig, model: &Model) {
    for job in &model.jobs {
        let found = rig.find(job.id);
        assert_eq!(found.as_ref().map(|(home, record)| record.state_in(*home)), job.state, "job {}", job.id);
        let Some((home, record)) = found else { continue };
        let told = (record.attempt, record.suspect, record.cancelling, record.place);
        assert_eq!(told, (job.attempt, job.suspect, job.cancelling, job.place), "job {}", job.id);
        assert_eq!(home == Home::ById(crate::store::keys::ById::Held), record.lease.is_some(), "INV-3");
    }
    for (queue, name) in QUEUES.iter().enumerate() {
        let stats = rig.stats(name);
        let told =
            [stats.waiting, stats.scheduled, stats.ready, stats.running, stats.kept, stats.dead, stats.cancelled];
        let expected = [
            State::Waiting,
            State::Scheduled,
            State::Ready,
            State::Running,
            State::Completed,
            State::Dead,
            State::Cancelled,
        ]
        .map(|state| model.count(queue, state));
        assert_eq!(told, expected, "INV-9: {name}");
        assert_eq!((stats.completed, stats.paused), (model.completed[queue], model.paused[queue]), "{name}");
    }
}

fn verbs() -> impl Strategy<Value = Verb> {
    let delay = prop_oneof![2 => Just(0u64), 1 => Just(60), 1 => Just(3_600)];
    let which = 0usize..64;
    let how = prop_oneof![
        2 => Just(How::Complete),
        2 => Just(How::CompleteWithResult),
        3 => delay.clone().prop_map(How::Fail),
        1 => Just(How::FailForGood),
        1 => delay.clone().prop_map(How::Snooze),
        2 => Just(How::Release),
        1 => Just(How::Cancel),
    ];
    let unique = prop::option::weighted(0.3, 0u8..2);
    let after = prop::option::weighted(0.3, (which.clone(), any::<bool>()));
    let key = prop::option::weighted(0.6, 0u8..2);
    let enqueue = (0usize..2, 0usize..2, -1i64..=1, delay, unique, key, 1u32..=3, any::<bool>(), after).prop_map(
        |(queue, task, priority, delay, unique, key, attempts_max, keep, after)| Verb::Enqueue {
            queue,
            task,
            priority,
            delay,
            unique,
            key,
            attempts_max,
            keep,
            after,
        },
    );
    let setting = limits::settings();
    let claim = (0usize..2, 0usize..2, 1u8..4, 1usize..5, prop::bool::weighted(0.7))
        .prop_map(|(session, queues, tasks, jobs_max, idle)| Verb::Claim { session, queues, tasks, jobs_max, idle });
    let settle = (which.clone(), how, prop::bool::weighted(0.1)).prop_map(|(which, how, stale)| Verb::Settle {
        which,
        how,
        stale,
    });
    let reclaim = (0usize..2, any::<u16>(), any::<u16>(), prop::bool::weighted(0.2))
        .prop_map(|(session, started, ended, power_cut)| Verb::Reclaim { session, started, ended, power_cut });
    let later = prop::option::of(prop_oneof![Just(0u64), Just(3_600)]);
    let reschedule = (which.clone(), prop::option::of(-1i64..=1), later)
        .prop_map(|(which, priority, delay)| Verb::Reschedule(which, priority, delay));
    prop_oneof![
        6 => enqueue,
        6 => claim,
        8 => settle,
        2 => which.clone().prop_map(Verb::Cancel),
        2 => which.clone().prop_map(Verb::Retry),
        2 => which.clone().prop_map(Verb::Requeue),
        1 => which.clone().prop_map(Verb::Release),
        2 => reschedule,
        1 => (0usize..2).prop_map(Verb::Purge),
        1 => Just(Verb::RetryAll),
        1 => (0usize..2, prop::bool::weighted(0.3)).prop_map(|(task, paused)| Verb::PauseTask(task, paused)),
        1 => (0usize..2, prop::bool::weighted(0.3)).prop_map(|(queue, paused)| Verb::Pause(queue, paused)),
        2 => (0usize..2, setting).prop_map(|(queue, setting)| Verb::Configure(queue, setting)),
        1 => Just(Verb::Promote),
        1 => Just(Verb::Prune),
        2 => prop_oneof![Just(60u64), Just(3_600), Just(3 * 24 * 3_600), Just(40 * 24 * 3_600)].prop_map(Verb::Advance),
        2 => reclaim,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_verbs_does_what_the_model_says(
        are_strict in any::<[bool; 2]>(),
        settings in prop::collection::vec((0usize..2, limits::settings()), 0..4),
        verbs in prop::collection::vec(verbs(), 1..90),
    ) {
        let mut rig = Rig::new();
        let limits = [Limits::default(), Limits::default()];
        let mut model =
            Model {
                jobs: Vec::new(),
                paused: [false; 2],
                paused_tasks: [false; 2],
                completed: [0; 2],
                limits,
                now: rig.now,
            };
        let order = [0, 1].map(|queue| (queue, QueueSetting::StrictByKey(are_strict[queue])));
        let configure = order.into_iter().chain(settings).map(|(queue, setting)| Verb::Configure(queue, setting));
        for verb in configure.chain(verbs) {
            step(&mut rig, &mut model, &verb);
            compare(&rig, &model);
        }
    }
}
