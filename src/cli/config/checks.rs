//! Checks of single values. Each error continues the text `invalid argument "x" for "--flag" flag: `.

#![allow(clippy::needless_pass_by_value, reason = "a check consumes the value of its flag")]

use std::path::PathBuf;
use std::time::Duration;

use autoscaling::duration::GoDuration;
use autoscaling::quantity::Quantity;
use autoscaling::settings::Version;
use controller::options::ScaleSource;

use super::TakeOver;
use crate::cli::error::Reason;
use crate::cli::gates;
use crate::logging::LogFormat;

/// client-go's rate and burst for a flag value of 0.
const CLIENT_GO_QPS: f64 = 5.0;
const CLIENT_GO_BURST: u32 = 10;

/// The maximum of `--decisions-per-hpa`. The limit exists because a request for one HPA reads its whole record.
const MOST_DECISIONS: usize = 1000;

/// Returns an error with the allowed values if `value` is `None`.
fn must_be<T>(allowed: &'static str, value: Option<T>) -> Result<T, Reason> {
    value.ok_or(Reason::MustBe(allowed))
}

pub(in crate::cli) fn at_least_zero(value: GoDuration) -> Result<Duration, Reason> {
    must_be("at least 0s", value.unsigned())
}

/// As in kube-controller-manager, a negative value of these flags means 0.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a check")]
pub(in crate::cli) fn negative_as_zero(value: GoDuration) -> Result<Duration, Reason> {
    Ok(value.unsigned().unwrap_or_default())
}

pub(in crate::cli) fn above_zero(value: GoDuration) -> Result<Duration, Reason> {
    must_be("greater than 0s", value.unsigned().filter(|duration| !duration.is_zero()))
}

pub(in crate::cli) fn at_least_one(count: i64) -> Result<usize, Reason> {
    let count = must_be("at least 1", u64::try_from(count).ok().filter(|count| *count > 0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of a check")]
pub(in crate::cli) fn nonempty(text: String) -> Result<Option<String>, Reason> {
    Ok(Some(text).filter(|text| !text.is_empty()))
}

pub(in crate::cli) fn path(text: String) -> Result<Option<PathBuf>, Reason> {
    Ok(nonempty(text)?.map(PathBuf::from))
}

/// As in kube-controller-manager, every number is valid. As with a negative tolerance, no ratio is within a tolerance
/// of NaN. JSON cannot represent NaN and infinities, so finite numbers with the same effect replace them.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a check")]
pub(in crate::cli) fn tolerance(tolerance: f64) -> Result<f64, Reason> {
    Ok(if tolerance.is_nan() { f64::MIN } else { tolerance.clamp(f64::MIN, f64::MAX) })
}

pub(in crate::cli) fn qps(qps: f64) -> Result<Option<f64>, Reason> {
    if qps.is_nan() {
        Err(Reason::MustBe("a number"))
    } else if qps == 0.0 {
        Ok(Some(CLIENT_GO_QPS))
    } else {
        Ok((qps > 0.0 && qps.is_finite()).then_some(qps))
    }
}

pub(in crate::cli) fn status_qps(qps: f64) -> Result<Option<f64>, Reason> {
    let allowed = "a number of at least 0; 0 selects a rate by the number of HPAs";
    let qps = must_be(allowed, Some(qps).filter(|qps| *qps >= 0.0 && qps.is_finite()))?;
    Ok((qps > 0.0).then_some(qps))
}

pub(in crate::cli) fn burst(burst: i64) -> Result<u32, Reason> {
    let burst = must_be("at least 0", u32::try_from(burst).ok())?;
    Ok(if burst == 0 { CLIENT_GO_BURST } else { burst })
}

pub(in crate::cli) fn decisions(count: i64) -> Result<usize, Reason> {
    must_be("0 to 1000", usize::try_from(count).ok().filter(|count| *count <= MOST_DECISIONS))
}

pub(in crate::cli) fn response_size(size: Quantity) -> Result<usize, Reason> {
    let size = must_be("greater than 0", Some(size).filter(|size| *size > Quantity::ZERO))?;
    Ok(usize::try_from(size.value()).unwrap_or(usize::MAX))
}

/// The API server has the same rule for field managers.
pub(in crate::cli) fn field_manager(name: String) -> Result<String, Reason> {
    let valid = (1..=128).contains(&name.len()) && !name.chars().any(char::is_control);
    must_be("1 to 128 printable characters", valid.then_some(name))
}

pub(in crate::cli) fn version(items: Vec<String>) -> Result<Version, Reason> {
    Ok(gates::parse_versions(&items)?)
}

pub(in crate::cli) fn log_format(name: String) -> Result<LogFormat, Reason> {
    match name.as_str() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(Reason::MustBe("text or json")),
    }
}

pub(in crate::cli) fn takeover(word: String) -> Result<TakeOver, Reason> {
    match word.as_str() {
        "wait" => Ok(TakeOver::Wait),
        "warn" => Ok(TakeOver::Warn),
        "off" => Ok(TakeOver::Off),
        _ => Err(Reason::MustBe("wait, warn or off")),
    }
}

pub(in crate::cli) fn scale_source(word: String) -> Result<ScaleSource, Reason> {
    word.parse::<ScaleSource>().map_err(|error| Reason::Text(error.to_string()))
}
