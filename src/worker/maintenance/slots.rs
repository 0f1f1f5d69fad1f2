//! Slots of schedules whose time has come: each gets its job, in one change with the note that it did (S26).

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::{
    clock::{Timestamp, monotonic},
    engine::Rows,
    error::{Error, ErrorKind, Result},
    queue::{
        id::JobId,
        schedule::{
            ScheduleAct, Scheduled,
            handle::intent,
            next_slot,
            plan::{due_schedules, plan},
        },
    },
    store::{Store, change::Outcome},
    worker::event::{Event, Listener, tell},
};

/// How soon a schedule is tried again that could not be served.
const AGAIN: Duration = Duration::from_secs(1);

/// What one process knows of the slots of a store.
pub(super) struct Slots {
    /// When the next one is due, as far as was seen.
    next: Option<Timestamp>,
    next_try: Instant,
    /// Schedules that could not be served for what they are, each told of once.
    told: HashSet<String>,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { next: None, next_try: monotonic(), told: HashSet::new() }
    }

    pub(super) fn look(&mut self, rows: &dyn Rows) -> Result<()> {
        self.next = next_slot(rows)?;
        Ok(())
    }

    /// How long until there may be something to do; nothing where that is not known.
    pub(super) fn until_next(&self, now: Timestamp) -> Option<Duration> {
        let until = self.next?.since(now).max(Duration::from_millis(1));
        Some(until.max(self.next_try.saturating_duration_since(monotonic())))
    }

    /// Enqueues what is due. A schedule that can't be served holds up no other; the first trouble is given.
    pub(super) fn fire(&mut self, store: &Store, listeners: &[Listener]) -> Result<()> {
        let now = store.inner.site.now();
        if self.next.is_none_or(|next| next > now) || self.next_try > monotonic() {
            return Ok(());
        }
        // It is seen anew after the commit that this makes, or another's.
        self.next = None;
        let rows = store.inner.peek()?;
        let mut trouble = None;
        for name in due_schedules(rows.as_ref(), now)? {
            match fire_one(store, rows.as_ref(), &name, now) {
                Ok(jobs) => {
                    self.told.remove(&name);
                    if !jobs.is_empty() {
                        tell(listeners, &Event::Scheduled { schedule: name, jobs });
                    }
                }
                Err(error) => {
                    self.next_try = monotonic() + AGAIN;
                    if error.kind() != ErrorKind::Invalid || self.told.insert(name.clone()) {
                        trouble.get_or_insert_with(|| error.during(&format!("schedule \"{name}\"")));
                    }
                }
            }
        }
        trouble.map_or(Ok(()), Err)
    }
}

fn fire_one(store: &Store, rows: &dyn Rows, name: &str, now: Timestamp) -> Result<Vec<JobId>> {
    let Some(fire) = plan(rows, name, now)? else { return Ok(Vec::new()) };
    match store.inner.perform(intent(name, ScheduleAct::Fire(fire)))? {
        Outcome::Scheduled(Scheduled::Fired(jobs)) => Ok(jobs),
        // Another was quicker, or this process's clock is ahead of that of whoever commits.
        Outcome::Scheduled(_) => Ok(Vec::new()),
        _ => Err(Error::corrupt("a schedule was answered without its outcome")),
    }
}
