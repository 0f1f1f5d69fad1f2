//! The verbs, and how often each is drawn. They name jobs by number, so that what is left of a sequence, when some of
//! it is taken out, still means something.

use std::time::Duration;

use proptest::prelude::*;

use crate::queue::{
    CatchUp,
    admin::Tend,
    config::{QueueSetting, RateRecord},
    state::State,
};

pub(super) const QUEUES: [&str; 2] = ["one", "two"];
pub(super) const TASKS: [&str; 2] = ["a", "b"];
pub(super) const SETTINGS: [&str; 3] = ["retention-completed", "retention-dead", "retention-cancelled"];

#[derive(Clone, Debug)]
pub(super) enum Verb {
    Change(Vec<Check>, Vec<Act>),
    /// To all jobs of a state, of one queue or both.
    Sweep {
        purges: bool,
        state: State,
        queue: Option<usize>,
    },
    /// A claimer, or a transaction, reads; what it saw is what later changes rely on.
    Look,
    Snapshot,
    Advance(u64),
    Define {
        name: usize,
        every: u64,
        new: New,
        catch_up: CatchUp,
    },
    Resume(usize),
    Fire,
    /// The store is closed and opened again, where it is in a file.
    Reopen,
    /// All its processes are killed, and others come.
    Kill,
}

/// What a change relies on, as it was at the last look, or is now.
#[derive(Clone, Debug)]
pub(super) enum Check {
    Object(usize, bool),
    Range(bool),
    Lock(usize, bool),
}

/// A job to enqueue.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(super) struct New {
    pub(super) queue: usize,
    pub(super) task: usize,
    pub(super) priority: i64,
    pub(super) when: Time,
    /// The key, and which policy.
    pub(super) unique: Option<(u8, usize)>,
    pub(super) key: Option<u8>,
    pub(super) attempts_max: u32,
    pub(super) keep: bool,
    pub(super) once: bool,
    pub(super) timeout: Option<u64>,
    pub(super) metadata: bool,
    pub(super) after: Vec<Link>,
    pub(super) runs_anyway: bool,
    pub(super) before: Option<Link>,
    pub(super) is_open: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Time {
    Now,
    /// Seconds from the commit on.
    After(u64),
    /// Seconds from now on, or before.
    At(i64),
}

/// A job that another has to do with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Link {
    Job(usize),
    InChange(u32),
    NeverThere,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    /// Whatever is next.
    Next,
    /// What was seen at the last look, or one just before; and others for what was lost, or not.
    Candidates { looks: bool, fill: bool },
    /// What was seen then, if nobody has claimed since.
    Strictly { looks: bool },
}

#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) which: usize,
    pub(super) how: How,
    pub(super) stale: bool,
    pub(super) had_begun: bool,
    pub(super) enqueues: Vec<New>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Complete { has_result: bool },
    Fail(Option<u64>),
    Snooze(u64),
    Release,
    Cancel,
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    Enqueue(New),
    Claim {
        session: usize,
        first: usize,
        both: bool,
        tasks: u8,
        jobs_max: usize,
        idle: bool,
        by: By,
        conflicts: u64,
    },
    Settle(Run),
    SettleEach(Vec<Run>),
    Extend(usize, bool),
    Progress(usize, bool, f32),
    Log(usize, bool, usize),
    Promote(usize),
    Prune(usize),
    /// The bits say which of the held jobs had begun, which of those had ended, and which have a child that works on.
    Reclaim {
        session: usize,
        begun: u8,
        ended: u8,
        busy: u8,
        power_cut: bool,
    },
    Tend(Tend, usize),
    Each(Tend, Vec<usize>),
    Release(usize, bool),
    Seal(usize),
    Reschedule(usize, Option<i64>, Option<Time>),
    Pause(usize, bool),
    PauseTask(usize, bool),
    SweepLanes,
    Configure(usize, u64),
    ConfigureQueue(usize, Vec<QueueSetting>),
    Put(usize, u32),
    Remove(usize),
    Add(usize, i64),
    Lock {
        name: usize,
        session: usize,
        nonce: u64,
        waits: bool,
    },
    Unlock {
        name: usize,
        session: usize,
        nonce: u64,
    },
    FreeLocks(usize),
    PauseSchedule(usize),
    RemoveSchedule(usize),
    RunSchedule(usize),
}

impl Act {
    /// Whether its claimer looks before.
    pub(super) fn looks(&self) -> bool {
        matches!(self, Self::Claim { by: By::Candidates { looks: true, .. } | By::Strictly { looks: true }, .. })
    }
}

const DAY: u64 = 24 * 3_600;

fn which() -> impl Strategy<Value = usize> + Clone {
    0usize..64
}

fn delay() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![2 => Just(0u64), 1 => Just(60), 1 => Just(3_600)]
}

fn time() -> impl Strategy<Value = Time> + Clone {
    prop_oneof![6 => Just(Time::Now), 4 => delay().prop_map(Time::After), 1 => (-100i64..4_000).prop_map(Time::At)]
}

fn link() -> impl Strategy<Value = Link> + Clone {
    prop_oneof![
        20 => which().prop_map(Link::Job),
        1 => (0u32..3).prop_map(Link::InChange),
        1 => Just(Link::NeverThere),
    ]
}

fn new() -> impl Strategy<Value = New> + Clone {
    let rarely = || prop::bool::weighted(0.1);
    let what = (0usize..2, 0usize..2, prop_oneof![30 => -1i64..=1, 1 => Just(101)], time());
    let keys = (
        prop::option::weighted(0.3, (0u8..2, 0usize..6)),
        prop::option::weighted(0.5, 0u8..2),
        prop::option::weighted(0.1, 1u64..100),
    );
    let how = (prop_oneof![30 => 1u32..=3, 1 => Just(0)], prop::bool::weighted(0.3), rarely(), rarely());
    let after = prop_oneof![5 => Just(0usize), 2 => Just(1), 1 => Just(2)]
        .prop_flat_map(|count| prop::collection::vec(link(), count));
    let links = (after, any::<bool>(), prop::option::weighted(0.08, link()), rarely());
    (what, keys, how, links).prop_map(|(what, keys, how, links)| New {
        queue: what.0,
        task: what.1,
        priority: what.2,
        when: what.3,
        unique: keys.0,
        key: keys.1,
        timeout: keys.2,
        attempts_max: how.0,
        keep: how.1,
        once: how.2,
        metadata: how.3,
        after: links.0,
        runs_anyway: links.1,
        before: links.2,
        is_open: links.3,
    })
}

fn run() -> impl Strategy<Value = Run> + Clone {
    let how = prop_oneof![
        4 => any::<bool>().prop_map(|has_result| How::Complete { has_result }),
        4 => prop::option::weighted(0.8, delay()).prop_map(How::Fail),
        1 => delay().prop_map(How::Snooze),
        2 => Just(How::Release),
        1 => Just(How::Cancel),
    ];
    let enqueues = prop_oneof![4 => Just(0usize), 1 => Just(1), 1 => Just(2)]
        .prop_flat_map(|count| prop::collection::vec(new(), count));
    (which(), how, prop::bool::weighted(0.1), any::<bool>(), enqueues)
        .prop_map(|(which, how, stale, had_begun, enqueues)| Run { which, how, stale, had_begun, enqueues })
}

fn claim() -> impl Strategy<Value = Act> + Clone {
    let by = prop_oneof![
        9 => Just(By::Next),
        4 => any::<(bool, bool)>().prop_map(|(looks, fill)| By::Candidates { looks, fill }),
        3 => any::<bool>().prop_map(|looks| By::Strictly { looks }),
    ];
    let conflicts = prop_oneof![9 => Just(0u64), 1 => Just(2)];
    let how = (1u8..5, 1usize..5, prop::bool::weighted(0.7), by, conflicts);
    (0usize..2, 0usize..2, any::<bool>(), how).prop_map(
        |(session, first, both, (tasks, jobs_max, idle, by, conflicts))| Act::Claim {
            session,
            first,
            both,
            tasks,
            jobs_max,
            idle,
            by,
            conflicts,
        },
    )
}

/// Any setting of a queue.
fn setting() -> impl Strategy<Value = QueueSetting> + Clone {
    let rate = (1u32..3, 1u64..4, 1u32..4).prop_map(|(jobs, times, burst)| RateRecord {
        jobs,
        period: Duration::from_secs(50 * times),
        burst,
    });
    let retention = || prop::option::of((0u64..3).prop_map(|days| Duration::from_secs(days * DAY)));
    let limit = || prop::option::of(prop_oneof![20 => 1u32..4, 1 => Just(0)]);
    prop_oneof![
        2 => limit().prop_map(QueueSetting::RunningMax),
        4 => limit().prop_map(QueueSetting::KeyRunningMax),
        6 => any::<bool>().prop_map(QueueSetting::StrictByKey),
        2 => prop::option::weighted(0.4, rate).prop_map(QueueSetting::Rate),
        2 => prop::option::weighted(0.3, 2u64..6).prop_map(QueueSetting::SizeMax),
        1 => retention().prop_map(QueueSetting::RetentionCompleted),
        1 => retention().prop_map(QueueSetting::RetentionDead),
        1 => retention().prop_map(QueueSetting::RetentionCancelled),
        1 => any::<bool>().prop_map(QueueSetting::KeepsCompleted),
    ]
}

fn tend() -> impl Strategy<Value = Tend> + Clone {
    prop_oneof![Just(Tend::Cancel), Just(Tend::Retry), Just(Tend::Requeue)]
}

fn job_act() -> impl Strategy<Value = Act> + Clone {
    let stale = || prop::bool::weighted(0.1);
    let limit = || prop_oneof![Just(1usize), Just(100)];
    let reclaim = (0usize..2, any::<u8>(), any::<u8>(), any::<u8>(), prop::bool::weighted(0.2))
        .prop_map(|(session, begun, ended, busy, power_cut)| Act::Reclaim { session, begun, ended, busy, power_cut });
    let priority = prop::option::of(prop_oneof![20 => -1i64..=1, 1 => Just(-101)]);
    prop_oneof![
        24 => new().prop_map(Act::Enqueue),
        24 => claim(),
        10 => run().prop_map(Act::Settle),
        3 => prop::collection::vec(run(), 1..4).prop_map(Act::SettleEach),
        1 => (which(), stale()).prop_map(|(which, stale)| Act::Extend(which, stale)),
        2 => (which(), stale(), prop_oneof![Just(0.5f32), Just(1.0), Just(1.5)])
            .prop_map(|(which, stale, fraction)| Act::Progress(which, stale, fraction)),
        2 => (which(), stale(), 0usize..3).prop_map(|(which, stale, lines)| Act::Log(which, stale, lines)),
        3 => limit().prop_map(Act::Promote),
        3 => limit().prop_map(Act::Prune),
        5 => reclaim,
        10 => (tend(), which()).prop_map(|(verb, which)| Act::Tend(verb, which)),
        2 => (tend(), prop::collection::vec(which(), 1..4)).prop_map(|(verb, jobs)| Act::Each(verb, jobs)),
        2 => (which(), stale()).prop_map(|(which, stale)| Act::Release(which, stale)),
        3 => which().prop_map(Act::Seal),
        5 => (which(), priority, prop::option::of(time()))
            .prop_map(|(which, priority, when)| Act::Reschedule(which, priority, when)),
    ]
}

fn other_act() -> impl Strategy<Value = Act> + Clone {
    let settings = prop::collection::vec(setting(), 1..3);
    // Mostly the same lock, so that several wait for it.
    let claimant = || (prop_oneof![4 => Just(0usize), 1 => Just(1)], 0usize..2, 0u64..3);
    let mostly_not = || prop::bool::weighted(0.3);
    prop_oneof![
        2 => (0usize..2, mostly_not()).prop_map(|(queue, paused)| Act::Pause(queue, paused)),
        2 => (0usize..2, mostly_not()).prop_map(|(task, paused)| Act::PauseTask(task, paused)),
        1 => Just(Act::SweepLanes),
        1 => (0usize..3, 0u64..3).prop_map(|(setting, days)| Act::Configure(setting, days * DAY * 1_000)),
        4 => (0usize..2, settings).prop_map(|(queue, settings)| Act::ConfigureQueue(queue, settings)),
        4 => (0usize..3, any::<u32>()).prop_map(|(key, value)| Act::Put(key, value)),
        1 => (0usize..4).prop_map(Act::Remove),
        2 => (0usize..4, -3i64..4).prop_map(|(key, delta)| Act::Add(key, delta)),
        8 => (claimant(), prop::bool::weighted(0.8))
            .prop_map(|((name, session, nonce), waits)| Act::Lock { name, session, nonce, waits }),
        4 => claimant().prop_map(|(name, session, nonce)| Act::Unlock { name, session, nonce }),
        1 => (0usize..2).prop_map(Act::FreeLocks),
        1 => (0usize..2).prop_map(Act::PauseSchedule),
        1 => (0usize..2).prop_map(Act::RemoveSchedule),
        1 => (0usize..2).prop_map(Act::RunSchedule),
    ]
}

fn sweep() -> impl Strategy<Value = Verb> + Clone {
    let queue = || prop::option::weighted(0.7, 0usize..2);
    let purged = prop::sample::select(&State::ALL[..]);
    let retried = prop::sample::select(&[State::Dead, State::Cancelled, State::Scheduled][..]);
    prop_oneof![
        (purged, queue()).prop_map(|(state, queue)| Verb::Sweep { purges: true, state, queue }),
        (retried, queue()).prop_map(|(state, queue)| Verb::Sweep { purges: false, state, queue }),
    ]
}

fn define() -> impl Strategy<Value = Verb> + Clone {
    let catch_up = prop_oneof![Just(CatchUp::Skip), Just(CatchUp::One), (1u32..4).prop_map(CatchUp::All)];
    let every = prop_oneof![Just(50u64), Just(1_800)];
    (0usize..2, every, new(), catch_up).prop_map(|(name, every, mut new, catch_up)| {
        // The job of a schedule waits for nobody, and has no time of its own.
        new.after.clear();
        (new.before, new.is_open) = (None, false);
        (new.priority, new.attempts_max) = (new.priority.clamp(-1, 1), new.attempts_max.max(1));
        new.when = if let Time::After(delay) = new.when { Time::After(delay) } else { Time::Now };
        Verb::Define { name, every, new, catch_up }
    })
}

/// Sequences of verbs.
pub(super) fn sequences(lengths: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Verb>> {
    let check = prop_oneof![
        (0usize..4, any::<bool>()).prop_map(|(key, now)| Check::Object(key, now)),
        any::<bool>().prop_map(Check::Range),
        (0usize..2, any::<bool>()).prop_map(|(name, now)| Check::Lock(name, now)),
    ];
    let checks = prop_oneof![8 => Just(0usize), 1 => Just(1), 1 => Just(2)]
        .prop_flat_map(move |count| prop::collection::vec(check.clone(), count));
    let act = prop_oneof![3 => job_act(), 1 => other_act()];
    let acts = prop_oneof![6 => Just(1usize), 1 => Just(2), 1 => Just(3)]
        .prop_flat_map(move |count| prop::collection::vec(act.clone(), count));
    let flow = prop::collection::vec(new().prop_map(Act::Enqueue), 2..4).prop_map(|acts| Verb::Change(vec![], acts));
    let seconds = prop_oneof![4 => Just(60u64), 3 => Just(3_600), 2 => Just(3 * DAY), 1 => Just(40 * DAY)];
    let verb = prop_oneof![
        60 => (checks, acts).prop_map(|(checks, acts)| Verb::Change(checks, acts)),
        4 => flow,
        2 => sweep(),
        5 => Just(Verb::Look),
        1 => Just(Verb::Snapshot),
        4 => seconds.prop_map(Verb::Advance),
        2 => define(),
        1 => (0usize..2).prop_map(Verb::Resume),
        3 => Just(Verb::Fire),
        1 => Just(Verb::Reopen),
        1 => Just(Verb::Kill),
    ];
    prop::collection::vec(verb, lengths)
}
