//! Answers to instant and range queries.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{AnswerError, malformed, number, shown};
use crate::series::{self, First, Series};

/// A value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The labels, with `__name__` if the result of the query has a name.
    pub labels: BTreeMap<String, String>,
    /// The value, a finite number.
    pub value: f64,
    /// The time that the server reports for the value, in seconds since the Unix epoch. It is usually the time of the
    /// query.
    pub time: f64,
}

/// The result of an instant query.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// An instant vector. Empty if no series matches, which is neither 0 nor an error.
    Vector(Vec<Sample>),
    /// A scalar.
    Scalar(f64),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    status: String,
    #[serde(borrow, default)]
    data: Option<Data<'a>>,
    #[serde(default)]
    error_type: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    warnings: Option<First>,
    /// Set by VictoriaMetrics if a part of its storage did not answer.
    #[serde(default)]
    is_partial: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    result_type: String,
    /// Decoded when its type is known.
    #[serde(borrow)]
    result: &'a RawValue,
}

/// Reads the data of a response of any status code.
fn data(body: &[u8], allow_partial: bool) -> Result<Data<'_>, AnswerError> {
    let response: Response<'_> = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    if response.status != "success" {
        return Err(AnswerError::Refused(shown(&response.error_type), shown(&response.error)));
    }
    if !allow_partial {
        if let Some(First(Some(warning))) = response.warnings {
            return Err(AnswerError::Partial(shown(&warning)));
        }
        if response.is_partial {
            return Err(AnswerError::Partial("a part of the storage did not answer".to_owned()));
        }
    }
    response.data.ok_or_else(|| AnswerError::Malformed("data is missing".to_owned()))
}

impl Answer {
    /// Reads the body of a response, of any status code, with at most `max_series` series. `allow_partial` accepts an
    /// answer with warnings or `isPartial`.
    pub fn parse(body: &[u8], max_series: usize, allow_partial: bool) -> Result<Self, AnswerError> {
        let data = data(body, allow_partial)?;
        match data.result_type.as_str() {
            "vector" => {
                let series = series::decode(data.result, max_series)?;
                Ok(Self::Vector(series.into_iter().map(Sample::try_from).collect::<Result<_, _>>()?))
            }
            "scalar" => {
                let (_, value): (f64, String) =
                    serde_json::from_str(data.result.get()).map_err(|error| malformed(&error))?;
                Ok(Self::Scalar(finite(&value, || "the scalar".to_owned())?))
            }
            other => Err(AnswerError::Type(shown(other))),
        }
    }

    /// Returns the number of the scalar or of the only series. `None` for an empty vector.
    pub fn single(&self) -> Result<Option<f64>, AnswerError> {
        match self {
            Self::Scalar(value) => Ok(Some(*value)),
            Self::Vector(samples) => match samples.as_slice() {
                [] => Ok(None),
                [sample] => Ok(Some(sample.value)),
                several => Err(AnswerError::SeveralSeries(several.len())),
            },
        }
    }

    /// Returns the value of each pod, by the label `pod`.
    pub fn by_pod(self) -> Result<BTreeMap<String, f64>, AnswerError> {
        let samples = match self {
            Self::Vector(samples) => samples,
            Self::Scalar(_) => {
                return Err(AnswerError::Type("scalar instead of a number per pod".to_owned()));
            }
        };
        let mut pods = BTreeMap::new();
        for mut sample in samples {
            let Some(pod) = sample.labels.remove("pod").filter(|pod| !pod.is_empty()) else {
                return Err(AnswerError::NoPod(printed(&sample.labels)));
            };
            if pods.insert(pod.clone(), sample.value).is_some() {
                return Err(AnswerError::DuplicatePod(shown(&pod)));
            }
        }
        Ok(pods)
    }
}

impl TryFrom<Series> for Sample {
    type Error = AnswerError;

    fn try_from(series: Series) -> Result<Self, AnswerError> {
        let (time, value) = series.value.ok_or(AnswerError::Histogram)?;
        let value = finite(&value, || printed(&series.labels))?;
        Ok(Self { labels: series.labels, value, time })
    }
}

/// The result of a range query, a matrix. Empty if no series matches.
#[derive(Debug, Clone, PartialEq)]
pub struct RangeAnswer {
    rows: Vec<Series>,
}

impl RangeAnswer {
    /// Reads the body of a response, of any status code, with at most `max_series` series. `allow_partial` accepts an
    /// answer with warnings or `isPartial`. Values that are not finite are omitted. At the time of such a value, an
    /// instant query would fail.
    pub fn parse(body: &[u8], max_series: usize, allow_partial: bool) -> Result<Self, AnswerError> {
        let data = data(body, allow_partial)?;
        if data.result_type != "matrix" {
            return Err(AnswerError::Type(shown(&data.result_type)));
        }
        let rows = series::decode(data.result, max_series)?;
        if rows.iter().any(|row| row.has_histograms) {
            return Err(AnswerError::Histogram);
        }
        Ok(Self { rows })
    }

    /// Returns one number per time, in ascending order of time. Times are in milliseconds since the Unix epoch. A time
    /// with values of several series is an error, as in an instant query.
    pub fn single(&self) -> Result<Vec<(i64, f64)>, AnswerError> {
        let mut by_time = BTreeMap::new();
        for (time, value) in self.rows.iter().flat_map(|row| &row.values) {
            if by_time.insert(*time, *value).is_some() {
                return Err(AnswerError::SeveralSeries(self.rows.len()));
            }
        }
        Ok(by_time.into_iter().collect())
    }

    /// Returns the values of each series, by the value of a label, as pairs of milliseconds since the Unix epoch and the
    /// value. A series without the label has the empty value. Of two series with the same value, the last counts.
    pub fn into_values_by(self, label: &str) -> BTreeMap<String, Vec<(i64, f64)>> {
        let row = |mut row: Series| (row.labels.remove(label).unwrap_or_default(), row.values);
        self.rows.into_iter().map(row).collect()
    }

    /// Returns the sum of the values of all pods for which `is_pod` is true, per time and in ascending order of time.
    /// The label `pod` contains the name of a pod. Times are in milliseconds since the Unix epoch. A time without a
    /// value of such a pod is omitted.
    pub fn sum_of_pods(&self, is_pod: impl Fn(&str) -> bool) -> Result<Vec<(i64, f64)>, AnswerError> {
        let mut by_time: BTreeMap<i64, BTreeMap<&str, f64>> = BTreeMap::new();
        for row in &self.rows {
            let Some(pod) = row.labels.get("pod").filter(|pod| !pod.is_empty()) else {
                return Err(AnswerError::NoPod(printed(&row.labels)));
            };
            for (time, value) in row.values.iter().filter(|_| is_pod(pod)) {
                if by_time.entry(*time).or_default().insert(pod, *value).is_some() {
                    return Err(AnswerError::DuplicatePod(shown(pod)));
                }
            }
        }
        Ok(by_time.into_iter().map(|(time, values)| (time, values.values().sum())).collect())
    }
}

fn finite(text: &str, subject: impl FnOnce() -> String) -> Result<f64, AnswerError> {
    let value = number(text)?;
    if value.is_finite() { Ok(value) } else { Err(AnswerError::NotFinite(value, subject())) }
}

fn printed(labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    shown(&format!("{{{}}}", labels.join(",")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(result: &Value) -> Result<RangeAnswer, AnswerError> {
        let body = json!({"status": "success", "data": {"resultType": "matrix", "result": result}});
        RangeAnswer::parse(body.to_string().as_bytes(), 3, false)
    }

    #[test]
    fn values_of_one_series_at_a_time_are_one_course() {
        let answer = parse(&json!([
            {"metric": {"instance": "b"}, "values": [[30, "3"], [45.5, "NaN"]]},
            {"metric": {"instance": "a"}, "values": [[0, "1"], [15.001, "2.5"]]},
        ]));
        assert_eq!(answer.unwrap().single(), Ok(vec![(0, 1.0), (15_001, 2.5), (30_000, 3.0)]));
        assert_eq!(parse(&json!([])).unwrap().single(), Ok(vec![]));
        let several = json!([{"values": [[0, "1"]]}, {"values": [[0, "1"]]}]);
        assert_eq!(parse(&several).unwrap().single(), Err(AnswerError::SeveralSeries(2)));
    }

    #[test]
    fn values_of_series_are_named_by_a_label() {
        let answer = parse(&json!([
            {"metric": {"of": "cpu", "a": "b"}, "values": [[0, "1"], [60, "2"]]},
            {"metric": {}, "values": [[0, "3"]]},
        ]));
        let expected = [(String::new(), vec![(0, 3.0)]), ("cpu".to_owned(), vec![(0, 1.0), (60_000, 2.0)])];
        assert_eq!(answer.unwrap().into_values_by("of"), expected.into());
    }

    #[test]
    fn values_of_pods_are_added_at_each_time() {
        let answer = parse(&json!([
            {"metric": {"pod": "web-1"}, "values": [[0, "1"], [15, "2"]]},
            {"metric": {"pod": "web-2"}, "values": [[15, "4"], [30, "+Inf"]]},
            {"metric": {"pod": "other-1"}, "values": [[0, "100"], [45, "100"]]},
        ]));
        let is_pod = |pod: &str| pod.starts_with("web-");
        assert_eq!(answer.unwrap().sum_of_pods(is_pod), Ok(vec![(0, 1.0), (15_000, 6.0)]));
        let unnamed = parse(&json!([{"metric": {"a": "b"}, "values": [[0, "1"]]}])).unwrap();
        assert_eq!(unnamed.sum_of_pods(|_| true), Err(AnswerError::NoPod("{a=\"b\"}".to_owned())));
        let twice = json!({"metric": {"pod": "web-1"}, "values": [[0, "1"]]});
        let twice = parse(&json!([twice, twice])).unwrap();
        assert_eq!(twice.sum_of_pods(|_| true), Err(AnswerError::DuplicatePod("web-1".to_owned())));
    }

    #[test]
    fn unusable_answers_are_errors() {
        let many = json!([{"values": []}, {"values": []}, {"values": []}, {"values": []}]);
        assert_eq!(parse(&many), Err(AnswerError::TooManySeries(3)));
        assert_eq!(parse(&json!([{"histograms": [[0, {}]]}])), Err(AnswerError::Histogram));
        let error = parse(&json!([{"values": [[0, "x"]]}])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the answer is not one of Prometheus' query API: \"x\" is not a number"
        );
        let vector = br#"{"status": "success", "data": {"resultType": "vector", "result": []}}"#;
        assert_eq!(RangeAnswer::parse(vector, 3, false), Err(AnswerError::Type("vector".to_owned())));
        let refused = br#"{"status": "error", "errorType": "bad_data", "error": "no"}"#;
        let error = AnswerError::Refused("bad_data".to_owned(), "no".to_owned());
        assert_eq!(RangeAnswer::parse(refused, 3, false), Err(error));
        // An out-of-range time has no value.
        assert_eq!(parse(&json!([{"values": [[1e300, "1"]]}])).unwrap().single(), Ok(vec![]));
    }
}
