//! W4: whether this process stands for stone. Whoever in it wants that is counted, and one thread does it for all.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    error::Result,
    stone::candidate::{Candidate, Means},
};

#[derive(Default)]
pub(crate) struct Standing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wanted: usize,
    pauses: usize,
    /// What the candidate needs, from who wanted one first.
    means: Option<Means>,
    candidate: Option<Candidate>,
}

impl Standing {
    /// One more wants this process to stand for stone.
    ///
    /// # Errors
    /// `Unavailable` when the thread can't be started; then it is not counted.
    pub(crate) fn begin(&self, means: impl FnOnce() -> Means) -> Result<()> {
        let mut state = self.lock();
        state.means.get_or_insert_with(means);
        state.wanted += 1;
        let begun = state.rise();
        if begun.is_err() {
            state.wanted -= 1;
        }
        begun
    }

    /// One less does. The stone has left when this returns, if nobody wants it any more.
    pub(crate) fn end(&self) {
        let candidate = {
            let mut state = self.lock();
            state.wanted = state.wanted.saturating_sub(1);
            if state.wanted > 0 {
                return;
            }
            state.means = None;
            state.candidate.take()
        };
        drop(candidate);
    }

    /// Leaves, if this process is the stone, and does not stand for it until [`Standing::resume`].
    pub(crate) fn pause(&self) {
        let candidate = {
            let mut state = self.lock();
            state.pauses += 1;
            state.candidate.take()
        };
        drop(candidate);
    }

    pub(crate) fn resume(&self) -> Result<()> {
        let mut state = self.lock();
        state.pauses = state.pauses.saturating_sub(1);
        state.rise()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under it leaves counts that are true.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn rise(&mut self) -> Result<()> {
        if self.wanted > 0
            && self.pauses == 0
            && self.candidate.is_none()
            && let Some(means) = &self.means
        {
            self.candidate = Some(Candidate::start(means.clone())?);
        }
        Ok(())
    }
}
