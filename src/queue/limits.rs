//! What is configured for a queue, as a user sees it: limits, rates, and how long ended jobs are kept.

use std::time::Duration;

use serde::Serialize;

use crate::{
    error::Result,
    queue::{
        Queue,
        admin::Admin,
        config::{ConfigRecord, QueueSetting, RateRecord, config},
    },
    store::change::Intent,
};

/// What is configured for a queue, in the store, so that all processes keep to it. What is not set is not limited, or
/// as the store's settings say.
///
/// ```
/// use std::time::Duration;
/// use casque::types::{QueueConfig, Rate};
/// # let store = casque::Store::in_memory()?;
/// let calls = store.queue("calls");
/// let minute = Duration::from_secs(60);
/// calls.configure(&QueueConfig::new().concurrency(4).concurrency_per_key(1).rate(Rate::new(100, minute)))?;
/// calls.enqueue(casque::JobRequest::new("call", &"hello").concurrency_key("customer-7"))?;
/// assert_eq!(calls.config()?.concurrency, Some(4));
/// # Ok::<(), casque::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueConfig {
    /// How many of its jobs may be claimed at once, in all processes together.
    pub concurrency: Option<u32>,
    /// How many jobs of one concurrency key may be claimed at once; one where nothing is set.
    pub concurrency_per_key: Option<u32>,
    /// Whether the jobs of one concurrency key are claimed in their order, whatever their priorities, and one that is
    /// tried again holds back those behind it.
    pub strict_order_per_key: bool,
    /// How many jobs may be claimed in a time.
    pub rate: Option<Rate>,
    /// How many jobs may be in it that have not begun; who enqueues more is refused.
    pub size_max: Option<u64>,
    /// For how long completed jobs are kept that have a result, or are to be kept.
    pub retention_completed: Option<Duration>,
    /// For how long dead jobs are kept.
    pub retention_dead: Option<Duration>,
    /// For how long cancelled jobs are kept.
    pub retention_cancelled: Option<Duration>,
    /// Whether completed jobs without a result are kept too.
    pub keep_completed: bool,
}

/// So many jobs in each period, as a bucket of tokens: each claimed job takes one, and they come back evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rate {
    /// How many tokens come in a period.
    pub jobs: u32,
    /// The period, of a millisecond or more.
    pub period: Duration,
    /// How many tokens there are at most: so many jobs may be claimed at once after a pause.
    pub burst: u32,
}

impl Rate {
    /// So many jobs in each period, and as many at once after a pause.
    #[must_use]
    pub const fn new(jobs: u32, period: Duration) -> Self {
        Self { jobs, period, burst: jobs }
    }

    /// So many jobs at once after a pause.
    #[must_use]
    pub const fn burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }
}

impl QueueConfig {
    /// A configuration in which nothing is set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many of the queue's jobs may be claimed at once, in all processes together.
    #[must_use]
    pub fn concurrency(mut self, jobs: u32) -> Self {
        self.concurrency = Some(jobs);
        self
    }

    /// How many jobs of one concurrency key may be claimed at once; one where nothing is set.
    #[must_use]
    pub fn concurrency_per_key(mut self, jobs: u32) -> Self {
        self.concurrency_per_key = Some(jobs);
        self
    }

    /// Has the jobs of one concurrency key claimed in their order, whatever their priorities; one that is tried again
    /// holds back those behind it, until it has completed, or is dead or cancelled.
    #[must_use]
    pub fn strict_order_per_key(mut self, is_strict: bool) -> Self {
        self.strict_order_per_key = is_strict;
        self
    }

    /// How many jobs may be claimed in a time.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// How many jobs may be in the queue that have not begun.
    #[must_use]
    pub fn size_max(mut self, jobs: u64) -> Self {
        self.size_max = Some(jobs);
        self
    }

    /// For how long completed jobs are kept that have a result, or are to be kept.
    #[must_use]
    pub fn retention_completed(mut self, retention: Duration) -> Self {
        self.retention_completed = Some(retention);
        self
    }

    /// For how long dead jobs are kept.
    #[must_use]
    pub fn retention_dead(mut self, retention: Duration) -> Self {
        self.retention_dead = Some(retention);
        self
    }

    /// For how long cancelled jobs are kept.
    #[must_use]
    pub fn retention_cancelled(mut self, retention: Duration) -> Self {
        self.retention_cancelled = Some(retention);
        self
    }

    /// Whether completed jobs without a result are kept too.
    #[must_use]
    pub fn keep_completed(mut self, keeps: bool) -> Self {
        self.keep_completed = keeps;
        self
    }

    pub(crate) fn of(config: &ConfigRecord) -> Self {
        Self {
            concurrency: config.running_max,
            concurrency_per_key: config.key_running_max,
            strict_order_per_key: config.is_strict_by_key,
            rate: config.rate.map(|rate| Rate { jobs: rate.jobs, period: rate.period, burst: rate.burst }),
            size_max: config.size_max,
            retention_completed: config.retention_completed,
            retention_dead: config.retention_dead,
            retention_cancelled: config.retention_cancelled,
            keep_completed: config.keeps_completed,
        }
    }

    fn settings(&self) -> Vec<QueueSetting> {
        let rate = |rate: Rate| RateRecord { jobs: rate.jobs, period: rate.period, burst: rate.burst };
        vec![
            QueueSetting::RunningMax(self.concurrency),
            QueueSetting::KeyRunningMax(self.concurrency_per_key),
            QueueSetting::StrictByKey(self.strict_order_per_key),
            QueueSetting::Rate(self.rate.map(rate)),
            QueueSetting::SizeMax(self.size_max),
            QueueSetting::RetentionCompleted(self.retention_completed),
            QueueSetting::RetentionDead(self.retention_dead),
            QueueSetting::RetentionCancelled(self.retention_cancelled),
            QueueSetting::KeepsCompleted(self.keep_completed),
        ]
    }
}

impl Queue {
    /// Configures the queue, in the store: from then on all processes keep to it. What runs goes on; what the
    /// configuration does not set is as if it had never been.
    ///
    /// ```
    /// # let store = casque::Store::in_memory()?;
    /// let mails = store.queue("mails");
    /// let mut config = mails.config()?;
    /// config.concurrency = Some(2);
    /// mails.configure(&config)?;
    /// # Ok::<(), casque::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a limit, or a part of a rate, that is zero.
    pub fn configure(&self, config: &QueueConfig) -> Result<()> {
        self.set(config.settings())
    }

    /// What is configured for the queue.
    ///
    /// # Errors
    /// What reading the store says.
    pub fn config(&self) -> Result<QueueConfig> {
        let config = config(self.store().inner.rows()?.as_ref(), self.name())?;
        Ok(QueueConfig::of(&config.unwrap_or_default()))
    }

    pub(crate) fn set(&self, settings: Vec<QueueSetting>) -> Result<()> {
        let admin = Admin::ConfigureQueue { queue: self.name().to_owned(), settings };
        self.store().inner.perform(Intent::Administer(admin)).map(|_| ())
    }
}
