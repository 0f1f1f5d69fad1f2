//! Schedules in the model, by intervals: their slots are `first`, `first + every`, and so on.

use std::time::Duration;

use super::model::{Model, Told};
use crate::{
    clock::Timestamp,
    error::ErrorKind,
    queue::{
        CatchUp,
        enqueue::{NewJob, When},
        id::JobId,
        schedule::{ScheduleAct, Scheduled, define::Definition, spec::Spec},
    },
    store::change::Outcome,
};

/// How late a slot may be that is not to be made up for.
const LATE: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) every: Duration,
    pub(super) job: NewJob,
    pub(super) catch_up: CatchUp,
    pub(super) paused: bool,
    pub(super) last: Option<Timestamp>,
    pub(super) last_job: Option<JobId>,
    pub(super) next: Timestamp,
}

impl Model {
    /// What needs no look at the clock.
    pub(super) fn schedule(&mut self, name: &str, act: &ScheduleAct) -> Result<Told, ErrorKind> {
        let plan = self.schedules.get_mut(name).ok_or(ErrorKind::NotFound)?;
        Ok(Told::Is(match act {
            ScheduleAct::Remove => {
                self.schedules.remove(name);
                Outcome::Scheduled(Scheduled::Changed)
            }
            ScheduleAct::Pause => {
                let was_paused = std::mem::replace(&mut plan.paused, true);
                Outcome::Scheduled(if was_paused { Scheduled::Unchanged } else { Scheduled::Changed })
            }
            ScheduleAct::Run => {
                let mut job = plan.job.clone();
                job.metadata.push(("schedule".into(), name.into()));
                self.enqueue(&job)?
            }
            _ => unreachable!("no other act is sent by itself"),
        }))
    }

    /// Whether anything is another by it.
    pub(super) fn define(&mut self, definition: &Definition) -> bool {
        let Spec::Every(every) = definition.spec else { unreachable!("the model goes by intervals") };
        let Definition { name, job, catch_up, .. } = definition.clone();
        let before = self.schedules.get(&name).cloned();
        let mut plan = before.clone().unwrap_or_else(|| Plan {
            every: Duration::ZERO,
            job: job.clone(),
            catch_up,
            paused: false,
            last: None,
            last_job: None,
            next: self.now,
        });
        if plan.every != every {
            plan.every = every;
            plan.next = plan.last.map_or(self.now, |last| last.max(self.now)).after(every);
        }
        (plan.job, plan.catch_up) = (job, catch_up);
        self.schedules.insert(name, plan.clone());
        before != Some(plan)
    }

    /// Goes on with the first slot that is still to come; whether it was paused.
    pub(super) fn resume(&mut self, name: &str) -> Result<bool, ErrorKind> {
        let now = self.now;
        let plan = self.schedules.get_mut(name).ok_or(ErrorKind::NotFound)?;
        let was_paused = std::mem::replace(&mut plan.paused, false);
        while was_paused && plan.next <= now {
            plan.next = plan.next.after(plan.every);
        }
        Ok(was_paused)
    }

    /// Enqueues the slots that have come, schedule by schedule, each in a change of its own; gives the first refusal.
    pub(super) fn fire(&mut self) -> Result<(), ErrorKind> {
        let due = self.schedules.iter().filter(|(_, plan)| !plan.paused && plan.next <= self.now);
        let mut due: Vec<(Timestamp, String)> = due.map(|(name, plan)| (plan.next, name.clone())).collect();
        due.sort_unstable();
        let mut refusal = Ok(());
        for (_, name) in due {
            let fired = self.whole(|model| model.fire_one(&name));
            if fired.is_ok() {
                self.end_change();
                self.version += 1;
            }
            refusal = refusal.and(fired);
        }
        refusal
    }

    fn fire_one(&mut self, name: &str) -> Result<(), ErrorKind> {
        let mut plan = self.schedules[name].clone();
        let mut slots = Vec::new();
        while plan.next <= self.now {
            slots.push(plan.next);
            plan.last = Some(plan.next);
            plan.next = plan.next.after(plan.every);
        }
        let most = if let CatchUp::All(most) = plan.catch_up { most as usize } else { 1 };
        slots.drain(..slots.len().saturating_sub(most));
        if plan.catch_up == CatchUp::Skip {
            slots.retain(|slot| self.now.since(*slot) <= LATE);
        }
        for (index, slot) in slots.iter().enumerate() {
            let mut job = plan.job.clone();
            job.metadata.push(("schedule".into(), name.into()));
            job.metadata.push(("scheduled_for".into(), slot.to_string()));
            job.when = When::At(if let When::After(delay) = plan.job.when { slot.after(delay) } else { *slot });
            match self.enqueue(&job) {
                Ok(Outcome::Enqueued { job, .. }) => plan.last_job = Some(job),
                // The others come when there is room.
                Err(ErrorKind::Full) if index > 0 => {
                    (plan.last, plan.next) = (Some(slots[index - 1]), *slot);
                    break;
                }
                refused => drop(refused?),
            }
        }
        self.schedules.insert(name.to_owned(), plan);
        Ok(())
    }
}
