//! How many jobs a worker claims ahead of its handlers: a fixed number, or as many as are little work by its measure.
//!
//! What is claimed ahead costs fewer commits per job, and other workers can't have it: so a worker that adapts holds
//! little measured work, grows only while its measure holds, and gives back what it holds when that was wrong.

use std::time::Duration;

/// The most measured work that is claimed ahead; and for how long it may lie there untouched.
pub(super) const AHEAD_MAX: Duration = Duration::from_millis(50);
/// How many jobs one claim takes where the number adapts.
const ADAPTED_MAX: usize = 256;

/// A slower job than the measure moves it by this part of the difference, a quicker one by a smaller part: to hold too
/// much costs others more than to hold too little costs this worker.
const SLOWER_PART: f64 = 0.25;
const QUICKER_PART: f64 = 0.0625;

/// How the number is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefetch {
    Fixed(usize),
    Adapted,
}

/// What a worker knows of its jobs.
pub(super) struct Measure {
    prefetch: Prefetch,
    concurrency: usize,
    /// How long a handler runs, in seconds; nothing before the first has ended.
    mean: Option<f64>,
    /// It grows by doubling, from nothing.
    allowed: usize,
}

impl Measure {
    pub(super) fn new(prefetch: Prefetch, concurrency: usize) -> Self {
        Self { prefetch, concurrency, mean: None, allowed: 0 }
    }

    pub(super) fn is_adapted(&self) -> bool {
        self.prefetch == Prefetch::Adapted
    }

    /// Takes note of a run.
    pub(super) fn note(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let mean = self.mean.get_or_insert(took);
        let part = if took > *mean { SLOWER_PART } else { QUICKER_PART };
        *mean += (took - *mean) * part;
    }

    /// How many jobs may be held that no handler has begun.
    pub(super) fn ahead(&self) -> usize {
        match self.prefetch {
            Prefetch::Fixed(jobs) => jobs,
            Prefetch::Adapted => self.allowed.min(self.affordable()),
        }
    }

    /// How many jobs one claim may ask for.
    pub(super) fn claim_max(&self) -> usize {
        match self.prefetch {
            Prefetch::Fixed(_) => usize::MAX,
            Prefetch::Adapted => ADAPTED_MAX.max(self.concurrency),
        }
    }

    /// What was claimed ahead has been worked off: next time it may be twice as much.
    pub(super) fn grow(&mut self) {
        self.allowed = (self.ahead().max(self.concurrency.div_ceil(2)) * 2).min(ADAPTED_MAX);
    }

    /// What was claimed ahead lay there for too long.
    pub(super) fn start_anew(&mut self) {
        self.allowed = 0;
    }

    /// How many jobs of the mean length fit into the work that may be held.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive quotient, cut to a number")]
    fn affordable(&self) -> usize {
        match self.mean {
            // The quotient may be infinite, and is cut to the largest number then.
            Some(mean) => (AHEAD_MAX.as_secs_f64() / mean) as usize,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(runs: impl IntoIterator<Item = Duration>) -> Measure {
        let mut measure = Measure::new(Prefetch::Adapted, 1);
        for took in runs {
            measure.note(took);
            measure.grow();
        }
        measure
    }

    #[test]
    fn nothing_is_claimed_ahead_before_anything_was_measured() {
        let mut measure = Measure::new(Prefetch::Adapted, 4);
        assert_eq!(measure.ahead(), 0);
        measure.grow();
        assert_eq!(measure.ahead(), 0);
        measure.note(Duration::from_millis(1));
        assert_eq!(measure.ahead(), 4);
    }

    #[test]
    fn quick_jobs_are_claimed_ahead_by_doubling() {
        let quick = Duration::from_micros(2);
        assert_eq!(after([quick; 1]).ahead(), 2);
        assert_eq!(after([quick; 5]).ahead(), 32);
        assert_eq!(after([quick; 20]).ahead(), ADAPTED_MAX);
        assert_eq!(after([Duration::ZERO; 20]).ahead(), ADAPTED_MAX);
    }

    #[test]
    fn at_most_fifty_milliseconds_of_work_are_claimed_ahead() {
        assert_eq!(after([Duration::from_millis(5); 20]).ahead(), 10);
        assert_eq!(after([Duration::from_millis(51); 20]).ahead(), 0);
        assert_eq!(after([Duration::from_hours(1); 20]).ahead(), 0);
    }

    #[test]
    fn one_slow_job_ends_what_many_quick_ones_allowed() {
        let mut measure = after([Duration::from_micros(2); 50]);
        measure.note(Duration::from_millis(100));
        assert_eq!(measure.ahead(), 1);
        measure.start_anew();
        assert_eq!(measure.ahead(), 0);
    }

    #[test]
    fn fixed_number_stays() {
        let mut measure = Measure::new(Prefetch::Fixed(7), 1);
        measure.note(Duration::from_mins(1));
        measure.start_anew();
        measure.grow();
        assert_eq!((measure.ahead(), measure.claim_max()), (7, usize::MAX));
    }
}
