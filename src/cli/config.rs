//! `casque config`.

use clap::Args;
use serde::Serialize;

use super::{
    context::Context,
    exit::Failure,
    limits,
    output::Output,
    table::Table,
    units::{format_duration, format_size, parse_duration, parse_size},
};
use crate::{
    clock::millis,
    store::{
        Store,
        settings::{SETTINGS, SettingInfo, Unit, setting_info},
    },
};

/// The store's settings; with --queue, a queue's
#[derive(Debug, Args)]
#[command(after_help = "\
Settings are the store's, for all its processes. Durations are written as 30s or 24h,
sizes as 64KiB or 1MiB.

Settings of a queue: concurrency N and concurrency-per-key N, how many of its jobs, and
of the jobs of one --key, may be claimed at once; order-per-key strict; rate N/DUR
[burst=N]; size-max N, beyond which enqueue refuses; retention-completed DUR,
retention-dead DUR, retention-cancelled DUR, keep-completed true. The value none unsets.

Examples:
  casque config
  casque config lease 10s
  casque config --queue mails
  casque config --queue mails rate 100/1m burst=20
  casque config --queue mails rate none")]
pub(super) struct Config {
    /// The setting; all of them where none is named
    key: Option<String>,
    /// Its new value
    value: Option<String>,
    /// For a rate: how many jobs at once after a pause
    #[arg(value_name = "burst=N")]
    burst: Option<String>,
}

#[derive(Serialize)]
struct Line {
    key: &'static str,
    value: u64,
    unit: &'static str,
    default: u64,
    about: &'static str,
}

impl Config {
    pub(super) fn run(self, context: &Context, out: &mut Output) -> Result<(), Failure> {
        if let Some(queue) = context.queue_if_named()? {
            let value = match (self.value, self.burst) {
                (Some(value), Some(burst)) => Some(format!("{value} {burst}")),
                (value, _) => value,
            };
            return limits::run(context, out, queue, self.key.as_deref(), value.as_deref());
        }
        let Some(key) = self.key else { return print_all(context, out) };
        if let Some(burst) = self.burst {
            return Err(Failure::usage(format!(
                "\"{burst}\" is too much; only a queue's rate takes a burst: --queue Q"
            )));
        }
        let setting = setting_info(&key).map_err(|error| {
            if limits::is_setting(&key) {
                let how = format!("`{} config --queue Q {key}`", context.program);
                return Failure::usage(format!("{key} is a setting of a queue; say of which, as {how}"));
            }
            Failure::from(error)
        })?;
        let value = match self.value {
            None => context.read(|store| Ok(store.setting(&key)?))?,
            Some(text) => {
                let value = parse(setting, &text)?;
                context.write()?.configure(&key, value)?;
                value
            }
        };
        out.either(&line(setting, value), format(setting, value))
    }
}

fn print_all(context: &Context, out: &mut Output) -> Result<(), Failure> {
    let values = context.read(|store: &Store| {
        SETTINGS.iter().map(|setting| Ok((setting, store.setting(setting.name)?))).collect::<Result<Vec<_>, Failure>>()
    })?;
    if out.json {
        return values.into_iter().try_for_each(|(setting, value)| out.object(&line(setting, value)));
    }
    let mut table = Table::with_head(["SETTING", "VALUE", "DEFAULT", "WHAT IT IS"]);
    for (setting, value) in values {
        table.row([
            setting.name.to_owned(),
            format(setting, value),
            format(setting, setting.default),
            setting.about.to_owned(),
        ]);
    }
    table.print(out)
}

fn parse(setting: &SettingInfo, text: &str) -> Result<u64, Failure> {
    let value = match setting.unit {
        Unit::Milliseconds => parse_duration(text).map(millis),
        Unit::Bytes => parse_size(text),
    };
    let value = value.map_err(|error| Failure::from(error).about(&format!("{} = {text}", setting.name)))?;
    let (least, most) = setting.range;
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let (name, least, most) = (setting.name, format(setting, least), format(setting, most));
    Err(Failure::usage(format!("{name} = {text} is out of range; it goes from {least} to {most}")))
}

fn format(setting: &SettingInfo, value: u64) -> String {
    match setting.unit {
        Unit::Milliseconds => format_duration(value),
        Unit::Bytes => format_size(value),
    }
}

fn line(setting: &'static SettingInfo, value: u64) -> Line {
    let unit = match setting.unit {
        Unit::Milliseconds => "ms",
        Unit::Bytes => "bytes",
    };
    Line { key: setting.name, value, unit, default: setting.default, about: setting.about }
}
