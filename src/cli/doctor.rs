//! `casque doctor`: who has what of a store, and what to do where something is amiss.
//!
//! It looks at locks and sessions before it opens anything (W8), so that it answers also where nobody else gets an
//! answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use clap::Args;
use serde_json::{Value, json};

use super::{
    context::Context,
    exit::{Exit, Failure},
    output::Output,
    table::one_line,
    units::{about_size, counted},
};
use crate::{
    codec::hex,
    engine::redb::pinned_by,
    error::ErrorKind,
    local::{self, leftovers},
    sessions::state_of,
    stone::probe::{Answer, knock},
    store::{
        glance::{Glance, glance},
        site::Files,
    },
};

/// How long the rows are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// A file that is so large, and so many times what it holds, is worth to be compacted.
const SLACK_BYTES: u64 = 64 << 20;
const SLACK_TIMES: u64 = 4;

/// Tell who has what of the store, and what to do about what is wrong
#[derive(Debug, Args)]
#[command(after_help = "\
Looks at locks and sessions first, and then at the file, without waiting for anybody: for
when nothing answers. Says who holds the writer's lock, whether a process commits for all,
which processes are there, which of them are stopped, and who reads; how large the file is
and how much of that it needs; what is left over; and which schedules nobody serves. Each finding says what to do: exit
code 1 if there are any. What others run as another user can't all be seen.

Example:
  casque doctor")]
pub(super) struct Doctor {}

/// What was seen: facts in their order, and what is wrong.
#[derive(Default)]
struct Report {
    facts: Vec<(&'static str, String, Value)>,
    findings: Vec<(String, String)>,
    /// Processes that are stopped, and what each has of the store.
    stopped: BTreeMap<u32, Vec<String>>,
    /// The processes that were told of.
    told: BTreeSet<u32>,
}

impl Doctor {
    pub(super) fn run(context: &Context, out: &mut Output) -> Result<(), Failure> {
        context.check_there()?;
        let path = fs::canonicalize(context.path()).unwrap_or_else(|_| context.path().to_owned());
        let mut report = Report::default();
        let files = Files::to_read(&path).unwrap_or_else(|error| {
            report.find(
                format!("what is beside the store can't be looked at: {}", error.full_message()),
                "run this as the owner of the store, who sees all of it",
            );
            None
        });
        let mut answer = Answer::NoSocket;
        if let Some(files) = &files {
            let holder = report.lock(files);
            answer = report.stone(files, holder);
        }
        report.readers(&path);
        let glance = report.file(context, &path);
        if let Some(files) = &files {
            report.sessions(files, glance.as_ref());
            report.log(files, glance.as_ref(), answer);
            report.leftovers(files);
        }
        report.schedules(context, glance.as_ref());
        report.processes(&path);
        report.stopped();
        report.print(out)
    }
}

impl Report {
    fn fact(&mut self, about: &'static str, text: impl Into<String>, fields: Value) {
        self.facts.push((about, text.into(), fields));
    }

    fn find(&mut self, finding: impl Into<String>, remedy: impl Into<String>) {
        self.findings.push((finding.into(), remedy.into()));
    }

    fn note_if_stopped(&mut self, pid: u32, has: String) -> bool {
        self.told.insert(pid);
        let is_stopped = local::is_stopped(pid);
        if is_stopped {
            self.stopped.entry(pid).or_default().push(has);
        }
        is_stopped
    }

    /// Who holds the writer's lock, if that is known.
    fn lock(&mut self, files: &Files) -> Option<u32> {
        let is_held = local::is_lock_held(&files.folder);
        let Some(holder) = local::holder(&files.folder).filter(|_| is_held) else {
            let text = if is_held { "held, by whom is not noted" } else { "free" };
            self.fact("lock", text, json!({ "held": is_held }));
            return None;
        };
        let is_stopped = self.note_if_stopped(holder.pid, format!("holds the writer's lock, to {}", holder.purpose));
        let state = if is_stopped { ", and is stopped" } else { "" };
        self.fact(
            "lock",
            format!("held by process {} ({}), to {}{state}", holder.pid, holder.label, holder.purpose),
            json!({
                "held": true,
                "pid": holder.pid,
                "label": holder.label,
                "purpose": holder.purpose,
                "stopped": is_stopped,
            }),
        );
        Some(holder.pid)
    }

    fn stone(&mut self, files: &Files, holder: Option<u32>) -> Answer {
        let answer = knock(files);
        let text = match answer {
            Answer::Answered => "a process commits for all, and answers",
            Answer::Silence => "a process commits for all, and does not answer",
            Answer::Nobody => "none; the last one died, and the next one takes its place",
            Answer::NoSocket => "none; each process commits by itself",
        };
        let is_there = matches!(answer, Answer::Answered | Answer::Silence);
        self.fact("stone", text, json!({ "there": is_there, "answers": answer == Answer::Answered }));
        let is_stopped = holder.is_some_and(local::is_stopped);
        if answer == Answer::Silence && !is_stopped {
            let who = holder.map_or("the process that has the socket open".to_owned(), |pid| format!("process {pid}"));
            self.find(
                format!("{who} commits for all, and did not answer in time"),
                "look again; where it does not come to itself, kill it: another takes its place, and nothing is lost",
            );
        }
        answer
    }

    fn readers(&mut self, path: &Path) {
        for pinned in pinned_by(path) {
            let is_stopped = self.note_if_stopped(
                pinned.pid,
                "reads an old snapshot, so that the file grows with each commit and can't be compacted".to_owned(),
            );
            let state = if is_stopped { ", and is stopped" } else { "" };
            self.fact(
                "reader",
                format!("process {} reads transaction {} of the file{state}", pinned.pid, pinned.transaction),
                json!({ "pid": pinned.pid, "transaction": pinned.transaction, "stopped": is_stopped }),
            );
        }
    }

    /// Those that only have the file open: one that waits to commit for all leaves no other trace.
    fn processes(&mut self, path: &Path) {
        for opener in local::openers(path) {
            if self.told.contains(&opener.pid) {
                continue;
            }
            let is_stopped = self.note_if_stopped(opener.pid, "has the store open".to_owned());
            let state = if is_stopped { ", and is stopped" } else { "" };
            self.fact(
                "process",
                format!("process {} ({}) has the store open{state}", opener.pid, opener.name),
                json!({ "pid": opener.pid, "name": opener.name, "stopped": is_stopped }),
            );
        }
    }

    fn file(&mut self, context: &Context, path: &Path) -> Option<Glance> {
        let bytes = fs::metadata(path).map(|found| found.len()).unwrap_or_default();
        let size = about_size(bytes);
        let name = path.display();
        let glance = match glance(path, LOOK) {
            Ok(Some(glance)) => glance,
            Ok(None) => {
                let text = format!(
                    "{name}: {size}; its last writer died, and who opens it next recovers it; \
                                    until then its folder may hold what was answered last: keep both together"
                );
                self.fact("file", text, json!({ "bytes": bytes, "needs_recovery": true }));
                return None;
            }
            Err(error) => {
                let program = &context.program;
                let remedy = match error.kind() {
                    ErrorKind::Invalid => "name the store with --store or CASQUE_STORE".to_owned(),
                    ErrorKind::Corrupt => format!("keep the file as it is, and see what `{program} check` says"),
                    ErrorKind::TimedOut => "see to the processes that are stopped".to_owned(),
                    _ => format!("then look again, or see what `{program} check` says"),
                };
                self.fact("file", format!("{name}: {size}"), json!({ "bytes": bytes }));
                self.find(format!("it can't be read: {}", error.full_message()), remedy);
                return None;
            }
        };
        let rows = about_size(glance.row_bytes);
        let much = if glance.is_all { "" } else { "more than " };
        let is_slack = glance.is_all && bytes > SLACK_BYTES && bytes / SLACK_TIMES > glance.row_bytes;
        let hint =
            if is_slack { format!("; `{} compact` gives the rest back", context.program) } else { String::new() };
        self.fact(
            "file",
            format!("{name}: version {}, {size}, of which rows are {much}{rows}{hint}", glance.version),
            json!({
                "bytes": bytes,
                "needs_recovery": false,
                "version": glance.version,
                "row_bytes": glance.row_bytes,
                "row_bytes_are_all": glance.is_all,
                "is_to_be_compacted": is_slack,
            }),
        );
        Some(glance)
    }

    fn sessions(&mut self, files: &Files, glance: Option<&Glance>) {
        let sessions = match local::sessions(&files.folder) {
            Ok(sessions) => sessions,
            Err(error) => return self.find(error.full_message(), "look at that folder's permissions"),
        };
        for seen in sessions {
            let held = glance.map(|glance| glance.held.get(&seen.id).copied().unwrap_or_default());
            let locks = glance.and_then(|glance| glance.locks.get(&seen.id));
            let has = match locks {
                Some(locks) => format!("{locks}, which others get after its lease ({})", seen.label),
                None => format!(
                    "is a worker, whose jobs others take after its lease unless it holds the writer's lock ({})",
                    seen.label
                ),
            };
            let is_stopped = seen.alive && self.note_if_stopped(seen.pid, has);
            let state = state_of(seen.alive, is_stopped);
            let jobs = match (locks, held) {
                (Some(locks), None | Some(0)) => format!(", {locks}"),
                (Some(locks), Some(held)) => format!(", {locks}, holds {}", counted(held, "job")),
                (None, Some(held)) => format!(", holds {}", counted(held, "job")),
                (None, None) => String::new(),
            };
            self.fact(
                "session",
                format!("{}: process {} ({}), {state}{jobs}", seen.id, seen.pid, seen.label),
                json!({
                    "id": seen.id.to_string(),
                    "pid": seen.pid,
                    "label": seen.label,
                    "state": state,
                    "held": held,
                }),
            );
            if let Some(jobs) = held.filter(|held| *held > 0 && !seen.alive) {
                self.find(
                    format!("process {} died and held {}", seen.pid, counted(jobs, "job")),
                    "any worker on the store takes them back at once; run one",
                );
            }
        }
        for child in local::children::list(&files.folder).unwrap_or_default().into_iter().filter(|child| child.busy) {
            let pid = child.parent_pid.map_or("somebody".to_owned(), |pid| format!("process {pid}"));
            self.fact(
                "child",
                format!("a command of job {} runs, started by {pid}: {}", child.job, child.path.display()),
                json!({ "job": child.job.to_string(), "parent_pid": child.parent_pid, "path": child.path }),
            );
        }
    }

    fn log(&mut self, files: &Files, glance: Option<&Glance>, answer: Answer) {
        let path = files.folder.log();
        let bytes = fs::metadata(&path).map(|found| found.len()).ok();
        let Some(named) = glance.map(|glance| glance.log) else { return };
        let text = match (named, answer, bytes) {
            (None, _, None) => return,
            (None, _, Some(_)) => "not in use".to_owned(),
            (Some(id), Answer::Answered | Answer::Silence, _) => format!("in use: {}", hex(&id)),
            (Some(id), _, Some(_)) => format!("in use: {}; who opens the store next brings in what it holds", hex(&id)),
            (Some(id), _, None) => {
                self.find(
                    format!("the store says that log {} is in use, and {} is missing", hex(&id), path.display()),
                    "put that file back; without it what was answered last is lost: restore the store from a backup",
                );
                format!("in use: {}, and missing", hex(&id))
            }
        };
        self.fact("log", text, json!({ "in_use": named.is_some(), "bytes": bytes }));
    }

    fn schedules(&mut self, context: &Context, glance: Option<&Glance>) {
        for (name, slot, is_known) in glance.map(|glance| glance.overdue.as_slice()).unwrap_or_default() {
            let how = if *is_known { "" } else { ", one that was built with the feature `cron`: this program was not" };
            self.find(
                format!("schedule \"{name}\" was due at {slot}, and nobody has enqueued its job"),
                format!("run a worker, or `{} serve`{how}", context.program),
            );
        }
    }

    fn leftovers(&mut self, files: &Files) {
        for path in leftovers(&files.folder) {
            let name = path.display().to_string();
            self.fact("left over", format!("{name}, until a worker cleans up"), json!({ "path": name }));
        }
    }

    fn stopped(&mut self) {
        for (pid, mut has) in std::mem::take(&mut self.stopped) {
            has.dedup();
            self.find(
                format!("process {pid} is stopped; it {}", has.join("; it ")),
                format!("continue it (`kill -CONT {pid}`) or kill it"),
            );
        }
    }

    fn print(self, out: &mut Output) -> Result<(), Failure> {
        for (about, text, mut fields) in self.facts {
            fields["about"] = about.replace(' ', "_").into();
            out.either(&fields, format!("{about:<10}{}", one_line(&text)))?;
        }
        for (finding, remedy) in &self.findings {
            let object = json!({ "about": "finding", "finding": finding, "remedy": remedy });
            out.either(&object, format!("{:<10}{}; {}", "FINDING", one_line(finding), one_line(remedy)))?;
        }
        if self.findings.is_empty() {
            return if out.json { Ok(()) } else { out.line("nothing is wrong") };
        }
        Err(Failure::told(Exit::Failed))
    }
}
