//! Whether several ask at the same time. One that asks alone waits for each answer: a sync on the stone's own thread
//! serves it soonest. Where others ask meanwhile, another thread syncs.

use std::time::{Duration, Instant};

use crate::stone::entry::{Entry, Origin};

/// For how long whoever asked is taken to ask again.
const COMPANY_FOR: Duration = Duration::from_micros(500);

/// Who asked last.
#[derive(Default)]
pub(super) struct Callers {
    last: Option<(Option<usize>, Instant)>,
    company_until: Option<Instant>,
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
        self.company_until.is_some_and(|until| now < until)
    }
}
