//! The disk and redb alone, and one enqueue at a time next to one row at a time of redb.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use redb::{Builder, ConcurrencyMode, Database, TableDefinition};
use serde_json::json;

use crate::{
    PAYLOAD_BYTES,
    common::{Options, Report, append_synced, float, open_counted, quantile, repeat_for},
    job, rate_line,
};

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
/// redb syncs twice for a commit: the pages, then the header that names them.
const REDB_SYNCS: u64 = 2;

pub fn measure(options: &Options, report: &mut Report) {
    let folder = options.fresh_folder();
    let (count, took) = append_synced(folder.path(), PAYLOAD_BYTES, options.duration());
    rate_line(report, "append 200 bytes and fdatasync", count, took, count);
    let mut row = BareRow::new(&folder.path().join("bare.redb"));
    let (count, took) = repeat_for(options.duration(), || row.insert());
    rate_line(report, "bare redb, a 200-byte row a commit", count, took, REDB_SYNCS * count);
    pairs(options, report);
}

/// Interleaved, so that both meet the same moods of the disk.
fn pairs(options: &Options, report: &mut Report) {
    let pairs = if options.quick { 10 } else { 20 };
    let share = (options.duration() / 8).max(Duration::from_millis(100));
    let folder = options.fresh_folder();
    let mut row = BareRow::new(&folder.path().join("bare.redb"));
    let (store, _) = open_counted(&folder.path().join("casque.redb"));
    let queue = store.queue("default");
    let mut enqueue = || {
        queue.enqueue(job()).expect("a job is enqueued");
    };
    let rate = |(count, took): (u64, Duration)| float(count) / took.as_secs_f64();
    enqueue();
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        // Each goes first as often as the other.
        let (ours, bare);
        if pair % 2 == 0 {
            ours = rate(repeat_for(share, &mut enqueue));
            bare = rate(repeat_for(share, || row.insert()));
        } else {
            bare = rate(repeat_for(share, || row.insert()));
            ours = rate(repeat_for(share, &mut enqueue));
        }
        ratios.push(ours / bare);
    }
    let (least, median, most) = (quantile(&ratios, 0.0), quantile(&ratios, 0.5), quantile(&ratios, 1.0));
    report.line(
        "one enqueue at a time / bare redb: the pairs",
        &format!("from {least:.2} to {most:.2} in {pairs} pairs"),
        &json!({ "least": least, "median": median, "most": most, "pairs": pairs }),
    );
    report.verdict("one enqueue at a time / bare redb: the median", median, "at least 0.8", median >= 0.8);
}

/// redb with one table of rows, opened as casque opens it.
struct BareRow {
    database: Database,
    next: u64,
}

impl BareRow {
    fn new(path: &Path) -> Self {
        let mut builder = Builder::new();
        builder.set_cache_size(16 << 20).set_concurrency_mode(ConcurrencyMode::MultiWriter);
        let mut row = Self { database: builder.create(path).expect("redb makes a file"), next: 0 };
        row.insert();
        row
    }

    fn insert(&mut self) {
        let transaction = self.database.begin_write().expect("redb begins");
        {
            let mut table = transaction.open_table(ROWS).expect("redb has the table");
            table.insert(self.next, &[7; PAYLOAD_BYTES][..]).expect("redb inserts");
        }
        transaction.commit().expect("redb commits");
        self.next += 1;
    }
}

/// How long something took, in seconds.
pub fn timed(body: impl FnOnce()) -> f64 {
    let began = Instant::now();
    body();
    began.elapsed().as_secs_f64()
}
