//! What is configured for a queue, in the store, so that all processes agree on it: a row that most queues don't have.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    clock::millis,
    codec::Record,
    engine::Rows,
    error::{Error, Result},
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
            Some(rate) if rate.jobs == 0 || rate.burst == 0 || millis(rate.period) == 0 => {
                Err("its rate lets no job run")
            }
            _ if self.running_max == Some(0) || self.key_running_max == Some(0) => Err("its limit lets no job run"),
            _ if self.size_max == Some(0) => Err("its size-max lets no job run, since none gets in"),
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
    pub(crate) fn set(&mut self, setting: QueueSetting) {
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
    after.validate().map_err(|why| Error::invalid(format!("queue \"{queue}\" can't be configured so: {why}")))?;
    if after == before {
        return Ok(Outcome::Done);
    }
    // What this change has done so far was by the rules that held until now.
    context.settle_keys()?;
    let key = keys::queue_config(queue);
    if after == ConfigRecord::default() {
        context.rows.remove(key);
    } else {
        context.rows.put_record(key, &after)?;
    }
    context.config_known = None;
    if after.key_rules() != before.key_rules() {
        context.change_key_rules(queue, before.key_rules(), after.key_rules())?;
    }
    if after.rate != before.rate {
        context.change_rate(queue, before.rate.as_ref(), after.rate.as_ref())?;
    }
    // What may be claimed is another: a claim by what was seen before is to know.
    let head = context.head(queue)?;
    context.bump_head(queue, head)?;
    context.note_queue(queue)?;
    Ok(Outcome::Done)
}

impl Context<'_> {
    /// Writes a queue's configuration once more, as it is, where its maximum was reached and is no longer: by that row
    /// the claims that wait at a stone are tried.
    pub(crate) fn tell_if_below_maximum(&mut self, queue: &str, before: u64, after: u64) -> Result<()> {
        let config = self.config(queue)?;
        if config.running_max.map(u64::from).is_some_and(|most| before >= most && after < most) {
            let config = config.clone();
            self.rows.put_record(keys::queue_config(queue), &config)?;
        }
        Ok(())
    }
}
