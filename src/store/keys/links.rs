//! The families of keys that hang on jobs: what is unique, what waits for what, logs, references; and schedules.

use super::{Range, due_time, family, key, prefixed, queue_part, time_of};
use crate::{
    clock::Timestamp,
    queue::id::{ID_BYTES, JobId},
    store::change::ChangeId,
};

/// The job that holds a unique key in a queue; in the whole store where no queue is named.
pub(crate) fn unique(queue: &str, name: &str) -> Vec<u8> {
    key(family::UNIQUE, &[&queue_part(queue), name.as_bytes()])
}

/// All unique keys that are held.
pub(crate) fn uniques() -> Range {
    prefixed(vec![family::UNIQUE])
}

/// A line of a job's log.
pub(crate) fn job_log(id: JobId, line: u32) -> Vec<u8> {
    key(family::JOB_LOG, &[&id.to_bytes(), &line.to_be_bytes()])
}

/// A job's log, oldest line first.
pub(crate) fn job_logs(id: JobId) -> Range {
    prefixed(key(family::JOB_LOG, &[&id.to_bytes()]))
}

/// The logs of all jobs.
pub(crate) fn all_job_logs() -> Range {
    prefixed(vec![family::JOB_LOG])
}

/// The job and the line's number in the key of a line of its log.
pub(crate) fn log_line_of(key: &[u8]) -> Option<(JobId, u32)> {
    let (id, line) = key.get(1..)?.split_first_chunk::<ID_BYTES>()?;
    Some((JobId::from_bytes(id)?, u32::from_be_bytes(line.try_into().ok()?)))
}

/// That one job waits for the end of another.
pub(crate) fn dependent(on: JobId, waiting: JobId) -> Vec<u8> {
    key(family::DEPENDENT, &[&on.to_bytes(), &waiting.to_bytes()])
}

/// The jobs that wait for the end of one.
pub(crate) fn dependents(on: JobId) -> Range {
    prefixed(key(family::DEPENDENT, &[&on.to_bytes()]))
}

/// All that some job waits for.
pub(crate) fn all_dependents() -> Range {
    prefixed(vec![family::DEPENDENT])
}

/// The job that is waited for, in the key of a dependent.
pub(crate) fn waited_for(key: &[u8]) -> Option<JobId> {
    JobId::from_bytes(key.get(1..1 + ID_BYTES)?)
}

/// What a waiting job still waits for, in numbers.
pub(crate) fn wait(waiting: JobId) -> Vec<u8> {
    key(family::WAIT, &[&waiting.to_bytes()])
}

/// The numbers of all waiting jobs.
pub(crate) fn waits() -> Range {
    prefixed(vec![family::WAIT])
}

/// The entry of an ended job whose dependents were not all told in the change that ended it. It is of the index of
/// scheduled jobs, before all of them, so that who looks for what is due finds it.
pub(crate) fn untold(ended: JobId) -> Vec<u8> {
    due_time(Timestamp::from_millis(0), ended)
}

/// Whether an entry of that index is of an ended job.
pub(crate) fn is_untold(key: &[u8]) -> bool {
    time_of(key).is_some_and(|at| at.as_millis() == 0)
}

/// The job that a change enqueued as its how-manieth.
pub(crate) fn job_ref(change: ChangeId, index: u32) -> Vec<u8> {
    let ChangeId { client, number } = change;
    key(
        family::JOB_REF,
        &[&client.born.0.to_be_bytes(), &client.random.to_be_bytes(), &number.to_be_bytes(), &index.to_be_bytes()],
    )
}

/// All jobs that are found by the change that enqueued them.
pub(crate) fn job_refs() -> Range {
    prefixed(vec![family::JOB_REF])
}

/// A schedule.
pub(crate) fn schedule(name: &str) -> Vec<u8> {
    key(family::SCHEDULE, &[name.as_bytes()])
}

/// All schedules.
pub(crate) fn schedules() -> Range {
    prefixed(vec![family::SCHEDULE])
}

/// The entry of a schedule in the index by its next slot.
pub(crate) fn slot(at: Timestamp, name: &str) -> Vec<u8> {
    key(family::SLOT, &[&at.as_millis().to_be_bytes(), name.as_bytes()])
}

/// The schedules by their next slots, soonest first.
pub(crate) fn slots() -> Range {
    prefixed(vec![family::SLOT])
}

/// The schedule's name in the key of its slot.
pub(crate) fn slot_name(key: &[u8]) -> Option<String> {
    std::str::from_utf8(key.get(9..)?).ok().map(str::to_owned)
}
