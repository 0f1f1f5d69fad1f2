//! Claim. Reads: the head row, the lane rows, the jobs taken. Writes: per job a remove and an insert, per queue its
//! head and its count row.
//!
//! Rebase: a candidate that another took is a hijack, and the claim takes the next jobs in the same commit. Strict: the
//! change carries a guard on the queue, so that anything else in between is a conflict.

use serde::{Deserialize, Serialize};

use crate::{
    codec,
    engine::Rows,
    error::{Error, Result},
    queue::{
        enqueue::check_name,
        id::{JobId, SessionId, Token},
        moves::{find, task, task_name},
        record::{HeadRecord, Home, JobRecord, LeaseRecord, TaskRecord},
        room::Room,
        select::{Selection, Wanted, select_within},
    },
    store::{
        apply::Context,
        change::{Candidate, Outcome},
        conflict::{Conflict, Subject, Version, Writer},
        keys::{self, ById},
        view::get_record,
    },
};

/// How many jobs one claim may take.
pub const CLAIM_JOBS_MAX: usize = 1_000;

/// A claim, as it travels in a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) session: SessionId,
    /// In order of preference.
    pub(crate) queues: Vec<String>,
    pub(crate) wanted: Wanted,
    /// Jobs that the claimer has seen and wants first.
    pub(crate) candidates: Vec<Candidate>,
    /// Whether other jobs do, where candidates are lost or few.
    pub(crate) fill: bool,
    /// C2: strict conflicts suffered since the last claim that committed.
    pub(crate) conflicts: u64,
}

impl Claim {
    /// A claim of whatever comes next in these queues.
    pub(crate) fn new(session: SessionId, queues: Vec<String>, wanted: Wanted) -> Self {
        Self { session, queues, wanted, candidates: Vec::new(), fill: true, conflicts: 0 }
    }
}

/// What a claim got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claimed {
    pub(crate) jobs: Vec<ClaimedJob>,
    pub(crate) token: Option<Token>,
    pub(crate) hijacks: Vec<Hijack>,
    /// P4: the one job is suspect; run nothing beside it.
    pub(crate) alone: bool,
    /// P4: a suspect job waits until a worker is idle.
    pub(crate) suspects_wait: bool,
}

/// A job as its claimer gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClaimedJob {
    pub(crate) task: String,
    pub(crate) record: JobRecord,
}

/// A candidate that another took first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hijack {
    /// The job.
    pub job: JobId,
    /// Who took it, where that is still known.
    pub by: Option<Writer>,
}

pub(crate) fn claim(context: &mut Context<'_>, claim: &Claim) -> Result<Outcome> {
    if claim.wanted.jobs_max == 0 || claim.wanted.jobs_max > CLAIM_JOBS_MAX {
        return Err(Error::invalid(format!(
            "a claim of {} jobs is out of range; it goes from 1 to {CLAIM_JOBS_MAX}",
            claim.wanted.jobs_max
        )));
    }
    // They end up in keys, where a queue that is not there is counted for.
    claim.queues.iter().try_for_each(|queue| check_name("queue", queue))?;
    let mut claimed = Claimed::default();
    let mut selection = Selection::default();
    for queue in &claim.queues {
        let head = context.head(queue)?;
        if head.paused {
            continue;
        }
        let taken_before = selection.jobs.len();
        let room = context.room(queue)?;
        let hijacks = take_candidates(context, claim, queue, &head, room, &mut selection)?;
        let lost = hijacks.len() as u64;
        claimed.hijacks.extend(hijacks);
        let filled_from = selection.jobs.len();
        if claim.fill {
            // What this change has freed or taken of a key so far shows in its entries.
            context.settle_keys()?;
            let left = Room { jobs: room.jobs - (filled_from - taken_before) as u64, ..room };
            select_within(&context.rows, queue, &claim.wanted, &left, &mut selection)?;
        }
        for job in &mut selection.jobs[filled_from..] {
            hold(context, claim, job)?;
        }
        let taken = selection.jobs.len() - taken_before;
        if let Some(rate) = context.config(queue)?.rate
            && taken > 0
        {
            context.take_tokens(queue, &rate, taken as u64)?;
        }
        if taken > 0 || lost > 0 {
            // C3: every claim bumps the head row.
            context.count_hijacks(queue, lost);
            context.bump_head(queue, head)?;
        }
    }
    if let Some(queue) = claim.queues.first()
        && claim.conflicts > 0
    {
        context.count_hijacks(queue, claim.conflicts);
    }
    claimed.alone = selection.alone;
    claimed.suspects_wait = selection.suspects_wait;
    for record in selection.jobs {
        let task = match claimed.jobs.last() {
            // Mostly they are alike.
            Some(last) if last.record.task == record.task => last.task.clone(),
            _ => task_name(&context.rows, record.task)?,
        };
        claimed.jobs.push(ClaimedJob { task, record });
    }
    claimed.token = (!claimed.jobs.is_empty()).then_some(Token(context.version.0));
    Ok(Outcome::Claimed(claimed))
}

/// Takes the candidates of a queue that are still there, as far as there is room; those that are not are hijacks.
fn take_candidates(
    context: &mut Context<'_>,
    claim: &Claim,
    queue: &str,
    head: &HeadRecord,
    room: Room,
    selection: &mut Selection,
) -> Result<Vec<Hijack>> {
    let mut hijacks = Vec::new();
    let mut left = room.jobs;
    let mut last_task: Option<TaskRecord> = None;
    for candidate in &claim.candidates {
        let Some(candidate_queue) = keys::ready_queue(&candidate.key) else {
            return Err(Error::invalid(format!("the candidate {} names no row of a ready job", candidate.job)));
        };
        if candidate_queue != queue || selection.alone || selection.jobs.len() >= claim.wanted.jobs_max {
            continue;
        }
        let row = context.rows.get(&candidate.key)?;
        let bytes = row.as_ref().map_or(0, Vec::len);
        // What this build can't read is somebody else's, as if another had taken it.
        match row.and_then(|row| codec::decode::<JobRecord>(&row).ok()) {
            Some(mut job) if job.id == candidate.job => {
                if last_task.as_ref().is_none_or(|last| last.number != job.task) {
                    last_task = Some(task(&context.rows, job.task)?);
                }
                // It was paused since the claimer looked: nobody has taken the job.
                let is_paused = last_task.as_ref().is_some_and(|task| task.paused);
                if is_paused || left == 0 || !context.key_lets_run(&job, room.keys)? {
                    // It is still there, or waits for others of its queue or key to end.
                    continue;
                }
                if job.suspect && !(claim.wanted.idle && selection.jobs.is_empty()) {
                    selection.suspects_wait = true;
                } else if selection.has_room(bytes) {
                    hold(context, claim, &mut job)?;
                    selection.take(job, bytes);
                    left -= 1;
                }
            }
            _ => hijacks.push(Hijack { job: candidate.job, by: winner(&context.rows, candidate.job, head)? }),
        }
    }
    Ok(hijacks)
}

/// Who took a job: its holder; where it is gone again, whoever claimed last.
fn winner(rows: &dyn Rows, job: JobId, head: &HeadRecord) -> Result<Option<Writer>> {
    let taken: Option<JobRecord> = get_record(rows, &ById::Held.key(job))?;
    Ok(match taken.and_then(|taken| taken.lease) {
        Some(lease) => Some(Writer { label: lease.label, job: None }),
        None if head.by == Writer::default() => None,
        None => Some(head.by.clone()),
    })
}

fn hold(context: &mut Context<'_>, claim: &Claim, job: &mut JobRecord) -> Result<()> {
    context.take_out(job, Home::Ready);
    job.lease = Some(LeaseRecord {
        session: claim.session,
        token: Token(context.version.0),
        label: context.change.writer.label.clone(),
    });
    context.put_in(job, Home::ById(ById::Held))
}

/// C2: the queue's head row and each shifted job's row are as the claimer saw them.
///
/// # Errors
/// `Conflict`, naming the first shifted job that is gone, both versions of the queue, and the winner.
pub(crate) fn check_queue_guard(rows: &dyn Rows, queue: &str, version: Version, shifted: &[Candidate]) -> Result<()> {
    let head: HeadRecord = get_record(rows, &keys::head(queue))?.unwrap_or_default();
    let mut lost = None;
    for candidate in shifted {
        let job = rows.get(&candidate.key)?.and_then(|row| codec::decode::<JobRecord>(&row).ok());
        if job.is_none_or(|job| job.id != candidate.job) {
            lost = Some(candidate.job);
            break;
        }
    }
    if head.version == version && lost.is_none() {
        return Ok(());
    }
    let Some(job) = lost.or(shifted.first().map(|candidate| candidate.job)) else {
        let by = Some(head.by);
        let subject = Subject::Key(format!("queue {queue}"));
        return Err(Error::of_conflict(Conflict { subject, read: Some(version), found: Some(head.version), by }));
    };
    let by = match find(rows, job)? {
        // It was cancelled or moved: nobody has claimed since, so nobody has won.
        _ if head.version == version => None,
        Some((Home::Ready, _)) => Some(head.by.clone()),
        _ => winner(rows, job, &head)?,
    };
    Err(Error::of_conflict(Conflict {
        subject: Subject::Hijack { queue: queue.to_owned(), job },
        read: Some(version),
        found: Some(head.version),
        by,
    }))
}
