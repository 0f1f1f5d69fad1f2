//! The run of a lease: how it is called off, and how it ends.

use std::sync::Arc;

use super::{Lease, StopHook};
use crate::{error::Result, queue::reach::Reach, task::StopReason};

impl Lease {
    /// Notes that the handler has ended, `clean` where it needs no more than a completion. Where its time was over
    /// before, how it ended is nobody's, and is not noted.
    pub(crate) fn note_ended(&self, clean: bool) -> Result<()> {
        let mut run = self.run();
        if run.is_timed_out {
            return Ok(());
        }
        run.is_ended = true;
        run.note.as_ref().map_or(Ok(()), |note| note.ended(clean))
    }

    /// Notes that the work did not begin after all: nothing was done that may not be done again. Where its time is
    /// over, it has failed by that.
    pub(crate) fn note_not_begun(&self) {
        let mut run = self.run();
        if run.is_timed_out {
            return;
        }
        run.started_at = None;
        let note = run.note.take();
        drop(run);
        if let Some(note) = note
            && let Err(error) = note.clear()
            && let Some((inner, _)) = self.held.inner.here()
        {
            inner.site.note_trouble(&error);
        }
    }

    /// Ends the attempt before its handler has ended; whether it is still to be settled by that.
    pub(crate) fn time_out(&self) -> bool {
        let mut run = self.run();
        if run.is_ended || run.is_timed_out || self.is_settled() {
            return false;
        }
        run.is_timed_out = true;
        drop(run);
        self.call_off(StopReason::TimedOut);
        true
    }

    pub(crate) fn is_timed_out(&self) -> bool {
        self.run().is_timed_out
    }

    /// Tells the handler to end, and why.
    pub(crate) fn call_off(&self, reason: StopReason) {
        self.held.called_off.note(reason);
        let hook = self.run().hook.clone();
        if let Some(hook) = hook {
            hook(reason);
        }
    }

    /// Calls this when the run is called off; at once, where it was.
    #[cfg_attr(
        not(any(all(unix, feature = "exec"), feature = "tokio")),
        allow(dead_code, reason = "only commands and async handlers run elsewhere")
    )]
    pub(crate) fn on_call_off(&self, hook: &Arc<StopHook>) {
        self.run().hook = Some(hook.clone());
        if let Some(reason) = self.held.called_off.reason() {
            hook(reason);
        }
    }

    /// Why the handler should end before it is done, if it should.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        let known = self.held.called_off.reason();
        match &self.held.inner {
            Reach::Parent(parent) if known.is_none() => parent.stop_reason(),
            _ => known,
        }
    }
}
