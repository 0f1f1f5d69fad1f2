//! The limits of a queue, as the model keeps to them.

use std::time::Duration;

use proptest::prelude::*;

use super::{Job, Model};
use crate::{
    clock::Timestamp,
    queue::{
        config::{QueueSetting, RateRecord},
        state::State,
    },
};

/// What is configured for a queue, and the tokens in its bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    pub(super) running_max: Option<u32>,
    pub(super) key_running_max: Option<u32>,
    pub(super) is_strict: bool,
    pub(super) size_max: Option<u64>,
    rate: Option<RateRecord>,
    /// In parts of which a period's milliseconds are one token; nothing for a bucket that was never used.
    level: Option<u128>,
    filled_at: Timestamp,
}

impl Limits {
    fn period(rate: &RateRecord) -> u128 {
        rate.period.as_millis()
    }

    pub(super) fn fill(&mut self, now: Timestamp) {
        let Some(rate) = &self.rate else { return };
        let came = now.since(self.filled_at).as_millis() * u128::from(rate.jobs);
        let full = u128::from(rate.burst) * Self::period(rate);
        self.level = self.level.map(|level| (level + came).min(full));
        self.filled_at = now;
    }

    pub(super) fn set(&mut self, setting: QueueSetting, now: Timestamp) {
        match setting {
            QueueSetting::RunningMax(most) => self.running_max = most,
            QueueSetting::KeyRunningMax(most) => self.key_running_max = most,
            QueueSetting::StrictByKey(is_strict) => self.is_strict = is_strict,
            QueueSetting::SizeMax(most) => self.size_max = most,
            QueueSetting::Rate(rate) => {
                self.fill(now);
                self.level = match (self.level, &self.rate, &rate) {
                    (Some(level), Some(before), Some(after)) => {
                        let full = u128::from(after.burst) * Self::period(after);
                        Some((level * Self::period(after) / Self::period(before)).min(full))
                    }
                    _ => None,
                };
                self.rate = rate;
            }
            _ => unreachable!("no other is made here"),
        }
    }

    pub(super) fn tokens(&self) -> usize {
        let Some(rate) = &self.rate else { return usize::MAX };
        self.level.map_or(rate.burst as usize, |level| usize::try_from(level / Self::period(rate)).unwrap())
    }

    pub(super) fn take(&mut self, tokens: usize) {
        if let Some(rate) = &self.rate
            && tokens > 0
        {
            let level = self.level.unwrap_or(u128::from(rate.burst) * Self::period(rate));
            self.level = Some(level - tokens as u128 * Self::period(rate));
        }
    }
}

/// Any setting that limits a queue.
pub(super) fn settings() -> impl Strategy<Value = QueueSetting> {
    let rate = (1u32..3, 1u64..4, 1u32..4).prop_map(|(jobs, seconds, burst)| RateRecord {
        jobs,
        period: Duration::from_secs(50 * seconds),
        burst,
    });
    prop_oneof![
        1 => prop::option::of(1u32..4).prop_map(QueueSetting::RunningMax),
        2 => prop::option::of(1u32..4).prop_map(QueueSetting::KeyRunningMax),
        3 => any::<bool>().prop_map(QueueSetting::StrictByKey),
        1 => prop::option::weighted(0.3, rate).prop_map(QueueSetting::Rate),
        1 => prop::option::weighted(0.3, 2u64..6).prop_map(QueueSetting::SizeMax),
    ]
}

impl Model {
    pub(super) fn key_lets_run(&self, index: usize, picked: &[usize]) -> bool {
        let job = &self.jobs[index];
        if job.key.is_none() {
            return true;
        }
        let limits = &self.limits[job.queue];
        let of_key = |other: &&Job| other.queue == job.queue && other.key == job.key;
        let picked = picked.iter().map(|index| &self.jobs[*index]).filter(of_key).count();
        let running = self.jobs.iter().filter(of_key).filter(|other| other.state == Some(State::Running)).count();
        if running + picked >= limits.key_running_max.unwrap_or(1) as usize {
            return false;
        }
        let goes_before = |other: &Job| other.state == Some(State::Ready) || other.holds_back;
        let is_first = !self.jobs.iter().filter(of_key).any(|other| goes_before(other) && other.place < job.place);
        !limits.is_strict || (picked == 0 && is_first)
    }
}
