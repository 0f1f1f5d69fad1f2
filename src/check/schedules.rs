//! Schedules: each that is to run has its entry in the index by time, and each entry its schedule.

use std::collections::HashSet;

use super::{Check, hex};
use crate::{
    error::Result,
    queue::schedule::ScheduleRecord,
    store::{
        keys,
        view::{for_each, get_record},
    },
};

impl Check<'_> {
    pub(super) fn schedules(&mut self) -> Result<()> {
        let mut slots = HashSet::new();
        self.each::<ScheduleRecord>(&keys::schedules(), |check, key, schedule| {
            let name = keys::root_name(key);
            let Some(slot) = schedule.slot() else { return Ok(()) };
            let slot = keys::slot(slot, &name);
            if check.rows.get(&slot)?.is_none() {
                check.find(format!("schedule \"{name}\" has no entry in its index by time, so it never runs"));
            }
            slots.insert(slot);
            Ok(())
        })?;
        let mut stray = Vec::new();
        for_each(self.rows, &keys::slots(), |key, _| {
            let name = keys::slot_name(key).unwrap_or_default();
            // Of a schedule that can't be read it is not known whether it has this slot.
            let is_unread = get_record::<ScheduleRecord>(self.rows, &keys::schedule(&name)).is_err();
            if !slots.contains(key) && !is_unread {
                stray.push(format!("an entry of the index of slots names no such schedule: {}", hex(key)));
            }
            Ok(())
        })?;
        self.find_all(stray);
        Ok(())
    }
}
