//! Whether several ask at the same time. One that asks alone waits for each answer: a sync on the stone's own thread
//! serves it soonest. Where others ask meanwhile, another thread syncs.

use std::time::{Duration, Instant};

use crate::stone::entry::{Entry, Origin};

/// For how long whoever asked is taken to ask again.
const COMPANY_FOR: Duration = Duration::from_micros(500);

/// How soon after its answer one that asks alone asks again, at the most, for the stone to await it without sleeping.
const AGAIN_WITHIN: Duration = Duration::from_micros(40);

/// Who asked last.
#[derive(Default)]
pub(super) struct Callers {
    last: Option<(Option<usize>, Instant)>,
    company_until: Option<Instant>,
    /// When one that asks alone was answered.
    answered: Option<Instant>,
    /// It asked soon after its answer.
    is_quick: bool,
}

impl Callers {
    /// Takes note of a group; whether others ask beside whoever asked in it.
    pub(super) fn note(&mut self, group: &[Entry], now: Instant) -> bool {
        let Some(entry) = group.last() else { return false };
        let source = match &entry.origin {
            Origin::Own(_) => None,
            Origin::Client { connection, .. } => Some(*connection),
        };
        let is_another =
            self.last.is_some_and(|(last, at)| last != source && now.saturating_duration_since(at) < COMPANY_FOR);
        self.last = Some((source, now));
        if group.len() > 1 || is_another {
            self.company_until = Some(now + COMPANY_FOR);
        }
        self.is_quick = self.answered.take().is_some_and(|at| now.saturating_duration_since(at) < 2 * AGAIN_WITHIN);
        self.company_until.is_some_and(|until| now < until)
    }

    /// One that asks alone was answered.
    pub(super) fn note_answered(&mut self, now: Instant) {
        self.answered = Some(now);
    }

    /// Until when to look for whoever asks alone without going to sleep: to wake takes longer than it takes to ask.
    pub(super) fn awake_until(&mut self) -> Option<Instant> {
        if !std::mem::take(&mut self.is_quick) {
            return None;
        }
        self.answered.map(|at| at + AGAIN_WITHIN)
    }
}
