//! The settings that all processes of a store must agree on: rows of the store, not of a process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    codec::Record,
    engine::Rows,
    error::{Error, Result},
    store::{keys, view::get_record},
};

/// One setting: its name on the command line, what it means, its unit, default and range.
#[derive(Clone, Copy, Debug)]
pub struct SettingInfo {
    /// The name.
    pub name: &'static str,
    /// What it does, in one line.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command line tells it"))]
    pub about: &'static str,
    /// Milliseconds or bytes.
    pub unit: Unit,
    /// The value where none was set, in the unit.
    pub default: u64,
    /// The least and the most it may be.
    pub range: (u64, u64),
}

/// What a setting counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// A duration in milliseconds.
    Milliseconds,
    /// A size in bytes.
    Bytes,
}

const SECOND: u64 = 1_000;
const DAY: u64 = 24 * 3_600 * SECOND;
const TEN_YEARS: u64 = 3_653 * DAY;

/// Where the lease stands among them.
pub(crate) const LEASE: usize = 0;

/// All settings there are.
pub const SETTINGS: [SettingInfo; 5] = [
    SettingInfo {
        name: "lease",
        about: "how long a stopped process keeps its jobs before others may take them",
        unit: Unit::Milliseconds,
        default: 30 * SECOND,
        range: (500, DAY),
    },
    SettingInfo {
        name: "payload-max",
        about: "the most bytes of a job's arguments or result, or of an object's value",
        unit: Unit::Bytes,
        default: 1 << 20,
        range: (1 << 10, 4 << 20),
    },
    SettingInfo {
        name: "retention-completed",
        about: "how long completed jobs that have a result are kept",
        unit: Unit::Milliseconds,
        default: DAY,
        range: (0, TEN_YEARS),
    },
    SettingInfo {
        name: "retention-dead",
        about: "how long dead jobs are kept",
        unit: Unit::Milliseconds,
        default: 30 * DAY,
        range: (0, TEN_YEARS),
    },
    SettingInfo {
        name: "retention-cancelled",
        about: "how long cancelled jobs are kept",
        unit: Unit::Milliseconds,
        default: 30 * DAY,
        range: (0, TEN_YEARS),
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingRecord {
    pub(crate) value: u64,
}

impl Record for SettingRecord {
    const NAME: &'static str = "setting";
}

/// The values in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) payload_max: usize,
    pub(crate) retention_completed: Duration,
    pub(crate) retention_dead: Duration,
    pub(crate) retention_cancelled: Duration,
}

impl Settings {
    pub(crate) fn read(rows: &dyn Rows) -> Result<Self> {
        let of = |index: usize| value(rows, &SETTINGS[index]);
        Ok(Self {
            lease: Duration::from_millis(of(LEASE)?),
            payload_max: usize::try_from(of(1)?).unwrap_or(usize::MAX),
            retention_completed: Duration::from_millis(of(2)?),
            retention_dead: Duration::from_millis(of(3)?),
            retention_cancelled: Duration::from_millis(of(4)?),
        })
    }
}

/// The value of one setting, in its unit.
pub(crate) fn value(rows: &dyn Rows, setting: &SettingInfo) -> Result<u64> {
    let record: Option<SettingRecord> = get_record(rows, &keys::setting(setting.name))?;
    Ok(record.map_or(setting.default, |record| record.value))
}

/// The setting of that name.
///
/// # Errors
/// `NotFound`, naming all there are.
pub fn setting_info(name: &str) -> Result<&'static SettingInfo> {
    SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(|| {
        let names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        Error::not_found(format!("there is no setting \"{name}\"; there are {}", names.join(", ")))
    })
}

/// # Errors
/// `Invalid` for a value out of the setting's range.
pub(crate) fn check_value(setting: &SettingInfo, value: u64) -> Result<()> {
    let (least, most) = setting.range;
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let unit = match setting.unit {
        Unit::Milliseconds => "ms",
        Unit::Bytes => "bytes",
    };
    Err(Error::invalid(format!(
        "{} = {value} {unit} is out of range; it goes from {least} to {most} {unit}",
        setting.name
    )))
}
