//! Reclaim (P3): the jobs of a session that is dead or has stopped go back. What the session's file said is data of the
//! change; whoever commits it looks at the file again just before. Reads: a slice of the held family, never more than
//! runs now. Writes: the rows of that session's jobs.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    error::Result,
    queue::{
        id::{JobId, SessionId, Token},
        record::{Home, JobRecord},
        slice::slice,
    },
    store::{
        apply::Context,
        change::Outcome,
        keys::{self, ById},
    },
};

/// What a session's file said when it was found dead or stopped, and which slice of the held jobs to walk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reclaim {
    pub(crate) session: SessionId,
    /// P2: the beat that was seen unchanged; `None` for a session that has no file.
    pub(crate) beat: Option<u64>,
    /// Handlers that had begun.
    pub(crate) started: Vec<(JobId, Token, Timestamp)>,
    /// Handlers that had ended well, without result or transaction.
    pub(crate) ended: Vec<(JobId, Token)>,
    /// The machine was restarted since: what began may have been cut off by that.
    pub(crate) power_cut: bool,
    /// P5: jobs whose child process still works; they stay as they are.
    pub(crate) busy: Vec<JobId>,
    /// Where the last slice ended.
    pub(crate) after: Option<JobId>,
    /// How many held rows to walk.
    pub(crate) limit: usize,
}

/// How many held rows one change walks.
pub(crate) const SLICE: usize = 1_000;

impl Reclaim {
    /// Takes back all jobs of a session, none of them charged.
    pub(crate) fn of_all(session: SessionId, beat: Option<u64>) -> Self {
        Self {
            session,
            beat,
            started: Vec::new(),
            ended: Vec::new(),
            power_cut: false,
            busy: Vec::new(),
            after: None,
            limit: SLICE,
        }
    }
}

/// What one slice gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reclaimed {
    /// Back in the queue, not charged.
    pub(crate) requeued: Vec<JobId>,
    /// Back in the queue, charged (but after a power cut) and suspect.
    pub(crate) suspects: Vec<JobId>,
    pub(crate) completed: Vec<JobId>,
    pub(crate) dead: Vec<JobId>,
    pub(crate) cancelled: Vec<JobId>,
    /// Still held, since a child process works on them.
    pub(crate) busy: Vec<JobId>,
    /// Where the next slice begins; `None` at the end.
    pub(crate) next: Option<JobId>,
}

impl Reclaimed {
    /// Adds what a further slice gave.
    pub(crate) fn add(&mut self, slice: Self) {
        self.requeued.extend(slice.requeued);
        self.suspects.extend(slice.suspects);
        self.completed.extend(slice.completed);
        self.dead.extend(slice.dead);
        self.cancelled.extend(slice.cancelled);
        self.busy.extend(slice.busy);
        self.next = slice.next;
    }
}

pub(crate) fn reclaim(context: &mut Context<'_>, reclaim: &Reclaim) -> Result<Outcome> {
    let mut range = ById::Held.all();
    if let Some(after) = reclaim.after {
        range = range.after(&ById::Held.key(after));
    }
    let is_of_session = |job: &JobRecord| job.lease.as_ref().is_some_and(|lease| lease.session == reclaim.session);
    let (jobs, last) = slice(&context.rows, &range, reclaim.limit, is_of_session)?;
    let mut reclaimed = Reclaimed { next: last.and_then(|key| keys::id_at_end(&key)), ..Reclaimed::default() };
    for job in jobs {
        take_back(context, reclaim, job, &mut reclaimed)?;
    }
    Ok(Outcome::Reclaimed(reclaimed))
}

impl Context<'_> {
    /// Charges a job that runs at most once for a run that may have begun, and so is its last.
    pub(crate) fn note_may_have_begun(&self, job: &mut JobRecord, label: &str, why: &str) {
        job.attempt = job.attempts_max;
        job.note_error(self.now, label, &format!("it runs at most once, and may have begun: {why}"));
    }
}

fn take_back(context: &mut Context<'_>, reclaim: &Reclaim, mut job: JobRecord, done: &mut Reclaimed) -> Result<()> {
    let id = job.id;
    let Some(lease) = job.lease.clone() else { return Ok(()) };
    if reclaim.busy.contains(&id) {
        done.busy.push(id);
        return Ok(());
    }
    context.take_out(&job, Home::ById(ById::Held));
    job.lease = None;
    let is = |note: JobId, token: Token| note == id && token == lease.token;
    if !reclaim.power_cut && reclaim.ended.iter().any(|(note, token)| is(*note, *token)) {
        job.attempt += 1;
        context.end_completed(job)?;
        done.completed.push(id);
        return Ok(());
    }
    let started = reclaim.started.iter().find(|(note, token, _)| is(*note, *token));
    if reclaim.power_cut {
        // The cut may have come before, in or after the handler: nobody is charged for it, and care is taken.
        job.suspect = true;
        if job.is_at_most_once() {
            context.note_may_have_begun(
                &mut job,
                &lease.label,
                "the machine was restarted, or its session left no notes",
            );
        }
    } else if let Some((_, _, at)) = started {
        job.started_at = Some(*at);
        job.attempt += 1;
        job.suspect = true;
        job.note_error(context.now, &lease.label, "its worker process died or was stopped while it ran");
    }
    if job.cancelling {
        context.end_cancelled(job)?;
        done.cancelled.push(id);
    } else if job.attempt >= job.attempts_max {
        context.end_dead(job)?;
        done.dead.push(id);
    } else if job.suspect {
        context.put_back(job)?;
        done.suspects.push(id);
    } else {
        context.put_back(job)?;
        done.requeued.push(id);
    }
    Ok(())
}
