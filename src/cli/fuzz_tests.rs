//! What people type, and what files of jobs hold: refused by a message, or understood; never a panic.

use std::time::Duration;

use super::{
    limits::parse_rate,
    units::{about, format_duration, format_size, parse_duration, parse_size, parse_time},
};
use crate::{
    JobId, JobRequest, Schedule, Store, Timestamp,
    fuzz::Fuzz,
    queue::{id::SessionId, state::State},
};

const TEXTS: [&str; 18] = [
    "30s",
    "1h30m",
    "500ms",
    "7d",
    "18446744073709551615w",
    "1.5h",
    "2026-11-30T12:00:00Z",
    "2026-11-30 12:00",
    "+5m",
    "10GiB",
    "64KiB",
    "100/1m burst=20",
    "1/1ms",
    "1042-3",
    "ready",
    "0123456789abcdef0123456789abcdef",
    "18446744073709551615-4294967295",
    "9999-12-31T23:59:59.999Z",
];

const CRON: [&str; 9] = [
    "*/5 * * * *",
    "0 2 * * 1-5",
    "@daily",
    "0 0 29 2 *",
    "0 0 L * *",
    "30 2 * 3 sun#2",
    "0,15,30,45 8-18/2 1 1 *",
    "0 0 31W * *",
    "59 23 31 12 7 2099",
];

#[test]
fn fuzz_texts() {
    Fuzz::new("texts", TEXTS.map(|text| text.as_bytes().to_vec())).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        if let Ok(duration) = parse_duration(text) {
            let _ = about(duration);
            let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            let written = format_duration(millis);
            assert_eq!(parse_duration(&written).unwrap(), Duration::from_millis(millis), "{written}");
        }
        if let Ok(bytes) = parse_size(text) {
            assert_eq!(parse_size(&format_size(bytes)).unwrap(), bytes);
        }
        let _ = parse_time(text).map(|at| at.to_string());
        let _ = parse_rate(text);
        let _ = text.parse::<SessionId>();
        let _ = text.parse::<State>();
        if let Ok(id) = text.parse::<JobId>() {
            assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        }
    });
}

#[test]
fn fuzz_cron_expressions() {
    let zones = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Nowhere/Never"];
    let store = Store::in_memory().unwrap();
    let mut runs = 0;
    Fuzz::new("cron_expressions", CRON.map(|text| text.as_bytes().to_vec())).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        runs += 1;
        let schedule = Schedule::cron("it", text, JobRequest::new("task", &())).zone(zones[runs % zones.len()]);
        if store.schedule(schedule).is_ok() {
            let upcoming = store.schedule_named("it").unwrap().upcoming(3).unwrap();
            assert!(upcoming.is_sorted() && upcoming.first().is_none_or(|first| *first > Timestamp::from_millis(0)));
        }
    });
}
