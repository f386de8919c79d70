//! ScalingSchedules and ClusterScalingSchedules of kube-metrics-adapter (`zalando.org/v1`).
//!
//! The value of such an object is a metric. An HPA divides the value by its `averageValue`, so a schedule becomes a
//! floor for each HPA that refers to the object.

use autoscaling::quantity::Quantity;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::manifest::{Note, Remark, ScalingPolicy, Schedule};
use super::{Field, Import, Object, Source, TooManyNotes, hpas};
use crate::spec::MAX_ENTRIES;

/// The default of the adapter's flag `--scaling-schedule-default-time-zone`.
const DEFAULT_TIME_ZONE: &str = "Europe/Berlin";
const MINUTES_OF_A_DAY: i64 = 24 * 60;
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// The ScalingSchedules and ClusterScalingSchedules of an input.
#[derive(Default)]
pub(super) struct Schedules<'a>(Vec<Entry<'a>>);

struct Entry<'a> {
    kind: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
    object: &'a Object,
    is_used: bool,
}

impl<'a> Schedules<'a> {
    pub(super) fn add(&mut self, object: &'a Object, source: &Source<'a>) {
        let (kind, namespace, name) = (source.kind, source.namespace, source.name);
        self.0.push(Entry { kind, namespace, name, object, is_used: false });
    }

    /// Converts the HPAs that refer to schedules, and notes the schedules without such an HPA.
    pub(super) fn convert(mut self, objects: &'a [Object], result: &mut Import) -> Result<(), TooManyNotes> {
        for mut hpa in hpas(objects) {
            let metrics = hpa.root.at("spec").at("metrics").items();
            let references: Vec<&Field<'_>> = metrics.iter().filter(|metric| refers(metric)).collect();
            if references.is_empty() {
                continue;
            }
            result.objects += 1;
            let (mut policy, label) = ScalingPolicy::labelled(&hpa, "zalando");
            for metric in &references {
                self.metric(&mut hpa, metric, &mut policy);
            }
            let policy = policy.if_useful();
            if policy.is_some() {
                hpa.ask_for_label(&label);
            }
            for metric in references.iter().filter(|_| policy.is_some()) {
                let step = if metrics.len() == references.len() {
                    "keep the metric, because an HPA without metrics scales by cpu, or replace it"
                } else {
                    "remove the metric after the policy applies"
                };
                hpa.note(metric, Remark::Next(step.to_owned()));
            }
            result.policies.extend(policy);
            result.add(hpa)?;
        }
        for Entry { object, .. } in self.0.iter().filter(|entry| !entry.is_used) {
            let Some(mut source) = Source::new(object) else { continue };
            let reason =
                "no HPA of the input refers to it; its value is a count only with the averageValue of an HPA";
            let root = source.root.clone();
            source.note(&root, Remark::NoCounterpart(reason));
            result.add(source)?;
        }
        Ok(())
    }

    /// Adds the schedules of the object to which a metric of an HPA refers.
    fn metric(&mut self, hpa: &mut Source<'_>, metric: &Field<'_>, policy: &mut ScalingPolicy) {
        let (described, target) =
            (metric.at("object").at("describedObject"), metric.at("object").at("target"));
        if target.at("type").value().is_none_or(|kind| kind != "AverageValue") {
            let reason = "without averageValue, the value of a schedule does not determine a number of pods";
            hpa.note(&target, Remark::NoCounterpart(reason));
            return;
        }
        let average = target.at("averageValue");
        let quantity = average.value().and_then(quantity).filter(|quantity| quantity.nanos() > 0);
        let Some(quantity) = quantity else {
            hpa.invalid(&average, "a quantity above 0");
            return;
        };
        let is = |field: Field<'_>, text: &str| field.value().is_some_and(|value| value == text);
        let entry = self.0.iter_mut().find(|entry| {
            is(described.at("kind"), entry.kind)
                && is(described.at("name"), entry.name)
                && (entry.kind == "ClusterScalingSchedule" || entry.namespace == hpa.namespace)
        });
        let Some(entry) = entry else {
            hpa.note(&described, Remark::Refused("the input does not contain this schedule".to_owned()));
            return;
        };
        let is_first = !std::mem::replace(&mut entry.is_used, true);
        let Some(mut source) = Source::new(entry.object) else { return };
        let spec = source.root.at("spec");
        if is_first {
            window(&mut source, &spec);
        }
        let (schedules, entries) = (spec.at("schedules"), spec.at("schedules").items());
        if entries.len() > MAX_ENTRIES {
            let reason = format!("it has {} entries, a policy has at most {MAX_ENTRIES}", entries.len());
            source.note(&schedules, Remark::Refused(reason));
        } else {
            for (index, schedule) in entries.iter().enumerate() {
                convert(&mut source, schedule, index, quantity, policy);
            }
        }
        // The notes about the object appear once, with the first HPA. Refusals can depend on the policy of the HPA, so
        // they appear with each HPA.
        let is_new = |note: &Note| is_first || matches!(note.remark, Remark::Refused(_));
        hpa.notes.extend(source.notes.into_iter().filter(is_new));
    }
}

/// Whether a metric of an HPA refers to a ScalingSchedule or a ClusterScalingSchedule.
fn refers(metric: &Field<'_>) -> bool {
    let described = metric.at("object").at("describedObject");
    let is = |name: &str, test: fn(&str) -> bool| {
        described.at(name).value().and_then(Value::as_str).is_some_and(test)
    };
    is("apiVersion", |version| version.starts_with("zalando.org/"))
        && is("kind", |kind| matches!(kind, "ScalingSchedule" | "ClusterScalingSchedule"))
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.to_string().parse().ok(),
    }
}

/// Notes that the adapter raises and lowers a value gradually, unless its window is zero.
fn window(source: &mut Source<'_>, spec: &Field<'_>) {
    let field = spec.at("scalingWindowDurationMinutes");
    let difference = match field.value().map(Value::as_i64) {
        Some(Some(0)) => return,
        Some(_) => "the adapter raises and lowers the value over this time, a schedule applies at once",
        None => {
            "the adapter raises and lowers the value over ten minutes by default, a schedule applies at once"
        }
    };
    let difference = format!("{difference}; guards.maxStep limits the change of one sync");
    source.note(&field, Remark::Differs(difference.into()));
}

/// Adds one schedule to a policy, as a floor.
fn convert(
    source: &mut Source<'_>,
    schedule: &Field<'_>,
    index: usize,
    average: Quantity,
    policy: &mut ScalingPolicy,
) {
    let value = schedule.at("value");
    if !value.is_set() {
        source.note(&value, Remark::Missing);
    }
    let Some(units) = source.count(&value, 0, "a whole number of at least 0") else { return };
    let duration = schedule.at("durationMinutes");
    let minutes = source.count(&duration, 0, "a number of minutes");
    if duration.is_set() && minutes.is_none() {
        return;
    }
    let minutes = minutes.unwrap_or(0);
    let replicas = (i128::from(units) * 1_000_000_000 + average.nanos() - 1) / average.nanos();
    let Ok(replicas) = i64::try_from(replicas) else {
        source.note(&value, Remark::Refused(format!("it is {replicas} pods")));
        return;
    };
    let times = match source.required_text(&schedule.at("type")) {
        Some("OneTime") => one_time(source, schedule, minutes),
        Some("Repeating") => repeating(source, schedule, minutes),
        Some(_) => {
            source.invalid(&schedule.at("type"), "OneTime or Repeating");
            None
        }
        None => None,
    };
    if let Some(times) = times {
        let name = format!("{}-{index}", source.name);
        policy.add_schedule(source, schedule, Schedule { name, min_replicas: Some(replicas), ..times });
    }
}

/// Converts the times of a schedule with dates. The end is the later of `endDate` and the end of the duration.
fn one_time(source: &mut Source<'_>, schedule: &Field<'_>, minutes: i64) -> Option<Schedule> {
    let mut time = |field: &Field<'_>| {
        let text = source.text(field).filter(|text| !text.is_empty())?;
        let time = text.parse::<Timestamp>().ok();
        if time.is_none() {
            source.invalid(field, "a time such as 2026-12-01T08:00:00Z");
        }
        time
    };
    let (date, end_date) = (schedule.at("date"), schedule.at("endDate"));
    let (start, end) = (time(&date), time(&end_date));
    if !date.is_set() {
        source.note(&date, Remark::Missing);
    }
    let start = start?;
    let after = start.checked_add(SignedDuration::from_mins(minutes)).ok()?;
    let end = end.map_or(after, |end| end.max(after));
    if end <= start {
        source.note(schedule, Remark::NoCounterpart("it has neither a duration nor a later endDate"));
        return None;
    }
    Some(Schedule { from: Some(start.to_string()), to: Some(end.to_string()), ..Schedule::default() })
}

/// Converts the times of a schedule with days. The end is the later of `endTime` and the end of the duration.
fn repeating(source: &mut Source<'_>, schedule: &Field<'_>, minutes: i64) -> Option<Schedule> {
    let period = schedule.at("period");
    let start = clock(source, &period.at("startTime"))?;
    let end_time = period.at("endTime");
    let is_end = end_time.value().is_some_and(|value| value != "");
    let end = if is_end { clock(source, &end_time)? } else { start };
    let mut days = Vec::new();
    for day in period.at("days").items() {
        let index = DAYS.iter().position(|name| day.value().is_some_and(|value| value == name));
        let Some(index) = index else {
            source.invalid(&day, "Sun, Mon, Tue, Wed, Thu, Fri or Sat");
            return None;
        };
        days.push(index);
    }
    if days.is_empty() {
        source.note(&period.at("days"), Remark::Missing);
        return None;
    }
    let end = end.max(start + minutes);
    if end == start {
        source.note(schedule, Remark::NoCounterpart("it has neither a duration nor a later endTime"));
        return None;
    }
    if end > MINUTES_OF_A_DAY {
        let difference = "the adapter ends it at midnight, and so does the schedule";
        source.note(schedule, Remark::Differs(difference.into()));
    }
    let zone = period.at("timezone");
    let time_zone = source.text(&zone).filter(|zone| !zone.is_empty());
    if time_zone.is_none() {
        let difference = format!("{DEFAULT_TIME_ZONE} is assumed, the default of the adapter");
        source.note(&zone, Remark::Differs(difference.into()));
    }
    let end = end.min(MINUTES_OF_A_DAY);
    let end_days: Vec<usize> =
        days.iter().map(|day| (day + usize::from(end == MINUTES_OF_A_DAY)) % 7).collect();
    Some(Schedule {
        time_zone: Some(time_zone.unwrap_or(DEFAULT_TIME_ZONE).to_owned()),
        start: Some(cron(start, &days)),
        end: Some(cron(end % MINUTES_OF_A_DAY, &end_days)),
        ..Schedule::default()
    })
}

/// Returns the minute of the day for a time such as `08:30`. Notes an absent field and any other value.
fn clock(source: &mut Source<'_>, field: &Field<'_>) -> Option<i64> {
    let minute = |text: &str| {
        let (hour, minute) = text.split_once(':')?;
        let number = |text: &str, below: i64| {
            let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<i64>().ok().filter(|number| is_number && *number < below)
        };
        Some(number(hour, 24)? * 60 + number(minute, 60)?)
    };
    if !field.is_set() {
        source.note(field, Remark::Missing);
    }
    let parsed = field.value()?.as_str().and_then(minute);
    if parsed.is_none() {
        source.invalid(field, "a time such as 08:30");
    }
    parsed
}

/// Prints the cron expression for a minute of the day, on some days of the week.
fn cron(minute: i64, days: &[usize]) -> String {
    let names = DAYS.iter().enumerate().filter(|(day, _)| days.contains(day)).map(|(_, name)| *name);
    let names: Vec<&str> = names.collect();
    let days = if names.len() == DAYS.len() { "*".to_owned() } else { names.join(",") };
    format!("{} {} * * {days}", minute % 60, minute / 60)
}
