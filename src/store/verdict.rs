//! A2: what a stone keeps of its answers, so that a client whose connection broke can ask again. One row per client,
//! written in the group whose answers it keeps, and replaced by the next.
//!
//! A client says with each change which answers it still awaits; what it no longer awaits is dropped. What was refused
//! or a conflict is not kept: it changed nothing, and may be decided anew.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    codec::{self, Record},
    engine::Rows,
    error::Result,
    queue::{
        claim::{Claimed, ClaimedJob},
        id::{JobId, Token},
        moves::task_name,
        record::JobRecord,
    },
    store::{
        change::{Applied, Change, ChangeId, Outcome},
        conflict::Version,
        keys::{self, ById},
        view::get_record,
    },
};

/// What a client says of its answers when it sends a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The lowest number of a change that it awaits the answer of, besides `parked`.
    pub(crate) awaited: u64,
    /// Claims that it left waiting, which may be older.
    pub(crate) parked: Vec<u64>,
    /// It was sent before, and no answer came.
    pub(crate) resent: bool,
}

impl Asked {
    /// Of a change that goes to whoever commits next, after whoever it was sent to has not answered: nobody else's
    /// answers may be dropped.
    pub(crate) fn again() -> Self {
        Self { awaited: 0, parked: Vec::new(), resent: true }
    }
}

/// The answers that one client may still ask for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClientRecord {
    pub(crate) verdicts: Vec<Verdict>,
}

impl Record for ClientRecord {
    const NAME: &'static str = "client record";
}

/// How many clients' answers are kept; a horizon tells of those that were dropped.
pub(crate) const CLIENTS_MAX: usize = 10_000;

/// The version below which clients may have been dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HorizonRecord {
    pub(crate) born: Version,
}

impl Record for HorizonRecord {
    const NAME: &'static str = "horizon of clients";
}

/// One committed change's answer, as short as it can be kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    number: u64,
    version: Version,
    stamp: Timestamp,
    outcomes: Vec<Kept>,
}

/// An outcome as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kept {
    /// So many jobs in a row, whose ids are the change's version and the next indices.
    Enqueued {
        first: u32,
        count: u32,
    },
    /// The jobs of a claim; their rows are found by its token as long as they are held.
    Claimed {
        jobs: Vec<JobId>,
        claimed: Claimed,
    },
    Other(Outcome),
}

/// What is known of a change that was sent again.
#[derive(Debug)]
pub(crate) enum Recalled {
    /// It was committed, and this is its answer.
    Applied(Applied),
    /// It was not, and no other stone or process can commit it any more: it can be decided now.
    Never,
    /// The client was dropped.
    Unknown,
}

/// What became of a change that is sent again.
pub(crate) fn recall(rows: &dyn Rows, change: &Change) -> Result<Recalled> {
    let client = change.id.client;
    let Some(record) = get_record::<ClientRecord>(rows, &keys::client(client))? else {
        let horizon: HorizonRecord = get_record(rows, keys::CLIENT_HORIZON)?.unwrap_or_default();
        return Ok(if client.born < horizon.born { Recalled::Unknown } else { Recalled::Never });
    };
    match record.verdicts.iter().find(|verdict| verdict.number == change.id.number) {
        Some(verdict) => verdict.recall(rows).map(Recalled::Applied),
        None => Ok(Recalled::Never),
    }
}

/// The client's row with one more answer.
pub(crate) fn remember(
    rows: &dyn Rows,
    id: ChangeId,
    asked: &Asked,
    version: Version,
    applied: &Applied,
) -> Result<(Vec<u8>, Vec<u8>)> {
    let key = keys::client(id.client);
    let mut record: ClientRecord = get_record(rows, &key)?.unwrap_or_default();
    record.verdicts.retain(|kept| kept.number >= asked.awaited || asked.parked.contains(&kept.number));
    record.verdicts.push(Verdict::of(id.number, version, applied));
    let bytes = codec::encode(&record)?;
    Ok((key, bytes))
}

impl Verdict {
    fn of(number: u64, version: Version, applied: &Applied) -> Self {
        let mut outcomes = Vec::new();
        for outcome in &applied.outcomes {
            match outcome {
                Outcome::Enqueued { job, existing: false } if job.version == version.0 => match outcomes.last_mut() {
                    Some(Kept::Enqueued { first, count }) if *first + *count == job.index => *count += 1,
                    _ => outcomes.push(Kept::Enqueued { first: job.index, count: 1 }),
                },
                Outcome::Claimed(claimed) => outcomes.push(Kept::Claimed {
                    jobs: claimed.jobs.iter().map(|job| job.record.id).collect(),
                    claimed: Claimed { jobs: Vec::new(), ..claimed.clone() },
                }),
                other => outcomes.push(Kept::Other(other.clone())),
            }
        }
        Self { number, version, stamp: applied.stamp, outcomes }
    }

    fn recall(&self, rows: &dyn Rows) -> Result<Applied> {
        let mut outcomes = Vec::new();
        for kept in &self.outcomes {
            match kept {
                Kept::Enqueued { first, count } => outcomes.extend((0..*count).map(|index| Outcome::Enqueued {
                    job: JobId { version: self.version.0, index: first + index },
                    existing: false,
                })),
                Kept::Claimed { jobs, claimed } => {
                    let token = claimed.token.unwrap_or(Token(0));
                    let mut claimed = claimed.clone();
                    claimed.jobs = still_held(rows, jobs, token)?;
                    outcomes.push(Outcome::Claimed(claimed));
                }
                Kept::Other(outcome) => outcomes.push(outcome.clone()),
            }
        }
        Ok(Applied { version: Some(self.version), stamp: self.stamp, outcomes })
    }
}

/// Those of a claim's jobs that are still held by its token, as its answer had them.
fn still_held(rows: &dyn Rows, jobs: &[JobId], token: Token) -> Result<Vec<ClaimedJob>> {
    let mut held = Vec::new();
    for job in jobs {
        let record: Option<JobRecord> = get_record(rows, &ById::Held.key(*job))?;
        if let Some(record) = record.filter(|record| record.lease.as_ref().is_some_and(|lease| lease.token == token)) {
            held.push(ClaimedJob { task: task_name(rows, record.task)?, record });
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests;
