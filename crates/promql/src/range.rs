//! Answers to range queries.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::answer::{AnswerError, data, malformed, printed, shown};

/// The values of one series.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    labels: BTreeMap<String, String>,
    /// Times in milliseconds since the Unix epoch, and finite values.
    values: Vec<(i64, f64)>,
}

/// The result of a range query: a matrix. Empty if no series matches.
#[derive(Debug, Clone, PartialEq)]
pub struct RangeAnswer {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Series {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
    #[serde(default)]
    histograms: Vec<serde::de::IgnoredAny>,
}

impl RangeAnswer {
    /// Reads the body of a response, of any status code, with at most `max_series` series. `allow_partial` accepts an
    /// answer with warnings or `isPartial`. Values that are not finite are omitted, because a sync at their times has
    /// no value.
    pub fn parse(body: &[u8], max_series: usize, allow_partial: bool) -> Result<Self, AnswerError> {
        let data = data(body, allow_partial)?;
        if data.result_type != "matrix" {
            return Err(AnswerError::Type(shown(&data.result_type)));
        }
        if data.result.as_array().map_or(0, Vec::len) > max_series {
            return Err(AnswerError::TooManySeries(max_series));
        }
        let series: Vec<Series> = serde_json::from_value(data.result).map_err(|error| malformed(&error))?;
        Ok(Self { rows: series.into_iter().map(Row::try_from).collect::<Result<_, _>>()? })
    }

    /// One number per time, in ascending order of time. Times are in milliseconds since the Unix epoch. A time with
    /// values of several series is an error, as it is for an instant query at this time.
    pub fn single(&self) -> Result<Vec<(i64, f64)>, AnswerError> {
        let mut by_time = BTreeMap::new();
        for (time, value) in self.rows.iter().flat_map(|row| &row.values) {
            if by_time.insert(*time, *value).is_some() {
                return Err(AnswerError::SeveralSeries(self.rows.len()));
            }
        }
        Ok(by_time.into_iter().collect())
    }

    /// The sum over the pods for which `is_pod` is true, by the label `pod`, in ascending order of time. Times are in
    /// milliseconds since the Unix epoch. A time without a value of such a pod is omitted.
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

impl TryFrom<Series> for Row {
    type Error = AnswerError;

    fn try_from(series: Series) -> Result<Self, AnswerError> {
        if !series.histograms.is_empty() {
            return Err(AnswerError::Histogram);
        }
        let mut values = Vec::with_capacity(series.values.len());
        for (time, text) in series.values {
            let value: f64 = text
                .parse()
                .map_err(|_| AnswerError::Malformed(format!("{:?} is not a number", shown(&text))))?;
            if let Some(time) = milliseconds(time).filter(|_| value.is_finite()) {
                values.push((time, value));
            }
        }
        Ok(Self { labels: series.metric, values })
    }
}

/// The nearest millisecond. `None` if the time is out of range.
fn milliseconds(seconds: f64) -> Option<i64> {
    let rounded = (seconds * 1e3).round();
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    let whole = rounded as i64;
    (rounded.abs() < 1e15).then_some(whole)
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
