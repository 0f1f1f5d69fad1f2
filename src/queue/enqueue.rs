//! Enqueue. Reads: the lane row, the unique key's row where there is a key, the task's number. Writes: the job's row,
//! and an index entry where it is scheduled or unique.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    codec::Payload,
    error::{Error, Result},
    queue::{
        extra::{Extra, OnFailure, StateSet, UniqueRecord, UniqueScope},
        id::{ID_BYTES, JobId},
        lane::check_priority,
        record::JobRecord,
    },
    store::{
        apply::Context,
        change::{BATCH_JOBS_MAX, Outcome},
    },
};

/// The longest name of a queue or a task, and the longest unique key, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// How many metadata pairs a job may have.
pub(crate) const METADATA_PAIRS_MAX: usize = 32;
/// The most bytes of metadata that a job may have.
pub(crate) const METADATA_BYTES_MAX: usize = 4 << 10;
/// How many jobs one job may wait for, or have wait for it, as it is enqueued.
pub(crate) const LINKS_MAX: usize = BATCH_JOBS_MAX;
/// How often a job is tried where nothing else is said.
pub const ATTEMPTS_DEFAULT: u32 = 20;

/// A job to enqueue, as it travels in a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NewJob {
    pub(crate) queue: String,
    pub(crate) task: String,
    pub(crate) args: Payload,
    pub(crate) args_version: u32,
    pub(crate) priority: i64,
    pub(crate) when: When,
    pub(crate) attempts_max: u32,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) keep: bool,
    pub(crate) extra: Option<Box<NewExtra>>,
}

/// What most jobs don't ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewExtra {
    pub(crate) unique: Option<NewUnique>,
    pub(crate) key: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) at_most_once: bool,
    /// It waits for the end of these.
    pub(crate) after: Vec<Dependency>,
    pub(crate) on_failure: OnFailure,
    /// Jobs that wait for the end of this one too.
    pub(crate) before: Vec<Dependency>,
    /// It waits until it is told that no more comes before it.
    pub(crate) is_open: bool,
    /// It can be found by its change and its index there.
    pub(crate) is_referenced: bool,
}

/// A job that another waits for, or that waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Dependency {
    Job(JobId),
    /// The how-manieth of those that this change enqueues, from 0.
    Enqueued(u32),
}

/// A unique key to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewUnique {
    pub(crate) key: String,
    pub(crate) scope: UniqueScope,
    pub(crate) states: StateSet,
    /// How long it is held at most, from the enqueueing on.
    pub(crate) within: Option<Duration>,
}

/// When a job may first run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum When {
    #[default]
    Now,
    After(Duration),
    At(Timestamp),
}

impl NewJob {
    pub(crate) fn unique(&self) -> Option<&NewUnique> {
        self.extra.as_ref()?.unique.as_ref()
    }

    /// About how many bytes it adds to a change: what that admits.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.args.as_bytes().len() + metadata_bytes(&self.metadata) + self.links() * ID_BYTES
    }

    /// How many jobs it waits for, or has wait for it.
    fn links(&self) -> usize {
        self.extra.as_ref().map_or(0, |extra| extra.after.len() + extra.before.len())
    }

    fn is_at_most_once(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.at_most_once)
    }

    /// Checks all that can be told without the store; gives the priority.
    ///
    /// # Errors
    /// `Invalid`, naming what is wrong.
    pub(crate) fn check(&self) -> Result<i8> {
        check_name("queue", &self.queue)?;
        check_name("task", &self.task)?;
        if let Some(unique) = self.unique() {
            check_name("unique key", &unique.key)?;
            if unique.states.is_empty() {
                return Err(Error::invalid("a unique key that is held in no state keeps nothing apart; name a state"));
            }
            if unique.within.is_some_and(|within| within.is_zero()) {
                return Err(Error::invalid("a unique key that is held for no time keeps nothing apart; give it some"));
            }
        }
        if let Some(key) = self.extra.as_ref().and_then(|extra| extra.key.as_deref()) {
            check_name("concurrency key", key)?;
        }
        if self.attempts_max == 0 {
            return Err(Error::invalid("a job needs at least one attempt; max attempts is 0"));
        }
        let links = self.links();
        if links > LINKS_MAX {
            return Err(Error::invalid(format!(
                "the job has to do with {links} others; {LINKS_MAX} are the most; let it wait for one that ends a batch"
            )));
        }
        if self.extra.as_ref().and_then(|extra| extra.timeout).is_some_and(|timeout| timeout.is_zero()) {
            return Err(Error::invalid("a timeout of 0 lets no attempt run; leave it out, or give it some time"));
        }
        check_metadata(&self.metadata)?;
        check_priority(self.priority)
    }
}

pub(crate) fn enqueue(context: &mut Context<'_>, job: &NewJob) -> Result<Outcome> {
    let priority = job.check()?;
    context.admit_bytes(metadata_bytes(&job.metadata) + job.links() * ID_BYTES)?;
    context.admit_payload(&format!("the arguments of \"{}\"", job.task), job.args.as_bytes().len())?;
    if let Some(unique) = job.unique()
        && let Some(existing) = context.holder_of_unique(&job.queue, unique)?
    {
        if let Some(extra) = &job.extra {
            if !extra.before.is_empty() {
                context.join_existing(existing, &extra.before)?;
            }
            if extra.is_referenced {
                context.add_ref(existing)?;
            }
        }
        context.enqueued.push(existing);
        return Ok(Outcome::Enqueued { job: existing, existing: true });
    }

    context.check_size(&job.queue)?;
    if context.next_index as usize >= BATCH_JOBS_MAX {
        return Err(Error::invalid(format!(
            "the change enqueues more than {BATCH_JOBS_MAX} jobs; split it into smaller ones"
        )));
    }
    let id = context.next_place();
    let run_at = match job.when {
        When::Now => None,
        When::After(delay) => Some(context.now.after(delay)),
        When::At(at) => Some(at),
    };
    let record = JobRecord {
        id,
        change: context.change.id,
        queue: job.queue.clone(),
        task: context.task_number(&job.task)?,
        priority,
        place: id,
        args: job.args.clone(),
        args_version: job.args_version,
        metadata: job.metadata.clone(),
        attempt: 0,
        attempts_max: if job.is_at_most_once() { 1 } else { job.attempts_max },
        suspect: false,
        cancelling: false,
        keep: job.keep,
        enqueued_at: context.now,
        run_at,
        started_at: None,
        finished_at: None,
        expires_at: None,
        lease: None,
        progress: None,
        result: None,
        errors: Vec::new(),
        finish: None,
        extra: job.extra.as_ref().map(|extra| Box::new(extra_of(extra, context))),
    };
    for reference in record.extra.iter().flat_map(|extra| &extra.refs) {
        context.put_ref(*reference, id);
    }
    match &job.extra {
        Some(extra) if extra.is_linked() => context.put_linked(record, extra, job.when)?,
        _ => {
            let home = context.home_at(run_at);
            context.put_in(&record, home)?;
        }
    }
    context.enqueued.push(id);
    Ok(Outcome::Enqueued { job: id, existing: false })
}

fn extra_of(new: &NewExtra, context: &Context<'_>) -> Extra {
    let unique = new.unique.as_ref().map(|unique| UniqueRecord::of(unique, context.now));
    let refs = if new.is_referenced { vec![context.next_ref()] } else { Vec::new() };
    Extra {
        unique,
        key: new.key.clone(),
        timeout: new.timeout,
        at_most_once: new.at_most_once,
        refs,
        ..Extra::default()
    }
}

/// # Errors
/// `Invalid` for a name that is empty, too long, or has control characters.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid(format!("the {what} name is empty; give it at least one character")));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the {what} name has {} bytes; at most {NAME_BYTES_MAX} are allowed",
            name.len()
        )));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid(format!("the {what} name {name:?} has a control character; use printable ones")));
    }
    Ok(())
}

/// How many bytes the metadata takes.
fn metadata_bytes(metadata: &[(String, String)]) -> usize {
    metadata.iter().map(|(key, value)| key.len() + value.len()).sum()
}

fn check_metadata(metadata: &[(String, String)]) -> Result<()> {
    let bytes = metadata_bytes(metadata);
    if metadata.len() > METADATA_PAIRS_MAX || bytes > METADATA_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the metadata has {} pairs and {bytes} bytes; {METADATA_PAIRS_MAX} and {METADATA_BYTES_MAX} are the most",
            metadata.len()
        )));
    }
    Ok(())
}
