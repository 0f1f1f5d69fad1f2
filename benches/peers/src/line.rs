//! One line of the report: casque and one peer at one work, in interleaved pairs.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    disk::{Disk, has_moved},
    options::Options,
    peer::{Peer, Style},
    peers::Casque,
    run::{Figure, Runs, quantile},
    works::{Kind, Work},
};

/// How often all pairs of a line together are done again because the disk moved, for each pair there is.
const REDONE_PER_PAIR: usize = 1;

pub struct Line {
    pub work: Work,
    pub peer: &'static str,
    pub durability: &'static str,
    pub is_durable: bool,
    pairs: Vec<(Figure, Figure)>,
    pub syncs: (Option<f64>, Option<f64>),
    /// Raw appends made durable a second, before, in and after each pair.
    disk: Vec<f64>,
    redone: usize,
    /// Pairs that stand though the disk moved.
    moved: usize,
}

/// What `measure` needs beside the peer.
pub struct Bench<'a> {
    pub options: &'a Options,
    pub runs: Runs<'a>,
    pub disk: Disk,
    /// casque's syncs per job, by work: they are the same beside every peer.
    casque_syncs: Vec<(&'static str, Option<f64>)>,
}

impl<'a> Bench<'a> {
    pub fn new(options: &'a Options, folder: &Path) -> Self {
        Self { options, runs: Runs::new(options), disk: Disk::new(folder), casque_syncs: Vec::new() }
    }

    pub fn measure(&mut self, work: &Work, peer: &dyn Peer) -> Line {
        let (ours, theirs) = styles(work.kind);
        let mut line = Line {
            work: *work,
            peer: peer.name(),
            durability: peer.durability(),
            is_durable: peer.is_durable(),
            pairs: Vec::new(),
            syncs: (self.casque_syncs(work, ours), self.runs.syncs_per_job(peer, work, theirs)),
            disk: Vec::new(),
            redone: 0,
            moved: 0,
        };
        check_durability(work, peer, line.syncs.1);
        check_durability(work, &Casque, line.syncs.0);
        while line.pairs.len() < self.options.pairs {
            // Who comes second finds the disk as the first has left it, so they take turns.
            let casque_first = line.pairs.len().is_multiple_of(2);
            let mut run = |casque: bool| {
                if casque { self.runs.measure(&Casque, work, ours) } else { self.runs.measure(peer, work, theirs) }
            };
            let before = self.disk.rate();
            let first = run(casque_first);
            let between = self.disk.rate();
            let second = run(!casque_first);
            let rates = [before, between, self.disk.rate()];
            let pair = if casque_first { (first, second) } else { (second, first) };
            line.disk.extend(rates);
            if has_moved(&rates) {
                if line.redone < REDONE_PER_PAIR * self.options.pairs {
                    line.redone += 1;
                    continue;
                }
                line.moved += 1;
            }
            line.pairs.push(pair);
        }
        line
    }

    fn casque_syncs(&mut self, work: &Work, style: Style) -> Option<f64> {
        if let Some((_, syncs)) = self.casque_syncs.iter().find(|(key, _)| *key == work.key) {
            return *syncs;
        }
        let syncs = self.runs.syncs_per_job(&Casque, work, style);
        self.casque_syncs.push((work.key, syncs));
        syncs
    }
}

fn styles(kind: Kind) -> (Style, Style) {
    match kind {
        Kind::Claim { casque, peer, .. } => (casque, peer),
        Kind::Enqueue { .. } | Kind::Latency => (Style::One, Style::One),
    }
}

/// One caller that waits for each answer shares its sync with nobody: what is durable shows as much.
fn check_durability(work: &Work, peer: &dyn Peer, syncs: Option<f64>) {
    if let (Kind::Enqueue { processes: 1, callers: 1, jobs: 1 }, Some(syncs)) = (work.kind, syncs)
        && peer.is_durable()
    {
        assert!(syncs > 0.95, "{} is not durable at the answer: {syncs:.3} syncs per job", peer.name());
    }
}

/// A median, and the ends.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Line {
    /// casque's figure by the peer's, pair by pair.
    pub fn ratio(&self) -> Spread {
        spread(self.pairs.iter().map(|(casque, peer)| casque.value / peer.value))
    }

    pub fn casque(&self) -> Spread {
        spread(self.pairs.iter().map(|(casque, _)| casque.value))
    }

    pub fn theirs(&self) -> Spread {
        spread(self.pairs.iter().map(|(_, peer)| peer.value))
    }

    /// Of all samples of all pairs: casque's and the peer's.
    pub fn quantiles_ms(&self, part: f64) -> (f64, f64) {
        let all = |of: fn(&(Figure, Figure)) -> &Figure| {
            let samples: Vec<f64> = self.pairs.iter().flat_map(|pair| of(pair).samples_ms.iter().copied()).collect();
            quantile(&samples, part)
        };
        (all(|pair| &pair.0), all(|pair| &pair.1))
    }

    /// How many samples stand behind a quantile.
    fn samples(&self) -> usize {
        self.pairs.iter().map(|(casque, _)| casque.samples_ms.len()).sum()
    }

    pub fn text(&self) -> String {
        let figures = if self.work.kind.is_time() {
            let ((ours, theirs), (ours_99, theirs_99)) = (self.quantiles_ms(0.5), self.quantiles_ms(0.99));
            format!("{ours:>6.2} /{ours_99:>6.2} ms  {theirs:>6.2} /{theirs_99:>6.2} ms")
        } else {
            format!("{:>12.0} /s  {:>12.0} /s  ", self.casque().median, self.theirs().median)
        };
        let ratio = self.ratio();
        let disk = spread(self.disk.iter().copied());
        let mut text = format!(
            "  {:<34} {figures}  {:>6.2} ({:.2} to {:.2})  {:>7} {:>7}  {:.0} ({:.0} to {:.0})",
            self.peer,
            ratio.median,
            ratio.min,
            ratio.max,
            syncs(self.syncs.0),
            syncs(self.syncs.1),
            disk.median,
            disk.min,
            disk.max,
        );
        let told =
            [(self.redone, "pairs done again, since the disk moved"), (self.moved, "that stand though it moved")];
        let told = told.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("; {count} {what}"));
        text.extend(told);
        text
    }

    pub fn json(&self) -> Value {
        let (ratio, casque, peer) = (self.ratio(), self.casque(), self.theirs());
        let spread = |spread: Spread| json!({ "median": spread.median, "min": spread.min, "max": spread.max });
        let mut value = json!({
            "work": self.work.key,
            "title": self.work.title,
            "peer": self.peer,
            "durable": self.is_durable,
            "durability": self.durability,
            "unit": if self.work.kind.is_time() { "ms" } else { "jobs per second" },
            "pairs": self.pairs.iter().map(|(casque, peer)| [casque.value, peer.value]).collect::<Vec<_>>(),
            "ratio": spread(ratio),
            "casque_figure": spread(casque),
            "peer_figure": spread(peer),
            "casque_syncs_per_job": self.syncs.0,
            "peer_syncs_per_job": self.syncs.1,
            "raw_fdatasyncs_per_second": self.disk,
            "pairs_done_again": self.redone,
            "pairs_in_which_the_disk_moved": self.moved,
        });
        if self.work.kind.is_time() {
            let ((ours, theirs), (ours_99, theirs_99)) = (self.quantiles_ms(0.5), self.quantiles_ms(0.99));
            value["samples"] = json!(self.samples());
            value["casque_ms"] = json!({ "p50": ours, "p99": ours_99 });
            value["peer_ms"] = json!({ "p50": theirs, "p99": theirs_99 });
        }
        value
    }
}

fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let values: Vec<f64> = values.collect();
    Spread { median: median(&values), min: quantile(&values, 0.0), max: quantile(&values, 1.0) }
}

/// Of an even number, the mean of the middle two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], sorted[half]) } else { sorted[half] }
}

fn syncs(syncs: Option<f64>) -> String {
    syncs.map_or_else(|| "-".to_owned(), |syncs| format!("{syncs:.3}"))
}
