//! Whether a store shows all that its model has, and nothing else.

use std::{collections::HashSet, time::Duration};

use super::{
    meant::PREFIX,
    model::{Job, Model},
    verbs::{QUEUES, SETTINGS, TASKS},
};
use crate::{
    check::check_rows,
    error::ErrorKind,
    queue::{
        Awaited, JobError, JobFilter, JobInfo, JobStatus, LogLine, Watch,
        id::JobId,
        moves::find,
        record::HeadRecord,
        select::{Tasks, Wanted},
        state::State,
    },
    store::{Store, keys, snapshot::Snapshot, view::get_record},
};

/// What is said of a job, from what the model has of it.
fn info(job: &Job, found: &JobInfo) -> JobInfo {
    let failure = |(index, failure): (usize, &super::model::Failure)| JobError {
        attempt: failure.attempt,
        at: failure.at,
        session: "model".into(),
        message: failure
            .message
            .clone()
            .unwrap_or_else(|| found.errors.get(index).map_or_else(String::new, |error| error.message.clone())),
    };
    JobInfo {
        id: job.id,
        task: job.new.task.clone(),
        queue: job.new.queue.clone(),
        state: job.state,
        priority: i8::try_from(job.priority).unwrap(),
        attempt: job.attempt,
        max_attempts: job.attempts_max,
        args: job.new.args.clone(),
        args_version: job.new.args_version,
        metadata: job.new.metadata.clone(),
        unique: job.unique().map(|unique| unique.key.clone()),
        concurrency_key: job.key().map(str::to_owned),
        timeout: job.new.extra.as_ref().and_then(|extra| extra.timeout),
        enqueued_at: job.enqueued_at,
        run_at: job.run_at,
        started_at: job.started_at,
        finished_at: job.finished_at,
        awaited: job.waits.as_ref().map(|waits| Awaited {
            pending: waits.pending,
            completed: waits.completed,
            dead: waits.dead,
            cancelled: waits.cancelled,
            is_open: waits.is_open,
        }),
        at_most_once: job.is_once(),
        held_by: job.lease.map(|(session, token)| (session, "model".into(), token)),
        suspect: job.suspect,
        cancelling: job.cancelling,
        progress: job.progress.clone(),
        result: job.result.clone(),
        errors: job.failures.iter().enumerate().map(failure).collect(),
    }
}

fn jobs(found: Vec<JobInfo>, model: &Model) {
    let ids = |found: &[JobInfo]| found.iter().map(|job| job.id).collect::<Vec<_>>();
    let mut found = found;
    found.sort_by_key(|job| job.id);
    let expected: Vec<JobId> = model.jobs.keys().copied().collect();
    assert_eq!(ids(&found), expected, "INV-1: the jobs that there are");
    for (found, job) in found.iter().zip(model.jobs.values()) {
        assert_eq!(*found, info(job, found));
    }
}

/// All that a store shows.
pub(super) fn store(store: &Store, model: &Model, watched: &mut [Watched]) {
    assert_eq!(store.version().unwrap().0, model.version, "INV-2");
    jobs(store.jobs(&JobFilter::new(), usize::MAX).unwrap(), model);
    let rows = store.inner.rows().unwrap();
    for id in &model.known {
        let found = find(rows.as_ref(), *id).unwrap();
        let expected = model.jobs.get(id);
        let place = found.as_ref().map(|(home, record)| (record.state_in(*home), record.place, record.expires_at));
        assert_eq!(place, expected.map(|job| (job.state, job.place, job.expires_at)), "job {id}");
        let Some(job) = expected else {
            assert_eq!(store.job(*id).unwrap_err().kind(), ErrorKind::NotFound, "job {id}");
            continue;
        };
        let line = |(number, (at, attempt, text)): (usize, &(_, u32, String))| LogLine {
            number: u32::try_from(number).unwrap(),
            at: *at,
            attempt: *attempt,
            text: text.clone(),
        };
        if !job.log.is_empty() {
            assert_eq!(store.log(*id, 0).unwrap(), job.log.iter().enumerate().map(line).collect::<Vec<_>>());
        }
    }
    for name in QUEUES {
        queue(store, model, name);
        let head: HeadRecord = get_record(rows.as_ref(), &keys::head(name)).unwrap().unwrap_or_default();
        if let Some(expected) = model.queues[name].head {
            assert_eq!(head.version.0, expected, "the head of queue {name}");
        }
    }
    root(store, model);
    let paused: Vec<String> = model.paused_tasks.iter().cloned().collect();
    assert_eq!(store.paused_tasks().unwrap(), paused);
    for name in SETTINGS {
        if let Some(value) = model.settings.get(name) {
            assert_eq!(store.setting(name).unwrap(), *value);
        }
    }
    locks_and_schedules(store, model);
    watched.iter_mut().for_each(|watched| watched.check(store, model));
    assert_eq!(check_rows(rows.as_ref()).unwrap(), []);
}

fn queue(store: &Store, model: &Model, name: &str) {
    let queue = &model.queues[name];
    let stats = store.queue(name).stats().unwrap();
    let told =
        [stats.waiting, stats.scheduled, stats.ready, stats.running, stats.completed, stats.dead, stats.cancelled];
    let counts = |state| if state == State::Completed { queue.completed } else { model.count(name, state) };
    assert_eq!(told, State::ALL.map(counts), "INV-9: queue {name}");
    assert_eq!(stats.kept, model.count(name, State::Completed), "INV-9: queue {name}");
    assert_eq!((stats.paused, stats.hijacks), (queue.paused, queue.hijacks), "queue {name}");
    assert_eq!(stats.config, queue.limits.config(), "queue {name}");
    for (tasks, idle) in [(Tasks::Any, true), (Tasks::Named(HashSet::from([TASKS[0].to_owned()]).into()), false)] {
        let wanted = Wanted { tasks, jobs_max: 1_000, idle };
        let (candidates, _) = store.peek(&[name.to_owned()], &wanted).unwrap();
        let next: Vec<JobId> = candidates.iter().map(|candidate| candidate.job).collect();
        assert_eq!(next, model.peek(name, &wanted), "INV-6: what is next in queue {name}");
    }
}

fn root(store: &Store, model: &Model) {
    let found = store.list::<i64>("").unwrap();
    let found: Vec<_> = found.into_iter().map(|object| (object.key, object.version.0, object.value)).collect();
    assert_eq!(found, objects(model, ""));
}

fn objects(model: &Model, prefix: &str) -> Vec<(String, u64, i64)> {
    let in_range = model.root.iter().filter(|(key, _)| key.starts_with(prefix));
    in_range.map(|(key, object)| (key.clone(), object.version, object.value.decode().unwrap())).collect()
}

fn locks_and_schedules(store: &Store, model: &Model) {
    let locks = store.locks().unwrap();
    let found: Vec<_> = locks
        .iter()
        .map(|lock| (lock.name.as_str(), lock.session, lock.fence.number(), lock.since, lock.waiting))
        .collect();
    let expected: Vec<_> = model
        .locks
        .iter()
        .map(|(name, lock)| (name.as_str(), lock.line[0].session, lock.fence, lock.since, lock.line.len() - 1))
        .collect();
    assert_eq!(found, expected, "the locks");
    let schedules = store.schedules().unwrap();
    assert_eq!(schedules.len(), model.schedules.len());
    for (found, (name, plan)) in schedules.iter().zip(&model.schedules) {
        assert_eq!(found.name, *name);
        assert_eq!((found.every, found.catch_up, found.paused), (Some(plan.every), plan.catch_up, plan.paused));
        assert_eq!((found.last, found.last_job, found.next), (plan.last, plan.last_job, Some(plan.next)), "{name}");
        assert_eq!((&found.queue, &found.task, &found.args), (&plan.job.queue, &plan.job.task, &plan.job.args));
    }
}

/// A snapshot shows what was so when it was taken, whatever has come since.
pub(super) fn snapshot(snapshot: &Snapshot, model: &Model) {
    assert_eq!(snapshot.version().0, model.version, "INV-8");
    for id in &model.known {
        let found = snapshot.job(*id);
        let Some(job) = model.jobs.get(id) else {
            assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound, "INV-8: job {id}");
            continue;
        };
        let found = found.unwrap();
        assert_eq!(found, info(job, &found), "INV-8");
    }
    let found = snapshot.list::<i64>(PREFIX).unwrap();
    let found: Vec<_> = found.into_iter().map(|object| (object.key, object.version.0, object.value)).collect();
    assert_eq!(found, objects(model, PREFIX), "INV-8");
}

/// A job that somebody follows.
pub(super) struct Watched {
    id: JobId,
    watch: Watch,
    told: Option<JobStatus>,
}

impl Watched {
    pub(super) fn new(store: &Store, id: JobId) -> Self {
        Self { id, watch: store.watch(id), told: None }
    }

    /// That its status is told where it is another, and that it ends with the job.
    fn check(&mut self, store: &Store, model: &Model) {
        let told = self.watch.next_within(Duration::ZERO);
        if self.told.as_ref().is_some_and(JobStatus::is_ended) {
            return assert_eq!(told.unwrap(), None, "job {} has ended", self.id);
        }
        let status = store.status(self.id).unwrap();
        match told {
            Ok(told) => {
                assert_ne!(told, self.told, "job {}: nothing is new", self.id);
                self.told = told;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "job {}", self.id),
        }
        assert_eq!(self.told.as_ref(), Some(&status), "job {}", self.id);
        let job = model.jobs.get(&self.id);
        let shown = (status.state, status.attempt, status.fraction, status.log_lines as usize);
        let fraction = |job: &Job| job.progress.as_ref().map(|(fraction, _)| *fraction);
        let expected =
            job.map_or((None, 0, None, 0), |job| (Some(job.state), job.attempt, fraction(job), job.log.len()));
        assert_eq!(shown, expected, "job {}", self.id);
    }
}
