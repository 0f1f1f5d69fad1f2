//! Reschedule: another priority or time for a job that has not begun. Reads: probes for the job. Writes: its removal
//! and its row, and the index by time where it is or was scheduled. It keeps its place among those of its priority.

use std::time::Duration;

use super::admin::{Admin, after_end, refused, settled};
use crate::{
    clock::Timestamp,
    error::{Error, Result},
    queue::{enqueue::When, id::JobId, lane::check_priority, record::Home, state::State},
    store::{
        Store,
        apply::Context,
        change::{Intent, Outcome},
        keys::ById,
    },
};

/// What is to change of a job that has not begun; made by [`Store::reschedule`].
#[derive(Debug)]
#[must_use = "nothing is changed before `commit`"]
pub struct Reschedule {
    store: Store,
    job: JobId,
    priority: Option<i64>,
    when: Option<When>,
}

impl Store {
    /// Changes the priority or the time of a job that waits, is scheduled, or is ready.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use casque::{JobRequest, State};
    /// # let store = casque::Store::in_memory()?;
    /// # let id = store.queue("default").enqueue(JobRequest::new("report", &()))?;
    /// let state = store.reschedule(id).priority(10).delay(Duration::from_secs(60)).commit()?;
    /// assert_eq!(state, State::Scheduled);
    /// # Ok::<(), casque::Error>(())
    /// ```
    pub fn reschedule(&self, job: JobId) -> Reschedule {
        Reschedule { store: self.clone(), job, priority: None, when: None }
    }
}

impl Reschedule {
    /// From -100 to 100, higher first.
    pub fn priority(mut self, priority: impl Into<i64>) -> Self {
        self.priority = Some(priority.into());
        self
    }

    /// It runs no sooner than so long after the commit; at once for none.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.when = Some(When::After(delay));
        self
    }

    /// It runs no sooner than at that time.
    pub fn at(mut self, at: Timestamp) -> Self {
        self.when = Some(When::At(at));
        self
    }

    /// Makes the change; gives the state that the job is in then.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a job that runs or has ended, a priority out of range, and where nothing is to change.
    pub fn commit(self) -> Result<State> {
        let Self { store, job, priority, when } = self;
        let admin = Admin::Reschedule { job, priority, when };
        Ok(store.inner.perform(Intent::Administer(admin))?.settled()?.state)
    }
}

pub(crate) fn reschedule(
    context: &mut Context<'_>,
    id: JobId,
    priority: Option<i64>,
    when: Option<When>,
) -> Result<Outcome> {
    if priority.is_none() && when.is_none() {
        return Err(Error::invalid(format!("nothing is to change of job {id}; give it a priority or a time")));
    }
    let priority = priority.map(check_priority).transpose()?;
    let (home, before) = context.find(id)?;
    match home {
        Home::Ready | Home::ById(ById::Due | ById::Waiting) => {}
        Home::ById(ById::Held) => return Err(refused(&before, home, "rescheduled", "it runs now; release it first")),
        Home::ById(ById::Finished | ById::Dead) => {
            return Err(refused(&before, home, "rescheduled", after_end(&before)));
        }
    }
    let mut job = before.clone();
    job.priority = priority.unwrap_or(job.priority);
    // The delay of a job that waits for others counts from when they have ended.
    let waits = job.extra.as_mut().and_then(|extra| extra.waits.as_mut()).filter(|_| home == Home::ById(ById::Waiting));
    match (when, waits) {
        (None, _) => {}
        (Some(when), Some(waits)) => {
            waits.delay = if let When::After(delay) = when { Some(delay) } else { None };
            job.run_at = if let When::At(at) = when { Some(at) } else { None };
        }
        (Some(When::Now), None) => job.run_at = None,
        (Some(When::After(delay)), None) => job.run_at = (!delay.is_zero()).then(|| context.now.after(delay)),
        (Some(When::At(at)), None) => job.run_at = Some(at),
    }
    let new_home = match home {
        Home::ById(ById::Waiting) => home,
        _ if when.is_none() => home,
        _ => context.home_at(job.run_at),
    };
    let outcome = settled(&job, job.state_in(new_home));
    if (new_home, &job) != (home, &before) {
        let holds_back = home == Home::ById(ById::Due) && context.holds_key_back(&before)?;
        context.take_out(&before, home);
        context.put_in(&job, new_home)?;
        if new_home == Home::ById(ById::Due) {
            // Whoever was to run again before those behind it still is.
            if holds_back {
                context.note_key_holding(&job, true);
            } else if home == Home::Ready && job.has_begun() {
                context.hold_key_back(&job)?;
            }
        }
    }
    Ok(outcome)
}
