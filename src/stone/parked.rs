//! C4: the claims of idle workers, which wait at the stone for jobs, and the wishes for named locks that others hold.
//! Each is a change like any other, decided again when something came that it may be able to take.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::{
    engine::RowSet,
    queue::claim::Claim,
    stone::entry::Entry,
    store::{
        change::{Applied, Change, Intent, Outcome},
        keys,
    },
};

/// How recently a client must have shown life for its claim to be served.
pub(super) const LIFE_MAX: Duration = Duration::from_secs(2);

/// The claims that wait, in the order they came.
#[derive(Default)]
pub(super) struct Lot {
    claims: Vec<Entry>,
    /// No wait ends before; it is looked at in each turn of the stone, and there may be thousands who wait.
    next_end: Option<Instant>,
    /// The wait of some has ended before its time.
    has_hurried: bool,
}

/// What a change may be parked for: it is one claim and nothing else.
fn only_claim(change: &Change) -> Option<&Claim> {
    match change.intents.as_slice() {
        [Intent::Claim(claim)] if change.guards.is_empty() => Some(claim),
        _ => None,
    }
}

/// The lock that a change may be parked for: it is one wish for it and nothing else.
fn only_lock(change: &Change) -> Option<&str> {
    match change.intents.as_slice() {
        [Intent::Lock(request)] if change.guards.is_empty() && request.waits => Some(&request.name),
        _ => None,
    }
}

/// Whether a change that was decided so is to wait for jobs, or for a lock that the group's rows say nothing of,
/// instead of being answered.
pub(super) fn is_to_wait(change: &Change, applied: &Applied, rows_locks: &HashSet<String>) -> bool {
    if let Some(name) = only_lock(change) {
        // Who has only just come, and was noted as one who waits, asks again.
        return applied.version.is_none() && !is_locked(applied) && !rows_locks.contains(name);
    }
    let found_nothing = |outcome: &Outcome| match outcome {
        Outcome::Claimed(claimed) => claimed.jobs.is_empty() && claimed.hijacks.is_empty() && !claimed.suspects_wait,
        _ => false,
    };
    only_claim(change).is_some() && applied.version.is_none() && applied.outcomes.iter().all(found_nothing)
}

/// Whether a wish for a lock got it.
pub(super) fn is_locked(applied: &Applied) -> bool {
    matches!(applied.outcomes.as_slice(), [Outcome::Locked(Some(_))])
}

/// Queues with jobs that may be for a claim that waits, and was not tried.
#[derive(Default)]
pub(super) struct Unserved {
    pub(super) queues: HashSet<String>,
    /// They are to be tried now: claims were parked by the very group that put jobs into their queues behind them. Else
    /// it was a client that showed no life, and they are tried when somebody shows some.
    pub(super) is_due: bool,
}

/// What became of a claim that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    Yes,
    FoundNothing,
    /// It was not even tried: its client shows no life.
    Not,
}

impl Entry {
    /// The queues that a claim which waits wants jobs of.
    pub(super) fn queues(&self) -> impl Iterator<Item = &str> {
        only_claim(&self.change).into_iter().flat_map(|claim| claim.queues.iter().map(String::as_str))
    }
}

impl Lot {
    pub(super) fn park(&mut self, parked: Entry) {
        self.has_hurried |= parked.wait_until.is_none();
        self.next_end = self.next_end.into_iter().chain(parked.wait_until).min();
        self.claims.push(parked);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// When to look for those that have waited long enough: not after the first of them has.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.next_end
    }

    /// Takes out those that have waited long enough, in the order they came.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<Entry> {
        if !self.has_hurried && self.next_end.is_none_or(|end| now < end) {
            return Vec::new();
        }
        let over = self.take(|parked| parked.wait_until.is_none_or(|until| now >= until));
        self.has_hurried = false;
        self.next_end = self.claims.iter().filter_map(|parked| parked.wait_until).min();
        over
    }

    /// Ends the wait of those that match.
    pub(super) fn hurry(&mut self, matches: impl Fn(&Entry) -> bool) {
        for parked in self.claims.iter_mut().filter(|parked| matches(parked)) {
            parked.wait_until = None;
            self.has_hurried = true;
        }
    }

    /// Takes out those that match, in the order they came.
    pub(super) fn take(&mut self, matches: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.claims.extract_if(.., |parked| matches(parked)).collect()
    }

    /// Whether somebody waits for a lock.
    pub(super) fn has_locks(&self) -> bool {
        self.claims.iter().any(|parked| only_lock(&parked.change).is_some())
    }

    /// Takes out the wishes for these locks that are fulfilled; each lock's row says whose turn it is.
    pub(super) fn serve_locks(&mut self, locks: &HashSet<String>, is_served: impl FnMut(&Entry) -> bool) -> Vec<Entry> {
        let mut is_served = is_served;
        let wants = |parked: &Entry| only_lock(&parked.change).is_some_and(|name| locks.contains(name));
        self.claims.extract_if(.., |parked| wants(parked) && is_served(parked)).collect()
    }

    /// Tries the claims that want of these queues, the latest first, until none of them finds anything.
    pub(super) fn serve(&mut self, queues: &HashSet<String>, mut serve: impl FnMut(&Entry) -> Served) -> Vec<Entry> {
        let mut served = Vec::new();
        let mut fruitless: Vec<usize> = Vec::new();
        let mut index = self.claims.len();
        while index > 0 {
            index -= 1;
            let Some(claim) = only_claim(&self.claims[index].change) else { continue };
            let wants = claim.queues.iter().any(|queue| queues.contains(queue));
            // Idle workers are mostly alike: where one of them found nothing the others would not either.
            let is_like = |other: &usize| {
                only_claim(&self.claims[*other].change)
                    .is_some_and(|other| other.queues == claim.queues && other.wanted == claim.wanted)
            };
            if !wants || fruitless.iter().any(is_like) {
                continue;
            }
            match serve(&self.claims[index]) {
                Served::Yes => {
                    served.push(self.claims.remove(index));
                    fruitless.iter_mut().for_each(|other| *other -= 1);
                }
                Served::FoundNothing => fruitless.push(index),
                Served::Not => {}
            }
        }
        served
    }
}

/// The named locks that a group's rows tell of.
pub(super) fn locks_in(rows: &RowSet) -> HashSet<String> {
    rows.keys().filter_map(|key| keys::lock_name(key)).map(str::to_owned).collect()
}

/// The queues whose jobs a group's rows may have made claimable.
pub(crate) fn queues_with_jobs(rows: &RowSet) -> HashSet<String> {
    let queues: HashSet<&str> =
        rows.iter().filter(|(_, value)| value.is_some()).filter_map(|(key, _)| keys::claimable_queue(key)).collect();
    queues.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
