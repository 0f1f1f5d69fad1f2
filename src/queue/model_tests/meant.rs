//! What a verb means where it is done: the jobs, tokens and times that it is about.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use super::{
    model::{Job, Model},
    root::{Object, range_guard},
    verbs::{Act, By, Check, How, Link, New, QUEUES, Run, SETTINGS, TASKS, Time},
};
use crate::{
    clock::Timestamp,
    codec::Payload,
    queue::{
        admin::{Admin, Tend},
        claim::Claim,
        enqueue::{Dependency, NewExtra, NewJob, NewUnique, When},
        extra::{OnFailure, StateSet, UniqueScope},
        id::{JobId, SessionId, Token},
        reclaim::Reclaim,
        schedule::{ScheduleAct, handle},
        select::{Tasks, Wanted},
        settle::{Ending, Settle},
        state::State,
    },
    store::{
        change::{Candidate, Guard, Intent},
        conflict::Version,
        lock::{
            Fence,
            rules::{Claimant, FreeLocks, LockRequest},
        },
        object::Value,
    },
};

pub(super) const SESSIONS: [SessionId; 2] = [SessionId([1; 16]), SessionId([2; 16])];
const LOCKS: [&str; 2] = ["door", "gate"];
pub(super) const SCHEDULES: [&str; 2] = ["hourly", "nightly"];
pub(super) const PREFIX: &str = "r/";

/// The states in which a unique key is held, for how long at most, and among which jobs.
const POLICIES: [(StateSet, Option<u64>, UniqueScope); 6] = [
    (StateSet::UNENDED, None, UniqueScope::Queue),
    (StateSet::UNENDED, None, UniqueScope::Store),
    (StateSet::UNENDED_OR_COMPLETED, Some(100), UniqueScope::Queue),
    (StateSet::of(&[State::Scheduled, State::Ready]), None, UniqueScope::Queue),
    (StateSet::of(&[State::Running, State::Dead, State::Cancelled]), Some(4_000), UniqueScope::Queue),
    (StateSet::of(&State::ALL), None, UniqueScope::Store),
];

/// What was seen when somebody looked.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) version: u64,
    pub(super) root: BTreeMap<String, Object>,
    pub(super) fences: BTreeMap<String, u64>,
    /// By queue: the version of its head, and its next jobs.
    pub(super) queues: BTreeMap<String, (u64, Vec<Candidate>)>,
}

pub(super) fn root_key(key: usize) -> String {
    // The last is outside of the range that is read.
    if key < 3 { format!("{PREFIX}{key}") } else { "other".into() }
}

/// Guards and intents of a change.
pub(super) fn change(model: &Model, view: &View, checks: &[Check], acts: &[Act]) -> (Vec<Guard>, Vec<Intent>) {
    let mut guards: Vec<Guard> = checks.iter().filter_map(|check| guard(model, view, check)).collect();
    let intents = acts.iter().map(|act| intent(model, view, act, &mut guards)).collect();
    (guards, intents)
}

fn guard(model: &Model, view: &View, check: &Check) -> Option<Guard> {
    let root = |now| if now { (&model.root, model.version) } else { (&view.root, view.version) };
    Some(match check {
        Check::Object(key, now) => {
            let key = root_key(*key);
            let version = root(*now).0.get(&key).map(|object| Version(object.version));
            Guard::Object { key, version }
        }
        Check::Range(now) => range_guard(root(*now).0, PREFIX, Version(root(*now).1)),
        Check::Lock(name, now) => {
            let name = LOCKS[*name].to_owned();
            let fence =
                if *now { model.locks.get(&name).map(|lock| lock.fence) } else { view.fences.get(&name).copied() };
            Guard::Lock { name, fence: Fence(fence?) }
        }
    })
}

/// A job that was enqueued: mostly one of those that are such.
fn pick(model: &Model, which: usize, is_such: impl Fn(&Job) -> bool) -> JobId {
    let such: Vec<JobId> = model.jobs.values().filter(|job| is_such(job)).map(|job| job.id).collect();
    let all = if such.is_empty() || which.is_multiple_of(8) { &model.known } else { &such };
    all.get(which % all.len().max(1)).copied().unwrap_or(JobId { version: 1, index: 7 })
}

fn lease(model: &Model, which: usize, stale: bool) -> (JobId, Token) {
    let id = pick(model, which, |job| job.state == State::Running);
    let lease = model.jobs.get(&id).and_then(|job| job.lease);
    let token = lease.map_or(Token(id.version + 1), |(_, token)| token);
    (id, if stale { Token(token.0 - 1) } else { token })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn when(time: Time, now: Timestamp) -> When {
    match time {
        Time::Now => When::Now,
        Time::After(delay) => When::After(seconds(delay)),
        Time::At(later) => When::At(Timestamp::from_millis(now.as_millis().saturating_add_signed(later * 1_000))),
    }
}

pub(super) fn new_job(model: &Model, new: &New) -> NewJob {
    let dependency = |link: &Link| match link {
        Link::Job(which) => Dependency::Job(pick(model, *which, |job| !job.state.is_final())),
        Link::InChange(index) => Dependency::Enqueued(*index),
        Link::NeverThere => Dependency::Job(JobId { version: u64::MAX, index: 0 }),
    };
    let waiter = |link: &Link| match link {
        Link::Job(which) => Dependency::Job(pick(model, *which, |job| job.state == State::Waiting)),
        other => dependency(other),
    };
    let extra = NewExtra {
        unique: new.unique.map(|(key, policy)| {
            let (states, within, scope) = POLICIES[policy];
            NewUnique { key: key.to_string(), scope, states, within: within.map(seconds) }
        }),
        key: new.key.map(|key| key.to_string()),
        timeout: new.timeout.map(seconds),
        at_most_once: new.once,
        after: new.after.iter().map(dependency).collect(),
        on_failure: if new.runs_anyway { OnFailure::Run } else { OnFailure::Cancel },
        before: new.before.iter().map(waiter).collect(),
        is_open: new.is_open,
        is_referenced: false,
    };
    NewJob {
        queue: QUEUES[new.queue].into(),
        task: TASKS[new.task].into(),
        args: Payload::json(&model.known.len()).unwrap(),
        args_version: 1 + u32::from(new.keep),
        priority: new.priority,
        when: when(new.when, model.now),
        attempts_max: new.attempts_max,
        metadata: if new.metadata { vec![("tenant".into(), "7".into())] } else { Vec::new() },
        keep: new.keep,
        extra: (extra != NewExtra::default()).then(|| Box::new(extra)),
    }
}

fn settle(model: &Model, run: &Run) -> Settle {
    let (job, token) = lease(model, run.which, run.stale);
    let how = match run.how {
        How::Complete { has_result } => Ending::Complete { result: has_result.then(|| Payload::json(&7).unwrap()) },
        How::Fail(delay) => Ending::Fail { message: format!("no {}", run.which), retry_after: delay.map(seconds) },
        How::Snooze(delay) => Ending::Snooze { delay: seconds(delay) },
        How::Release => Ending::Release,
        How::Cancel => Ending::Cancel,
    };
    let started_at = run.had_begun.then_some(model.now);
    Settle { job, token, started_at, how, enqueues: run.enqueues.iter().map(|new| new_job(model, new)).collect() }
}

fn tended(model: &Model, verb: Tend, which: usize) -> JobId {
    pick(model, which, |job| match verb {
        Tend::Cancel => !job.state.is_final(),
        Tend::Retry => job.state.is_final(),
        Tend::Requeue => matches!(job.state, State::Ready | State::Scheduled),
    })
}

fn claim(model: &Model, view: &View, act: &Act, guards: &mut Vec<Guard>) -> Claim {
    let Act::Claim { session, first, both, tasks, jobs_max, idle, by, conflicts } = act else {
        unreachable!("it is a claim")
    };
    let order = [QUEUES[*first], QUEUES[1 - *first]];
    let mut queues: Vec<String> = order[..=usize::from(*both)].iter().map(|name| (*name).to_owned()).collect();
    let named = TASKS.iter().enumerate().filter(|(index, _)| tasks & (1 << index) != 0);
    let named: HashSet<String> = named.map(|(_, name)| (*name).to_owned()).collect();
    let tasks = if *tasks == 4 { Tasks::Any } else { Tasks::Named(named.into()) };
    let seen = |queue: &String| view.queues.get(queue).map(|(_, jobs)| jobs.clone()).unwrap_or_default();
    let (mut candidates, mut fill) = (Vec::new(), true);
    match by {
        By::Next => {}
        By::Candidates { fill: fills, .. } => {
            candidates = queues.iter().flat_map(seen).collect();
            fill = *fills;
        }
        By::Strictly { .. } => {
            queues.truncate(1);
            candidates = seen(&queues[0]);
            candidates.truncate(*jobs_max);
            let head = view.queues.get(&queues[0]).map(|(head, _)| *head);
            if let Some(version) = head.filter(|_| model.queues[&queues[0]].head.is_some()) {
                let (queue, shifted) = (queues[0].clone(), candidates.clone());
                guards.push(Guard::Queue { queue, version: Version(version), shifted });
                fill = false;
            }
        }
    }
    let wanted = Wanted { tasks, jobs_max: *jobs_max, idle: *idle };
    Claim { session: SESSIONS[*session], queues, wanted, candidates, fill, conflicts: *conflicts }
}

fn reclaim(model: &Model, session: usize, begun: u8, ended: u8, busy: u8, power_cut: bool) -> Reclaim {
    let mut notes = Reclaim { power_cut, ..Reclaim::of_all(SESSIONS[session], None) };
    let of_session = |job: &&Job| job.lease.is_some_and(|(holder, _)| holder == SESSIONS[session]);
    for (bit, job) in model.jobs.values().filter(of_session).enumerate() {
        let is_set = |bits: u8| bits & (1 << (bit % 8)) != 0;
        let token = job.lease.expect("it is held").1;
        if is_set(begun) {
            notes.started.push((job.id, token, model.now));
            if is_set(ended) {
                notes.ended.push((job.id, token));
            }
        }
        // Few have one.
        if is_set(busy & begun & ended) {
            notes.busy.push(job.id);
        }
    }
    notes
}

fn intent(model: &Model, view: &View, act: &Act, guards: &mut Vec<Guard>) -> Intent {
    let admin = Intent::Administer;
    let claimant = |session: usize, nonce: u64| Claimant { session: SESSIONS[session], nonce };
    let schedule = |name: usize, act: ScheduleAct| handle::intent(SCHEDULES[name], act);
    match act {
        Act::Enqueue(new) => Intent::Enqueue(new_job(model, new)),
        Act::Claim { .. } => Intent::Claim(claim(model, view, act, guards)),
        Act::Settle(run) => Intent::Settle(settle(model, run)),
        Act::SettleEach(runs) => Intent::SettleEach(runs.iter().map(|run| settle(model, run)).collect()),
        Act::Extend(which, stale) => {
            let (job, token) = lease(model, *which, *stale);
            Intent::Extend { job, token }
        }
        Act::Progress(which, stale, fraction) => {
            let (job, token) = lease(model, *which, *stale);
            Intent::Progress { job, token, fraction: *fraction, message: format!("at {which}") }
        }
        Act::Log(which, stale, lines) => {
            let (job, token) = lease(model, *which, *stale);
            Intent::Log { job, token, lines: (0..*lines).map(|line| format!("{which}: {line}")).collect() }
        }
        Act::Promote(limit) => Intent::Promote { limit: *limit },
        Act::Prune(limit) => admin(Admin::Prune { limit: *limit }),
        Act::Reclaim { session, begun, ended, busy, power_cut } => {
            Intent::Reclaim(reclaim(model, *session, *begun, *ended, *busy, *power_cut))
        }
        Act::Tend(verb, which) => {
            let job = tended(model, *verb, *which);
            admin(match verb {
                Tend::Cancel => Admin::Cancel { job },
                Tend::Retry => Admin::Retry { job },
                Tend::Requeue => Admin::Requeue { job },
            })
        }
        Act::Each(verb, jobs) => {
            let jobs = jobs.iter().map(|which| tended(model, *verb, *which)).collect();
            admin(Admin::Each { verb: *verb, jobs })
        }
        Act::Release(which, stale) => {
            let (job, token) = lease(model, *which, *stale);
            admin(Admin::Release { job, token })
        }
        Act::Seal(which) => {
            let is_open = |job: &Job| job.waits.as_ref().is_some_and(|waits| waits.is_open);
            admin(Admin::Seal { job: pick(model, *which, is_open) })
        }
        Act::Reschedule(which, priority, time) => {
            let has_not_begun = |job: &Job| matches!(job.state, State::Waiting | State::Scheduled | State::Ready);
            let job = pick(model, *which, has_not_begun);
            admin(Admin::Reschedule { job, priority: *priority, when: time.map(|time| when(time, model.now)) })
        }
        Act::Pause(queue, paused) => {
            let queue = QUEUES[*queue].to_owned();
            admin(if *paused { Admin::Pause { queue } } else { Admin::Resume { queue } })
        }
        Act::PauseTask(task, paused) => {
            let task = TASKS[*task].to_owned();
            admin(if *paused { Admin::PauseTask { task } } else { Admin::ResumeTask { task } })
        }
        Act::SweepLanes => admin(Admin::SweepLanes),
        Act::Configure(setting, value) => {
            admin(Admin::Configure { setting: SETTINGS[*setting].to_owned(), value: *value })
        }
        Act::ConfigureQueue(queue, settings) => {
            admin(Admin::ConfigureQueue { queue: QUEUES[*queue].to_owned(), settings: settings.clone() })
        }
        Act::Put(key, value) => Intent::Put { key: root_key(*key), value: Value::Plain(Payload::json(value).unwrap()) },
        Act::Remove(key) => Intent::Remove { key: root_key(*key) },
        Act::Add(key, delta) => Intent::Add { key: root_key(*key), delta: *delta },
        Act::Lock { name, session, nonce, waits } => {
            let (name, claimant) = (LOCKS[*name].to_owned(), claimant(*session, *nonce));
            Intent::Lock(LockRequest { name, claimant, waits: *waits })
        }
        Act::Unlock { name, session, nonce } => {
            Intent::Unlock { name: LOCKS[*name].to_owned(), claimant: claimant(*session, *nonce) }
        }
        Act::FreeLocks(session) => Intent::FreeLocks(FreeLocks { session: SESSIONS[*session], beat: None }),
        Act::PauseSchedule(name) => schedule(*name, ScheduleAct::Pause),
        Act::RemoveSchedule(name) => schedule(*name, ScheduleAct::Remove),
        Act::RunSchedule(name) => schedule(*name, ScheduleAct::Run),
    }
}
