//! What must be true when a round is over and all its jobs have ended, by what was noted outside of the store.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use casque::{ErrorKind, JobId, State, Store};

use crate::roles::{ACCOUNTS, EFFECTS, FUNDS, LOCKED, QUEUES, SUM};

/// How large the store's file may be when all jobs have ended.
const FILE_MAX: u64 = 128 << 20;
/// What may stay beside a store that nobody has open.
const BESIDE: [&str; 6] = ["lock", "bell", "wakes", "log", "sessions", "children"];
/// How many findings are told.
const TOLD_MAX: usize = 30;

/// What a store has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    completed: u64,
    dead: u64,
    sum: i64,
    effects: i64,
    locked: i64,
}

impl Counts {
    pub fn of(store: &Store) -> Self {
        let mut counts = Self::default();
        for queue in store.queues().unwrap() {
            counts.completed += queue.completed;
            counts.dead += queue.dead;
        }
        let counter = |key| store.get::<i64>(key).unwrap().unwrap_or(0);
        Self { sum: counter(SUM), effects: counter(EFFECTS), locked: counter(LOCKED), ..counts }
    }
}

/// The figures of a round, or of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub acknowledged: usize,
    pub jobs: usize,
    pub runs: usize,
    pub lost: usize,
    pub doubled: usize,
    pub troubles: usize,
}

/// What was noted in a round.
#[derive(Default)]
pub struct Notes {
    acknowledged: HashSet<JobId>,
    cancelled: HashSet<JobId>,
    /// The tokens under which a job ran; those of commands are not known, and 0.
    runs: HashMap<JobId, Vec<u64>>,
    completed: HashMap<JobId, BTreeSet<u64>>,
    tasks: HashMap<String, HashSet<JobId>>,
    seconds: HashMap<String, BTreeSet<String>>,
    slots: HashMap<String, BTreeSet<String>>,
    fences: HashMap<String, usize>,
    tallies: HashMap<String, i64>,
    troubles: BTreeMap<String, (usize, String)>,
    pub findings: Vec<String>,
}

impl Notes {
    pub fn read(path: &Path) -> Self {
        let mut notes = Self::default();
        for line in fs::read_to_string(path).unwrap().lines() {
            if notes.take(line).is_none() {
                notes.findings.push(format!("a line is torn: \"{line}\""));
            }
        }
        notes
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["acknowledged", id] => _ = self.acknowledged.insert(id.parse().ok()?),
            ["cancelled", id] => _ = self.cancelled.insert(id.parse().ok()?),
            ["run", id, token, task, _] => {
                let id = id.parse().ok()?;
                self.runs.entry(id).or_default().push(token.parse().ok()?);
                self.tasks.entry(task.to_owned()).or_default().insert(id);
            }
            ["completed", id, token, _] => {
                self.completed.entry(id.parse().ok()?).or_default().insert(token.parse().ok()?);
            }
            ["second", first, id] => _ = self.seconds.entry(first.to_owned()).or_default().insert(id.to_owned()),
            ["slot", slot, id] => _ = self.slots.entry(slot.to_owned()).or_default().insert(id.to_owned()),
            ["fence", fence, _] => *self.fences.entry(fence.to_owned()).or_default() += 1,
            ["trouble", kind, what, ..] => {
                let what = if ["Failed", "LeaseLost"].contains(&kind) { "a job" } else { what.trim_end_matches(':') };
                let trouble = self.troubles.entry(format!("{kind} {what}")).or_default();
                trouble.0 += 1;
                line.clone_into(&mut trouble.1);
            }
            ["wrong", ..] => self.findings.push(line.to_owned()),
            [tally @ ("adds" | "added" | "counts" | "counted")] => {
                *self.tallies.entry(tally.to_owned()).or_default() += 1;
            }
            _ => return None,
        }
        Some(())
    }

    /// Judges a store whose jobs have all ended, of which this is what was noted since it had those counts.
    pub fn judge(&mut self, store: &Store, before: Counts, is_calm: bool) -> Figures {
        let mut figures = Figures {
            acknowledged: self.acknowledged.len(),
            runs: self.runs.values().map(Vec::len).sum(),
            troubles: self.troubles.values().map(|trouble| trouble.0).sum(),
            ..Figures::default()
        };
        let cancelled_runs = self.judge_jobs(store, &mut figures);
        let ran = self.runs.len() as u64;
        let after = Counts::of(store);
        let completed = after.completed - before.completed;
        if completed != ran - cancelled_runs {
            figures.doubled += usize::try_from(completed.saturating_sub(ran - cancelled_runs)).unwrap();
            self.find(format!(
                "{completed} jobs were completed, but {ran} ran and {cancelled_runs} of them were cancelled"
            ));
        }
        if after.dead > 0 {
            self.find(format!("{} jobs are dead", after.dead));
        }
        self.judge_effects(after.effects - before.effects);
        self.judge_counter("adds", "added", after.sum - before.sum, is_calm);
        self.judge_counter("counts", "counted", after.locked - before.locked, is_calm);
        let funds: i64 = ACCOUNTS.iter().map(|account| store.get::<i64>(account).unwrap().unwrap()).sum();
        if funds != FUNDS * i64::try_from(ACCOUNTS.len()).unwrap() {
            self.find(format!("the accounts have {funds}"));
        }
        self.judge_troubles(is_calm);
        if is_calm {
            self.judge_single_runs();
        }
        for finding in store.check().unwrap() {
            self.find(format!("check: {finding}"));
        }
        figures
    }

    fn find(&mut self, finding: String) {
        self.findings.push(finding);
    }

    /// Each job has ended, once; gives how many ended cancelled after a run.
    fn judge_jobs(&mut self, store: &Store, figures: &mut Figures) -> u64 {
        let all: HashSet<JobId> = self.acknowledged.iter().chain(self.runs.keys()).copied().collect();
        figures.jobs = all.len();
        let mut cancelled_runs = 0;
        for id in all {
            let has_run = self.runs.contains_key(&id);
            // Completed ones without a result are gone.
            let state = match store.job(id) {
                Ok(job) => job.state,
                Err(error) if error.kind() == ErrorKind::NotFound => State::Completed,
                Err(error) => {
                    self.find(format!("job {id} can't be read: {}", error.full_message()));
                    continue;
                }
            };
            cancelled_runs += u64::from(has_run && state == State::Cancelled);
            if !state.is_final() {
                self.find(format!("job {id} is {state} when all should have ended"));
            }
            if state == State::Completed && !has_run {
                figures.lost += 1;
                self.find(format!("job {id} was acknowledged, has gone, and never ran: it is lost"));
            }
            if self.cancelled.contains(&id) && state != State::Cancelled {
                self.find(format!("job {id} was cancelled, and is {state}"));
            }
            let Some(completed) = self.completed.get(&id) else { continue };
            let (first, last) = (*completed.first().unwrap(), *completed.last().unwrap());
            let latest = self.runs.get(&id).and_then(|tokens| tokens.iter().max().copied());
            // Of a command's run the token is not known.
            if first != last || (latest != Some(0) && latest != Some(first)) {
                figures.doubled += 1;
                self.find(format!("job {id} was completed under {completed:?}, and ran last under {latest:?}"));
            }
            if state != State::Completed {
                self.find(format!("job {id} was completed, and is {state}"));
            }
        }
        cancelled_runs
    }

    /// What belongs to a job's completion was done once: an addition, the job that it enqueued, the job of a slot.
    fn judge_effects(&mut self, effects: i64) {
        let count = |task: &str| self.tasks.get(task).map_or(0, HashSet::len);
        let (jobs, firsts, seconds) = (count("effect"), count("first"), count("second"));
        let mut findings = Vec::new();
        if i64::try_from(jobs).unwrap() != effects {
            findings.push(format!("{jobs} jobs had {effects} effects"));
        }
        if firsts != self.seconds.len() || seconds != self.seconds.len() {
            findings.push(format!("{firsts} jobs enqueued {seconds}, for {} of them", self.seconds.len()));
        }
        for (what, map) in [("first", &self.seconds), ("slot", &self.slots)] {
            for (name, jobs) in map.iter().filter(|(_, jobs)| jobs.len() != 1) {
                findings.push(format!("{what} {name} has the jobs {jobs:?}"));
            }
        }
        for (fence, times) in self.fences.iter().filter(|(_, times)| **times != 1) {
            findings.push(format!("fence {fence} was given {times} times"));
        }
        self.findings.extend(findings);
    }

    fn judge_counter(&mut self, before: &str, after: &str, counted: i64, is_calm: bool) {
        let tally = |name: &str| self.tallies.get(name).copied().unwrap_or(0);
        let (tries, dones) = (tally(before), tally(after));
        if counted < dones || counted > tries || (is_calm && counted != dones) {
            self.find(format!("{counted} was counted, {dones} acknowledged, {tries} tried ({before})"));
        }
    }

    fn judge_troubles(&mut self, is_calm: bool) {
        const EXPECTED: [&str; 11] = [
            "Unavailable",
            "Unknown",
            "Conflict",
            "LeaseLost",
            "TimedOut",
            "Failed",
            "Worker",
            "Exit4",
            "Exit5",
            "Exit7",
            "Exit1",
        ];
        for (trouble, (times, example)) in &self.troubles {
            println!("  {times} times {trouble}, as: {example:.300}");
            let kind = trouble.split(' ').next().unwrap();
            let is_bad = ["panicked", "damaged", "a bug", "orrupt"].iter().any(|word| example.contains(word));
            // Others read the file all the time.
            let is_fine = trouble == "Exit5 compact";
            if (is_calm && !is_fine) || is_bad || !EXPECTED.contains(&kind) {
                self.findings.push(format!("{times} times {trouble}, as: {example}"));
            }
        }
    }

    /// Where nobody dies, what does not fail runs once.
    fn judge_single_runs(&mut self) {
        let flaky = self.tasks.get("flaky").cloned().unwrap_or_default();
        let again: Vec<_> = self.runs.iter().filter(|(id, runs)| runs.len() > 1 && !flaky.contains(id)).collect();
        let findings: Vec<String> = again.iter().map(|(id, runs)| format!("job {id} ran under {runs:?}")).collect();
        self.findings.extend(findings);
    }

    /// What is there of a store that nobody has open. A child's lock may stay where another child was being started as
    /// it ended, until maintenance comes by: for no longer than into the next round.
    pub fn judge_files(&mut self, store: &Path, left: &mut BTreeSet<PathBuf>) {
        let bytes = fs::metadata(store).unwrap().len();
        if bytes > FILE_MAX {
            self.find(format!("the file has {bytes} bytes"));
        }
        let beside = store.with_extension("redb.d");
        let children = fs::read_dir(beside.join("children")).unwrap().map(|entry| entry.unwrap().path()).collect();
        for child in left.intersection(&children) {
            self.findings.push(format!("{} was left in the round before", child.display()));
        }
        *left = children;
        for folder in [beside.clone(), beside.join("sessions")] {
            for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                let name = entry.file_name().to_string_lossy().into_owned();
                let is_known = BESIDE.contains(&name.as_str()) || name.starts_with("turn-");
                if folder != beside || !is_known {
                    self.find(format!("{} was left", entry.path().display()));
                }
            }
        }
    }

    /// The first findings.
    pub fn told(&self) -> String {
        let told: Vec<&str> = self.findings.iter().take(TOLD_MAX).map(String::as_str).collect();
        format!("{} findings:\n{}", self.findings.len(), told.join("\n"))
    }
}

/// All queues have nothing left to do.
pub fn is_empty(store: &Store) -> bool {
    QUEUES.iter().all(|queue| {
        let stats = store.queue(queue).stats().unwrap();
        stats.ready + stats.running + stats.scheduled + stats.waiting == 0
    })
}
