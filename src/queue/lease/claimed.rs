//! How a lease comes to be: by the answer to a claim. None is lost: where the answer does not come in time, what it
//! brings all the same goes back.

use std::{
    sync::{Arc, Mutex, Weak, atomic::AtomicBool},
    thread,
    time::Duration,
};

use super::{Held, Lease};
use crate::{
    error::{Error, ErrorKind, Result},
    queue::{
        claim::{ClaimedJob, Hijack},
        id::Token,
        outbox::Outbox,
        reach::Reach,
    },
    store::{
        change::{Applied, Guard, Intent, Outcome},
        inner::Inner,
        session::Session,
        ticket::Ticket,
    },
    task::CalledOff,
};

/// What a claim gave.
pub(crate) struct ClaimAnswer {
    pub(crate) leases: Vec<Lease>,
    pub(crate) hijacks: Vec<Hijack>,
    pub(crate) alone: bool,
    pub(crate) suspects_wait: bool,
}

/// The leases in the answer to a claim. P4: none where another of this process has claimed meanwhile what can't run
/// beside them.
pub(crate) fn leases_of(inner: &Arc<Inner>, session: &Arc<Session>, applied: Applied) -> Result<ClaimAnswer> {
    let claimed = applied.outcomes.into_iter().find_map(|outcome| match outcome {
        Outcome::Claimed(claimed) => Some(claimed),
        _ => None,
    });
    let claimed = claimed.ok_or_else(|| Error::unanswered("a claim"))?;
    let token = claimed.token.unwrap_or(Token(0));
    let may_run = session.take_in_hand(claimed.jobs.iter().map(|job| job.record.id), token, claimed.alone);
    let lease = |job: ClaimedJob| Lease {
        held: Arc::new(Held {
            inner: Reach::Here { inner: inner.clone(), session: session.clone() },
            task: job.task,
            record: job.record,
            token,
            run: Mutex::default(),
            is_settled: AtomicBool::new(false),
            is_completed_in_transaction: AtomicBool::new(false),
            outbox: Outbox::default(),
            called_off: CalledOff::default(),
        }),
    };
    let mut leases: Vec<Lease> = claimed.jobs.into_iter().map(lease).collect();
    let alone = claimed.alone && may_run;
    let suspects_wait = claimed.suspects_wait || (claimed.alone && !may_run);
    if !may_run {
        // A lease that is dropped goes back.
        leases.clear();
    }
    Ok(ClaimAnswer { leases, hijacks: claimed.hijacks, alone, suspects_wait })
}

impl Inner {
    /// Makes a change with a claim, and waits for its leases; where it finds nothing, a stone keeps it waiting for so
    /// long.
    pub(crate) fn claim(
        self: &Arc<Self>,
        session: &Arc<Session>,
        guards: Vec<Guard>,
        intents: Vec<Intent>,
        wait: Duration,
    ) -> Result<ClaimAnswer> {
        let ticket = self.submit_guarded(guards, intents, wait)?;
        match ticket.wait(&self.site) {
            Ok(applied) => leases_of(self, session, applied),
            Err(error) => {
                if error.kind() == ErrorKind::Unknown {
                    self.doubt_leases();
                }
                give_back_late(self, session, ticket);
                Err(error)
            }
        }
    }
}

/// Sees to it that what a claim gets whose answer nobody waits for goes back, uncharged.
pub(crate) fn give_back_late(inner: &Arc<Inner>, session: &Arc<Session>, ticket: Ticket) {
    if ticket.withdraw() || !ticket.may_be_answered() {
        return;
    }
    inner.call_off(ticket.number());
    // The thread must not keep the store open: where that is closed, its leases go back with the session.
    let (weak_inner, weak_session): (Weak<Inner>, Weak<Session>) = (Arc::downgrade(inner), Arc::downgrade(session));
    let give_back = move || {
        let Some(Ok(applied)) = ticket.wait_for_good() else { return };
        if let (Some(inner), Some(session)) = (weak_inner.upgrade(), weak_session.upgrade()) {
            // A lease that is dropped goes back.
            drop(leases_of(&inner, &session, applied));
        }
    };
    if let Err(error) = thread::Builder::new().name("casque-late-claim".into()).spawn(give_back) {
        inner.site.note_trouble(&Error::unavailable("a thread can't be started").because(error));
    }
}
