//! How long to wait before a failed attempt is followed by the next.

use std::time::Duration;

/// The longest default backoff, and the longest of a preset that says nothing else: a day.
const BACKOFF_MAX: Duration = Duration::from_hours(24);
/// The longest that any may be told to be: ten years.
const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

/// How long to wait before the next attempt: a preset for [`Task::backoff`](crate::Task::backoff) and
/// [`Registered::backoff`](crate::types::Registered::backoff), which take any function too.
///
/// ```
/// use casque::types::Backoff;
/// use std::time::Duration;
///
/// const SLOWLY: Backoff = Backoff::exponential(Duration::from_secs(10)).max(Duration::from_mins(5));
/// assert_eq!(SLOWLY.after(1), Duration::from_secs(10));
/// assert_eq!(SLOWLY.after(3), Duration::from_secs(40));
/// assert_eq!(SLOWLY.after(1_000), Duration::from_mins(5));
///
/// let mut tasks = casque::Registry::new();
/// tasks.register("fetch", |_, url: String| Ok(url.len()))?.backoff(|attempt| SLOWLY.jitter(0.2).after(attempt));
/// # Ok::<(), casque::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    growth: Growth,
    first: Duration,
    most: Duration,
    /// The random part that is added, as a fraction of the wait.
    jitter: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    Fixed,
    Linear,
    Exponential,
}

impl Backoff {
    /// The same wait each time.
    #[must_use]
    pub const fn fixed(wait: Duration) -> Self {
        Self::new(Growth::Fixed, wait)
    }

    /// As much more each time as the first wait.
    #[must_use]
    pub const fn linear(first: Duration) -> Self {
        Self::new(Growth::Linear, first)
    }

    /// Twice as much each time.
    #[must_use]
    pub const fn exponential(first: Duration) -> Self {
        Self::new(Growth::Exponential, first)
    }

    const fn new(growth: Growth, first: Duration) -> Self {
        Self { growth, first, most: BACKOFF_MAX, jitter: 0.0 }
    }

    /// Never longer than this, jitter included; a day where nothing is said, ten years at most.
    #[must_use]
    pub const fn max(mut self, most: Duration) -> Self {
        self.most = most;
        self
    }

    /// Adds up to this fraction of the wait at random, so that jobs that failed together are not tried together again.
    /// From 0 to 1; what is beyond is taken as the nearest of these.
    #[must_use]
    pub const fn jitter(mut self, fraction: f64) -> Self {
        self.jitter = fraction.clamp(0.0, 1.0);
        self
    }

    /// How long to wait after so many failed attempts, from 1.
    #[must_use]
    pub fn after(&self, attempt: u32) -> Duration {
        let wait = match self.growth {
            Growth::Fixed => self.first,
            Growth::Linear => self.first.saturating_mul(attempt.max(1)),
            Growth::Exponential => self.first.saturating_mul(2u32.saturating_pow(attempt.saturating_sub(1).min(31))),
        };
        let most = self.most.min(LONGEST);
        let wait = wait.min(most);
        // A fraction that is no number adds nothing.
        let jitter = crate::random::up_to(wait.mul_f64(if self.jitter > 0.0 { self.jitter } else { 0.0 }));
        wait.saturating_add(jitter).min(most)
    }
}

/// attempt^4 + 15 s, and up to ten seconds more per attempt at random; Sidekiq's formula, but for the longest, a day.
/// Source: <https://github.com/sidekiq/sidekiq/wiki/Error-Handling>.
pub(crate) fn default_backoff(attempt: u32) -> Duration {
    let attempt = u64::from(attempt);
    let fixed = attempt.saturating_pow(4).saturating_add(15);
    let jitter = crate::random::millis_below(attempt.saturating_mul(10_000));
    Duration::from_secs(fixed).saturating_add(Duration::from_millis(jitter)).min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BACKOFF_MAX, Backoff, LONGEST, default_backoff};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn default_grows_and_never_overflows() {
        let within = |attempt: u32, least: u64, most: u64| {
            let backoff = default_backoff(attempt);
            assert!(backoff >= Duration::from_secs(least) && backoff <= Duration::from_secs(most), "{backoff:?}");
        };
        within(1, 16, 26);
        within(3, 96, 126);
        assert_eq!(default_backoff(1000), BACKOFF_MAX);
        assert_eq!(default_backoff(u32::MAX), BACKOFF_MAX);
    }

    #[test]
    fn presets_grow_as_they_say_and_never_overflow() {
        let of = |backoff: Backoff| [0, 1, 2, 3, 4].map(|attempt| backoff.after(attempt).as_secs());
        assert_eq!(of(Backoff::fixed(SECOND)), [1; 5]);
        assert_eq!(of(Backoff::linear(SECOND)), [1, 1, 2, 3, 4]);
        assert_eq!(of(Backoff::exponential(SECOND)), [1, 1, 2, 4, 8]);
        for preset in [Backoff::fixed, Backoff::linear, Backoff::exponential] {
            for attempt in [0, 1, 32, 1_000, u32::MAX] {
                assert!(preset(Duration::MAX).jitter(1.0).after(attempt) <= BACKOFF_MAX);
                for jitter in [0.0, 1.0, 7.0, -1.0, f64::NAN] {
                    assert_eq!(preset(Duration::MAX).max(Duration::MAX).jitter(jitter).after(attempt), LONGEST);
                }
                assert_eq!(preset(Duration::ZERO).jitter(1.0).after(attempt), Duration::ZERO);
            }
        }
    }

    #[test]
    fn jitter_stays_within_its_fraction() {
        for _ in 0..1_000 {
            let wait = Backoff::fixed(SECOND).jitter(0.2).after(1);
            assert!(wait >= SECOND && wait <= SECOND.mul_f64(1.2), "{wait:?}");
        }
    }
}
