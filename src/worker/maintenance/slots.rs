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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        queue::{
            JobRequest, Schedule,
            schedule::{define::CatchUp, spec::Spec},
        },
        testing,
    };

    const HOUR: Duration = Duration::from_hours(1);

    /// As of a program that knows more: of another feature, or a newer list of time zones.
    fn define_unreadable(store: &Store, name: &str) {
        let act = ScheduleAct::Define {
            spec: Spec::Cron { expression: "at dawn".into(), zone: "Mars/Olympus".into() },
            job: Box::new(JobRequest::new("task", &()).for_queue("q").unwrap()),
            catch_up: CatchUp::One,
            seen_last: None,
            first: Some(store.inner.site.now().after(HOUR)),
        };
        store.inner.perform(intent(name, act)).unwrap();
    }

    #[test]
    fn schedule_that_this_process_can_not_read_is_told_of_once_and_holds_up_no_other() {
        let (store, clock) = testing::store().unwrap();
        define_unreadable(&store, "a strange one");
        store.schedule(Schedule::every("hourly", HOUR, JobRequest::new("task", &())).queue("q")).unwrap();
        let mut slots = Slots::new();
        for hour in 1..=3 {
            clock.advance(HOUR);
            slots.look(store.inner.rows().unwrap().as_ref()).unwrap();
            slots.next_try = monotonic();
            let fired = slots.fire(&store, &[]);
            if hour == 1 {
                let error = fired.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(error.to_string().starts_with("schedule \"a strange one\": \"at dawn\""), "{error}");
            } else {
                fired.unwrap();
            }
            assert_eq!(store.queue("q").stats().unwrap().ready, hour);
        }
        let strange = store.schedule_named("a strange one").unwrap();
        assert_eq!(strange.last, None, "it is left to a process that can");
    }

    #[test]
    fn schedule_that_can_not_be_served_is_not_tried_at_every_look() {
        let (store, clock) = testing::store().unwrap();
        define_unreadable(&store, "a strange one");
        clock.advance(HOUR);
        let mut slots = Slots::new();
        slots.look(store.inner.rows().unwrap().as_ref()).unwrap();
        let begun = monotonic();
        slots.fire(&store, &[]).unwrap_err();
        assert!(slots.next_try >= begun + AGAIN);
    }
}
