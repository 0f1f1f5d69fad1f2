//! What one store does in a second, and how many syncs of the disk an operation costs.
//!
//! ```text
//! cargo bench --bench throughput -- [--quick] [--full] [--seconds N] [--only WORD] [--folder PATH] [--json FILE]
//! ```
//!
//! Every answer is durable. Each section is a file here: `bare` (the disk and redb without casque, to compare with),
//! `enqueue`, `claim`, `isolated` (handlers in processes of their own), and `beside` (opening next to a busy writer).
//! Jobs that processes enqueue or complete are counted by the parent, from the rows of the store. `--full` measures
//! claims at a depth of a million jobs, else at 100,000.

#[path = "../common/mod.rs"]
mod common;

mod bare;
mod beside;
mod claim;
mod enqueue;
mod isolated;

use std::time::Duration;

use casque::JobRequest;
use serde_json::json;

use crate::common::{Options, Report, float, role};

/// The bytes of a job's arguments.
const PAYLOAD_BYTES: usize = 200;

fn main() {
    casque::child::run_if_child(&isolated::tasks());
    if let Some((role, args)) = role() {
        match role.as_str() {
            "producer" => enqueue::produce(&args),
            "worker" => claim::work(&args),
            "committer" => beside::commit_in_a_loop(&args),
            other => panic!("there is no role {other}"),
        }
    }
    let options = Options::parse(4.0, 0.5);
    let mut report = Report::new(&options);
    println!("jobs of {PAYLOAD_BYTES} bytes, {} s each", options.seconds);
    let sections: [(&str, Measure); 5] = [
        ("bare", bare::measure),
        ("enqueue", enqueue::measure),
        ("claim", claim::measure),
        ("isolated", isolated::measure),
        ("beside", beside::measure),
    ];
    for (name, measure) in sections {
        if options.wants(name) {
            Report::heading(name);
            measure(&options, &mut report);
        }
    }
    report.finish();
}

type Measure = fn(&Options, &mut Report);

fn job() -> JobRequest {
    JobRequest::new("noop", &[7_u8; PAYLOAD_BYTES][..])
}

/// A line about a rate: operations, in this time, with so many syncs.
fn rate_line(report: &mut Report, name: &str, count: u64, took: Duration, syncs: u64) {
    let rate = float(count) / took.as_secs_f64();
    let syncs = float(syncs) / float(count);
    report.line(
        name,
        &format!("{rate:>9.0} /s  {syncs:>6.3} syncs each"),
        &json!({ "per_second": rate, "syncs_each": syncs }),
    );
}

/// A line about how long something takes.
fn time_line(report: &mut Report, name: &str, times: &[f64], syncs: f64) {
    let (p50, p99) = (1e3 * common::quantile(times, 0.5), 1e3 * common::quantile(times, 0.99));
    report.line(
        name,
        &format!("{p50:>9.2} ms p50  {p99:>8.2} ms p99  {syncs:>6.1} syncs each"),
        &json!({ "p50_ms": p50, "p99_ms": p99, "syncs_each": syncs }),
    );
}
