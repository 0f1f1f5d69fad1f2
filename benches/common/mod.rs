//! What the benches share: their options, the report, processes of themselves that start together, and counted syncs.
#![allow(dead_code, reason = "each bench uses its part of this")]

use std::{
    env,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use casque::{
    Store, StoreOptions,
    hooks::{StorageHook, StorageOperation},
};
use serde_json::{Value, json};

/// What was asked for on the command line, after `cargo bench --bench NAME --`.
pub struct Options {
    /// `--quick`: shorter, for a look; the figures are rougher.
    pub quick: bool,
    /// `--full`: also what takes minutes.
    pub full: bool,
    /// `--sweep`: all that one plot of the bench shows.
    pub sweep: bool,
    /// `--jobs N`: of how many jobs it is, instead of what is usual.
    pub jobs: Option<u64>,
    /// `--seconds N`: how long each measurement runs.
    pub seconds: f64,
    /// `--only WORD`: the lines whose section has the word in its name.
    pub only: Option<String>,
    /// `--folder PATH`: where the stores are made; what counts is its disk.
    folder: PathBuf,
    json: Option<PathBuf>,
    /// `--svg FILE`: where a picture of the figures goes.
    pub svg: Option<PathBuf>,
    /// `--note TEXT`: what the picture's reader should know of this run.
    pub note: Option<String>,
}

impl Options {
    pub fn parse(seconds: f64, seconds_quick: f64) -> Self {
        let mut args = env::args().skip(1);
        let mut options = Self {
            quick: false,
            full: false,
            sweep: false,
            jobs: None,
            seconds: 0.0,
            only: None,
            folder: env::temp_dir(),
            json: None,
            svg: None,
            note: None,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
            match arg.as_str() {
                "--bench" => {} // cargo's own
                "--quick" => options.quick = true,
                "--full" => options.full = true,
                "--sweep" => options.sweep = true,
                "--jobs" => options.jobs = Some(value().parse().expect("--jobs is a number")),
                "--seconds" => options.seconds = value().parse().expect("--seconds is a number"),
                "--only" => options.only = Some(value()),
                "--folder" => options.folder = value().into(),
                "--json" => options.json = Some(value().into()),
                "--svg" => options.svg = Some(value().into()),
                "--note" => options.note = Some(value()),
                other => panic!("there is no option {other}"),
            }
        }
        if options.seconds == 0.0 {
            options.seconds = if options.quick { seconds_quick } else { seconds };
        }
        options
    }

    pub fn wants(&self, section: &str) -> bool {
        self.only.as_ref().is_none_or(|only| section.contains(only.as_str()))
    }

    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// A folder for one measurement, on the disk that is measured.
    pub fn fresh_folder(&self) -> tempfile::TempDir {
        tempfile::tempdir_in(&self.folder).expect("a folder for the store")
    }
}

/// Prints lines as they come, and keeps them for `--json`.
pub struct Report {
    lines: Vec<Value>,
    json: Option<PathBuf>,
}

impl Report {
    pub fn new(options: &Options) -> Self {
        Self { lines: Vec::new(), json: options.json.clone() }
    }

    pub fn heading(text: &str) {
        println!("\n{text}");
    }

    pub fn line(&mut self, name: &str, text: &str, figures: &Value) {
        println!("  {name:<58} {text}");
        self.lines.push(json!({ "line": name, "figures": figures }));
    }

    /// A line with its target.
    pub fn verdict(&mut self, name: &str, value: f64, target: &str, holds: bool) {
        let verdict = if holds { "PASS" } else { "short" };
        self.line(
            name,
            &format!("{value:.2}  (target {target})  {verdict}"),
            &json!({ "value": value, "target": target, "verdict": verdict }),
        );
    }

    pub fn finish(self) {
        if let Some(path) = self.json {
            let text = serde_json::to_string_pretty(&self.lines).expect("figures are JSON");
            fs::write(path, text).expect("the figures can be written");
        }
    }
}

/// Processes of this same program: each says when it is ready, starts when it is told, and answers with one line, once
/// or to each order.
pub struct Crew {
    children: Vec<(Child, BufReader<ChildStdout>)>,
}

impl Crew {
    /// Starts so many, and waits until all are ready.
    pub fn start(count: usize, role: &str, args: &[&str]) -> Self {
        let program = env::current_exe().expect("a bench has a path");
        let spawn = |_| {
            let mut command = Command::new(&program);
            command.args(["--role", role]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("a process can be started");
            let out = BufReader::new(child.stdout.take().expect("its output is piped"));
            (child, out)
        };
        let mut crew = Self { children: (0..count).map(spawn).collect() };
        crew.read_lines();
        crew
    }

    pub fn go(&mut self) {
        self.order("go");
    }

    /// Tells all the same.
    pub fn order(&mut self, order: &str) {
        let line = format!("{order}\n");
        for (child, _) in &mut self.children {
            child.stdin.as_mut().expect("its input is piped").write_all(line.as_bytes()).expect("a child listens");
        }
    }

    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.children.iter().map(|(child, _)| child.id())
    }

    /// The answers of all. They stay, with all that they hold, until this is dropped.
    pub fn answers(&mut self) -> Vec<Value> {
        self.read_lines().iter().map(|line| serde_json::from_str(line).expect("an answer is JSON")).collect()
    }

    /// Ends those that would go on.
    pub fn kill(&mut self) {
        for (child, _) in &mut self.children {
            child.kill().expect("a child can be killed");
        }
    }

    fn read_lines(&mut self) -> Vec<String> {
        let read = |(_, out): &mut (Child, BufReader<ChildStdout>)| {
            let mut line = String::new();
            out.read_line(&mut line).expect("a child answers");
            assert!(!line.is_empty(), "a child ended before it answered");
            line
        };
        self.children.iter_mut().map(read).collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

/// The role and its arguments, where this process is one of a crew.
pub fn role() -> Option<(String, Vec<String>)> {
    let mut args = env::args().skip(1);
    (args.next()? == "--role").then(|| (args.next().expect("a role has a name"), args.collect()))
}

/// For one of a crew: says that it is ready, and waits until it is told to go.
pub fn ready() {
    println!("ready");
    io::stdin().read_line(&mut String::new()).expect("the parent says when");
}

/// For one of a crew: says that it is ready, and answers each order until the parent has no more; then it leaves.
pub fn obey(mut answer: impl FnMut(&str) -> Value) -> ! {
    println!("ready");
    for order in io::stdin().lines() {
        println!("{}", answer(&order.expect("the parent writes text")));
    }
    std::process::exit(0);
}

/// For one of a crew: answers, and leaves when the parent has seen enough, with all its leases still held.
pub fn answer(answer: &Value) -> ! {
    println!("{answer}");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

/// Counts the syncs of a store's file.
#[derive(Debug, Default)]
pub struct Syncs(AtomicU64);

impl StorageHook for Syncs {
    fn before(&self, operation: StorageOperation, _: u64) -> io::Result<()> {
        if operation == StorageOperation::Sync {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Syncs {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub fn open_counted(path: &Path) -> (Store, Arc<Syncs>) {
    let syncs = Arc::new(Syncs::default());
    let store = StoreOptions::new().storage_hook(syncs.clone()).open(path).expect("the store opens");
    (store, syncs)
}

/// What a process takes of the machine's memory, of all kinds, in bytes.
#[derive(Clone, Copy)]
pub struct Memory {
    pub now: u64,
    /// The most it ever was.
    pub peak: u64,
}

impl Memory {
    /// None where the system does not tell in Linux's way.
    pub fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let of = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            let kibibytes: u64 = line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kibibytes << 10)
        };
        Some(Self { now: of("VmRSS")?, peak: of("VmHWM")? })
    }
}

pub fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).expect("the file is there").len()
}

/// Sums a number of all answers.
pub fn sum(answers: &[Value], field: &str) -> f64 {
    answers.iter().map(|answer| answer[field].as_f64().unwrap_or(0.0)).sum()
}

/// Runs something until the time is over; gives how often, and how long that took.
pub fn repeat_for(duration: Duration, mut body: impl FnMut()) -> (u64, Duration) {
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < duration {
        body();
        count += 1;
    }
    (count, began.elapsed())
}

/// Appends to a new file and syncs its data, again and again: how often, and how long that took.
pub fn append_synced(folder: &Path, bytes: usize, duration: Duration) -> (u64, Duration) {
    let mut file = File::create(folder.join("appended")).expect("a file can be made");
    let bytes = vec![7; bytes];
    repeat_for(duration, || {
        file.write_all(&bytes).expect("the disk is written");
        file.sync_data().expect("the disk is synced");
    })
}

/// What lies at a part of the way through, sorted: 0.5 is the median.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let index = ((sorted.len() - 1) as f64 * part).round() as usize;
    sorted[index]
}

/// Counts are far below 2^52.
#[allow(clippy::cast_precision_loss)]
pub fn float(count: u64) -> f64 {
    count as f64
}

pub fn mebibytes(bytes: u64) -> f64 {
    float(bytes) / f64::from(1 << 20)
}
