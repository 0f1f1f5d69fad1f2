//! What is configured for a queue, in the store, so that all processes agree on it: a row that most queues don't have.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    codec::Record,
    engine::Rows,
    error::Result,
    queue::enqueue::check_name,
    store::{apply::Context, change::Outcome, keys, view::get_record},
};

/// A queue's configuration; what is not set is not limited, or as the store's settings say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigRecord {
    /// How many of its jobs may run at once, in all processes together.
    pub(crate) running_max: Option<u32>,
    /// How many jobs of one concurrency key may run at once; one where nothing is set.
    pub(crate) key_running_max: Option<u32>,
    /// Whether a job that failed holds back those behind it that have its concurrency key.
    pub(crate) is_strict_by_key: bool,
    pub(crate) rate: Option<RateRecord>,
    /// How many jobs may wait in it, in whatever state before they run.
    pub(crate) size_max: Option<u64>,
    pub(crate) retention_completed: Option<Duration>,
    pub(crate) retention_dead: Option<Duration>,
    pub(crate) retention_cancelled: Option<Duration>,
    /// Whether completed jobs without a result are kept too.
    pub(crate) keeps_completed: bool,
}

/// A token bucket: so many jobs in each period are started, and at most `burst` at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RateRecord {
    pub(crate) jobs: u32,
    pub(crate) period: Duration,
    pub(crate) burst: u32,
}

impl Record for ConfigRecord {
    const NAME: &'static str = "queue configuration";

    fn validate(&self) -> Result<(), &'static str> {
        match self.rate {
            Some(rate) if rate.jobs == 0 || rate.burst == 0 || rate.period.is_zero() => Err("its rate lets no job run"),
            _ => Ok(()),
        }
    }
}

/// One setting of a queue, as it travels in a change; nothing where it is to be unset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum QueueSetting {
    RunningMax(Option<u32>),
    KeyRunningMax(Option<u32>),
    StrictByKey(bool),
    Rate(Option<RateRecord>),
    SizeMax(Option<u64>),
    RetentionCompleted(Option<Duration>),
    RetentionDead(Option<Duration>),
    RetentionCancelled(Option<Duration>),
    KeepsCompleted(bool),
}

impl ConfigRecord {
    fn set(&mut self, setting: QueueSetting) {
        match setting {
            QueueSetting::RunningMax(most) => self.running_max = most,
            QueueSetting::KeyRunningMax(most) => self.key_running_max = most,
            QueueSetting::StrictByKey(is_strict) => self.is_strict_by_key = is_strict,
            QueueSetting::Rate(rate) => self.rate = rate,
            QueueSetting::SizeMax(most) => self.size_max = most,
            QueueSetting::RetentionCompleted(retention) => self.retention_completed = retention,
            QueueSetting::RetentionDead(retention) => self.retention_dead = retention,
            QueueSetting::RetentionCancelled(retention) => self.retention_cancelled = retention,
            QueueSetting::KeepsCompleted(keeps) => self.keeps_completed = keeps,
        }
    }
}

impl Context<'_> {
    /// What is configured for a queue. Jobs of one queue mostly come together, so the last one is remembered.
    pub(crate) fn config(&mut self, queue: &str) -> Result<&ConfigRecord> {
        if self.config_known.as_ref().is_none_or(|(known, _)| known != queue) {
            let config = config(&self.rows, queue)?.unwrap_or_default();
            self.config_known = Some((queue.to_owned(), config));
        }
        Ok(&self.config_known.as_ref().expect("it was just put there").1)
    }
}

/// What is configured for a queue; nothing for most.
pub(crate) fn config(rows: &dyn Rows, queue: &str) -> Result<Option<ConfigRecord>> {
    get_record(rows, &keys::queue_config(queue))
}

/// Sets what is configured for a queue.
pub(crate) fn configure(context: &mut Context<'_>, queue: &str, settings: &[QueueSetting]) -> Result<Outcome> {
    check_name("queue", queue)?;
    let before = config(&context.rows, queue)?.unwrap_or_default();
    let mut after = before.clone();
    settings.iter().for_each(|setting| after.set(*setting));
    context.config_known = None;
    let key = keys::queue_config(queue);
    if after == ConfigRecord::default() {
        context.rows.remove(key);
    } else if after != before {
        context.rows.put_record(key, &after)?;
    }
    Ok(Outcome::Done)
}
