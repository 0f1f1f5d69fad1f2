//! The model: what a store is to whoever looks at it, as plain maps, and what each change makes of it. It reads the
//! same changes as `apply`, and shares no rule with it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{limits::Limits, locks::Lock, root::Object, schedules::Plan};
use crate::{
    clock::Timestamp,
    codec::Payload,
    error::ErrorKind,
    queue::{
        enqueue::{NewJob, NewUnique},
        extra::{OnFailure, UniqueScope},
        id::{JobId, SessionId, Token},
        settle::Settled,
        state::State,
    },
    store::change::{Guard, Intent, Outcome},
};

const DAY: Duration = Duration::from_hours(24);
const FAILURES_KEPT: usize = 10;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Model {
    pub(super) version: u64,
    pub(super) now: Timestamp,
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// All ids that were ever given.
    pub(super) known: Vec<JobId>,
    /// Which job's end which other waits for.
    pub(super) links: BTreeSet<(JobId, JobId)>,
    pub(super) queues: BTreeMap<String, Queue>,
    pub(super) paused_tasks: BTreeSet<String>,
    /// Who holds a unique key, of a queue or of the store (""), and until when.
    pub(super) uniques: BTreeMap<(String, String), (JobId, Option<Timestamp>)>,
    pub(super) settings: BTreeMap<String, u64>,
    pub(super) root: BTreeMap<String, Object>,
    pub(super) locks: BTreeMap<String, Lock>,
    pub(super) schedules: BTreeMap<String, Plan>,
    /// What a claimer saw of a ready job, by the key of the row in which it saw it.
    pub(super) seen: BTreeMap<Vec<u8>, Signature>,
    /// What belongs to one change only.
    pub(super) enqueued: Vec<JobId>,
    pub(super) ends: VecDeque<(JobId, State)>,
    next_index: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Queue {
    pub(super) paused: bool,
    pub(super) completed: u64,
    pub(super) hijacks: u64,
    /// The version of its head; nothing where that depends on which lanes have rows, until it is looked at again.
    pub(super) head: Option<u64>,
    pub(super) limits: Limits,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) id: JobId,
    /// As it was asked for.
    pub(super) new: NewJob,
    pub(super) state: State,
    pub(super) place: JobId,
    pub(super) priority: i64,
    pub(super) attempt: u32,
    pub(super) attempts_max: u32,
    pub(super) suspect: bool,
    pub(super) cancelling: bool,
    pub(super) enqueued_at: Timestamp,
    pub(super) run_at: Option<Timestamp>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Option<Timestamp>,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) lease: Option<(SessionId, Token)>,
    pub(super) progress: Option<(f32, String)>,
    pub(super) result: Option<Payload>,
    pub(super) failures: Vec<Failure>,
    pub(super) log: Vec<(Timestamp, u32, String)>,
    pub(super) waits: Option<Waits>,
    /// Others wait, or waited, for its end since it was enqueued or retried.
    pub(super) is_waited_for: bool,
    pub(super) unique_until: Option<Timestamp>,
    /// By strict order, those of its key behind it wait until it has run again.
    pub(super) holds_back: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub(super) attempt: u32,
    pub(super) at: Timestamp,
    /// Nothing where the store says it in its own words.
    pub(super) message: Option<String>,
}

/// What a job waits for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waits {
    pub(super) pending: u32,
    pub(super) completed: u32,
    pub(super) dead: u32,
    pub(super) cancelled: u32,
    pub(super) is_open: bool,
    pub(super) on_failure: OnFailure,
    pub(super) delay: Option<Duration>,
}

/// A ready job as a claimer saw it. Where one of these is another, its row is elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Signature {
    pub(super) job: JobId,
    pub(super) queue: String,
    priority: i64,
    suspect: bool,
    place: JobId,
}

/// What an intent is answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    Is(Outcome),
    Claimed { jobs: Vec<JobId>, hijacks: Vec<JobId>, alone: bool },
    Each(Vec<Result<Settled, ErrorKind>>),
    Swept { jobs: u64, refused: u64 },
}

impl Waits {
    pub(super) fn count(&mut self, end: State) {
        match end {
            State::Dead => self.dead += 1,
            State::Cancelled => self.cancelled += 1,
            _ => self.completed += 1,
        }
    }

    /// Whether that end of a job that it waits for is its own.
    pub(super) fn ends_with(&self, end: State) -> bool {
        end != State::Completed && self.on_failure == OnFailure::Cancel
    }

    pub(super) fn is_over(&self) -> bool {
        self.pending == 0 && !self.is_open
    }
}

impl Job {
    pub(super) fn unique(&self) -> Option<&NewUnique> {
        self.new.unique()
    }

    pub(super) fn key(&self) -> Option<&str> {
        self.new.extra.as_ref()?.key.as_deref()
    }

    pub(super) fn is_once(&self) -> bool {
        self.new.extra.as_ref().is_some_and(|extra| extra.at_most_once)
    }

    pub(super) fn signature(&self) -> Signature {
        let Self { id, priority, suspect, place, .. } = *self;
        Signature { job: id, queue: self.new.queue.clone(), priority, suspect, place }
    }

    pub(super) fn fail(&mut self, at: Timestamp, message: Option<String>) {
        self.failures.push(Failure { attempt: self.attempt, at, message });
        if self.failures.len() > FAILURES_KEPT {
            self.failures.remove(0);
        }
    }

    pub(super) fn had_begun(&self) -> bool {
        self.attempt > 0 || self.started_at.is_some()
    }

    /// A run that may have begun was the last of a job that runs at most once.
    pub(super) fn may_have_begun(&mut self, now: Timestamp) {
        self.attempt = self.attempts_max;
        self.fail(now, None);
    }

    pub(super) fn settled(&self) -> Settled {
        Settled { job: self.id, state: self.state, attempt: self.attempt, run_at: self.run_at }
    }
}

impl Model {
    pub(super) fn new(now: Timestamp, queues: &[&str]) -> Self {
        let queue = Queue { paused: false, completed: 0, hijacks: 0, head: Some(0), limits: Limits::default() };
        Self {
            version: 0,
            now,
            jobs: BTreeMap::new(),
            known: Vec::new(),
            links: BTreeSet::new(),
            queues: queues.iter().map(|name| ((*name).to_owned(), queue.clone())).collect(),
            paused_tasks: BTreeSet::new(),
            uniques: BTreeMap::new(),
            settings: BTreeMap::new(),
            root: BTreeMap::new(),
            locks: BTreeMap::new(),
            schedules: BTreeMap::new(),
            seen: BTreeMap::new(),
            enqueued: Vec::new(),
            ends: VecDeque::new(),
            next_index: 0,
        }
    }

    /// The time is another.
    pub(super) fn set_now(&mut self, now: Timestamp) {
        self.now = now;
        self.queues.values_mut().for_each(|queue| queue.limits.fill(now));
    }

    /// A change as a whole: all of it, or nothing.
    pub(super) fn change(&mut self, guards: &[Guard], intents: &[Intent]) -> Result<Vec<Told>, ErrorKind> {
        self.whole(|model| {
            guards.iter().try_for_each(|guard| model.check(guard))?;
            let told = intents.iter().map(|intent| model.perform(intent)).collect::<Result<_, _>>()?;
            model.end_change();
            Ok(told)
        })
    }

    pub(super) fn end_change(&mut self) {
        self.tell();
        self.enqueued.clear();
        self.next_index = 0;
    }

    /// Does something wholly or not at all.
    pub(super) fn whole<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, ErrorKind>) -> Result<T, ErrorKind> {
        let before = self.clone();
        let done = work(self);
        if done.is_err() {
            *self = before;
        }
        done
    }

    fn perform(&mut self, intent: &Intent) -> Result<Told, ErrorKind> {
        match intent {
            Intent::Put { .. } | Intent::Remove { .. } | Intent::Add { .. } => self.write(intent),
            Intent::Enqueue(new) => self.enqueue(new).map(Told::Is),
            Intent::Claim(claim) => {
                self.tell();
                self.claim(claim)
            }
            Intent::Settle(settle) => self.settle(settle).map(|settled| Told::Is(Outcome::Settled(settled))),
            Intent::SettleEach(all) => Ok(Told::Each(all.iter().map(|settle| self.settle(settle)).collect())),
            Intent::Extend { .. } | Intent::Progress { .. } | Intent::Log { .. } => self.tell_of_run(intent),
            Intent::Promote { limit } => Ok(self.promote(*limit)),
            Intent::Reclaim(reclaim) => Ok(self.reclaim(reclaim)),
            Intent::Administer(admin) => self.administer(admin),
            Intent::Schedule { name, act } => self.schedule(name, act),
            Intent::Lock(_) | Intent::Unlock { .. } | Intent::FreeLocks(_) => Ok(self.change_locks(intent)),
        }
    }

    pub(super) fn queue(&mut self, name: &str) -> &mut Queue {
        self.queues.get_mut(name).expect("the queues are those of the test")
    }

    pub(super) fn next_place(&mut self) -> JobId {
        self.next_index += 1;
        JobId { version: self.version + 1, index: self.next_index - 1 }
    }

    pub(super) fn find(&self, id: JobId) -> Result<Job, ErrorKind> {
        self.jobs.get(&id).cloned().ok_or(ErrorKind::NotFound)
    }

    pub(super) fn held(&self, id: JobId, token: Token) -> Result<Job, ErrorKind> {
        let held = |job: &&Job| job.lease.is_some_and(|(_, current)| current == token);
        self.jobs.get(&id).filter(held).cloned().ok_or(ErrorKind::LeaseLost)
    }

    pub(super) fn count(&self, queue: &str, state: State) -> u64 {
        self.jobs.values().filter(|job| job.new.queue == queue && job.state == state).count() as u64
    }

    /// A job is in another state.
    pub(super) fn enter(&mut self, mut job: Job, state: State) {
        job.state = state;
        job.holds_back &= state == State::Scheduled;
        if state != State::Running {
            job.lease = None;
        }
        let holds = job.unique().is_some_and(|unique| unique.states.contains(state));
        if holds {
            self.take_unique(&job);
        } else {
            self.give_up_unique(&job);
        }
        self.jobs.insert(job.id, job);
    }

    /// Back where it was in its queue.
    pub(super) fn put_back(&mut self, mut job: Job) {
        job.progress = None;
        self.enter(job, State::Ready);
    }

    /// Later again, after a run.
    pub(super) fn put_later(&mut self, mut job: Job, delay: Duration) {
        job.progress = None;
        job.run_at = Some(self.now.after(delay));
        let state = if delay.is_zero() { State::Ready } else { State::Scheduled };
        job.holds_back = self.queue(&job.new.queue).limits.is_strict;
        self.enter(job, state);
    }

    pub(super) fn complete(&mut self, mut job: Job) {
        let queue = self.queue(&job.new.queue);
        queue.completed += 1;
        let keeps = queue.limits.keeps_completed || job.new.keep || job.result.is_some();
        self.note_end(&mut job, State::Completed);
        let holds_unique = job.unique().is_some_and(|unique| unique.states.contains(State::Completed));
        let until = job.unique_until;
        if keeps || (holds_unique && until.is_none()) {
            self.end(job, State::Completed, None);
        } else if holds_unique && until.is_some_and(|until| until > self.now) {
            self.end(job, State::Completed, Some(Duration::ZERO));
        } else {
            self.forget(job.id);
        }
    }

    pub(super) fn end_badly(&mut self, mut job: Job, state: State) {
        self.note_end(&mut job, state);
        self.end(job, state, None);
    }

    fn end(&mut self, mut job: Job, state: State, retention: Option<Duration>) {
        let setting = match state {
            State::Completed => "retention-completed",
            State::Dead => "retention-dead",
            _ => "retention-cancelled",
        };
        let default = if state == State::Completed { DAY } else { 30 * DAY };
        let of_store = self.settings.get(setting).map_or(default, |value| Duration::from_millis(*value));
        let of_queue = self.queue(&job.new.queue).limits.retention(state);
        let expires_at = self.now.after(retention.or(of_queue).unwrap_or(of_store));
        let unique_keeps = job.unique().is_some_and(|unique| unique.states.contains(state));
        let until = job.unique_until.filter(|_| unique_keeps);
        job.expires_at = Some(until.map_or(expires_at, |until| until.max(expires_at)));
        job.finished_at = Some(self.now);
        (job.suspect, job.cancelling) = (false, false);
        self.enter(job, state);
    }

    /// Nothing is left of a job.
    pub(super) fn forget(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            self.give_up_unique(&job);
        }
    }

    fn note_end(&mut self, job: &mut Job, state: State) {
        if std::mem::take(&mut job.is_waited_for) {
            self.ends.push_back((job.id, state));
        }
    }

    pub(super) fn unique_row(queue: &str, unique: &NewUnique) -> (String, String) {
        let queue = if unique.scope == UniqueScope::Store { "" } else { queue };
        (queue.to_owned(), unique.key.clone())
    }

    pub(super) fn holder(&self, queue: &str, unique: &NewUnique) -> Option<JobId> {
        let holder = self.uniques.get(&Self::unique_row(queue, unique));
        holder.filter(|(_, until)| until.is_none_or(|until| until > self.now)).map(|(job, _)| *job)
    }

    /// A job has its unique key where nobody else does.
    pub(super) fn take_unique(&mut self, job: &Job) {
        let Some(unique) = job.unique() else { return };
        let is_over = job.unique_until.is_some_and(|until| until <= self.now);
        if self.holder(&job.new.queue, unique).is_none() && !is_over {
            self.uniques.insert(Self::unique_row(&job.new.queue, unique), (job.id, job.unique_until));
        }
    }

    fn give_up_unique(&mut self, job: &Job) {
        let Some(unique) = job.unique() else { return };
        let row = Self::unique_row(&job.new.queue, unique);
        if self.uniques.get(&row).is_some_and(|(holder, _)| *holder == job.id) {
            self.uniques.remove(&row);
        }
    }
}
