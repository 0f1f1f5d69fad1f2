//! How claims hold up when many processes want the same queue, each with some time to think between its snapshot and
//! its commit: strict and by rebase, with a pause after a hijack and without.
//!
//! ```text
//! cargo bench --bench contention -- [--quick] [--sweep] [--seconds N] [--folder PATH] [--json FILE]
//!                                   [--svg FILE] [--note TEXT]
//! ```
//!
//! 1 to 16 workers that think for 2 ms; `--sweep`: 1 to 32 that think for 0, 1, 2 and 5 ms, in three rounds whose
//! medians count. `--svg` draws what was measured, with `--note` below it. Every worker commits directly, under the
//! writer's lock: there is no stone, and a run that finds one ends. See `workers` for what is measured, `plot` for the
//! picture.

#[path = "../common/mod.rs"]
mod common;

mod plot;
mod workers;

use std::{fs, thread, time::Duration};

use casque::Timestamp;
use serde_json::json;

use crate::{
    common::{Options, Report, append_synced, float, quantile, role},
    workers::{Figures, Setup, WAYS, Way},
};

/// Which set-ups are measured, and how often.
struct Grid {
    think_ms: &'static [u64],
    workers: &'static [usize],
    rounds: usize,
}

const USUAL: Grid = Grid { think_ms: &[2], workers: &[1, 2, 4, 8, 16], rounds: 1 };
const SWEEP: Grid = Grid { think_ms: &[0, 1, 2, 5], workers: &[1, 2, 4, 8, 16, 32], rounds: 3 };
/// The targets are for so many workers, and so much thought.
const TARGET_WORKERS: usize = 8;
const TARGET_THINK_MS: u64 = 2;
/// What is appended to learn how fast the disk is by itself, and for how long.
const PROBE_BYTES: usize = 200;
const PROBE: Duration = Duration::from_millis(500);

/// What the rounds of one set-up gave.
struct Point {
    setup: Setup,
    rounds: Vec<Figures>,
}

impl Point {
    fn claims(&self, part: f64) -> f64 {
        self.at(part, |figures| figures.claims_per_second)
    }

    fn wasted(&self, part: f64) -> f64 {
        self.at(part, |figures| figures.wasted_per_claim)
    }

    fn at(&self, part: f64, figure: impl Fn(&Figures) -> f64) -> f64 {
        quantile(&self.rounds.iter().map(figure).collect::<Vec<_>>(), part)
    }
}

fn main() {
    if let Some((_, args)) = role() {
        workers::work(&args);
    }
    let options = Options::parse(4.0, 1.0);
    let grid = if options.sweep { &SWEEP } else { &USUAL };
    println!("claims of one job, committed directly, {} s each, {} round(s)", options.seconds, grid.rounds);
    let disk_before = disk(&options);
    let points = measure(&options, grid);
    let disk_after = disk(&options);

    let mut report = Report::new(&options);
    for &think_ms in grid.think_ms {
        for way in &WAYS {
            Report::heading(&format!("{}, {think_ms} ms between snapshot and commit", way.name));
            let is_of_this = |setup: Setup| setup.think_ms == think_ms && setup.way == way;
            points.iter().filter(|point| is_of_this(point.setup)).for_each(|point| line(&mut report, point));
        }
    }
    verdicts(&mut report, &points);
    Report::heading("the disk by itself");
    report.line(
        "append 200 bytes and fdatasync, before and after",
        &format!("{disk_before:>6.0} /s  {disk_after:>6.0} /s"),
        &json!({ "before_per_second": disk_before, "after_per_second": disk_after }),
    );
    report.finish();

    if let Some(path) = &options.svg {
        let caption = caption(&options, grid, disk_before, disk_after);
        fs::write(path, plot::svg(&points, &caption)).expect("the picture can be written");
    }
}

/// A round is of all set-ups, so that a mood of the disk or the machine does not fall on all rounds of one.
fn measure(options: &Options, grid: &Grid) -> Vec<Point> {
    let mut points = Vec::new();
    for &think_ms in grid.think_ms {
        for way in &WAYS {
            let setups = grid.workers.iter().map(|&workers| Setup { way, think_ms, workers });
            points.extend(setups.map(|setup| Point { setup, rounds: Vec::new() }));
        }
    }
    for round in 1..=grid.rounds {
        for point in &mut points {
            let Setup { way, think_ms, workers } = point.setup;
            eprint!("\r  round {round}: {}, {think_ms} ms, {workers} workers \x1b[K", way.name);
            point.rounds.push(workers::measure(options, point.setup));
        }
    }
    eprint!("\r\x1b[K");
    points
}

fn line(report: &mut Report, point: &Point) {
    let Setup { way, think_ms, workers } = point.setup;
    let (claims, wasted) = (point.claims(0.5), point.wasted(0.5));
    report.line(
        &format!("{}, {think_ms} ms, {workers} workers", way.name),
        &format!("{claims:>6.0} claims/s  {wasted:>6.2} attempts wasted per claim"),
        &json!({
            "way": way.name,
            "think_ms": think_ms,
            "workers": workers,
            "claims_per_second": claims,
            "claims_per_second_min": point.claims(0.0),
            "claims_per_second_max": point.claims(1.0),
            "wasted_per_claim": wasted,
        }),
    );
}

fn verdicts(report: &mut Report, points: &[Point]) {
    Report::heading(&format!("with {TARGET_WORKERS} workers and {TARGET_THINK_MS} ms"));
    let at_target = |way: &'static Way| {
        let setup = Setup { way, think_ms: TARGET_THINK_MS, workers: TARGET_WORKERS };
        points.iter().find(|point| point.setup == setup).expect("each grid has the set-up of the targets")
    };
    let [strict, _, rebase] = WAYS.each_ref().map(at_target);
    let wasted = strict.wasted(0.5);
    report.verdict("strict wastes per claim, backoff off", wasted, "6 to 8", (6.0..=8.0).contains(&wasted));
    let wasted = rebase.wasted(0.5);
    report.verdict("rebase wastes per claim", wasted, "at most 0.1", wasted <= 0.1);
    let ratio = rebase.claims(0.5) / strict.claims(0.5);
    report.verdict("rebase claims for each strict one", ratio, "at least 3", ratio >= 3.0);
}

fn caption(options: &Options, grid: &Grid, disk_before: f64, disk_after: f64) -> Vec<String> {
    let date = &Timestamp::now().to_string()[..10];
    let cores = thread::available_parallelism().expect("a machine has cores");
    let seconds = options.seconds;
    let rounds = match grid.rounds {
        1 => format!("{seconds} s for each point."),
        rounds => format!(
            "Medians of {rounds} rounds, {seconds} s for each point; thin bars: least and most, as far as they fit."
        ),
    };
    let mut caption = vec![
        format!(
            "{date}, {cores} cores. The disk by itself: {disk_before:.0} fdatasyncs a second before the run, \
             {disk_after:.0} after it."
        ),
        format!("Each process commits directly, with two syncs. {rounds}"),
    ];
    caption.extend(options.note.clone());
    caption
}

fn disk(options: &Options) -> f64 {
    let folder = options.fresh_folder();
    let (count, took) = append_synced(folder.path(), PROBE_BYTES, PROBE);
    float(count) / took.as_secs_f64()
}
