//! A job's log: lines that its handler writes, each a row, until the job is gone. Only the latest are kept.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    codec::Record,
    engine::Rows,
    error::{Error, Result},
    queue::{
        id::{JobId, Token},
        record::JobRecord,
    },
    store::{
        apply::Context,
        change::Outcome,
        keys::{self, ById},
        view::{for_each, get_record},
    },
};

/// The longest line of a job's log, in bytes.
pub const LOG_LINE_BYTES_MAX: usize = 4 << 10;
/// How many lines of a job's log are kept: the latest.
pub const LOG_LINES_MAX: u32 = 1_000;

/// One line of a job's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LineRecord {
    pub(crate) at: Timestamp,
    pub(crate) attempt: u32,
    pub(crate) text: String,
}

impl Record for LineRecord {
    const NAME: &'static str = "line of a job's log";
}

/// One line of a job's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LogLine {
    /// Which line it is, from 0; lines that were dropped are counted too.
    pub number: u32,
    /// When it was written.
    pub at: Timestamp,
    /// The number of the run that wrote it, from 1.
    pub attempt: u32,
    /// What was written.
    pub text: String,
}

/// Adds lines to the log of a job, by whoever holds it.
pub(crate) fn log(context: &mut Context<'_>, job: JobId, token: Token, lines: &[String]) -> Result<Outcome> {
    if lines.len() > LOG_LINES_MAX as usize {
        return Err(Error::invalid(format!(
            "{} lines at once are for the log of job {job}, which keeps {LOG_LINES_MAX}; write fewer",
            lines.len()
        )));
    }
    let mut held = context.held(job, token)?;
    let attempt = held.attempt + 1;
    let mut next = held.log_lines();
    for text in lines {
        if text.len() > LOG_LINE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the line for the log of job {job} has {} bytes; at most {LOG_LINE_BYTES_MAX} are allowed",
                text.len()
            )));
        }
        context.admit_bytes(text.len())?;
        let line = LineRecord { at: context.now, attempt, text: text.clone() };
        context.rows.put_record(keys::job_log(job, next), &line)?;
        if let Some(oldest) = next.checked_sub(LOG_LINES_MAX) {
            context.rows.remove(keys::job_log(job, oldest));
        }
        next += 1;
    }
    held.extra.get_or_insert_default().log_lines = next;
    context.rows.put_record(ById::Held.key(job), &held)?;
    Ok(Outcome::Done)
}

/// Removes the log of a job that is about to be gone.
pub(crate) fn forget(context: &mut Context<'_>, job: &JobRecord) {
    let next = job.log_lines();
    for line in next.saturating_sub(LOG_LINES_MAX)..next {
        context.rows.remove(keys::job_log(job.id, line));
    }
}

/// The lines of a job's log from that number on, oldest first.
pub(crate) fn read(rows: &dyn Rows, job: JobId, from: u32) -> Result<Vec<LogLine>> {
    let mut numbers = Vec::new();
    let mut range = keys::job_logs(job);
    range.start = keys::job_log(job, from);
    for_each(rows, &range, |key, _| {
        numbers.extend(keys::log_line_of(key).map(|(_, number)| number));
        Ok(())
    })?;
    let mut lines = Vec::new();
    for number in numbers {
        if let Some(line) = get_record::<LineRecord>(rows, &keys::job_log(job, number))? {
            lines.push(LogLine { number, at: line.at, attempt: line.attempt, text: line.text });
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check::check_rows,
        engine::RowSet,
        error::ErrorKind,
        queue::rig_tests::{Rig, job},
        store::change::Intent,
    };

    fn logged(rig: &mut Rig, lines: u32) -> (JobId, Result<Outcome>) {
        rig.enqueue(job("task"));
        let (job, token) = rig.claim_one();
        let lines = (0..lines).map(|_| String::new()).collect();
        (job, rig.intent(Intent::Log { job, token, lines }))
    }

    #[test]
    fn lines_that_no_log_keeps_are_refused() {
        let mut rig = Rig::new();
        logged(&mut rig, LOG_LINES_MAX).1.unwrap();
        assert_eq!(logged(&mut rig, LOG_LINES_MAX + 1).1.unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn check_finds_a_line_that_can_not_be_read_and_one_that_is_not_there() {
        for row in [Some(vec![1, 1, 0xff]), None] {
            let mut rig = Rig::new();
            let (job, logged) = logged(&mut rig, 3);
            logged.unwrap();
            rig.rows.write(RowSet::from([(keys::job_log(job, 1), row)]));
            assert_eq!(check_rows(&rig.rows).unwrap().len(), 1);
        }
    }
}
