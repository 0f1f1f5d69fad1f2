//! `casque enqueue --from`: one job a line, committed in batches. A line that is wrong ends it before its batch is
//! committed, so that it can go on at a line that is known.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use indicatif::ProgressBar;
use serde::Deserialize;

use super::{
    bar,
    context::Context,
    exit::{Exit, Failure},
    options::JobOptions,
    output::Output,
    submit::{self, BATCH_BYTES, Ids, payload_max_of_new_stores},
    units::{counted, parse_duration, parse_time},
};
use crate::{
    codec::Payload,
    error::{Error, Result},
    queue::enqueue::NewJob,
    store::Store,
};

/// The longest line, in bytes: more than any job may have.
const LINE_BYTES_MAX: u64 = 8 << 20;

pub(super) struct Import<'a> {
    pub(super) context: &'a Context,
    pub(super) task: String,
    pub(super) queue: &'a str,
    pub(super) options: JobOptions,
    pub(super) path: PathBuf,
    pub(super) skip: u64,
}

/// One job of a file, as it may be written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    task: Option<String>,
    #[serde(default)]
    args: serde_json::Value,
    queue: Option<String>,
    priority: Option<i64>,
    delay: Option<String>,
    run_at: Option<String>,
    unique: Option<String>,
    key: Option<String>,
    max_attempts: Option<u32>,
    timeout: Option<String>,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    at_most_once: bool,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    keep: bool,
}

/// How far the file is in the store.
#[derive(Default)]
struct Done {
    jobs: u64,
    /// The last line that was read, and the last one whose batch is committed.
    read: u64,
    committed: u64,
    /// Whether the last batch is committed is not known.
    is_unknown: bool,
}

/// The jobs of one change.
#[derive(Default)]
struct Batch {
    jobs: Vec<NewJob>,
    bytes: usize,
    last_line: u64,
}

impl Batch {
    fn takes(&self, job: &NewJob) -> bool {
        self.jobs.is_empty() || self.bytes + job.payload_bytes() <= BATCH_BYTES
    }

    fn is_full(&self, wait: Option<Duration>) -> bool {
        self.jobs.len() >= submit::batch_jobs(wait) || self.bytes >= BATCH_BYTES
    }

    fn add(&mut self, job: NewJob, line: u64) {
        self.bytes += job.payload_bytes();
        self.jobs.push(job);
        self.last_line = line;
    }
}

impl Import<'_> {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let mut done = Done { committed: self.skip, ..Done::default() };
        let bar = self.bar();
        let mut ids = Ids::new(out);
        let imported = self.import(&mut done, &bar, &mut ids);
        bar.finish_and_clear();
        imported.map_err(|failure| self.say_how_to_go_on(failure, &done))?;
        self.context.say(format!("{} enqueued from {}", counted(done.jobs, "job"), self.name()));
        ids.say_of_old_ones(self.context);
        Ok(())
    }

    fn import(&self, done: &mut Done, bar: &ProgressBar, ids: &mut Ids<'_>) -> Result<(), Failure> {
        let mut reader = self.reader()?;
        // A store that there is not yet is made by the first batch, and has the limits of new ones.
        let mut store = if self.context.path().exists() { Some(self.context.create()?) } else { None };
        let limit = match &store {
            Some(store) => store.setting("payload-max")?,
            None => payload_max_of_new_stores(),
        };
        let mut batch = Batch::default();
        loop {
            let mut line = Vec::new();
            let length = reader
                .by_ref()
                .take(LINE_BYTES_MAX + 1)
                .read_until(b'\n', &mut line)
                .map_err(|error| Failure::new(Exit::Failed, format!("{} can't be read: {error}", self.name())))?;
            if length > 0 {
                done.read += 1;
                bar.inc(length as u64);
                if done.read <= self.skip || line.trim_ascii().is_empty() {
                    continue;
                }
                let wrong = |error| self.wrong_line(error, done.read);
                let job = self.job(&line).map_err(wrong)?;
                submit::check_payload(&job, limit).map_err(wrong)?;
                if !batch.takes(&job) {
                    self.commit(&mut store, std::mem::take(&mut batch), done, ids)?;
                }
                batch.add(job, done.read);
            }
            if !batch.jobs.is_empty() && (length == 0 || batch.is_full(self.options.wait)) {
                self.commit(&mut store, std::mem::take(&mut batch), done, ids)?;
            }
            if length == 0 {
                return Ok(());
            }
        }
    }

    fn commit(
        &self,
        store: &mut Option<Store>,
        batch: Batch,
        done: &mut Done,
        ids: &mut Ids<'_>,
    ) -> Result<(), Failure> {
        let store = match store {
            Some(store) => store,
            none => none.insert(self.context.create()?),
        };
        let committed = submit::commit(store, batch.jobs, self.options.wait).map_err(|failure| {
            let lines = format!("lines {} to {} of {}", done.committed + 1, batch.last_line, self.name());
            if failure.is_unknown {
                done.is_unknown = true;
                let look = format!("look with `{} list`", self.context.program);
                return failure.and(&format!("; {lines} may or may not be enqueued: {look}"));
            }
            failure.about(&lines)
        })?;
        done.jobs += committed.len() as u64;
        done.committed = batch.last_line;
        ids.print(&committed)
    }

    fn job(&self, text: &[u8]) -> Result<NewJob> {
        if text.len() as u64 > LINE_BYTES_MAX {
            return Err(Error::invalid(format!("it is longer than {LINE_BYTES_MAX} bytes")));
        }
        let line: Line = serde_json::from_slice(text).map_err(|error| {
            // The line that serde_json counts is always the first.
            let what = error.to_string().replace(" at line 1 column ", " at column ");
            Error::invalid(if error.is_data() { what } else { format!("not valid JSON: {what}") })
        })?;
        let mut options = self.options.clone();
        options.priority = line.priority.or(options.priority);
        options.unique = line.unique.or(options.unique);
        options.key = line.key.or(options.key);
        options.max_attempts = line.max_attempts.or(options.max_attempts);
        if let Some(timeout) = &line.timeout {
            options.timeout = Some(parse_duration(timeout)?);
        }
        options.metadata.extend(line.metadata);
        options.keep |= line.keep;
        options.at_most_once |= line.at_most_once;
        options.check()?;
        for id in &line.after {
            options.after.push(id.parse()?);
        }
        if line.delay.is_some() && line.run_at.is_some() {
            return Err(Error::invalid("it has both \"delay\" and \"run_at\"; give one of them"));
        }
        if line.delay.is_some() || line.run_at.is_some() {
            options.delay = line.delay.as_deref().map(parse_duration).transpose()?;
            options.at = line.run_at.as_deref().map(parse_time).transpose()?;
        }
        let task = line.task.as_deref().unwrap_or(&self.task);
        let request = self.context.request(task, Payload::json(&line.args)?);
        submit::checked(self.context, line.queue.as_deref().unwrap_or(self.queue), options.apply_to(request))
    }

    fn wrong_line(&self, error: Error, number: u64) -> Failure {
        Failure::from(error).about(&format!("line {number} of {}", self.name()))
    }

    fn say_how_to_go_on(&self, failure: Failure, done: &Done) -> Failure {
        if done.is_unknown {
            return failure.and(&format!("; {} before them enqueued", counted(done.jobs, "job")));
        }
        if done.jobs == 0 && self.skip == 0 {
            return failure.and("; nothing was enqueued");
        }
        failure.and(&format!(
            "; {}, of the lines up to {}, enqueued: mend it and go on with --skip {}",
            counted(done.jobs, "job"),
            done.committed,
            done.committed
        ))
    }

    fn reader(&self) -> Result<Box<dyn BufRead>, Failure> {
        if self.is_stdin() {
            return Ok(Box::new(BufReader::new(std::io::stdin())));
        }
        let opened = File::open(&self.path).and_then(|file| {
            // A folder opens, and fails only when it is read.
            if file.metadata()?.is_dir() { Err(std::io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
        });
        let file = opened.map_err(|error| Failure::usage(format!("{} can't be read: {error}", self.name())))?;
        Ok(Box::new(BufReader::new(file)))
    }

    fn bar(&self) -> ProgressBar {
        bar::of(
            if self.is_stdin() { None } else { std::fs::metadata(&self.path).ok().map(|found| found.len()) },
            bar::BYTES,
        )
    }

    fn is_stdin(&self) -> bool {
        self.path == Path::new("-")
    }

    fn name(&self) -> String {
        if self.is_stdin() { "stdin".to_owned() } else { self.path.display().to_string() }
    }
}

#[cfg(test)]
mod fuzz_tests {
    use clap::Parser as _;

    use super::*;
    use crate::{Registry, fuzz::Fuzz};

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        options: JobOptions,
    }

    #[test]
    fn fuzz_lines_of_jobs() {
        let lines = [
            r#"{"args": {"n": 1}, "task": "a", "queue": "q", "priority": 3, "delay": "30s"}"#,
            r#"{"run_at": "2026-11-30T12:00:00Z", "unique": "k", "key": "c", "max_attempts": 3}"#,
            r#"{"timeout": "5m", "after": ["1", "2-1"], "at_most_once": true, "metadata": {"a": "b"}}"#,
            r#"{"keep": true, "args": [1, 2, 3e300]}"#,
            "{}",
        ];
        let cli = crate::cli::Cli::try_parse_from(["casque", "stats"]).unwrap();
        let context = Context::new("casque".to_owned(), cli.globals, Registry::new());
        let Typed { options } = Typed::parse_from(["casque"]);
        let import =
            Import { context: &context, task: "a".to_owned(), queue: "q", options, path: PathBuf::from("-"), skip: 0 };
        Fuzz::new("lines_of_jobs", lines.map(|text| text.as_bytes().to_vec())).run(|input| {
            if let Err(error) = import.job(input) {
                assert!(!error.full_message().is_empty());
            }
        });
    }
}
