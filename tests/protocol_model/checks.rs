//! What must hold in every state: whatever dies now, what was answered comes back, and nothing else is made up.

use crate::{
    disk::{Image, LogImage, replay},
    rules::Scope,
    state::{Change, State},
};

/// The invariant that this state breaks, and how; the one before broke none.
pub fn broken(before: &State, state: &State, scope: &Scope) -> Option<&'static str> {
    if let Some(wrong) = state.wrong {
        return Some(wrong);
    }
    // Most actions change nothing that a recovery reads or that was answered.
    if (before.answered, before.redb, before.log) == (state.answered, state.redb, state.log) {
        return None;
    }
    if let Some(wrong) = broken_by_recovery(state, state.redb.primary, &state.log.cached, scope) {
        return Some(wrong);
    }
    let logs = state.log.outcomes();
    let mut images = state.redb.outcomes().into_iter();
    images.find_map(|image| logs.iter().find_map(|log| broken_by_recovery(state, image, log, scope)))
}

/// Recovers from these files, as after a death or a power cut in this state.
fn broken_by_recovery(state: &State, image: Image, log: &LogImage, scope: &Scope) -> Option<&'static str> {
    let recovered = match replay(image, log, scope) {
        Ok(recovered) => recovered.history,
        Err(wrong) => return Some(wrong),
    };
    // A peek, at any time, shows a state that the store goes on from.
    if !state.redb.published.history.begins(recovered) {
        return Some("INV-2: what a reader sees is not what the store goes on from");
    }
    if recovered.has_one_twice() {
        return Some("INV-5: a change was applied twice");
    }
    let lost = |change: &Change| {
        let answered = state.answered[change.index()];
        answered != 0 && recovered.at(answered) != Some(*change)
    };
    Change::all().any(|change| lost(&change)).then_some("INV-4: a change that was answered is lost")
}
