//! Recomputes a decision from the JSON of its explanation alone, with independent arithmetic. An equal result shows
//! that the explanation is complete and correct.

use serde_json::Value;

/// Returns the count that follows from the explained steps, or `None` if no count can be computed. The error names the
/// first step that differs.
pub(crate) fn recompute(explained: &Value) -> Result<Option<i64>, String> {
    let number = |field: &str| explained[field].as_i64().unwrap();
    let (current, min, max) = (number("current"), number("min"), number("max"));
    match explained["course"].as_str().unwrap() {
        "noScale" | "noSelector" | "ambiguous" | "deleted" => return Ok(None),
        "disabled" => return Ok(Some(0)),
        "aboveMax" => return Ok(Some(max)),
        "belowMin" => return Ok(Some(min)),
        _ => {}
    }
    let Some((winner, proposal)) = propose(explained, current, number("statusReplicas"))? else {
        return Ok(None);
    };
    same("winner", explained["winner"].as_i64(), winner)?;
    same("proposal", explained["proposal"].as_i64(), Some(proposal))?;
    let stabilized = stabilize(&explained["stabilization"], current, proposal.max(0));
    same("stabilization", explained["stabilization"]["after"].as_i64(), Some(stabilized))?;
    let limited = limit(explained, current, stabilized, min, max)?;
    same("limit", explained["limit"]["after"].as_i64(), Some(limited))?;
    Ok(Some(if current == 0 && limited < min { min } else { limited }))
}

fn same<T: PartialEq + Copy + std::fmt::Debug>(step: &str, given: T, computed: T) -> Result<(), String> {
    if given == computed {
        Ok(())
    } else {
        Err(format!("{step}: explained {given:?}, computed {computed:?}"))
    }
}

/// The index and the count of the chosen proposal. `None` if too many metrics failed.
fn propose(explained: &Value, current: i64, status: i64) -> Result<Option<(Option<i64>, i64)>, String> {
    let metrics = explained["metrics"].as_array().unwrap();
    let (mut winner, mut best, mut failed) = (None, 0, 0);
    for (index, metric) in metrics.iter().enumerate() {
        if metric["failed"].is_object() {
            failed += 1;
            continue;
        }
        let reading = &metric["valid"];
        let proposal = saturate(metric_proposal(reading, current, status)?);
        same("a metric's proposal", reading["proposal"].as_i64(), Some(proposal))?;
        if proposal > best || best == 0 {
            (winner, best) = (Some(i64::try_from(index).unwrap()), proposal);
        }
    }
    let too_many = failed == metrics.len() || (failed > 0 && best < current);
    Ok((!too_many).then_some((winner, best)))
}

/// The proposal of one metric.
fn metric_proposal(reading: &Value, current: i64, status: i64) -> Result<f64, String> {
    let (lowest, highest) =
        (reading["lowestTolerated"].as_f64().unwrap(), reading["highestTolerated"].as_f64().unwrap());
    let tolerated = |ratio: f64| lowest <= ratio && ratio <= highest;
    let as_float = |number: i64| number as f64;
    if let Some(value) = reading["value"]["milli"].as_i64() {
        let ratio = value as f64 / as_float(reading["target"]["milli"].as_i64().unwrap());
        return Ok(if current == 0 {
            ratio.ceil()
        } else if tolerated(ratio) {
            as_float(current)
        } else {
            (ratio * as_float(reading["readyPods"].as_i64().unwrap())).ceil()
        });
    }
    if let Some(total) = reading["total"].as_i64() {
        let target = as_float(reading["target"]["milliPerPod"].as_i64().unwrap());
        let ratio = total as f64 / (target * as_float(status));
        let stays = status != 0 && tolerated(ratio);
        return Ok(if stays { as_float(status) } else { (total as f64 / target).ceil() });
    }
    let pods = Pods::new(reading);
    let ratio = pods.ratio(None);
    same("ratio", reading["ratio"].as_f64(), Some(ratio).filter(|ratio| ratio.is_finite()))?;
    let fill_unready = pods.unready > 0 && ratio > 1.0;
    if pods.missing == 0 && !fill_unready {
        return Ok(if tolerated(ratio) { as_float(current) } else { (ratio * as_float(pods.ready)).ceil() });
    }
    let missing = match ratio {
        _ if pods.missing == 0 => None,
        ratio if ratio < 1.0 => Some("target"),
        ratio if ratio > 1.0 => Some("zero"),
        _ => None,
    };
    let corrected = &reading["corrected"];
    same("missing pods", corrected["missing"].as_str(), missing)?;
    same("unready pods", corrected["unready"].as_bool(), Some(fill_unready))?;
    let again = pods.ratio(Some((missing, fill_unready)));
    let values = pods.values(Some((missing, fill_unready)));
    same("values", corrected["values"].as_i64(), Some(values))?;
    same("corrected ratio", corrected["ratio"].as_f64(), Some(again).filter(|ratio| ratio.is_finite()))?;
    let turned = (ratio < 1.0 && again > 1.0) || (ratio > 1.0 && again < 1.0);
    let count = (again * as_float(values)).ceil();
    let against = (again < 1.0 && count > as_float(current)) || (again > 1.0 && count < as_float(current));
    Ok(if tolerated(again) || turned || against { as_float(current) } else { count })
}

struct Pods<'a> {
    reading: &'a Value,
    ready: i64,
    missing: i64,
    unready: i64,
}

impl<'a> Pods<'a> {
    fn new(reading: &'a Value) -> Self {
        let mut pods = Self { reading, ready: 0, missing: 0, unready: 0 };
        for pod in pods.list() {
            match group(pod) {
                "ready" => pods.ready += 1,
                "missing" => pods.missing += 1,
                unready if unready.starts_with("unready") => pods.unready += 1,
                _ => {}
            }
        }
        pods
    }

    fn list(&self) -> &'a [Value] {
        self.reading["pods"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The number of values in the ratio. `fill` contains the assumption for missing pods, and whether unready pods are
    /// values. It is `None` for the first ratio.
    fn values(&self, fill: Option<(Option<&str>, bool)>) -> i64 {
        let (missing, unready) = fill.unwrap_or((None, false));
        self.ready
            + self.reading["strangers"]["samples"].as_i64().unwrap_or(0)
            + if missing.is_some() { self.missing } else { 0 }
            + if unready { self.unready } else { 0 }
    }

    fn ratio(&self, fill: Option<(Option<&str>, bool)>) -> f64 {
        let (missing, unready) = fill.unwrap_or((None, false));
        let amount = |pod: &Value, field: &str| i128::from(pod[field].as_i64().unwrap_or(0));
        let percent = self.reading["target"]["percent"].as_i64();
        let target = percent.or_else(|| self.reading["target"]["milliPerPod"].as_i64()).unwrap();
        let mut usage = i128::from(self.reading["strangers"]["sum"].as_i64().unwrap_or(0));
        if percent.is_some() {
            usage = 0;
        }
        let mut requests = 0;
        for pod in self.list() {
            match group(pod) {
                "ready" => {
                    usage += amount(pod, "sample");
                    requests += amount(pod, "request");
                }
                "missing" if missing.is_some() => {
                    let assumed = match percent {
                        Some(percent) => {
                            i128::from(narrow(amount(pod, "request") * i128::from(percent.max(100)) / 100))
                        }
                        None => i128::from(target),
                    };
                    usage += if missing == Some("target") { assumed } else { 0 };
                    requests += amount(pod, "request");
                }
                other if unready && other.starts_with("unready") => requests += amount(pod, "request"),
                _ => {}
            }
        }
        if percent.is_some() {
            let percent = usage * 100 / requests;
            return percent.clamp(i128::from(i32::MIN), i128::from(i32::MAX)) as f64 / target as f64;
        }
        narrow(usage / i128::from(self.values(fill).max(1))) as f64 / target as f64
    }
}

fn group(pod: &Value) -> &str {
    pod["group"].as_str().unwrap()
}

/// The stabilized count.
fn stabilize(step: &Value, current: i64, proposal: i64) -> i64 {
    let (mut lowest, mut highest) = (proposal, proposal);
    for held in step["recommendations"].as_array().map_or(&[][..], Vec::as_slice) {
        let replicas = held["replicas"].as_i64().unwrap();
        if held["leavesUp"].is_string() {
            lowest = lowest.min(replicas);
        }
        if held["leavesDown"].is_string() {
            highest = highest.max(replicas);
        }
    }
    if step["upWindowSeconds"].is_null() { highest } else { current.max(lowest).min(highest) }
}

/// The count after rates and bounds.
fn limit(explained: &Value, current: i64, desired: i64, min: i64, max: i64) -> Result<i64, String> {
    if explained["stabilization"]["upWindowSeconds"].is_null() {
        let upper = max.min((2 * current).max(4));
        return Ok(if desired < min { min } else { desired.min(upper) });
    }
    let step = &explained["limit"];
    let direction = match desired.cmp(&current) {
        std::cmp::Ordering::Equal => return Ok(desired),
        std::cmp::Ordering::Greater => "up",
        std::cmp::Ordering::Less => "down",
    };
    same("direction", step["direction"].as_str(), Some(direction))?;
    let up = direction == "up";
    let allowed = rate(step, current, up)?;
    let allowed = if up { allowed.max(current) } else { allowed.min(current) };
    same("rate", step["rateAllows"].as_i64(), Some(allowed))?;
    Ok(if up { desired.min(max.min(allowed)) } else { desired.max(min.max(allowed)) })
}

/// The count that the selected policy allows.
fn rate(step: &Value, current: i64, up: bool) -> Result<i64, String> {
    let select = step["select"].as_str().unwrap();
    if select == "disabled" {
        return Ok(current);
    }
    let mut allowed = Vec::new();
    let mut last = 0;
    for policy in step["policies"].as_array().unwrap() {
        let number = |field: &str| policy[field].as_i64().unwrap();
        let start = saturate((current - number("added") + number("removed")) as f64);
        // The core computes with exact sums, but the explanation saturates them at 32 bits.
        let is_exact = [number("added"), number("removed")].iter().all(|sum| *sum < i32::MAX.into());
        let start = if is_exact { start } else { number("start") };
        same("start of a period", number("start"), start)?;
        let value = number("value");
        let share = value as f64 / 100.0;
        last = match (policy["type"].as_str().unwrap(), up) {
            ("pods" | "percent", _) if policy["unknownRescale"].is_string() => current,
            ("pods", true) => saturate((start + value) as f64),
            ("pods", false) => saturate((start - value) as f64),
            ("percent", true) => saturate((start as f64 * (1.0 + share)).ceil()),
            ("percent", false) => saturate((start as f64 * (1.0 - share)).trunc()),
            _ => last,
        };
        same("a policy", number("allows"), last)?;
        allowed.push(last);
    }
    let largest = up == (select == "max");
    let chosen = if largest { allowed.iter().max() } else { allowed.iter().min() };
    let none = if largest { i32::MIN } else { i32::MAX };
    Ok(chosen.copied().unwrap_or_else(|| none.into()))
}

fn narrow(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}

#[expect(clippy::cast_possible_truncation, reason = "`as` from a float saturates")]
fn saturate(number: f64) -> i64 {
    i64::from(number as i32)
}
