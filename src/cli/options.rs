//! The options of a job to enqueue, the same for a task and for a command.

use std::time::Duration;

use clap::Args;

use super::units::{parse_duration, parse_time};
use crate::{clock::Timestamp, queue::JobRequest};

#[derive(Clone, Debug, Args)]
pub(super) struct JobOptions {
    /// From -100 to 100, higher first [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) priority: Option<i64>,
    /// Run it no sooner than so long from now, as 30s or 1h30m
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(super) delay: Option<Duration>,
    /// Run it no sooner than then, in RFC 3339, as 2030-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "delay")]
    pub(super) at: Option<Timestamp>,
    /// While a job with this key has not ended, give that one's id instead
    #[arg(long, value_name = "KEY")]
    pub(super) unique: Option<String>,
    /// How many attempts may fail before it is dead [default: 20]
    #[arg(long, value_name = "N")]
    pub(super) max_attempts: Option<u32>,
    /// How long an attempt may take, as 30s or 5m; after that it has failed [default: as its task says]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(super) timeout: Option<Duration>,
    /// Metadata to store with it; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair("KEY=VALUE"))]
    pub(super) metadata: Vec<(String, String)>,
    /// Keep it after it has completed, also without a result
    #[arg(long)]
    pub(super) keep: bool,
}

impl JobOptions {
    pub(super) fn apply_to(&self, mut job: JobRequest) -> JobRequest {
        if let Some(priority) = self.priority {
            job = job.priority(priority);
        }
        if let Some(delay) = self.delay {
            job = job.delay(delay);
        }
        if let Some(at) = self.at {
            job = job.run_at(at);
        }
        if let Some(unique) = &self.unique {
            job = job.unique(unique);
        }
        if let Some(attempts) = self.max_attempts {
            job = job.max_attempts(attempts);
        }
        if let Some(timeout) = self.timeout {
            job = job.timeout(timeout);
        }
        for (key, value) in &self.metadata {
            job = job.metadata(key, value);
        }
        if self.keep { job.keep() } else { job }
    }
}

/// Reads two texts with `=` between them, which the help shows in this form.
pub(super) fn pair(form: &'static str) -> impl Fn(&str) -> Result<(String, String), String> + Clone {
    move |text| match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("\"{text}\" is not {form}")),
    }
}
