//! `casque schedule`: jobs that are enqueued again and again.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{
    context::Context,
    enqueue::{payload, stdin_text},
    exit::Failure,
    options::{JobOptions, OptionsLine},
    output::Output,
    table::{Table, brief},
    units::{format_duration, parse_duration, relative},
};
use crate::{
    clock::{Timestamp, millis},
    error::{Error, Result as CasqueResult},
    queue::{CatchUp, Schedule as Definition, ScheduleInfo},
    store::Store,
};

/// How many slots `--catch-up all` makes up for at most.
const ALL_MOST: u32 = 100;
/// How many of the next slots `show` tells.
const SLOTS_SHOWN: usize = 5;
/// The options of a job that say something of one that is enqueued now.
const NOT_OF_SLOTS: [&str; 6] = ["wait", "at", "after", "before", "open", "on_failure"];
/// How much of a schedule's times a listing shows.
const WHEN_LETTERS: usize = 40;

/// Jobs that are enqueued again and again: add, list, show, rm, pause, ...
#[derive(Debug, Args)]
#[command(after_help = "\
Each slot is enqueued once, by whichever worker or `casque serve` keeps the store in order.
A cron expression is minute, hour, day of the month, month, day of the week; with six fields
the first is the second. Where daylight saving time skips a fixed time of day, its slot is
the first moment after the gap; where one comes twice, the first.

Examples:
  casque schedule add nightly report --cron '30 4 * * 1-5' --tz Europe/Berlin
  casque schedule add sweep cleanup --every 15m --args '{\"older\": 7}' --catch-up skip
  casque schedule add dump exec --cron @daily --args '{\"command\": [\"pg_dump\", \"app\"]}'
  casque schedule list
  casque schedule run nightly")]
pub(super) struct Schedule {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Define a schedule, in place of the one of that name if there is one
    // What is about a job that is enqueued now is not shown, and refused.
    #[command(mut_args(|arg| { let is_refused = NOT_OF_SLOTS.contains(&arg.get_id().as_str()); arg.hide(is_refused) }))]
    Add(Box<Add>),
    /// List the schedules, and when each is next
    List,
    /// Show a schedule, and its next times
    Show {
        /// Its name
        name: String,
    },
    /// Remove a schedule; the jobs that it has enqueued stay
    Rm {
        /// Its name
        name: String,
    },
    /// Let a schedule's slots pass without a job, until it is resumed
    Pause {
        /// Its name
        name: String,
    },
    /// Let a paused schedule go on with the next slot to come
    Resume {
        /// Its name
        name: String,
    },
    /// Enqueue a schedule's job now, beside its slots
    Run {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
#[group(id = "times", required = true, args = ["cron", "every"])]
struct Add {
    /// Its name
    name: String,
    /// The id of the task of its jobs
    task: String,
    /// When, as a cron expression: '30 4 * * 1-5', @daily
    #[arg(long, value_name = "EXPR")]
    cron: Option<String>,
    /// The time zone of the expression, as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with = "every")]
    tz: Option<String>,
    /// Each so long, as 15m; the first so long from now
    #[arg(long, value_name = "DUR", value_parser = parse_duration, conflicts_with = "cron")]
    every: Option<Duration>,
    /// What to do about slots that nobody was there for: skip, one job for all of them, a job for all (at most 100), or
    /// for the latest N [default: one]
    #[arg(long, value_name = "skip|one|all|N", value_parser = parse_catch_up)]
    catch_up: Option<CatchUp>,
    /// The arguments as JSON; - reads them from stdin [default: null]
    #[arg(long, value_name = "JSON|-", allow_hyphen_values = true)]
    args: Option<String>,
    #[command(flatten)]
    options: JobOptions,
}

/// A schedule in JSON. Times are RFC 3339 in UTC.
#[derive(Serialize)]
struct Line {
    name: String,
    cron: Option<String>,
    zone: Option<String>,
    every_ms: Option<u64>,
    catch_up: serde_json::Value,
    paused: bool,
    task: String,
    queue: String,
    args: serde_json::Value,
    #[serde(flatten)]
    options: OptionsLine,
    last: Option<String>,
    last_job: Option<String>,
    next: Option<String>,
    upcoming: Vec<String>,
}

impl Schedule {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        match self.action {
            Action::Add(add) => add.run(context, out),
            Action::List => list(context, out),
            Action::Show { name } => {
                let schedule = context.read(|store| Ok(store.schedule_named(&name)?))?;
                show(context, out, &schedule)
            }
            Action::Rm { name } => tend(context, out, &name, "removed", Store::remove_schedule),
            Action::Pause { name } => tend(context, out, &name, "paused", Store::pause_schedule),
            Action::Resume { name } => tend(context, out, &name, "resumed", Store::resume_schedule),
            Action::Run { name } => {
                let id = context.write()?.run_schedule(&name)?;
                out.either(&serde_json::json!({ "id": id.to_string() }), id)
            }
        }
    }
}

impl Add {
    fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        self.options.check()?;
        if self.options.on_failure.is_some() {
            return Err(Failure::usage("--on-failure is for a job that waits for others, as that of a slot can't"));
        }
        if self.options.wait.is_some() {
            return Err(Failure::usage(
                "--wait is for a job that is enqueued now; a slot that finds its queue full is tried again each second",
            ));
        }
        let args = match self.args.as_deref() {
            None => "null".to_owned(),
            Some("-") => stdin_text("the arguments")?,
            Some(args) => args.to_owned(),
        };
        let args = payload(&args, "the arguments")?;
        context.check_task(&self.task, &args)?;
        let job = self.options.apply_to(context.request(&self.task, args));
        let definition = match (self.cron, self.every) {
            (Some(expression), _) => {
                Definition::cron(&self.name, expression, job).zone(self.tz.unwrap_or("UTC".into()))
            }
            (None, Some(every)) => Definition::every(&self.name, every, job),
            (None, None) => return Err(Failure::usage("say when, by --cron or by --every")),
        };
        let definition = definition.queue(context.queue()?).catch_up(self.catch_up.unwrap_or_default()).checked()?;
        // What never comes is found before a store is made for it.
        definition.spec.first(Timestamp::now(), None)?;
        let store = context.create()?;
        store.define(&definition)?;
        let schedule = store.schedule_named(&self.name)?;
        let next = next(&schedule, Timestamp::now());
        out.either(&line(context, &schedule), format!("{}: next {next}", schedule.name))
    }
}

fn tend(
    context: &Context,
    out: &mut Output,
    name: &str,
    done: &'static str,
    act: fn(&Store, &str) -> CasqueResult<()>,
) -> Result<(), Failure> {
    act(&context.write()?, name)?;
    out.either(&serde_json::json!({ "name": name, "done": done }), format!("{name} {done}"))
}

fn list(context: &Context, out: &mut Output) -> Result<(), Failure> {
    let queue = context.queue_if_named()?;
    let mut schedules = context.read(|store| Ok(store.schedules()?))?;
    schedules.retain(|schedule| queue.is_none_or(|queue| schedule.queue == queue));
    if out.json {
        return schedules.iter().try_for_each(|schedule| out.object(&line(context, schedule)));
    }
    let now = Timestamp::now();
    let mut table = Table::with_head(["NAME", "WHEN", "TASK", "QUEUE", "NEXT", "LAST JOB", ""]);
    for schedule in schedules {
        table.row([
            schedule.name.clone(),
            brief(&when(&schedule), WHEN_LETTERS),
            schedule.task.clone(),
            schedule.queue.clone(),
            next(&schedule, now),
            schedule.last_job.map_or("-".to_owned(), |job| job.to_string()),
            if schedule.paused { "paused".to_owned() } else { String::new() },
        ]);
    }
    table.print(out)
}

fn show(context: &Context, out: &mut Output, schedule: &ScheduleInfo) -> Result<(), Failure> {
    let line = line(context, schedule);
    if out.json {
        return out.object(&line);
    }
    let mut table = Table::new();
    let mut add = |name: &str, value: String| table.row([name.to_owned(), value]);
    add("schedule", schedule.name.clone());
    add("when", when(schedule));
    add("task", schedule.task.clone());
    add("queue", schedule.queue.clone());
    add("args", line.args.to_string());
    line.options.rows().into_iter().for_each(|(name, value)| add(name, value));
    add("catch up", catch_up_text(schedule.catch_up));
    add("paused", if schedule.paused { "yes" } else { "no" }.to_owned());
    if let Some(last) = schedule.last {
        add("last slot", at(schedule, last));
    }
    if let Some(job) = schedule.last_job {
        add("last job", job.to_string());
    }
    add("next", next(schedule, Timestamp::now()));
    for slot in schedule.upcoming(SLOTS_SHOWN).unwrap_or_default().into_iter().skip(1) {
        add("", at(schedule, slot));
    }
    table.print(out)
}

fn line(context: &Context, schedule: &ScheduleInfo) -> Line {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    // In a program without the feature `cron` the further slots of an expression are not known.
    let upcoming = schedule.upcoming(SLOTS_SHOWN).unwrap_or_else(|_| schedule.next.into_iter().collect());
    Line {
        name: schedule.name.clone(),
        cron: schedule.cron.clone(),
        zone: schedule.zone.clone(),
        every_ms: schedule.every.map(millis),
        catch_up: match schedule.catch_up {
            CatchUp::Skip => "skip".into(),
            CatchUp::One => "one".into(),
            CatchUp::All(most) => most.into(),
        },
        paused: schedule.paused,
        task: schedule.task.clone(),
        queue: schedule.queue.clone(),
        options: OptionsLine::of(&schedule.job),
        args: context.describe(&schedule.task, schedule.args_version, &schedule.args),
        last: time(schedule.last),
        last_job: schedule.last_job.map(|job| job.to_string()),
        next: time(schedule.next),
        upcoming: upcoming.iter().map(ToString::to_string).collect(),
    }
}

fn when(schedule: &ScheduleInfo) -> String {
    match (&schedule.cron, &schedule.zone, schedule.every) {
        (Some(expression), Some(zone), _) => format!("{expression} ({zone})"),
        (_, _, Some(every)) => format!("every {}", format_duration(millis(every))),
        _ => "-".to_owned(),
    }
}

fn next(schedule: &ScheduleInfo, now: Timestamp) -> String {
    match schedule.next {
        Some(slot) => format!("{} ({})", at(schedule, slot), relative(slot, now)),
        None => "never again".to_owned(),
    }
}

/// A time as the clocks of the schedule's zone show it.
fn at(schedule: &ScheduleInfo, time: Timestamp) -> String {
    let zone = schedule.zone.as_deref().and_then(|name| jiff::tz::TimeZone::get(name).ok());
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(moment) => moment.to_zoned(zone.unwrap_or(jiff::tz::TimeZone::UTC)).strftime("%F %T %Z").to_string(),
        Err(_) => time.to_string(),
    }
}

fn catch_up_text(catch_up: CatchUp) -> String {
    match catch_up {
        CatchUp::Skip => "skip what was missed".to_owned(),
        CatchUp::One => "one job for all that was missed".to_owned(),
        CatchUp::All(most) => format!("a job for each that was missed, the latest {most} at most"),
    }
}

fn parse_catch_up(text: &str) -> CasqueResult<CatchUp> {
    match text {
        "skip" => Ok(CatchUp::Skip),
        "one" => Ok(CatchUp::One),
        "all" => Ok(CatchUp::All(ALL_MOST)),
        number => number
            .parse()
            .map(CatchUp::All)
            .map_err(|_| Error::invalid(format!("\"{text}\" is no way to catch up; give skip, one, all, or a number"))),
    }
}
