//! `casque work`.

use std::{collections::BTreeSet, thread, time::Duration};

use clap::Args;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use serde::Serialize;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::{Handle, Signals},
};

use super::{
    context::{Context, QUEUE_DEFAULT},
    exit::{Exit, Failure},
    output::Output,
    stats::{QueueLine, print_queues},
};
use crate::{
    error::Result,
    queue::{Policy, moves::task_name},
    store::{Store, keys, view::first_rows},
    task::{Registry, Task as _, exec::Exec},
    worker::{Event, Report, StopHandle, Worker},
};

/// How often a worker looks for jobs that it can't run, if anything was committed since.
const HINT_EVERY: Duration = Duration::from_secs(1);

/// Run the jobs of queues
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "\
SIGINT (Ctrl-C) and SIGTERM stop it gently: it finishes what it has begun, and gives the
rest back. A second one stops it at once: what runs is given back uncharged, but for
commands, which end by themselves first.

Example:
  casque work --queue media --queue default --concurrency 4 --allow-exec")]
pub(super) struct Work {
    /// Run so many jobs at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    concurrency: usize,
    /// Claim so many jobs ahead: fewer commits per job, but others can't have them
    #[arg(long, value_name = "N", default_value_t = 0)]
    prefetch: usize,
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
        let worker = |store: &Store| self.worker(context, store, &queues, tasks.clone(), &stop);
        // A wrong argument is told before a store is made for it.
        worker(&Store::in_memory()?).check()?;
        let store = context.create()?;
        let hints = Hints { store: store.clone(), queues: queues.clone(), tasks: tasks.clone() };
        let signals = stop_on_signals(&context.program, &stop)?;
        let hinting = hints.start(&context.program)?;
        let ended = worker(&store).run_whatever_it_knows();
        signals.close();
        drop(hinting);
        let report = ended?;
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
    ) -> Worker {
        let (program, verbose) = (context.program.clone(), context.globals.verbose > 0);
        let mut worker = Worker::new(store)
            .tasks(tasks)
            .concurrency(self.concurrency)
            .prefetch(self.prefetch)
            .policy(if self.strict { Policy::Strict } else { Policy::Rebase })
            .drain(self.drain)
            .stopped_by(stop)
            .listen(move |event| {
                if let Some(text) = told(event, verbose) {
                    eprintln!("{program}: {text}");
                }
            });
        if self.with_scheduled {
            worker = worker.drain_with_scheduled();
        }
        queues.iter().fold(worker, Worker::queue)
    }
}

/// What is said of an event on stderr: troubles always, the rest where more was asked for.
fn told(event: &Event, verbose: bool) -> Option<String> {
    if let Event::Trouble { doing, message } = event {
        return Some(format!("failed to {doing}, and will try again: {message}"));
    }
    if !verbose {
        return None;
    }
    Some(match event {
        Event::Claimed { jobs, token } => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            format!("claimed {} under token {token}", jobs.join(" "))
        }
        Event::Hijacked(hijack) => format!("hijacked: {hijack:?}"),
        Event::HijackedStrictly(conflict) => format!("hijacked: {conflict}"),
        Event::Started { job, task, attempt, .. } => format!("job {job}: {task} begins, attempt {attempt}"),
        Event::Ended { job, took, .. } => format!("job {job}: ended after {took:.3?}"),
        Event::Completed { job, .. } => format!("job {job}: completed"),
        Event::Failed { job, state, message } => format!("job {job}: failed, and is {state}: {message}"),
        Event::GivenBack { job, state } => format!("job {job}: given back, and is {state}"),
        Event::LeaseLost { job, .. } => format!("job {job}: its lease was lost, and what it brought is discarded"),
        Event::Recovered { session, jobs } => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            format!("recovered {} from session {session}", jobs.join(" "))
        }
        Event::Promoted { jobs } => format!("{jobs} scheduled jobs are ready"),
        Event::Pruned { jobs } => format!("{jobs} ended jobs pruned"),
        Event::Trouble { .. } => return None,
    })
}

fn stop_on_signals(program: &str, stop: &StopHandle) -> Result<Handle, Failure> {
    let failed = |error| Failure::new(Exit::Failed, format!("signals can't be listened to: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let handle = signals.handle();
    let (program, stop) = (program.to_owned(), stop.clone());
    thread::Builder::new()
        .name("casque-signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if stop.is_stopping() {
                    eprintln!("{program}: stopping at once");
                } else {
                    eprintln!("{program}: finishing what has begun; once more to stop at once");
                }
                stop.stop();
            }
        })
        .map_err(failed)?;
    Ok(handle)
}

/// Says once of each task that jobs of it wait which this worker does not run.
#[derive(Clone)]
struct Hints {
    store: Store,
    queues: Vec<String>,
    tasks: Registry,
}

impl Hints {
    /// Looks once at once, and from then on after commits, until what this gives is dropped.
    fn start(&self, program: &str) -> Result<Sender<()>, Failure> {
        let (end, ended) = bounded::<()>(0);
        let (hints, program) = (self.clone(), program.to_owned());
        let mut said = BTreeSet::new();
        let mut seen = self.store.inner.site.wakes();
        hints.say(&program, &mut said)?;
        let look = move || {
            while ended.recv_timeout(HINT_EVERY) == Err(RecvTimeoutError::Timeout) {
                let now = hints.store.inner.site.wakes();
                if now != seen {
                    seen = now;
                    // The worker meets the same trouble, and tells of it.
                    let _ = hints.say(&program, &mut said);
                }
            }
        };
        thread::Builder::new()
            .name("casque-hints".into())
            .spawn(look)
            .map_err(|error| Failure::new(Exit::Failed, format!("a thread can't be started: {error}")))?;
        Ok(end)
    }

    fn say(&self, program: &str, said: &mut BTreeSet<String>) -> Result<()> {
        for task in self.not_run_here()? {
            if said.insert(task.clone()) {
                eprintln!("{program}: jobs of {} are left alone", not_run(&task));
            }
        }
        Ok(())
    }

    /// The tasks of ready jobs that this worker does not run. Reads the lanes in use, and one row of each.
    fn not_run_here(&self) -> Result<BTreeSet<String>> {
        let rows = self.store.inner.rows()?;
        let mut tasks = BTreeSet::new();
        for (key, _) in first_rows(rows.as_ref(), &keys::all_lanes(), usize::MAX)? {
            let Some((queue, lane)) = keys::lane_of(&key) else { continue };
            let is_used = || first_rows(rows.as_ref(), &keys::ready_lane(&queue, lane), 1).map(|rows| !rows.is_empty());
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
    print_queues(out, &report.left)?;
    not_run_here.iter().try_for_each(|task| out.line(format!("jobs of {} are left alone", not_run(task))))
}
