//! The options of a job to enqueue, the same for a task, a command and a schedule; and how a schedule's are shown.

use std::{collections::BTreeMap, time::Duration};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::units::{format_duration, parse_duration, parse_time};
use crate::{
    clock::{Timestamp, millis},
    error::{Error, Result},
    queue::{
        JobRequest, OnFailure, Unique,
        enqueue::{NewJob, NewUnique, When},
        extra::UniqueScope,
        id::JobId,
        state::State,
    },
};

/// Among which jobs a unique key is unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Scope {
    /// Those of the queue
    #[default]
    Queue,
    /// All of the store
    Store,
}

/// What stands for all arguments where fields of them may be named.
const ALL_ARGS: &str = "args";

#[derive(Clone, Debug, Args)]
pub(super) struct JobOptions {
    /// From -100 to 100, higher first [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) priority: Option<i64>,
    /// Run it no sooner than so long from now, as 30s or 1h30m
    #[arg(long, value_name = "DUR", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(super) delay: Option<Duration>,
    /// Run it no sooner than then, in RFC 3339, as 2030-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "delay")]
    pub(super) at: Option<Timestamp>,
    /// While a job with this key has not ended, give that one's id instead
    #[arg(long, value_name = "KEY")]
    pub(super) unique: Option<String>,
    /// Make the unique key of the task and its arguments, or of these fields of them
    #[arg(long, value_name = "args|FIELD,...", conflicts_with = "unique")]
    pub(super) unique_by: Option<String>,
    /// Hold the unique key for so long, also after the job has succeeded; no longer
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(super) unique_within: Option<Duration>,
    /// Among which jobs the key is unique
    #[arg(long, value_name = "SCOPE", value_enum, default_value_t, hide_default_value = true)]
    pub(super) unique_scope: Scope,
    /// Hold the unique key in these states [default: until the job has ended]
    #[arg(long, value_name = "STATE,...", value_delimiter = ',')]
    pub(super) unique_while: Vec<State>,
    /// Its concurrency key: as many jobs of one key run at once as the queue's settings say, one by default
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
    /// Where the queue is full, wait for room for up to so long; commits each job by itself
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(super) wait: Option<Duration>,
    /// How many attempts may fail before it is dead [default: 20]
    #[arg(long, value_name = "N")]
    pub(super) max_attempts: Option<u32>,
    /// Once a run of it has begun no other ever does: it has one attempt
    #[arg(long, conflicts_with = "max_attempts")]
    pub(super) at_most_once: bool,
    /// Let it wait until that job has ended; may be given more than once
    #[arg(long, value_name = "ID")]
    pub(super) after: Vec<JobId>,
    /// What becomes of it when a job that it waits for dies or is cancelled [default: cancel, and run with --open]
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(super) on_failure: Option<OnFailureOption>,
    /// Let that waiting job wait for it too, as the one that a batch ends with
    #[arg(long, value_name = "ID")]
    pub(super) before: Vec<JobId>,
    /// Let it wait for all that is enqueued --before it, until it is sealed
    #[arg(long)]
    pub(super) open: bool,
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

/// As the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnFailureOption {
    /// It is cancelled too
    Cancel,
    /// It runs all the same, when all have ended
    Run,
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
        if let Some(unique) = self.unique() {
            job = job.unique_by(unique);
        }
        if let Some(key) = &self.key {
            job = job.concurrency_key(key);
        }
        if let Some(attempts) = self.max_attempts {
            job = job.max_attempts(attempts);
        }
        if self.at_most_once {
            job = job.at_most_once();
        }
        for id in &self.after {
            job = job.after(*id);
        }
        for id in &self.before {
            job = job.before(*id);
        }
        job.extra_mut().is_open |= self.open;
        match self.on_failure {
            Some(OnFailureOption::Cancel) => job = job.on_failure(OnFailure::Cancel),
            Some(OnFailureOption::Run) => job = job.on_failure(OnFailure::Run),
            None if self.open => job = job.on_failure(OnFailure::Run),
            None => {}
        }
        if let Some(timeout) = self.timeout {
            job = job.timeout(timeout);
        }
        for (key, value) in &self.metadata {
            job = job.metadata(key, value);
        }
        if self.keep { job.keep() } else { job }
    }

    /// # Errors
    /// `Invalid` for what has no meaning beside what else is said, or not said.
    pub(super) fn check(&self) -> Result<()> {
        let says_more = [
            ("--unique-within", self.unique_within.is_some()),
            ("--unique-scope", self.unique_scope != Scope::default()),
            ("--unique-while", !self.unique_while.is_empty()),
        ];
        if let Some((option, _)) = says_more.into_iter().find(|(_, is_said)| *is_said)
            && self.unique.is_none()
            && self.unique_by.is_none()
        {
            return Err(Error::invalid(format!(
                "{option} is about a unique key, and none is named; add --unique KEY or --unique-by args"
            )));
        }
        if self.at_most_once && self.max_attempts.is_some() {
            return Err(Error::invalid(
                "a job that runs at most once has one attempt; leave out either that or the number of attempts",
            ));
        }
        Ok(())
    }

    /// # Errors
    /// `Invalid` for what is said of the jobs that it waits for, where it waits for none.
    pub(super) fn check_waits(&self) -> Result<()> {
        if self.on_failure.is_some() && self.after.is_empty() && !self.open {
            return Err(Error::invalid(
                "--on-failure is about the jobs that it waits for, and it waits for none; add --after ID or --open",
            ));
        }
        Ok(())
    }

    fn unique(&self) -> Option<Unique> {
        let mut unique = match (&self.unique, self.unique_by.as_deref()) {
            (Some(key), _) => Unique::key(key),
            (None, Some(ALL_ARGS)) => Unique::args(),
            (None, Some(fields)) => Unique::fields(fields.split(',').map(str::trim)),
            (None, None) => return None,
        };
        if let Some(within) = self.unique_within {
            unique = unique.within(within);
        }
        if self.unique_scope == Scope::Store {
            unique = unique.across_queues();
        }
        if !self.unique_while.is_empty() {
            unique = unique.while_in(&self.unique_while);
        }
        Some(unique)
    }
}

/// The options of a job that a schedule enqueues, as JSON.
#[derive(Serialize)]
pub(super) struct OptionsLine {
    priority: i64,
    delay_ms: Option<u64>,
    max_attempts: u32,
    at_most_once: bool,
    timeout_ms: Option<u64>,
    unique: Option<UniqueLine>,
    key: Option<String>,
    metadata: BTreeMap<String, String>,
    keep: bool,
}

/// A unique key, and where, when and how long it is held.
#[derive(Serialize)]
struct UniqueLine {
    key: String,
    scope: &'static str,
    #[serde(rename = "while")]
    states: Vec<State>,
    within_ms: Option<u64>,
}

impl OptionsLine {
    pub(super) fn of(job: &NewJob) -> Self {
        let extra = job.extra.as_deref();
        let unique = |unique: &NewUnique| UniqueLine {
            key: unique.key.clone(),
            scope: match unique.scope {
                UniqueScope::Queue => "queue",
                UniqueScope::Store => "store",
            },
            states: unique.states.states().collect(),
            within_ms: unique.within.map(millis),
        };
        let at_most_once = extra.is_some_and(|extra| extra.at_most_once);
        Self {
            priority: job.priority,
            delay_ms: if let When::After(delay) = job.when { Some(millis(delay)) } else { None },
            max_attempts: if at_most_once { 1 } else { job.attempts_max },
            at_most_once,
            timeout_ms: extra.and_then(|extra| extra.timeout).map(millis),
            unique: job.unique().map(unique),
            key: extra.and_then(|extra| extra.key.clone()),
            metadata: job.metadata.iter().cloned().collect(),
            keep: job.keep,
        }
    }

    /// The same for people: those that say something.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![("priority", self.priority.to_string()), ("max attempts", self.max_attempts.to_string())];
        if self.at_most_once {
            rows.push(("delivery", "at most once".to_owned()));
        }
        if let Some(delay) = self.delay_ms {
            rows.push(("delay", format!("{} behind each slot", format_duration(delay))));
        }
        if let Some(timeout) = self.timeout_ms {
            rows.push(("timeout", format!("{} per attempt", format_duration(timeout))));
        }
        if let Some(UniqueLine { key, scope, states, within_ms }) = &self.unique {
            let states = states.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let within = within_ms.map(|within| format!(", for {} at most", format_duration(within)));
            rows.push(("unique", format!("{key}, in the {scope}, while {states}{}", within.unwrap_or_default())));
        }
        rows.extend(self.key.iter().map(|key| ("key", key.clone())));
        rows.extend(self.metadata.iter().map(|(key, value)| ("metadata", format!("{key}={value}"))));
        if self.keep {
            rows.push(("keep", "yes, also without a result".to_owned()));
        }
        rows
    }
}

/// Reads two texts with `=` between them, which the help shows in this form.
pub(super) fn pair(form: &'static str) -> impl Fn(&str) -> std::result::Result<(String, String), String> + Clone {
    move |text| match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("\"{text}\" is not {form}")),
    }
}
