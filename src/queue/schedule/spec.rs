//! When a schedule's slots are: at equal intervals, or as a cron expression says in a time zone.
//!
//! What an expression means is asked of the crate `croner`, whose rules at daylight saving changes are those of Vixie's
//! cron: an expression with a fixed hour and minute whose time is skipped runs at the first moment after the gap, and
//! one whose time comes twice runs at the first; where hour or minute is a wildcard, a step or a range, each real
//! moment that matches is a slot.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    error::{Error, Result},
};

/// The shortest interval: each slot is a commit.
pub(crate) const EVERY_MIN: Duration = Duration::from_millis(100);
/// The longest interval: ten years.
pub(crate) const EVERY_MAX: Duration = Duration::from_hours(10 * 365 * 24);

/// How many slots are walked one by one before it is asked from which time on the latest are to be looked for.
const WALK: usize = 64;
/// The first of the times from which the latest slots are looked for; each next one lies twice as far back.
const LOOK_BACK: Duration = Duration::from_mins(1);

/// When slots are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Spec {
    Every(Duration),
    Cron { expression: String, zone: String },
}

/// What has come due: the latest slots, and the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) slots: Vec<Timestamp>,
    pub(crate) next: Option<Timestamp>,
}

impl Spec {
    /// The spec as it is kept, if slots can be told by it.
    ///
    /// # Errors
    /// `Invalid`, saying what is wrong, and how a right one looks.
    pub(crate) fn checked(self) -> Result<Self> {
        match self {
            Self::Every(every) if every < EVERY_MIN || every > EVERY_MAX => Err(Error::invalid(format!(
                "an interval of {every:?} is out of range; it goes from {EVERY_MIN:?} to ten years, as 15m or 24h"
            ))),
            Self::Every(every) => Ok(Self::Every(Duration::from_millis(crate::clock::millis(every)))),
            Self::Cron { expression, zone } => {
                let expression = expression.split_whitespace().collect::<Vec<_>>().join(" ");
                let zone = Cron::new(&expression, &zone)?.zone_name(zone);
                Ok(Self::Cron { expression, zone })
            }
        }
    }

    /// Whether this build can tell its slots.
    #[cfg(feature = "cli")]
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, Self::Every(_)) || cfg!(feature = "cron")
    }

    /// The first slot of a schedule that begins now, and had others up to `last`.
    ///
    /// # Errors
    /// `Invalid` where there is none, or none can be told.
    pub(crate) fn first(&self, now: Timestamp, last: Option<Timestamp>) -> Result<Timestamp> {
        let after = last.map_or(now, |last| last.max(now));
        match self {
            Self::Every(every) => Ok(after.after(*every)),
            Self::Cron { expression, zone } => Cron::new(expression, zone)?.next_after(after).ok_or_else(|| {
                Error::invalid(format!(
                    "\"{expression}\" never comes, in no year; a day that there is looks like \"30 4 1 * *\", the \
                     first of each month at 4:30"
                ))
            }),
        }
    }

    /// The latest `most` of the slots from `first`, which is one, up to now, and the one that comes next.
    ///
    /// # Errors
    /// `Invalid` where none can be told.
    pub(crate) fn due(&self, first: Timestamp, now: Timestamp, most: usize) -> Result<Due> {
        if first > now {
            return Ok(Due { slots: Vec::new(), next: Some(first) });
        }
        match self {
            Self::Every(every) => Ok(due_every(first, now, most, crate::clock::millis(*every))),
            Self::Cron { expression, zone } => {
                let cron = Cron::new(expression, zone)?;
                Ok(latest(first, now, most, |after| cron.next_after(after)))
            }
        }
    }

    /// The `count` slots from `next` on.
    pub(crate) fn upcoming(&self, next: Timestamp, count: usize) -> Result<Vec<Timestamp>> {
        let cron = match self {
            Self::Every(_) => None,
            Self::Cron { expression, zone } => Some(Cron::new(expression, zone)?),
        };
        let after = |slot: &Timestamp| match (self, &cron) {
            (Self::Every(every), _) => Some(slot.after(*every)),
            (_, Some(cron)) => cron.next_after(*slot),
            _ => None,
        };
        Ok(std::iter::successors(Some(next), after).take(count).collect())
    }
}

fn due_every(first: Timestamp, now: Timestamp, most: usize, every: u64) -> Due {
    let over = (now.as_millis() - first.as_millis()) / every;
    let slot = |number: u64| Timestamp::from_millis(first.as_millis() + number * every);
    let from = (over + 1).saturating_sub(most as u64);
    Due { slots: (from..=over).map(slot).collect(), next: Some(slot(over + 1)) }
}

/// Walks the slots from `first` on. Where they are many, as after a year in which nobody was there, it begins anew so
/// far back from now that there are enough.
fn latest(first: Timestamp, now: Timestamp, most: usize, next: impl Fn(Timestamp) -> Option<Timestamp>) -> Due {
    let mut found = walk(Some(first), now, most.saturating_add(WALK), &next);
    let mut back = crate::clock::millis(LOOK_BACK);
    while found.slots.len() > most && found.next.is_some_and(|next| next <= now) {
        let from = Timestamp::from_millis(now.as_millis().saturating_sub(back)).max(first);
        let begin = if from == first { Some(first) } else { next(from) };
        // What is walked at once is at most twice of what is asked for, and a little.
        let there = walk(begin, now, usize::MAX, &next);
        if there.slots.len() >= most || from == first {
            found = there;
        }
        back = back.saturating_mul(2);
    }
    let from = found.slots.len().saturating_sub(most);
    found.slots.drain(..from);
    found
}

/// The slots from one on up to now, at most so many, and the one behind them.
fn walk(
    mut slot: Option<Timestamp>,
    now: Timestamp,
    most: usize,
    next: &impl Fn(Timestamp) -> Option<Timestamp>,
) -> Due {
    let mut slots = Vec::new();
    while let Some(at) = slot.filter(|at| *at <= now && slots.len() < most) {
        slots.push(at);
        slot = next(at);
    }
    Due { slots, next: slot }
}

#[cfg(feature = "cron")]
pub(crate) use self::with_croner::Cron;

#[cfg(feature = "cron")]
mod with_croner {
    use jiff::tz::TimeZone;

    use super::{Error, Result, Timestamp};

    /// An expression that was read, and the zone that it is about.
    pub(crate) struct Cron {
        cron: croner::Cron,
        zone: TimeZone,
    }

    impl Cron {
        /// # Errors
        /// `Invalid`, saying what is wrong, and how a right one looks.
        pub(crate) fn new(expression: &str, zone: &str) -> Result<Self> {
            let cron = expression.parse::<croner::Cron>().map_err(|_| {
                Error::invalid(format!(
                    "\"{expression}\" is not a cron expression: {}; one looks like \"30 4 * * 1-5\": minute, hour, day \
                     of the month, month, day of the week",
                    what_is_wrong(expression)
                ))
            })?;
            Ok(Self { cron, zone: time_zone(zone)? })
        }

        /// The zone's name as its database spells it.
        pub(crate) fn zone_name(&self, given: String) -> String {
            self.zone.iana_name().map_or(given, str::to_owned)
        }

        /// The first slot behind a time; none where there is never one.
        pub(crate) fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
            // An expression counts in seconds.
            let second = jiff::Timestamp::from_second(i64::try_from(at.as_millis() / 1_000).ok()?).ok()?;
            let found = self.cron.find_next_occurrence(&second.to_zoned(self.zone.clone()), false).ok()?;
            let slot = Timestamp::from_millis(u64::try_from(found.timestamp().as_millisecond()).ok()?);
            (slot > at).then_some(slot)
        }
    }

    /// The fields of an expression with seconds and years, and what may stand there.
    const FIELDS: [(&str, &str); 7] = [
        ("second", "from 0 to 59, as 0, */15 or 0,30"),
        ("minute", "from 0 to 59, as 0, */15 or 0,30"),
        ("hour", "from 0 to 23, as 4, */6 or 8-18"),
        ("day of the month", "from 1 to 31, as 1, 1-7 or L for the last"),
        ("month", "from 1 to 12, as 6, */3 or JAN-MAR"),
        ("day of the week", "from 0 to 7, Sunday being both, as 1-5 or MON,FRI"),
        ("year", "by its number, as 2030 or 2030-2035"),
    ];

    /// What an expression that can't be read is refused for: the field, where it is one.
    fn what_is_wrong(expression: &str) -> String {
        let fields: Vec<&str> = expression.split_whitespace().collect();
        if expression.contains('@') {
            return "there is no such name; there are @yearly, @monthly, @weekly, @daily and @hourly".to_owned();
        }
        let known = match fields.len() {
            5 => &FIELDS[1..6],
            6 => &FIELDS[..6],
            7 => &FIELDS[..],
            count => return format!("it has {count} of five fields; with six the first is the second"),
        };
        let is_wrong_alone = |index: &usize| {
            let mut alone = vec!["*"; fields.len()];
            alone[*index] = fields[*index];
            alone.join(" ").parse::<croner::Cron>().is_err()
        };
        match (0..fields.len()).find(is_wrong_alone) {
            Some(index) => {
                let (name, form) = known[index];
                format!("\"{}\" is no {name}, which goes {form}", fields[index])
            }
            None => "its fields don't go together".to_owned(),
        }
    }

    fn time_zone(name: &str) -> Result<TimeZone> {
        TimeZone::get(name).map_err(|_| {
            Error::invalid(format!(
                "there is no time zone \"{name}\"; one looks like Europe/Berlin, America/New_York or UTC"
            ))
        })
    }
}

/// There is none in a build without the feature.
#[cfg(not(feature = "cron"))]
pub(crate) enum Cron {}

#[cfg(not(feature = "cron"))]
impl Cron {
    pub(crate) fn new(expression: &str, _zone: &str) -> Result<Self> {
        Err(Error::invalid(format!(
            "\"{expression}\" is a cron expression, and this program was built without the feature `cron`; give an \
             interval, or leave the schedule to a program that has it"
        )))
    }

    pub(crate) fn zone_name(&self, _given: String) -> String {
        match *self {}
    }

    pub(crate) fn next_after(&self, _at: Timestamp) -> Option<Timestamp> {
        match *self {}
    }
}
