//! The queue object as a snapshot shows it: MagLev's own way to take a job. Jobs are shifted off the view, and the
//! commit makes it so, or says who came first.

use std::{collections::VecDeque, time::Duration};

use crate::{
    error::{Error, ErrorKind, Result},
    queue::{
        JobInfo, Lease,
        claim::{Claim, Hijack},
        record::{HeadRecord, Home, JobRecord},
        select::{Selection, Tasks, Wanted, select},
    },
    store::{
        change::{Candidate, Guard, Intent},
        conflict::Version,
        keys,
        snapshot::Snapshot,
        view::get_record,
    },
};

/// What a claim does when another took its job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Counts the hijack and takes the next job in the same commit.
    #[default]
    Rebase,
    /// MagLev's own: any other claim on the queue in between is a conflict; take a fresh snapshot and try again.
    Strict,
}

/// A queue as a snapshot shows it, less the jobs shifted off.
pub struct QueueView<'a> {
    snapshot: &'a Snapshot,
    queue: String,
    tasks: Tasks,
    head: Option<HeadRecord>,
    shifted: Vec<JobRecord>,
    /// Jobs read and not shifted yet.
    ahead: VecDeque<JobRecord>,
    /// How many to read next; 0 where there are no more.
    read_next: usize,
    idle: bool,
    conflicts: u64,
    suspects_wait: bool,
    hijacks: Vec<Hijack>,
    is_spent: bool,
}

impl<'a> QueueView<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, queue: &str) -> Self {
        Self {
            snapshot,
            queue: queue.to_owned(),
            tasks: Tasks::Any,
            head: None,
            shifted: Vec::new(),
            ahead: VecDeque::new(),
            read_next: 1,
            idle: snapshot.inner().is_idle(),
            conflicts: 0,
            suspects_wait: false,
            hijacks: Vec::new(),
            is_spent: false,
        }
    }

    /// For a worker: only the tasks that it knows, and suspect jobs only while it is idle.
    pub(crate) fn for_worker(mut self, tasks: Tasks, idle: bool, conflicts: u64) -> Self {
        self.tasks = tasks;
        self.idle = idle;
        self.conflicts = conflicts;
        self
    }

    /// The version of the queue object: that of the last claim on the queue, or administration of it.
    ///
    /// # Errors
    /// `Conflict` for a snapshot that is too old.
    pub fn version(&mut self) -> Result<Version> {
        Ok(self.head()?.version)
    }

    fn head(&mut self) -> Result<&HeadRecord> {
        let head = match self.head.take() {
            Some(head) => head,
            None => self
                .snapshot
                .read_exactly(|rows| Ok(get_record(rows, &keys::head(&self.queue))?.unwrap_or_default()))?,
        };
        Ok(self.head.insert(head))
    }

    /// Takes the next job off this view; nothing where there is none, or the queue is paused. Others see nothing of it
    /// until [`QueueView::commit`].
    ///
    /// # Errors
    /// `Conflict` for a snapshot that is too old, `Closed` for a view that was committed.
    pub fn shift(&mut self) -> Result<Option<JobInfo>> {
        self.check_usable()?;
        if self.head()?.paused || self.shifted.iter().any(|job| job.suspect) || self.snapshot.inner().is_alone() {
            return Ok(None);
        }
        if self.ahead.is_empty() && self.read_next > 0 {
            self.read_ahead()?;
        }
        let Some(job) = self.ahead.pop_front() else { return Ok(None) };
        let info = self.snapshot.read_exactly(|rows| JobInfo::of(rows, Home::Ready, job.clone()))?;
        self.shifted.push(job);
        Ok(Some(info))
    }

    /// Reads more jobs than are asked for, so that many shifts don't read the same rows again and again.
    fn read_ahead(&mut self) -> Result<()> {
        let read = self.shifted.len();
        let jobs_max = read + self.read_next;
        let wanted = Wanted { tasks: self.tasks.clone(), jobs_max, idle: self.idle && read == 0 };
        let selection = self.snapshot.read_exactly(|rows| {
            let mut selection = Selection::default();
            select(rows, &self.queue, &wanted, self.snapshot.inner().site.now(), &mut selection)?;
            Ok(selection)
        })?;
        self.suspects_wait |= selection.suspects_wait;
        self.read_next = if selection.jobs.len() < jobs_max { 0 } else { jobs_max };
        self.ahead = selection.jobs.into_iter().skip(read).collect();
        Ok(())
    }

    /// Claims what was shifted; strictly, or by rebase, where a job that another took is replaced by the next one.
    ///
    /// The view is spent by that, whatever comes of it: after a conflict, take a fresh snapshot.
    ///
    /// # Errors
    /// `Conflict` ([`Error::is_hijacked`]) for a strict commit after which another's claim came first: it names the
    /// job, both versions of the queue, and the winner. Nothing was changed.
    pub fn commit(&mut self, policy: Policy) -> Result<Vec<Lease>> {
        self.check_usable()?;
        self.is_spent = true;
        if self.shifted.is_empty() {
            return Ok(Vec::new());
        }
        let version = self.head()?.version;
        let candidates: Vec<Candidate> =
            self.shifted.iter().map(|job| Candidate { job: job.id, key: job.key_in(Home::Ready) }).collect();
        let guards = match policy {
            Policy::Strict => vec![Guard::Queue { queue: self.queue.clone(), version, shifted: candidates.clone() }],
            Policy::Rebase => Vec::new(),
        };
        let inner = self.snapshot.inner();
        let session = inner.session()?;
        let wanted = Wanted { tasks: self.tasks.clone(), jobs_max: candidates.len(), idle: self.idle };
        let (fill, conflicts) = (policy == Policy::Rebase, self.conflicts);
        let claim = Claim { candidates, fill, conflicts, ..Claim::new(session.id, vec![self.queue.clone()], wanted) };
        let answer = inner.claim(&session, guards, vec![Intent::Claim(claim)], Duration::ZERO)?;
        self.hijacks = answer.hijacks;
        Ok(answer.leases)
    }

    /// After a commit by rebase: the shifted jobs that others had taken, and who.
    #[must_use]
    pub fn hijacks(&self) -> &[Hijack] {
        &self.hijacks
    }

    /// P4: a suspect job waits for a worker that is idle.
    pub(crate) fn suspects_wait(&self) -> bool {
        self.suspects_wait
    }

    fn check_usable(&self) -> Result<()> {
        if !self.is_spent {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Closed, "this view of the queue was committed; take a fresh snapshot"))
    }
}
