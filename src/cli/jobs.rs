//! A job as it is printed: the fields that scripts rely on, and a page for people.

use std::collections::{HashMap, hash_map::Entry};

use serde::Serialize;

use super::{context::Context, exit::Failure, output::Output, table::Table, units::relative};
use crate::{
    clock::Timestamp,
    local::{self, Note},
    queue::{
        Awaited, JobInfo,
        awaited::{NAMED_MAX, Neighbours},
        id::{JobId, SessionId, Token},
        state::State,
    },
    store::Store,
};

/// A job in JSON. Times are RFC 3339 in UTC, `session` is the id of who holds it.
#[derive(Serialize)]
pub(super) struct JobLine {
    id: String,
    task: String,
    queue: String,
    state: State,
    priority: i8,
    attempt: u32,
    max_attempts: u32,
    args: serde_json::Value,
    metadata: serde_json::Map<String, serde_json::Value>,
    enqueued_at: String,
    run_at: Option<String>,
    started_at: Option<String>,
    finished_at: Option<String>,
    session: Option<String>,
    progress: Option<f32>,
    message: Option<String>,
    result: Option<serde_json::Value>,
    errors: Vec<ErrorLine>,
    unique: Option<String>,
    key: Option<String>,
    at_most_once: bool,
    /// How the jobs ended that it waits for, or waited for.
    awaited: Option<Awaited>,
    /// The jobs of those that have not ended, where there are any and that was asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits_for: Vec<String>,
    /// The jobs that wait for this one, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waited_for_by: Vec<String>,
    /// How long an attempt may take, in milliseconds, where not as long as its task says.
    timeout_ms: Option<u64>,
    /// It is cancelled when its handler has ended.
    cancelling: bool,
    /// Its process died in a run of it, so it runs alone.
    suspect: bool,
}

#[derive(Serialize)]
struct ErrorLine {
    attempt: u32,
    at: String,
    session: String,
    message: String,
}

impl JobLine {
    pub(super) fn new(context: &Context, job: &JobInfo) -> Self {
        let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
        Self {
            id: job.id.to_string(),
            task: job.task.clone(),
            queue: job.queue.clone(),
            state: job.state,
            priority: job.priority,
            attempt: job.attempt,
            max_attempts: job.max_attempts,
            args: context.args_of(job),
            metadata: job.metadata.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect(),
            enqueued_at: job.enqueued_at.to_string(),
            run_at: time(job.run_at),
            started_at: time(job.started_at),
            finished_at: time(job.finished_at),
            session: job.held_by.as_ref().map(|(session, _, _)| session.to_string()),
            progress: job.progress.as_ref().map(|(fraction, _)| *fraction),
            message: job.progress.as_ref().map(|(_, message)| message.clone()),
            result: job.result.as_ref().map(crate::codec::Payload::to_json),
            errors: job
                .errors
                .iter()
                .map(|error| ErrorLine {
                    attempt: error.attempt,
                    at: error.at.to_string(),
                    session: error.session.clone(),
                    message: error.message.clone(),
                })
                .collect(),
            unique: job.unique.clone(),
            key: job.concurrency_key.clone(),
            at_most_once: job.at_most_once,
            awaited: job.awaited,
            waits_for: Vec::new(),
            waited_for_by: Vec::new(),
            timeout_ms: job.timeout.map(crate::clock::millis),
            cancelling: job.cancelling,
            suspect: job.suspect,
        }
    }

    pub(super) fn with_neighbours(mut self, neighbours: &Neighbours) -> Self {
        let ids = |jobs: &[JobId]| jobs.iter().map(ToString::to_string).collect();
        (self.waits_for, self.waited_for_by) = (ids(&neighbours.waits_for), ids(&neighbours.waited_for_by));
        self
    }
}

/// What the sessions note of the runs that they have begun, which is in no commit.
#[derive(Default)]
pub(super) struct Begun {
    notes: HashMap<SessionId, Vec<Note>>,
}

impl Begun {
    /// Adds to a running job what its session notes: when its handler began, and that this is one attempt more.
    pub(super) fn complete(&mut self, store: &Store, job: &mut JobInfo) -> Result<(), Failure> {
        let Some((session, _, token)) = job.held_by else { return Ok(()) };
        let began = self.began(store, session, job.id, token)?;
        // The time of an earlier run is not that of this one.
        job.started_at = began;
        job.attempt += u32::from(began.is_some());
        Ok(())
    }

    fn began(
        &mut self,
        store: &Store,
        session: SessionId,
        job: JobId,
        token: Token,
    ) -> Result<Option<Timestamp>, Failure> {
        let Some(files) = store.inner.site.files() else { return Ok(None) };
        let notes = match self.notes.entry(session) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let seen = local::look(&files.folder, session)?;
                unknown.insert(seen.map(|seen| seen.notes).unwrap_or_default())
            }
        };
        let note = notes.iter().find(|note| note.job == job && note.token == token);
        Ok(note.map(|note| Timestamp::from_millis(note.started_ms)))
    }
}

/// A job on a page of its own.
pub(super) fn print_page(
    context: &Context,
    out: &mut Output,
    job: &JobInfo,
    neighbours: &Neighbours,
) -> Result<(), Failure> {
    let now = Timestamp::now();
    let time = |at: Timestamp| format!("{at} ({})", relative(at, now));
    let mut page = Table::new();
    let mut add = |name: &str, value: String| page.row([name.to_owned(), value]);
    add("id", job.id.to_string());
    add("task", job.task.clone());
    add("queue", job.queue.clone());
    let mut state = job.state.to_string();
    if job.state == State::Running && job.started_at.is_none() {
        state.push_str(" (claimed, not begun)");
    }
    if job.cancelling {
        state.push_str(" (to be cancelled)");
    }
    if job.suspect {
        state.push_str(" (suspect: its process died in a run, so it runs alone)");
    }
    add("state", state);
    add("priority", job.priority.to_string());
    add("attempt", format!("{} of {}", job.attempt, job.max_attempts));
    add("args", context.args_of(job).to_string());
    for (key, value) in &job.metadata {
        add("metadata", format!("{key}={value}"));
    }
    if let Some(unique) = &job.unique {
        add("unique", unique.clone());
    }
    if let Some(key) = &job.concurrency_key {
        add("key", key.clone());
    }
    if job.at_most_once {
        add("delivery", "at most once".to_owned());
    }
    if let Some(awaited) = job.awaited {
        let Awaited { pending, completed, dead, cancelled, is_open } = awaited;
        let open = if is_open { "; it is open, and takes more until it is sealed" } else { "" };
        let told = format!("{pending} have not ended, {completed} completed, {dead} dead, {cancelled} cancelled{open}");
        add("waits for", told);
        if pending > 0 {
            add("", ids(&neighbours.waits_for, Some(pending as usize)));
        }
    }
    if !neighbours.waited_for_by.is_empty() {
        add("waited for", format!("by {}", ids(&neighbours.waited_for_by, None)));
    }
    if let Some(timeout) = job.timeout {
        add("timeout", format!("{timeout:?} per attempt"));
    }
    add("enqueued", time(job.enqueued_at));
    let times = [("runs", job.run_at), ("started", job.started_at), ("finished", job.finished_at)];
    for (name, at) in times {
        if let Some(at) = at {
            add(name, time(at));
        }
    }
    if let Some((session, label, _)) = &job.held_by {
        add("held by", format!("{label} (session {session})"));
    }
    if let Some((fraction, message)) = &job.progress {
        add("progress", format!("{:.0}% {message}", fraction * 100.0));
    }
    if let Some(result) = &job.result {
        add("result", result.to_json().to_string());
    }
    for error in &job.errors {
        add("error", format!("attempt {}, {}: {}", error.attempt, relative(error.at, now), error.message));
    }
    page.print(out)
}

/// The ids of jobs, and that there are more where not all are named.
fn ids(jobs: &[JobId], count: Option<usize>) -> String {
    let mut text = jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    if count.map_or(jobs.len() >= NAMED_MAX, |count| jobs.len() < count) {
        text.push_str(" and others");
    }
    text
}
