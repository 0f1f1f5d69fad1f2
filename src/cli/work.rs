//! `casque work`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use clap::Args;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use serde::Serialize;
use signal_hook::iterator::Handle;

use super::{
    context::{Context, QUEUE_DEFAULT},
    exit::{Exit, Failure},
    output::Output,
    signals::on_stop_signals,
    stats::{QueueLine, print_queues},
    units::{counted, number_from, relative},
};
use crate::{
    clock::Timestamp,
    error::Result,
    queue::{JobFilter, Policy, id::JobId, moves::task_name, state::State},
    store::{Store, keys, view::first_rows},
    task::{Registry, Task as _, exec::Exec},
    worker::{Event, Report, StopHandle, Worker},
};

/// How often a worker looks for jobs that it can't run, if anything was committed since.
const HINT_EVERY: Duration = Duration::from_secs(1);
/// How many of the jobs that a draining worker waits for are named.
const WAITED_FOR_MAX: usize = 10;

/// Run the jobs of queues
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "\
SIGINT (Ctrl-C) and SIGTERM stop it gently: it finishes what it has begun, and gives the
rest back. A second one stops it at once: what runs is given back uncharged, but for
commands, which end by themselves first. Before Ctrl-Z stops it, another process gets to
commit for the others.

Example:
  casque work --queue media --queue default --concurrency 4 --allow-exec")]
pub(super) struct Work {
    /// Run so many jobs at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number_from::<usize>(1))]
    concurrency: usize,
    /// Claim so many jobs ahead: fewer commits per job, but others can't have them [default: at most 50 ms of work]
    #[arg(long, value_name = "N", value_parser = number_from::<usize>(0))]
    prefetch: Option<usize>,
    /// Leave when nothing it can run is ready and nothing of its queues runs, and say what stays
    #[arg(long)]
    drain: bool,
    /// Drain what is scheduled, too
    #[arg(long, requires = "drain")]
    with_scheduled: bool,
    /// Let a claim that loses its job to another conflict, and try it again on a fresh snapshot
    #[arg(long)]
    strict: bool,
    /// Also run commands, which whoever may write to the store can enqueue
    #[arg(long)]
    allow_exec: bool,
}

/// What a worker did, in JSON.
#[derive(Serialize)]
struct Line<'a> {
    completed: u64,
    failed: u64,
    given_back: u64,
    leases_lost: u64,
    hijacks: u64,
    left: Vec<QueueLine<'a>>,
    /// Tasks of jobs that are ready in its queues, and that it does not run.
    not_run_here: &'a BTreeSet<String>,
}

impl Work {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        let mut tasks = context.tasks.clone();
        if self.allow_exec {
            tasks.task::<Exec>()?;
        }
        let mut queues = context.globals.queue.clone();
        if queues.is_empty() {
            queues.push(QUEUE_DEFAULT.to_owned());
        }
        let stop = StopHandle::default();
        let held = Arc::new(Mutex::new(Held::default()));
        let worker = |store: &Store| self.worker(context, store, &queues, tasks.clone(), &stop, &held);
        // A wrong argument is told before a store is made for it.
        worker(&Store::in_memory()?).check()?;
        let is_new = !context.path().exists();
        let store = context.create()?;
        say_begin(context, &store, is_new, &queues, &tasks)?;
        let hints = Hints::new(context, &store, &queues, &tasks, self.drain, &held);
        let signals = stop_on_signals(&context.program, &store, &stop, &held)?;
        let hinting = hints.start()?;
        let ended = worker(&store).run_whatever_it_knows();
        signals.close();
        drop(hinting);
        let report = ended?;
        hints.say_left_alone()?;
        let not_run_here = hints.not_run_here()?;
        // Handlers that were given up on may still have handles of the store: it is left in order all the same.
        let closed = store.close();
        print(out, &report, &not_run_here)?;
        closed.map_err(Failure::from)
    }

    fn worker(
        &self,
        context: &Context,
        store: &Store,
        queues: &[String],
        tasks: Registry,
        stop: &StopHandle,
        held: &Arc<Mutex<Held>>,
    ) -> Worker {
        let (program, verbose) = (context.program.clone(), context.globals.verbose > 0);
        let (failed_in, held) = (store.clone(), held.clone());
        let mut worker = Worker::new(store)
            .tasks(tasks)
            .concurrency(self.concurrency)
            .policy(if self.strict { Policy::Strict } else { Policy::Rebase })
            .drain(self.drain)
            .stopped_by(stop)
            .listen(move |event| {
                locked(&held).note(event);
                if let Some(text) = told(&failed_in, event, verbose) {
                    eprintln!("{program}: {text}");
                }
            });
        if let Some(jobs) = self.prefetch {
            worker = worker.prefetch(jobs);
        }
        if self.with_scheduled {
            worker = worker.drain_with_scheduled();
        }
        queues.iter().fold(worker, Worker::queue)
    }
}

/// What is said of an event on stderr: troubles always, the rest where more was asked for.
fn told(store: &Store, event: &Event, verbose: bool) -> Option<String> {
    Some(match event {
        Event::Trouble { doing, message } => format!("failed to {doing}, and will try again: {message}"),
        Event::Failed { job, state, message } => failed(store, *job, *state, message),
        _ if !verbose => return None,
        Event::Claimed { jobs, token } => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            format!("claimed {} under token {token}", jobs.join(" "))
        }
        Event::Hijacked(hijack) => format!("hijacked: {hijack:?}"),
        Event::HijackedStrictly(conflict) => format!("hijacked: {conflict}"),
        Event::Started { job, task, attempt, .. } => format!("job {job}: {task} begins, attempt {attempt}"),
        Event::Ended { job, took, .. } => format!("job {job}: ended after {took:.3?}"),
        Event::Completed { job, .. } => format!("job {job}: completed"),
        Event::GivenBack { job, state } => format!("job {job}: given back, and is {state}"),
        Event::LeaseLost { job, .. } => format!("job {job}: its lease was lost, and what it brought is discarded"),
        Event::Recovered { session, jobs } => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            format!("recovered {} from session {session}", jobs.join(" "))
        }
        Event::Promoted { jobs } => format!("{} ready", counted(*jobs as u64, "scheduled job")),
        Event::Scheduled { schedule, jobs } => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            format!("schedule {schedule}: enqueued {}", jobs.join(" "))
        }
        Event::Pruned { jobs } => format!("{} pruned", counted(*jobs as u64, "ended job")),
    })
}

/// A failed attempt in one line: the job's row says which attempt it was, and when there is another.
fn failed(store: &Store, id: JobId, state: State, message: &str) -> String {
    let why = message.lines().next().unwrap_or_default();
    match store.job(id) {
        Ok(job) => {
            let then = match job.run_at.filter(|_| state == State::Scheduled) {
                Some(at) => format!("tried again {}", relative(at, Timestamp::now())),
                None => format!("it is {state}"),
            };
            format!("job {id}: {} failed, attempt {}/{}: {why}; {then}", job.task, job.attempt, job.max_attempts)
        }
        // Others may have cancelled or pruned it meanwhile.
        Err(_) => format!("job {id}: failed, and is {state}: {why}"),
    }
}

/// The jobs that this worker holds, by what it tells.
#[derive(Default)]
struct Held {
    jobs: BTreeSet<JobId>,
    /// Those whose commands run, in processes that outlive this one.
    commands: BTreeSet<JobId>,
    /// How often something was claimed.
    claims: u64,
}

impl Held {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Claimed { jobs, .. } => {
                self.jobs.extend(jobs);
                self.claims += 1;
            }
            Event::Started { job, task, .. } if task == Exec::ID => {
                self.commands.insert(*job);
            }
            Event::Ended { job, .. } => {
                self.commands.remove(job);
            }
            Event::Completed { job, .. }
            | Event::Failed { job, .. }
            | Event::GivenBack { job, .. }
            | Event::LeaseLost { job, .. } => {
                self.jobs.remove(job);
            }
            _ => {}
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// What this worker works on, and how it is ended.
fn say_begin(
    context: &Context,
    store: &Store,
    is_new: bool,
    queues: &[String],
    tasks: &Registry,
) -> Result<(), Failure> {
    let made = if is_new { "a new store, " } else { "" };
    let path = store.path().unwrap_or(context.path()).display();
    let known = list(tasks.ids());
    let known = if known.is_empty() { "none".to_owned() } else { known };
    context.say(format!("works on {} of {made}{path}; tasks: {known}; Ctrl-C to stop", list(queues)));
    if !is_new {
        context.say_absent(&context.absent_queues(store)?);
    }
    Ok(())
}

fn stop_on_signals(
    program: &str,
    store: &Store,
    stop: &StopHandle,
    held: &Arc<Mutex<Held>>,
) -> Result<Handle, Failure> {
    let (named, stop, held) = (program.to_owned(), stop.clone(), held.clone());
    on_stop_signals(program, store, move || {
        if stop.is_stopping() {
            let commands = list(&locked(&held).commands);
            let goes_on = if commands.is_empty() { "" } else { "; commands go on by themselves: jobs " };
            eprintln!("{named}: stopping at once{goes_on}{commands}");
        } else {
            eprintln!("{named}: finishing what has begun; once more to stop at once");
        }
        stop.stop();
    })
}

/// Says once of each task that jobs of it wait which this worker does not run; and, while it drains, of jobs that run
/// elsewhere that it only waits for them.
#[derive(Clone)]
struct Hints {
    program: String,
    store: Store,
    queues: Vec<String>,
    tasks: Registry,
    drain: bool,
    held: Arc<Mutex<Held>>,
    said: Arc<Mutex<BTreeSet<String>>>,
}

impl Hints {
    fn new(
        context: &Context,
        store: &Store,
        queues: &[String],
        tasks: &Registry,
        drain: bool,
        held: &Arc<Mutex<Held>>,
    ) -> Self {
        Self {
            program: context.program.clone(),
            store: store.clone(),
            queues: queues.to_vec(),
            tasks: tasks.clone(),
            drain,
            held: held.clone(),
            said: Arc::default(),
        }
    }

    /// Looks once at once, and from then on after commits, until what this gives is dropped.
    fn start(&self) -> Result<Sender<()>, Failure> {
        let (end, ended) = bounded::<()>(0);
        let hints = self.clone();
        let mut seen = self.store.inner.site.wakes();
        hints.say_left_alone()?;
        let look = move || {
            let (mut claims, mut is_waiting) = (u64::MAX, false);
            while ended.recv_timeout(HINT_EVERY) == Err(RecvTimeoutError::Timeout) {
                // The worker meets the same troubles, and tells of them.
                let now = hints.store.inner.site.wakes();
                if now != seen {
                    seen = now;
                    let _ = hints.say_left_alone();
                }
                let before = std::mem::replace(&mut claims, locked(&hints.held).claims);
                if hints.drain && !is_waiting && before == claims {
                    is_waiting = hints.say_what_it_waits_for().unwrap_or_default();
                }
            }
        };
        thread::Builder::new()
            .name("casque-hints".into())
            .spawn(look)
            .map_err(|error| Failure::new(Exit::Failed, format!("a thread can't be started: {error}")))?;
        Ok(end)
    }

    fn say_left_alone(&self) -> Result<()> {
        for task in self.not_run_here()? {
            if locked(&self.said).insert(task.clone()) {
                eprintln!("{}: jobs of {} are left alone", self.program, not_run(&task));
            }
        }
        Ok(())
    }

    /// Says so if this worker holds nothing, and jobs of its queues run elsewhere.
    fn say_what_it_waits_for(&self) -> Result<bool> {
        if !locked(&self.held).jobs.is_empty() {
            return Ok(false);
        }
        let mut jobs = Vec::new();
        for queue in &self.queues {
            let running = JobFilter::new().queue(queue).state(State::Running);
            jobs.extend(self.store.jobs(&running, WAITED_FOR_MAX + 1)?.iter().map(|job| job.id.to_string()));
        }
        if jobs.is_empty() {
            return Ok(false);
        }
        if jobs.len() > WAITED_FOR_MAX {
            jobs.truncate(WAITED_FOR_MAX);
            jobs.push("...".to_owned());
        }
        eprintln!("{}: only waits for jobs that run elsewhere: {}", self.program, list(jobs));
        Ok(true)
    }

    /// The tasks of ready jobs that this worker does not run. Reads the lanes in use, and one row of each.
    fn not_run_here(&self) -> Result<BTreeSet<String>> {
        let rows = self.store.inner.rows()?;
        let mut tasks = BTreeSet::new();
        for (key, _) in first_rows(rows.as_ref(), &keys::all_lanes(), usize::MAX)? {
            let Some((queue, lane)) = keys::lane_of(&key) else { continue };
            let claimable = keys::claimable_in(&queue, lane);
            let is_used = || first_rows(rows.as_ref(), &claimable, 1).map(|rows| !rows.is_empty());
            if self.queues.contains(&queue) && is_used()? {
                tasks.insert(task_name(rows.as_ref(), lane.task)?);
            }
        }
        for known in self.tasks.ids() {
            tasks.remove(known);
        }
        Ok(tasks)
    }
}

fn not_run(task: &str) -> String {
    if task == Exec::ID {
        return "task \"exec\", which needs --allow-exec,".to_owned();
    }
    format!("task \"{task}\", which is unknown here,")
}

fn print(out: &mut Output, report: &Report, not_run_here: &BTreeSet<String>) -> Result<(), Failure> {
    let Report { completed, failed, given_back, leases_lost, hijacks, .. } = *report;
    if out.json {
        let left = report.left.iter().map(QueueLine::new).collect();
        return out.object(&Line { completed, failed, given_back, leases_lost, hijacks, left, not_run_here });
    }
    out.line(format!(
        "completed {completed}, failed {failed}, given back {given_back}, leases lost {leases_lost}, hijacks {hijacks}"
    ))?;
    print_queues(out, &report.left)
}
