//! What is measured.

use crate::peer::Style;

/// How many jobs an enqueuer puts in at once where it is about batches.
pub const BATCH_JOBS: usize = 100;

#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// By which verdicts and `--json` name it.
    pub key: &'static str,
    pub title: &'static str,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// So many processes of so many callers, each with this many jobs at a time.
    Enqueue { processes: usize, callers: usize, jobs: usize },
    /// So many worker processes on a full queue.
    Claim { processes: usize, casque: Style, peer: Style },
    /// From the call of an enqueue to the start of the handler, in a worker that was idle.
    Latency,
}

pub const WORKS: [Work; 11] = [
    Work { key: "enqueue-1", title: "enqueue, 1 caller", kind: enqueue(1, 1, 1) },
    Work { key: "enqueue-4", title: "enqueue, 4 callers", kind: enqueue(4, 1, 1) },
    Work { key: "enqueue-16", title: "enqueue, 16 callers in 4 processes", kind: enqueue(4, 4, 1) },
    Work { key: "enqueue-batch", title: "enqueue in batches of 100, 1 caller", kind: enqueue(1, 1, BATCH_JOBS) },
    Work { key: "claim-1", title: "claim + complete, one at a time, 1 worker", kind: one_at_a_time(1) },
    Work { key: "claim-4", title: "claim + complete, one at a time, 4 workers", kind: one_at_a_time(4) },
    Work { key: "claim-8", title: "claim + complete, one at a time, 8 workers", kind: one_at_a_time(8) },
    Work {
        key: "ordinary-4",
        title: "4 workers as they come: casque's defaults, the peer's ordinary use",
        kind: Kind::Claim { processes: 4, casque: Style::Ordinary, peer: Style::Ordinary },
    },
    Work {
        key: "ordinary-best-4",
        title: "4 workers: casque's defaults, the peer at its best",
        kind: Kind::Claim { processes: 4, casque: Style::Ordinary, peer: Style::Best },
    },
    Work {
        key: "best-4",
        title: "4 workers, both at their best",
        kind: Kind::Claim { processes: 4, casque: Style::Best, peer: Style::Best },
    },
    Work { key: "latency", title: "enqueue to start of the handler, idle", kind: Kind::Latency },
];

impl Kind {
    /// Whether a figure is a time, of which less is better.
    pub fn is_time(self) -> bool {
        self == Self::Latency
    }
}

const fn enqueue(processes: usize, callers: usize, jobs: usize) -> Kind {
    Kind::Enqueue { processes, callers, jobs }
}

const fn one_at_a_time(processes: usize) -> Kind {
    Kind::Claim { processes, casque: Style::One, peer: Style::One }
}
