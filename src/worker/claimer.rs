//! How a worker claims: by rebase, or strictly.

use std::{collections::HashMap, time::Duration};

use crate::{
    error::{Error, Result},
    queue::{
        Lease, Policy,
        claim::Claim,
        id::JobId,
        moves::find,
        record::Home,
        select::{Tasks, Wanted},
    },
    random,
    store::{
        Store,
        change::{Candidate, Intent},
    },
    worker::{
        Setup,
        event::{Event, tell},
    },
};

/// The pause after a strict conflict is a random part of this, doubled for each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(2);
const BACKOFF_DOUBLINGS_MAX: u32 = 5;

pub(crate) struct Claimer {
    store: Store,
    /// In the order in which the next claim looks at them.
    queues: Vec<String>,
    /// The one job to claim, where no other is to be.
    only: Option<JobId>,
    /// C2: strict conflicts since the last claim that committed.
    conflicts: HashMap<String, u64>,
}

/// What a claim brought.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) leases: Vec<Lease>,
    /// P4: run nothing beside it.
    pub(crate) alone: bool,
    /// P4: a suspect job waits for this worker, or another, to be idle.
    pub(crate) suspects_wait: bool,
    pub(crate) hijacks: u64,
    /// A strict claim lost; there may be more to claim at once.
    pub(crate) lost: bool,
}

/// A claim that is to travel in a change with others.
pub(crate) struct Prepared {
    /// Nothing where there is nothing to claim.
    pub(crate) claim: Option<Claim>,
    /// P4: as far as a peek has seen.
    pub(crate) suspects_wait: bool,
}

impl Claimer {
    pub(crate) fn new(store: &Store, setup: &Setup) -> Self {
        Self { store: store.clone(), queues: setup.queues.clone(), only: setup.only, conflicts: HashMap::new() }
    }

    /// C1: a claim by rebase. Where this process commits by itself it peeks first, and names what it has seen; the
    /// stone has the newest rows at hand.
    pub(crate) fn prepare(&mut self, wanted: Wanted, has_stone: bool) -> Result<Prepared> {
        if let Some(job) = self.only {
            return self.prepare_only(job, wanted);
        }
        self.next_queue();
        let (candidates, suspects_wait) =
            if has_stone { (Vec::new(), false) } else { self.store.peek(&self.queues, &wanted)? };
        if !has_stone && candidates.is_empty() {
            return Ok(Prepared { claim: None, suspects_wait });
        }
        let session = self.store.inner.session()?.id;
        let claim = Claim { candidates, ..Claim::new(session, self.queues.clone(), wanted) };
        Ok(Prepared { claim: Some(claim), suspects_wait })
    }

    /// A claim of one job, if that is ready.
    fn prepare_only(&self, job: JobId, wanted: Wanted) -> Result<Prepared> {
        let candidates = match find(self.store.inner.rows()?.as_ref(), job)? {
            Some((Home::Ready, record)) => vec![Candidate { job, key: record.key_in(Home::Ready) }],
            _ => return Ok(Prepared { claim: None, suspects_wait: false }),
        };
        let session = self.store.inner.session()?.id;
        let claim = Claim { candidates, fill: false, ..Claim::new(session, self.queues.clone(), wanted) };
        Ok(Prepared { claim: Some(claim), suspects_wait: false })
    }

    /// Claims by a change of its own.
    pub(crate) fn claim(&mut self, setup: &Setup, wanted: &Wanted) -> Result<Batch> {
        self.next_queue();
        let batch = match setup.policy {
            Policy::Rebase => self.by_rebase(setup, wanted)?,
            Policy::Strict => self.strictly(setup, wanted)?,
        };
        if let Some(first) = batch.leases.first() {
            let jobs = batch.leases.iter().map(Lease::id).collect();
            tell(&setup.listeners, &Event::Claimed { jobs, token: first.token() });
        }
        Ok(batch)
    }

    fn by_rebase(&mut self, setup: &Setup, wanted: &Wanted) -> Result<Batch> {
        let pause = || setup.pause.iter().for_each(|pause| pause());
        let leases = self.store.claim_by_rebase(&self.queues, wanted, pause)?;
        let hijacks = leases.hijacks.len() as u64;
        for hijack in leases.hijacks {
            tell(&setup.listeners, &Event::Hijacked(hijack));
        }
        Ok(Batch {
            leases: leases.leases,
            alone: leases.alone,
            suspects_wait: leases.suspects_wait,
            hijacks,
            lost: false,
        })
    }

    fn strictly(&mut self, setup: &Setup, wanted: &Wanted) -> Result<Batch> {
        let mut suspects_wait = false;
        for queue in self.queues.clone() {
            let snapshot = self.store.snapshot()?;
            let mut view =
                snapshot.queue(&queue).for_worker(wanted.tasks.clone(), wanted.idle, self.conflicts_of(&queue));
            let mut shifted = 0;
            while shifted < wanted.jobs_max && view.shift()?.is_some() {
                shifted += 1;
            }
            if shifted == 0 {
                suspects_wait |= view.suspects_wait();
                continue;
            }
            setup.pause.iter().for_each(|pause| pause());
            match view.commit(Policy::Strict) {
                Ok(leases) => {
                    self.conflicts.remove(&queue);
                    let alone = leases.first().is_some_and(Lease::is_suspect);
                    suspects_wait |= view.suspects_wait();
                    return Ok(Batch { leases, alone, suspects_wait, ..Batch::default() });
                }
                Err(error) if error.is_hijacked() => {
                    self.hijacked(setup, &queue, &error);
                    return Ok(Batch { lost: true, hijacks: 1, ..Batch::default() });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Batch { suspects_wait, ..Batch::default() })
    }

    /// C2: counts the conflicts that no claim has carried yet, when the worker leaves.
    pub(crate) fn count_conflicts(&mut self) -> Result<()> {
        for (queue, conflicts) in std::mem::take(&mut self.conflicts) {
            let session = self.store.inner.session()?.id;
            let wanted = Wanted { tasks: Tasks::Any, jobs_max: 1, idle: false };
            let claim = Claim { fill: false, conflicts, ..Claim::new(session, vec![queue], wanted) };
            self.store.inner.perform(Intent::Claim(claim))?;
        }
        Ok(())
    }

    /// Each queue comes first in its turn, so that a full one does not starve the others.
    fn next_queue(&mut self) {
        self.queues.rotate_left(1);
    }

    fn conflicts_of(&self, queue: &str) -> u64 {
        self.conflicts.get(queue).copied().unwrap_or_default()
    }

    fn hijacked(&mut self, setup: &Setup, queue: &str, error: &Error) {
        *self.conflicts.entry(queue.to_owned()).or_default() += 1;
        eprintln!("someone hijacked my job; grabbing another ({error})");
        if let Some(conflict) = error.conflict() {
            tell(&setup.listeners, &Event::HijackedStrictly(conflict.clone()));
        }
        if setup.backoff {
            let doublings = u32::try_from(self.conflicts_of(queue) - 1).unwrap_or(u32::MAX).min(BACKOFF_DOUBLINGS_MAX);
            crate::clock::sleep(random::up_to(BACKOFF_FIRST * 2u32.pow(doublings)));
        }
    }
}
