//! The settings of a queue on the command line: their names, how their values are read and written, and how they are
//! shown beside a queue's numbers.

use serde_json::{Map, Value, json};

use super::{
    context::Context,
    exit::Failure,
    output::Output,
    table::Table,
    units::{format_duration, number_from, parse_duration},
};
use crate::{
    clock::millis,
    error::{Error, Result},
    queue::{
        QueueConfig, Rate,
        config::{QueueSetting, RateRecord},
    },
    store::settings::setting_info,
};

/// What unsets a setting.
const NOT_SET: [&str; 2] = ["none", "default"];

/// A setting of a queue.
struct Setting {
    name: &'static str,
    about: &'static str,
    /// Reads a value; nothing unsets.
    read: fn(Option<&str>) -> Result<QueueSetting>,
    /// Writes it as it is read; nothing where it is not set.
    write: fn(&QueueConfig) -> Option<String>,
}

const SETTINGS: [Setting; 9] = [
    Setting {
        name: "concurrency",
        about: "how many of its jobs may be claimed at once",
        read: |text| number(text).map(QueueSetting::RunningMax),
        write: |config| config.concurrency.map(|jobs| jobs.to_string()),
    },
    Setting {
        name: "concurrency-per-key",
        about: "how many jobs of one key may be claimed at once; 1 where not set",
        read: |text| number(text).map(QueueSetting::KeyRunningMax),
        write: |config| config.concurrency_per_key.map(|jobs| jobs.to_string()),
    },
    Setting {
        name: "order-per-key",
        about: "strict: a job that is tried again holds back those of its key behind it",
        read: read_order,
        write: |config| config.strict_order_per_key.then(|| "strict".to_owned()),
    },
    Setting {
        name: "rate",
        about: "how many jobs may be claimed in a time, as 100/1m burst=20",
        read: |text| text.map(parse_rate).transpose().map(QueueSetting::Rate),
        write: |config| config.rate.as_ref().map(format_rate),
    },
    Setting {
        name: "size-max",
        about: "how many jobs may be in it that have not begun",
        read: |text| number(text).map(QueueSetting::SizeMax),
        write: |config| config.size_max.map(|jobs| jobs.to_string()),
    },
    Setting {
        name: "retention-completed",
        about: "how long completed jobs are kept that have a result",
        read: |text| text.map(parse_duration).transpose().map(QueueSetting::RetentionCompleted),
        write: |config| config.retention_completed.map(|kept| format_duration(millis(kept))),
    },
    Setting {
        name: "retention-dead",
        about: "how long dead jobs are kept",
        read: |text| text.map(parse_duration).transpose().map(QueueSetting::RetentionDead),
        write: |config| config.retention_dead.map(|kept| format_duration(millis(kept))),
    },
    Setting {
        name: "retention-cancelled",
        about: "how long cancelled jobs are kept",
        read: |text| text.map(parse_duration).transpose().map(QueueSetting::RetentionCancelled),
        write: |config| config.retention_cancelled.map(|kept| format_duration(millis(kept))),
    },
    Setting {
        name: "keep-completed",
        about: "true: completed jobs without a result are kept too",
        read: |text| read_flag(text).map(QueueSetting::KeepsCompleted),
        write: |config| config.keep_completed.then(|| "true".to_owned()),
    },
];

/// Shows the settings of a queue, or one of them, or sets that.
pub(super) fn run(
    context: &Context,
    out: &mut Output,
    queue: &str,
    name: Option<&str>,
    value: Option<&str>,
) -> Result<(), Failure> {
    let read = || context.read(|store| Ok(store.queue(queue).config()?));
    let Some(name) = name else {
        let config = read()?;
        if out.json {
            return SETTINGS.iter().try_for_each(|setting| out.object(&line(queue, setting, &config)));
        }
        let mut table = Table::with_head(["SETTING", "VALUE", "WHAT IT IS"]);
        for setting in &SETTINGS {
            table.row([setting.name.to_owned(), shown(setting, &config), setting.about.to_owned()]);
        }
        return table.print(out);
    };
    let setting = SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(|| {
        if setting_info(name).is_ok() {
            return Failure::usage(format!("{name} is a setting of the store, not of a queue; leave --queue out"));
        }
        let names = SETTINGS.map(|setting| setting.name).join(", ");
        Failure::from(Error::not_found(format!("there is no setting \"{name}\" of a queue; there are {names}")))
    })?;
    let config = match value {
        None => read()?,
        Some(text) => {
            let new = (setting.read)(Some(text).filter(|text| !NOT_SET.contains(text)))
                .map_err(|error| Failure::from(error).about(&format!("{name} = {text}")))?;
            let store = context.write()?;
            store.queue(queue).set(vec![new])?;
            store.queue(queue).config()?
        }
    };
    out.either(&line(queue, setting, &config), shown(setting, &config))
}

/// Whether that is the name of a setting that queues have.
pub(super) fn is_setting(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.name == name)
}

fn line(queue: &str, setting: &Setting, config: &QueueConfig) -> Value {
    json!({ "queue": queue, "key": setting.name, "value": (setting.write)(config), "about": setting.about })
}

fn shown(setting: &Setting, config: &QueueConfig) -> String {
    (setting.write)(config).unwrap_or_else(|| "none".to_owned())
}

/// What is set for a queue, by the names of the settings; nothing where nothing is.
pub(super) fn as_json(config: &QueueConfig) -> Option<Map<String, Value>> {
    let set: Map<String, Value> = SETTINGS
        .iter()
        .filter_map(|setting| Some((setting.name.to_owned(), (setting.write)(config)?.into())))
        .collect();
    (!set.is_empty()).then_some(set)
}

/// What else is to be known of a queue beside its numbers.
pub(super) fn notes(paused: bool, config: &QueueConfig) -> String {
    let set = SETTINGS.iter().filter_map(|setting| Some(format!("{} {}", setting.name, (setting.write)(config)?)));
    paused.then(|| "paused".to_owned()).into_iter().chain(set).collect::<Vec<_>>().join(", ")
}

fn number<T: TryFrom<u64>>(text: Option<&str>) -> Result<Option<T>> {
    let wrong = |why| Error::invalid(format!("{why}, or none"));
    text.map(|text| number_from::<T>(1)(text).map_err(wrong)).transpose()
}

fn read_order(text: Option<&str>) -> Result<QueueSetting> {
    match text {
        None => Ok(QueueSetting::StrictByKey(false)),
        Some("strict") => Ok(QueueSetting::StrictByKey(true)),
        Some(text) => Err(Error::invalid(format!("\"{text}\" is no order; give strict or none"))),
    }
}

fn read_flag(text: Option<&str>) -> Result<bool> {
    match text {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(text) => Err(Error::invalid(format!("\"{text}\" says neither; give true or false"))),
    }
}

/// Reads `100/1m` or `100/1m burst=20`.
pub(super) fn parse_rate(text: &str) -> Result<RateRecord> {
    let wrong = || {
        let why = "one looks like 100/1m, or 100/1m burst=20: jobs per period, and how many at once after a pause";
        Error::invalid(format!("\"{text}\" is not a rate; {why}"))
    };
    let positive = |text: &str| text.parse::<u32>().ok().filter(|jobs| *jobs > 0).ok_or_else(wrong);
    let (rate, burst) = match text.split_once(' ') {
        Some((rate, more)) => (rate, Some(more.trim().strip_prefix("burst=").ok_or_else(wrong)?)),
        None => (text, None),
    };
    let (jobs, period) = rate.split_once('/').ok_or_else(wrong)?;
    let (jobs, period) = (positive(jobs)?, parse_duration(period).map_err(|error| wrong().because(error))?);
    if period.is_zero() {
        return Err(wrong());
    }
    Ok(RateRecord { jobs, period, burst: burst.map_or(Ok(jobs), positive)? })
}

fn format_rate(rate: &Rate) -> String {
    let text = format!("{}/{}", rate.jobs, format_duration(millis(rate.period)));
    if rate.burst == rate.jobs { text } else { format!("{text} burst={}", rate.burst) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for (text, jobs, seconds, burst) in [("100/1m", 100, 60, 100), ("1/1h30m burst=7", 1, 5_400, 7)] {
            let rate = parse_rate(text).unwrap();
            assert_eq!(rate, RateRecord { jobs, period: Duration::from_secs(seconds), burst });
            assert_eq!(format_rate(&Rate { jobs, period: rate.period, burst }), text);
        }
        for wrong in ["", "100", "0/1m", "1/0", "1/m", "-1/1m", "1/1m burst", "1/1m burst=0", "1/1m 7", "1/1m,burst=2"]
        {
            let error = parse_rate(wrong).unwrap_err();
            assert!(error.to_string().contains("one looks like 100/1m"), "{wrong}: {error}");
        }
    }

    #[test]
    fn each_setting_is_written_as_it_is_read() {
        let mut config = crate::queue::config::ConfigRecord::default();
        let values = ["4", "2", "strict", "10/1s burst=3", "1000", "1h", "30d", "5m", "true"];
        for (setting, value) in SETTINGS.iter().zip(values) {
            assert_eq!((setting.write)(&QueueConfig::of(&config)), None, "{}", setting.name);
            config.set((setting.read)(Some(value)).unwrap());
            assert_eq!((setting.write)(&QueueConfig::of(&config)).as_deref(), Some(value), "{}", setting.name);
            assert!((setting.read)(Some("what?")).is_err(), "{}", setting.name);
        }
        for setting in &SETTINGS {
            config.set((setting.read)(None).unwrap());
        }
        assert_eq!(config, crate::queue::config::ConfigRecord::default());
    }
}
