//! From a history to its objects' operations, and what is wrong with them: is there a legal order for the root, for
//! each job, for each lock; does the store's version grow with each commit; and what became of all jobs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use super::{
    checker::{Object, Operation, check},
    objects::{Job, JobAct, JobState, Lock, LockAct, Root},
    record::{Answer, Call, Leased, Line, Peeked, REGISTERS, Settle, Step, What},
};

/// One call, from what its process noted of it.
struct Made<'a> {
    process: u32,
    called: usize,
    call: &'a Call,
    /// What it tried last.
    tried: Option<&'a Step>,
    answered: Option<(usize, &'a Answer)>,
}

/// What is to be told of a history.
#[derive(Debug, Default, Clone, Copy)]
pub struct Figures {
    pub calls: usize,
    /// Calls that were never answered, since their process was killed, or answered with `Unknown`.
    pub unknown: usize,
    /// Refused since the lease or the lock was another's.
    pub refused: usize,
    pub jobs: usize,
    /// Jobs whose enqueueing was never answered, and that were there.
    pub recovered: usize,
    /// Jobs that were claimed again, since they went back or their holder was interrupted.
    pub claimed_again: usize,
    pub peeks: usize,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.unknown += other.unknown;
        self.refused += other.refused;
        self.jobs += other.jobs;
        self.recovered += other.recovered;
        self.claimed_again += other.claimed_again;
        self.peeks += other.peeks;
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, unknown, refused, jobs, recovered, claimed_again, peeks } = self;
        write!(
            f,
            "{calls} calls, {unknown} of them never answered, {refused} refused; {jobs} jobs, {recovered} of them \
             recovered, {claimed_again} claimed more than once; {peeks} peeks"
        )
    }
}

/// What is wrong with a history, or with the beginning of one that still goes on.
pub fn judge(lines: &[Line], is_over: bool) -> (Figures, Vec<String>) {
    let calls = calls(lines);
    let mut wrong = Vec::new();
    for made in &calls {
        if let Some((_, Answer::Wrong(message))) = made.answered {
            wrong.push(format!("answer: {:?} of process {}: {message}", made.call, made.process));
        }
    }
    judge_versions(&calls, &mut wrong);
    let peeks = judge_peeks(&calls, &mut wrong);
    let back = Interruptions::of(lines);
    let root = root_operations(&calls);
    let initial = ([None; REGISTERS], 0);
    wrong.extend(check::<Root>(initial, &root).err().map(|illegal| format!("root: {}", illegal.told)));
    let jobs = job_operations(&calls, &back);
    judge_each::<Job, _>("job", &JobState::Absent, &jobs, &mut wrong);
    let locks = lock_operations(&calls, &back);
    judge_each::<Lock, _>("lock", &(None, 0), &locks, &mut wrong);
    let recovered = account(&calls, &jobs, is_over, &mut wrong);
    let is_answered_with = |made: &&Made<'_>, is: fn(&Answer) -> bool| made.answered.is_some_and(|(_, a)| is(a));
    let figures = Figures {
        calls: calls.len(),
        unknown: calls
            .iter()
            .filter(|made| made.answered.is_none_or(|(_, answer)| matches!(answer, Answer::Unknown(_))))
            .count(),
        refused: calls.iter().filter(|made| is_answered_with(made, |answer| matches!(answer, Answer::Lost))).count(),
        jobs: jobs.len(),
        recovered,
        claimed_again: jobs.values().filter(|job| claims(job) > 1).count(),
        peeks,
    };
    (figures, wrong)
}

fn calls(lines: &[Line]) -> Vec<Made<'_>> {
    let mut calls: Vec<Made<'_>> = Vec::new();
    let mut at: HashMap<(u32, u64), usize> = HashMap::new();
    for (number, line) in lines.iter().enumerate() {
        let key = (line.process, line.call);
        match &line.what {
            What::Called(call) => {
                at.insert(key, calls.len());
                calls.push(Made { process: line.process, called: number, call, tried: None, answered: None });
            }
            What::Tried(step) => calls[at[&key]].tried = Some(step),
            What::Answered(answer) => calls[at[&key]].answered = Some((number, answer)),
            What::Interrupted | What::GoesOn => {}
        }
    }
    calls
}

/// What is known of what a call did.
#[derive(Clone, Copy)]
enum Effect {
    Never,
    /// At any time since, or never.
    Perhaps,
    /// At the latest by this line.
    Before(usize),
}

impl Effect {
    /// How an operation of its is answered; nothing where there is none.
    fn operation(self) -> Option<End> {
        match self {
            Self::Never => None,
            Self::Perhaps => Some(End(None)),
            Self::Before(at) => Some(End(Some(at))),
        }
    }
}

/// When an operation was answered, if it was.
struct End(Option<usize>);

impl Made<'_> {
    fn effect(&self) -> Effect {
        match self.answered {
            None | Some((_, Answer::Unknown(_) | Answer::Wrong(_))) => Effect::Perhaps,
            Some((_, Answer::Lost | Answer::Not(_))) => Effect::Never,
            Some((at, _)) => Effect::Before(at),
        }
    }

    fn refused(&self) -> Option<usize> {
        self.answered.filter(|(_, answer)| matches!(answer, Answer::Lost)).map(|(at, _)| at)
    }

    /// What it reads and writes on the root: as it tried, or as it said at once.
    fn step(&self) -> Option<&Step> {
        let Call::Root(said) = self.call else { return None };
        Some(self.tried.unwrap_or(said))
    }

    /// The lease that it was to end.
    fn settle(&self) -> Option<&Settle> {
        match self.call {
            Call::Settle(settle) => Some(settle),
            Call::Root(step) => step.settle.as_ref(),
            _ => None,
        }
    }
}

/// INV-2: each commit has a version of its own, above all that were answered before it was asked for; and who reads
/// sees what was answered before.
fn judge_versions(calls: &[Made<'_>], wrong: &mut Vec<String>) {
    let mut events: Vec<(usize, usize, bool)> = Vec::new();
    for (at, made) in calls.iter().enumerate() {
        if let Some((answered, _)) = made.answered {
            events.extend([(made.called, at, false), (answered, at, true)]);
        }
    }
    events.sort_unstable();
    let (mut newest, mut newest_at_call) = (0, HashMap::new());
    let mut commits = BTreeSet::new();
    for (_, at, is_answer) in events {
        let made = &calls[at];
        if !is_answer {
            newest_at_call.insert(at, newest);
            continue;
        }
        let floor = newest_at_call[&at];
        if let (Some(read), Effect::Before(_)) = (made.step().and_then(|step| step.version), made.effect()) {
            if read < floor {
                wrong.push(format!("versions: version {read} was read after {floor} was answered: {:?}", made.tried));
            }
            newest = newest.max(read);
        }
        let committed: Vec<u64> = match made.answered {
            Some((_, Answer::Done(Some(version)))) => vec![*version],
            Some((_, Answer::Claimed(leases))) => leases.iter().map(|lease| lease.token).take(1).collect(),
            Some((_, Answer::Enqueued(ids))) => ids.iter().take(1).map(|id| version_of(id)).collect(),
            _ => Vec::new(),
        };
        for version in committed {
            if version <= floor {
                wrong.push(format!("versions: {version} was committed after {floor} was answered: {:?}", made.call));
            }
            if !commits.insert(version) {
                wrong.push(format!("versions: {version} was given to two commits, one of them {:?}", made.call));
            }
            newest = newest.max(version);
        }
    }
}

/// A peek may be a moment old, but none goes back behind the one before, and none shows what was not asked for yet.
fn judge_peeks(calls: &[Made<'_>], wrong: &mut Vec<String>) -> usize {
    let (mut last, mut peeks) = (Peeked::default(), 0);
    let called_before = |at: usize| calls.iter().take_while(move |made| made.called < at);
    for made in calls {
        let Some((at, Answer::Peeked(seen))) = made.answered else { continue };
        peeks += 1;
        if seen.version < last.version || seen.jobs < last.jobs || seen.completed < last.completed {
            wrong.push(format!("peeks: {seen:?} was seen after {last:?}"));
        }
        let asked: usize = called_before(at)
            .map(|made| if let Call::Enqueue(payloads) = made.call { payloads.len() } else { 0 })
            .sum();
        let completions = called_before(at).filter_map(Made::settle).filter(|settle| settle.completes).count();
        if seen.jobs > asked as u64 || seen.completed > completions as u64 {
            wrong.push(format!("peeks: {seen:?} was seen when {asked} jobs were enqueued, {completions} completed"));
        }
        last = *seen;
    }
    peeks
}

fn version_of(id: &str) -> u64 {
    id.split('-').next().expect("there is a first part").parse().unwrap()
}

/// From when on what a process holds may be taken from it, by process; a list of (when, until when it may claim anew).
struct Interruptions(HashMap<u32, Vec<(usize, usize)>>);

impl Interruptions {
    fn of(lines: &[Line]) -> Self {
        let mut all: HashMap<u32, Vec<(usize, usize)>> = HashMap::new();
        for (at, line) in lines.iter().enumerate() {
            match line.what {
                What::Interrupted => all.entry(line.process).or_default().push((at, usize::MAX)),
                What::GoesOn => all.get_mut(&line.process).unwrap().last_mut().unwrap().1 = at,
                _ => {}
            }
        }
        Self(all)
    }

    /// Since when a lease may be taken back that was asked for then: from the first interruption that found it there.
    fn since(&self, process: u32, called: usize) -> Option<usize> {
        self.0.get(&process)?.iter().find(|(_, until)| called < *until).map(|(from, _)| (*from).max(called))
    }
}

/// What was done to the root. What was never answered, and whose values somebody saw, was done by then; whose values
/// nobody saw need not have been.
fn root_operations(calls: &[Made<'_>]) -> Vec<Operation<Step>> {
    let steps: Vec<(usize, &Made<'_>, Option<usize>, Step)> = calls
        .iter()
        .enumerate()
        .filter_map(|(at, made)| {
            let step = made.step()?;
            // Of what has not come to its commit nothing was done.
            let is_complete = made.tried.is_some() || !step.writes.is_empty() || step.add != 0;
            let End(effect) = made.effect().operation().filter(|_| is_complete)?;
            let bare = Step { guard: None, settle: None, version: None, ..step.clone() };
            Some((at, made, effect, bare))
        })
        .collect();
    let mut writer: HashMap<u64, usize> = HashMap::new();
    for (at, (.., step)) in steps.iter().enumerate() {
        writer.extend(step.writes.iter().filter_map(|(_, value)| Some(((*value)?, at))));
    }
    let mut ends: Vec<Option<usize>> = steps.iter().map(|(_, _, effect, _)| *effect).collect();
    let mut pending: Vec<usize> = (0..steps.len()).filter(|at| ends[*at].is_some()).collect();
    while let Some(at) = pending.pop() {
        for value in steps[at].3.reads.iter().filter_map(|(_, value)| *value) {
            let Some(seen) = writer.get(&value).copied().filter(|seen| steps[*seen].2.is_none()) else { continue };
            if ends[seen].is_none_or(|end| Some(end) > ends[at]) {
                ends[seen] = ends[at];
                pending.push(seen);
            }
        }
    }
    let mut operations = Vec::new();
    for ((_, made, _, step), end) in steps.into_iter().zip(ends) {
        let is_told_by_values = step.writes.iter().any(|(_, value)| value.is_some());
        if end.is_some() || !is_told_by_values {
            operations.push(Operation { called: made.called, answered: end, act: step });
        }
    }
    operations
        .retain(|operation| operation.answered.is_some() || operation.act.add != 0 || !operation.act.writes.is_empty());
    operations
}

type Jobs = BTreeMap<u64, Vec<Operation<JobAct>>>;

fn claims(job: &[Operation<JobAct>]) -> usize {
    job.iter().filter(|operation| matches!(operation.act, JobAct::Claim { .. })).count()
}

/// What was done to each job.
fn job_operations(calls: &[Made<'_>], back: &Interruptions) -> Jobs {
    let mut jobs = Jobs::new();
    let mut add = |payload: u64, called: usize, answered: Option<usize>, act: JobAct| {
        jobs.entry(payload).or_default().push(Operation { called, answered, act });
    };
    for made in calls {
        if let Some(Settle { payload, token, completes }) = made.settle() {
            if let Some(at) = made.refused() {
                add(*payload, made.called, Some(at), JobAct::Refused(*token));
            }
            let has_tried = made.tried.is_some() || matches!(made.call, Call::Settle(_));
            match made.effect() {
                Effect::Before(at) => {
                    add(*payload, made.called, Some(at), JobAct::Settle { token: *token, completes: *completes });
                }
                // Perhaps; and a lease that is not settled goes back when it is let go.
                Effect::Perhaps if has_tried => {
                    add(*payload, made.called, None, JobAct::Settle { token: *token, completes: *completes });
                    add(*payload, made.called, None, JobAct::Back(*token));
                }
                _ if made.refused().is_none() => add(*payload, made.called, None, JobAct::Back(*token)),
                _ => {}
            }
        }
        match (made.call, made.answered) {
            (Call::Enqueue(payloads), Some((at, Answer::Enqueued(ids)))) => {
                for (payload, id) in payloads.iter().zip(ids) {
                    add(*payload, made.called, Some(at), JobAct::Enqueue(Some(id.clone())));
                }
            }
            (Call::Enqueue(payloads), None | Some((_, Answer::Unknown(_) | Answer::Wrong(_)))) => {
                payloads.iter().for_each(|payload| add(*payload, made.called, None, JobAct::Enqueue(None)));
            }
            (Call::Release(payload), _) => {
                if let Some(End(answered)) = made.effect().operation() {
                    add(*payload, made.called, answered, JobAct::Released);
                }
            }
            (Call::Claim, Some((at, Answer::Claimed(leases)))) => {
                for Leased { payload, id, token } in leases {
                    add(*payload, made.called, Some(at), JobAct::Claim { id: id.clone(), token: *token });
                    if let Some(since) = back.since(made.process, made.called) {
                        add(*payload, since, None, JobAct::Back(*token));
                    }
                }
            }
            _ => {}
        }
    }
    jobs
}

/// What was done to each lock.
fn lock_operations(calls: &[Made<'_>], back: &Interruptions) -> BTreeMap<String, Vec<Operation<LockAct>>> {
    let mut locks: BTreeMap<String, Vec<Operation<LockAct>>> = BTreeMap::new();
    let mut add = |lock: &str, called: usize, answered: Option<usize>, act: LockAct| {
        locks.entry(lock.to_owned()).or_default().push(Operation { called, answered, act });
    };
    for made in calls {
        match (made.call, made.answered) {
            (Call::Lock(lock), Some((at, Answer::Locked(fence)))) => {
                add(lock, made.called, Some(at), LockAct::Lock(*fence));
                if let Some(since) = back.since(made.process, made.called) {
                    add(lock, since, None, LockAct::Back(*fence));
                }
            }
            (Call::Unlock { lock, fence }, _) => match (made.refused(), made.effect().operation()) {
                (Some(at), _) => add(lock, made.called, Some(at), LockAct::Refused(*fence)),
                (None, Some(End(answered))) => add(lock, made.called, answered, LockAct::Unlock(*fence)),
                // It is unlocked as soon as it can be.
                (None, None) => add(lock, made.called, None, LockAct::Back(*fence)),
            },
            (Call::Root(Step { guard: Some((lock, fence)), .. }), _) => {
                if let Some(at) = made.refused() {
                    add(lock, made.called, Some(at), LockAct::Refused(*fence));
                } else if let Effect::Before(at) = made.effect() {
                    add(lock, made.called, Some(at), LockAct::Within(*fence));
                }
            }
            _ => {}
        }
    }
    locks
}

fn judge_each<O: Object, K: fmt::Debug>(
    what: &str,
    initial: &O::State,
    objects: &BTreeMap<K, Vec<Operation<O::Act>>>,
    wrong: &mut Vec<String>,
) {
    for (name, operations) in objects {
        if let Err(illegal) = check::<O>(initial.clone(), operations) {
            let mut operations = operations.clone();
            operations.sort_by_key(|operation| operation.called);
            let told: Vec<String> = operations
                .iter()
                .map(|Operation { called, answered, act }| format!("  {called}..{answered:?} {act:?}"))
                .collect();
            wrong.push(format!("{what} {name:?}: {}; all of it:\n{}", illegal.told, told.join("\n")));
        }
    }
}

/// The whole queue: what was answered is completed at the end, and once; nothing else is there. Gives how many jobs
/// were there whose enqueueing was never answered.
fn account(calls: &[Made<'_>], jobs: &Jobs, is_over: bool, wrong: &mut Vec<String>) -> usize {
    let mut recovered = 0;
    let (mut lost, mut doubled, mut unexpected) = (Vec::new(), Vec::new(), Vec::new());
    for (payload, operations) in jobs {
        let is = |which: fn(&JobAct) -> bool| operations.iter().any(|operation| which(&operation.act));
        let is_answered = operations
            .iter()
            .any(|operation| operation.answered.is_some() && matches!(operation.act, JobAct::Enqueue(_)));
        let is_completed = is(|act| matches!(act, JobAct::Settle { completes: true, .. }));
        let ids: BTreeSet<&String> = operations
            .iter()
            .filter_map(|operation| match &operation.act {
                JobAct::Claim { id, .. } | JobAct::Enqueue(Some(id)) => Some(id),
                _ => None,
            })
            .collect();
        let completions = operations
            .iter()
            .filter(|one| one.answered.is_some() && matches!(one.act, JobAct::Settle { completes: true, .. }))
            .count();
        if is_over && is_answered && !is_completed {
            lost.push(*payload);
        }
        if ids.len() > 1 || completions > 1 {
            doubled.push(*payload);
        }
        if !is(|act| matches!(act, JobAct::Enqueue(_))) {
            unexpected.push(*payload);
        }
        recovered += usize::from(!is_answered && !ids.is_empty());
    }
    for (what, jobs) in [("lost", lost), ("doubled", doubled), ("unexpected", unexpected)] {
        if !jobs.is_empty() {
            wrong.push(format!("{what}: {} jobs, of {} calls: {jobs:?}", jobs.len(), calls.len()));
        }
    }
    recovered
}
