//! Durations, sizes and times as people write them: `30s`, `1h30m`, `1MiB`, `2030-01-31T12:00:00Z`.

use std::time::{Duration, Instant};

use crate::{
    clock::{Timestamp, monotonic},
    error::{Error, ErrorKind, Result},
};

/// The longest duration that is taken: a hundred years, so that no clock overflows.
pub(super) const DURATION_MAX: Duration = Duration::from_hours(100 * 365 * 24);

/// How long one look of those lasts: a reader may have no counter of commits to watch.
const LOOK: Duration = Duration::from_secs(1);

/// Units of time in milliseconds, the longest first.
const TIMES: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of size in bytes; those of 1,000 after those of 1,024 that are written out.
const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// A duration: whole numbers with a unit each, as `90s` or `1h30m`.
///
/// # Errors
/// `Invalid`, showing how one is written.
pub(super) fn parse_duration(text: &str) -> Result<Duration> {
    let wrong = || {
        let what =
            if text.starts_with('-') { "begins with a minus, and no duration does" } else { "is not a duration" };
        Error::invalid(format!("\"{text}\" {what}; one looks like 500ms, 30s, 1h30m or 7d, up to 100 years"))
    };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut millis = 0u64;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let (number, after) = number(rest).ok_or_else(wrong)?;
        let letters = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let factor = TIMES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(wrong)?;
        millis = number.checked_mul(factor).and_then(|part| millis.checked_add(part)).ok_or_else(wrong)?;
        rest = next;
    }
    let duration = Duration::from_millis(millis);
    if duration <= DURATION_MAX { Ok(duration) } else { Err(wrong()) }
}

/// Looks for something, each time for so long as `look` is told, until it is there or the time is over: `TimedOut`, as
/// the last look says it.
pub(super) fn look_until<T>(deadline: Instant, mut look: impl FnMut(Duration) -> Result<T>) -> Result<T> {
    loop {
        let rest = deadline.saturating_duration_since(monotonic());
        match look(rest.min(LOOK)) {
            Err(error) if error.kind() == ErrorKind::TimedOut && rest > LOOK => {}
            looked => return looked,
        }
    }
}

/// So many of something, in words that fit the number.
pub(super) fn counted(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{s}")
}

/// A size in bytes: a whole number, with a unit if it is not bytes.
///
/// # Errors
/// `Invalid`, showing how one is written.
pub(super) fn parse_size(text: &str) -> Result<u64> {
    let wrong = || Error::invalid(format!("\"{text}\" is not a size; one looks like 65536, 64KiB or 1MiB"));
    let (number, unit) = number(text).ok_or_else(wrong)?;
    let factor = match unit {
        "" => 1,
        unit => SIZES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(wrong)?,
    };
    number.checked_mul(factor).ok_or_else(wrong)
}

/// Reads a whole number that is not below `least`.
pub(super) fn number_from<T: TryFrom<u64>>(least: u64) -> impl Fn(&str) -> std::result::Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| *number >= least);
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("give a whole number, {least} or more"))
    }
}

/// A point of time in RFC 3339.
///
/// # Errors
/// `Invalid`, showing how one is written.
pub(super) fn parse_time(text: &str) -> Result<Timestamp> {
    let wrong = || Error::invalid(format!("\"{text}\" is not a time; one looks like 2030-01-31T12:00:00Z (RFC 3339)"));
    let time: jiff::Timestamp = text.parse().map_err(|error| wrong().because(error))?;
    u64::try_from(time.as_millisecond()).map(Timestamp::from_millis).map_err(|_| wrong())
}

/// A duration in the fewest units, exactly: it reads back as the same.
pub(super) fn format_duration(millis: u64) -> String {
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    let mut rest = millis;
    // Weeks are read and not written: nobody thinks of 30 days as 4w2d.
    for (unit, factor) in TIMES.iter().skip(1) {
        if rest >= *factor {
            text.push_str(&(rest / factor).to_string());
            text.push_str(unit);
            rest %= factor;
        }
    }
    text
}

/// A size in the largest unit that it is a whole number of.
pub(super) fn format_size(bytes: u64) -> String {
    let whole = SIZES[..3].iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    whole.map_or_else(|| format!("{bytes}B"), |(unit, factor)| format!("{}{unit}", bytes / factor))
}

/// A size to be read by people: in its largest unit, with a digit behind the point.
#[allow(clippy::cast_precision_loss, reason = "one digit is printed")]
pub(super) fn about_size(bytes: u64) -> String {
    match SIZES[..3].iter().find(|(_, factor)| bytes >= *factor) {
        Some((unit, factor)) => format!("{:.1}{unit}", bytes as f64 / *factor as f64),
        None => format!("{bytes}B"),
    }
}

/// How long a duration is, in its largest unit only.
pub(super) fn about(duration: Duration) -> String {
    let millis = crate::clock::millis(duration);
    let unit = TIMES.iter().skip(1).find(|(_, factor)| millis >= *factor);
    unit.map_or_else(|| "0s".to_owned(), |(unit, factor)| format!("{}{unit}", millis / factor))
}

/// When a time is, seen from now.
pub(super) fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now { format!("in {}", about(at.since(now))) } else { format!("{} ago", about(now.since(at))) }
}

fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_thing_is_counted_without_an_s() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "job")), ["0 jobs", "1 job", "2 jobs"]);
    }

    #[test]
    fn durations_are_read() {
        let millis = |text: &str| parse_duration(text).map(crate::clock::millis).ok();
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis("30s"), Some(30_000));
        assert_eq!(millis("24h"), Some(86_400_000));
        assert_eq!(millis("1h30m"), Some(5_400_000));
        assert_eq!(millis("2w"), Some(14 * 86_400_000));
        assert_eq!(millis("0"), Some(0));
        for wrong in ["", "30", "s", "-1s", "1.5h", "1h 30m", "5 s", "1y", "99999999999999999999s", "36501d", "١s"] {
            assert_eq!(millis(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for (millis, text) in
            [(0, "0s"), (500, "500ms"), (30_000, "30s"), (86_400_000, "1d"), (5_400_500, "1h30m500ms")]
        {
            assert_eq!(format_duration(millis), text);
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis));
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (bytes, text) in [(1 << 20, "1MiB"), (65_536, "64KiB"), (1_500, "1500B"), (0, "0B")] {
            assert_eq!(format_size(bytes), text);
            assert_eq!(parse_size(text).unwrap(), bytes);
        }
        assert_eq!(
            (about_size(1536), about_size(3 << 30), about_size(7)),
            ("1.5KiB".into(), "3.0GiB".into(), "7B".into())
        );
        assert_eq!(parse_size("4096").unwrap(), 4096);
        assert_eq!(parse_size("2MB").unwrap(), 2_000_000);
        for wrong in ["", "MiB", "1.5MiB", "1 MiB", "-1", "1mib", "99999999999GiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_are_read() {
        assert_eq!(parse_time("1970-01-01T00:00:01Z").unwrap(), Timestamp::from_millis(1_000));
        assert_eq!(parse_time("1970-01-01T01:00:00.5+01:00").unwrap(), Timestamp::from_millis(500));
        for wrong in ["", "tomorrow", "2030-01-31", "1969-12-31T23:59:59Z", "2030-01-31T12:00:00"] {
            assert!(parse_time(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_are_told_from_now() {
        let now = Timestamp::from_millis(10_000_000);
        assert_eq!(relative(Timestamp::from_millis(10_000_000 - 190_000), now), "3m ago");
        assert_eq!(relative(Timestamp::from_millis(10_000_000 + 7_200_000), now), "in 2h");
        assert_eq!(relative(now, now), "0s ago");
    }
}
