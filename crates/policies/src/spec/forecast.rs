//! The field `forecast`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use forecast::calendar::Calendar;
use forecast::{Mode, Settings};
use jiff::civil::Date;
use serde_json::Value;

use super::fields::MAX_TEXT;
use super::reader::{Amount, Reader};
use super::{MAX_ENTRIES, MetricOrigin, Named, ProblemReason, metrics};
use crate::schedule::{number, zone};

/// Minutes of a day.
const DAY: i64 = 1440;
/// Maximum days of `minimumHistory`: the days that a forecast compares with.
const DAYS: i64 = 14;
/// Bounds of `horizonSeconds`.
const HORIZON: RangeInclusive<i64> = 60..=900;

/// `forecast` of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastSpec {
    /// `mode`, `budget`, `shortageValue`, `timeZone`, `holidays`, `minimumHistory` and `maximumFloor`. The start of a
    /// pod is [`Self::start_minutes`] or measured.
    pub settings: Settings,
    /// `loadPerPod`: the load that a pod serves at its full capacity, relative to a target per pod.
    pub load_per_pod: f64,
    /// `horizonSeconds` in minutes. `None` for `auto`: the pods of the target show it.
    pub start_minutes: Option<i64>,
    /// `history`: the query of the load before the controller knew the HPA. `None` if the controller only learns from
    /// its own syncs.
    pub history: Option<MetricOrigin>,
    /// The highest floor that the limits of ClusterScalingPolicies allow.
    pub highest: Option<i32>,
}

impl Default for ForecastSpec {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            load_per_pod: 1.5,
            start_minutes: None,
            history: None,
            highest: None,
        }
    }
}

impl ForecastSpec {
    /// Whether the floor applies. Otherwise it is only shown.
    pub fn applies(&self) -> bool {
        self.settings.mode == Mode::Floor
    }
}

impl Named for Mode {
    const NAMES: &'static [(&'static str, Self)] = &[("Preview", Self::Preview), ("Floor", Self::Floor)];
}

/// Reads `forecast`, which is valid only as a whole.
pub(super) fn read(reader: &mut Reader<'_>) -> ForecastSpec {
    let mut spec = ForecastSpec::default();
    let settings = &mut spec.settings;
    settings.mode = reader.choice("mode").unwrap_or_default();
    settings.budget = percentage(reader, "budget", 1..=100).unwrap_or(settings.budget);
    settings.maximum_floor = percentage(reader, "maximumFloor", 1..=100).unwrap_or(settings.maximum_floor);
    if let Some(value) = reader.integer::<u16>("shortageValue", 1..=10_000) {
        settings.shortage_value = value.into();
    }
    let expected = || format!("a number of days from 1d to {DAYS}d, such as 3d");
    let days = reader.convert("minimumHistory", expected, |value| {
        number(value.as_str()?.strip_suffix('d')?).filter(|days| (1..=DAYS).contains(days))
    });
    settings.minimum_history = days.map_or(settings.minimum_history, |days| days * DAY);
    settings.calendar = calendar(reader);
    spec.load_per_pod = percentage(reader, "loadPerPod", 100..=1000).unwrap_or(spec.load_per_pod);
    let expected = || format!("auto or a whole number from {} to {}", HORIZON.start(), HORIZON.end());
    let seconds = reader.convert("horizonSeconds", expected, |value| match value {
        Value::String(text) if text == "auto" => Some(None),
        value => value.as_i64().filter(|seconds| HORIZON.contains(seconds)).map(Some),
    });
    spec.start_minutes = seconds.flatten().map(|seconds| (seconds + 59).div_euclid(60));
    spec.history = reader.unit("history", metrics::prometheus);
    spec
}

fn calendar(reader: &mut Reader<'_>) -> Calendar {
    let mut calendar = Calendar::default();
    if let Some(name) = reader.text("timeZone", MAX_TEXT) {
        match zone(&name) {
            Ok(zone) => calendar.zone = zone,
            Err(error) => reader.report_whole(ProblemReason::Schedule(error)),
        }
    }
    let expected = || format!("a list of at most {MAX_ENTRIES} dates such as 2026-12-25");
    let holidays = reader.convert("holidays", expected, |value| {
        let dates = value.as_array().filter(|dates| dates.len() <= MAX_ENTRIES)?;
        // A longer text could be a time, whose date depends on a zone.
        let date = |date: &Value| date.as_str().filter(|text| text.len() == 10)?.parse::<Date>().ok();
        dates.iter().map(date).collect::<Option<BTreeSet<_>>>()
    });
    calendar.holidays = holidays.unwrap_or_default();
    calendar
}

/// Reads a percentage as a fraction.
fn percentage(reader: &mut Reader<'_>, field: &'static str, range: RangeInclusive<u32>) -> Option<f64> {
    let expected = || format!("a percentage from {}% to {}%", range.start(), range.end());
    reader.convert(field, expected, |value| {
        let Amount::Percent(percent) = Amount::parse(value.as_str()?)? else { return None };
        range.contains(&percent).then(|| f64::from(percent) / 100.0)
    })
}
