//! Rate limits: a bucket of tokens per queue, of which each claimed job takes one. Exact: parts of tokens are whole
//! numbers, so that no token is lost or won by rounding.
//!
//! Tokens come as the clock goes on. A clock that jumps ahead fills the bucket at most; one that steps back gives
//! nothing for what it goes through again before it was seen, and stops nothing: tokens come from then on as before.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    clock::{Timestamp, millis},
    codec::Record,
    engine::Rows,
    error::{ErrorKind, Result},
    queue::config::{RateRecord, config},
    store::{
        apply::Context,
        keys,
        view::{first_rows, get_record},
    },
};

/// A bucket as it was at a time. One that has no row is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BucketRecord {
    /// In parts of a token: a period's milliseconds are one token, and each millisecond gives the rate's jobs.
    level: u128,
    at: Timestamp,
}

impl Record for BucketRecord {
    const NAME: &'static str = "bucket of tokens";
}

impl RateRecord {
    fn token(&self) -> u128 {
        u128::from(millis(self.period)).max(1)
    }

    fn full(&self) -> u128 {
        u128::from(self.burst) * self.token()
    }
}

impl BucketRecord {
    pub(crate) fn full(rate: &RateRecord, now: Timestamp) -> Self {
        Self { level: rate.full(), at: now }
    }

    /// The bucket as it is now.
    fn at(self, rate: &RateRecord, now: Timestamp) -> Self {
        let came = u128::from(millis(now.since(self.at))).saturating_mul(rate.jobs.into());
        Self { level: self.level.saturating_add(came).min(rate.full()), at: now }
    }

    fn tokens(self, rate: &RateRecord) -> u64 {
        u64::try_from(self.level / rate.token()).unwrap_or(u64::MAX)
    }

    /// When its row is to be brought up to date, so that those who wait see the next token; never where it shows one.
    fn due(self, rate: &RateRecord, now: Timestamp) -> Option<Timestamp> {
        let missing = rate.token().checked_sub(self.level).filter(|missing| *missing > 0)?;
        let wait = u64::try_from(missing.div_ceil(rate.jobs.into())).unwrap_or(u64::MAX);
        // A clock that stepped back is told to the bucket at once: its tokens come from then on.
        Some(if now < self.at { now } else { self.at.after(Duration::from_millis(wait)) })
    }

    /// The same part of another rate's tokens.
    fn converted(self, before: &RateRecord, after: &RateRecord, now: Timestamp) -> Self {
        // Exact, but for rates so large that a bucket of either never runs empty.
        let level = self.at(before, now).level.saturating_mul(after.token()) / before.token();
        Self { level: level.min(after.full()), at: now }
    }
}

/// How many jobs a queue's rate lets be claimed now.
pub(crate) fn tokens(rows: &dyn Rows, queue: &str, rate: &RateRecord, now: Timestamp) -> Result<u64> {
    let bucket: Option<BucketRecord> = get_record(rows, &keys::bucket(queue))?;
    Ok(bucket.map_or(u64::from(rate.burst), |bucket| bucket.at(rate, now).tokens(rate)))
}

/// When the next token comes to a bucket that had none, of whatever queue. Reads the buckets that there are.
pub(crate) fn next_token(rows: &dyn Rows, now: Timestamp) -> Result<Option<Timestamp>> {
    let mut next: Option<Timestamp> = None;
    for (_, bucket, rate) in buckets(rows)? {
        next = next.into_iter().chain(bucket.due(&rate, now)).min();
    }
    Ok(next)
}

/// The buckets that there are. What this build can't read is left to one that can.
fn buckets(rows: &dyn Rows) -> Result<Vec<(String, BucketRecord, RateRecord)>> {
    let mut buckets = Vec::new();
    for (key, bytes) in first_rows(rows, &keys::buckets(), usize::MAX)? {
        let queue = keys::root_name(&key);
        let rate = match config(rows, &queue) {
            Ok(config) => config.and_then(|config| config.rate),
            Err(error) if error.kind() == ErrorKind::Corrupt => None,
            Err(error) => return Err(error),
        };
        buckets.extend(rate.zip(crate::codec::decode(&bytes).ok()).map(|(rate, bucket)| (queue, bucket, rate)));
    }
    Ok(buckets)
}

impl Context<'_> {
    /// Takes the tokens of jobs that are claimed.
    pub(crate) fn take_tokens(&mut self, queue: &str, rate: &RateRecord, jobs: u64) -> Result<()> {
        let key = keys::bucket(queue);
        let bucket = get_record(&self.rows, &key)?.unwrap_or_else(|| BucketRecord::full(rate, self.now));
        let bucket = bucket.at(rate, self.now);
        let level = bucket.level.saturating_sub(u128::from(jobs) * rate.token());
        self.rows.put_record(key, &BucketRecord { level, ..bucket })
    }

    /// Writes the buckets to which a token has come, so that claims that wait for one are tried.
    pub(crate) fn fill_buckets(&mut self) -> Result<()> {
        for (queue, bucket, rate) in buckets(&self.rows)? {
            if bucket.due(&rate, self.now).is_some_and(|at| at <= self.now) {
                self.rows.put_record(keys::bucket(&queue), &bucket.at(&rate, self.now))?;
            }
        }
        Ok(())
    }

    /// Another rate for a queue: what was in its bucket stays there, as the same number of tokens.
    pub(crate) fn change_rate(
        &mut self,
        queue: &str,
        before: Option<&RateRecord>,
        after: Option<&RateRecord>,
    ) -> Result<()> {
        let key = keys::bucket(queue);
        let Some(bucket) = get_record::<BucketRecord>(&self.rows, &key)? else { return Ok(()) };
        match (before, after) {
            (Some(before), Some(after)) => {
                self.rows.put_record(key, &bucket.converted(before, after, self.now))?;
            }
            _ => self.rows.remove(key),
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) fn bucket_of(level: u128, at: Timestamp) -> BucketRecord {
    BucketRecord { level, at }
}
