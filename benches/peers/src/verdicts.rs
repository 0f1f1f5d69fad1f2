//! What was set out to reach, and what was measured.

use serde_json::{Value, json};

use crate::{line::Line, run::quantile};

/// Two marks and a figure. Of a figure that is to be small, the marks are the most it may be.
pub struct Verdict {
    what: String,
    target: f64,
    goal: Option<f64>,
    measured: f64,
    beside: String,
    is_limit: bool,
}

/// The verdicts that these lines allow.
pub fn verdicts(lines: &[Line], idle_cores: Option<(usize, f64)>) -> Vec<Verdict> {
    let durable = |line: &&Line| line.is_durable;
    let any = |_: &&Line| true;
    let mut verdicts = Vec::new();
    verdicts.extend(beside_best(lines, "claim-8", "1: 8 workers, one at a time", 1.5, Some(2.0), durable));
    verdicts.extend(beside_best(lines, "ordinary-4", "2: 4 workers as they come", 2.5, Some(5.0), any));
    verdicts.extend(beside_best(lines, "ordinary-best-4", "2: ... the peer at its best", 1.0, None, durable));
    verdicts.extend(beside_best(lines, "enqueue-1", "3: enqueue, 1 caller", 0.6, Some(1.0), durable));
    verdicts.extend(beside_best(lines, "enqueue-16", "3: enqueue, 16 callers", 1.3, Some(2.0), durable));
    verdicts.extend(batches(lines));
    verdicts.extend(latencies(lines));
    if let Some((workers, cores)) = idle_cores {
        verdicts.push(Verdict {
            what: format!("4: {workers} idle workers together, % of a core"),
            target: 1.0,
            goal: None,
            measured: 100.0 * cores,
            beside: String::new(),
            is_limit: true,
        });
    }
    verdicts.extend(syncs(lines));
    verdicts
}

/// Rates by the one of the best peer among those that count.
fn beside_best(
    lines: &[Line],
    key: &str,
    what: &str,
    target: f64,
    goal: Option<f64>,
    counts: impl Fn(&&Line) -> bool,
) -> Option<Verdict> {
    let of_work = lines.iter().filter(|line| line.work.key == key);
    let best = of_work.filter(counts).max_by(|a, b| a.theirs().median.total_cmp(&b.theirs().median))?;
    let (measured, beside) = (best.ratio().median, best.peer.to_owned());
    Some(Verdict { what: what.to_owned(), target, goal, measured, beside, is_limit: false })
}

fn batches(lines: &[Line]) -> Option<Verdict> {
    let of_work = lines.iter().filter(|line| line.work.key == "enqueue-batch");
    let rates: Vec<f64> = of_work.map(|line| line.casque().median).collect();
    if rates.is_empty() {
        return None;
    }
    Some(Verdict {
        what: "3: enqueue in batches of 100, thousands a second".to_owned(),
        target: 150.0,
        goal: Some(300.0),
        measured: quantile(&rates, 0.5) / 1e3,
        beside: String::new(),
        is_limit: false,
    })
}

fn latencies(lines: &[Line]) -> Vec<Verdict> {
    let durable = lines.iter().filter(|line| line.work.kind.is_time() && line.is_durable);
    let Some(best) = durable.min_by(|a, b| a.quantiles_ms(0.5).1.total_cmp(&b.quantiles_ms(0.5).1)) else {
        return Vec::new();
    };
    let verdict = |part, target, name| {
        let (ours, theirs) = best.quantiles_ms(part);
        let what = format!("4: enqueue to start, {name} by the peer's");
        Verdict { what, target, goal: None, measured: ours / theirs, beside: best.peer.to_owned(), is_limit: true }
    };
    vec![verdict(0.5, 1.3, "p50"), verdict(0.99, 1.5, "p99")]
}

fn syncs(lines: &[Line]) -> Option<Verdict> {
    let measured = lines.iter().find(|line| line.work.key == "ordinary-4")?.syncs.0?;
    let what = "7: syncs per job, 4 workers as they come".to_owned();
    Some(Verdict { what, target: 0.02, goal: None, measured, beside: String::new(), is_limit: true })
}

impl Verdict {
    pub fn text(&self) -> String {
        let goal = self.goal.map_or_else(String::new, |goal| format!(", goal {goal}"));
        let beside = if self.beside.is_empty() { String::new() } else { format!(" beside {}", self.beside) };
        let bound = if self.is_limit { "at most" } else { "target" };
        let (measured, target) = (self.measured, self.target);
        format!("  {:<50} {bound} {target}{goal}: measured {measured:.2}{beside}: {}", self.what, self.verdict())
    }

    pub fn json(&self) -> Value {
        json!({
            "what": self.what,
            "target": self.target,
            "goal": self.goal,
            "measured": self.measured,
            "beside": self.beside,
            "verdict": self.verdict(),
        })
    }

    fn verdict(&self) -> &'static str {
        let reaches = |mark: f64| if self.is_limit { self.measured <= mark } else { self.measured >= mark };
        match self.goal {
            Some(goal) if reaches(goal) => "goal reached",
            _ if reaches(self.target) => "reached",
            _ => "SHORT",
        }
    }
}
