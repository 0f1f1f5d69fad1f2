//! The limits of a queue, as the model keeps to them.

use std::time::Duration;

use crate::{
    clock::Timestamp,
    queue::{
        QueueConfig, Rate,
        config::{QueueSetting, RateRecord},
        state::State,
    },
};

/// What is configured for a queue, and the tokens in its bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Limits {
    pub(super) running_max: Option<u32>,
    pub(super) key_running_max: Option<u32>,
    pub(super) is_strict: bool,
    pub(super) size_max: Option<u64>,
    pub(super) keeps_completed: bool,
    retention_completed: Option<Duration>,
    retention_dead: Option<Duration>,
    retention_cancelled: Option<Duration>,
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
            QueueSetting::Rate(rate) if rate != self.rate => {
                self.level = match (self.level, &self.rate, &rate) {
                    (Some(level), Some(before), Some(after)) => {
                        let full = u128::from(after.burst) * Self::period(after);
                        Some((level * Self::period(after) / Self::period(before)).min(full))
                    }
                    _ => None,
                };
                (self.rate, self.filled_at) = (rate, now);
            }
            QueueSetting::Rate(_) => {}
            QueueSetting::RetentionCompleted(retention) => self.retention_completed = retention,
            QueueSetting::RetentionDead(retention) => self.retention_dead = retention,
            QueueSetting::RetentionCancelled(retention) => self.retention_cancelled = retention,
            QueueSetting::KeepsCompleted(keeps) => self.keeps_completed = keeps,
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

    pub(super) fn retention(&self, state: State) -> Option<Duration> {
        match state {
            State::Completed => self.retention_completed,
            State::Dead => self.retention_dead,
            _ => self.retention_cancelled,
        }
    }

    pub(super) fn lets_nothing_run(&self) -> bool {
        self.running_max == Some(0) || self.key_running_max == Some(0)
    }

    /// The same as what a queue is told to be configured to.
    pub(super) fn config(&self) -> QueueConfig {
        let rate = |rate: RateRecord| Rate { jobs: rate.jobs, period: rate.period, burst: rate.burst };
        QueueConfig {
            concurrency: self.running_max,
            concurrency_per_key: self.key_running_max,
            strict_order_per_key: self.is_strict,
            rate: self.rate.map(rate),
            size_max: self.size_max,
            retention_completed: self.retention_completed,
            retention_dead: self.retention_dead,
            retention_cancelled: self.retention_cancelled,
            keep_completed: self.keeps_completed,
        }
    }
}
