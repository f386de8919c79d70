//! Answers to instant queries.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The longest text of a server that an error shows, in bytes.
const MAX_SHOWN: usize = 256;

/// A value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The labels, with `__name__` if the query keeps it.
    pub labels: BTreeMap<String, String>,
    /// The value, a finite number.
    pub value: f64,
    /// The time that the server reports for the value, in seconds since the Unix epoch. Usually the time of the query.
    pub time: f64,
}

/// The result of an instant query.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Values with labels. Empty if no series matches, which is neither 0 nor an error.
    Vector(Vec<Sample>),
    /// A number.
    Scalar(f64),
}

/// An answer that no count can be computed from.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// The response is not an answer of the query API.
    #[error("the answer is not one of Prometheus' query API: {0}")]
    Malformed(String),
    /// The server reports an error. Holds its type and text.
    #[error("the server refused the query: {0}: {1}")]
    Refused(String, String),
    /// The answer may lack series. Holds the first warning.
    #[error("the answer may be incomplete: {0}")]
    Partial(String),
    /// The query returns a type that is not a number per series. Holds the type.
    #[error("the query returns a {0}: it must return an instant vector or a scalar")]
    Type(String),
    /// A series holds a native histogram.
    #[error("the query returns a native histogram: apply histogram_quantile or another function to it")]
    Histogram,
    /// A value is NaN or infinite.
    #[error("the query returns {0} for {1}: it must return finite numbers")]
    NotFinite(f64, String),
    /// The answer has too many series. Holds the limit.
    #[error("the query returns more than {0} series: aggregate them")]
    TooManySeries(usize),
    /// A series has no label `pod`. Holds its labels.
    #[error("the series {0} has no label pod: aggregate by (pod)")]
    NoPod(String),
    /// Two series have the same pod. Holds its name.
    #[error("several series have the pod {0}: aggregate by (pod)")]
    DuplicatePod(String),
    /// The answer has several series where one number is needed. Holds the number of series.
    #[error("the query returns {0} series: it must return one number")]
    SeveralSeries(usize),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status: String,
    #[serde(default)]
    data: Option<Data>,
    #[serde(default)]
    error_type: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    /// VictoriaMetrics: a part of its storage did not answer.
    #[serde(default)]
    is_partial: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Data {
    pub(crate) result_type: String,
    pub(crate) result: serde_json::Value,
}

#[derive(Deserialize)]
struct Series {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    value: Option<(f64, String)>,
}

/// The data of a response of any status code.
pub(crate) fn data(body: &[u8], allow_partial: bool) -> Result<Data, AnswerError> {
    let response: Response = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    if response.status != "success" {
        return Err(AnswerError::Refused(shown(&response.error_type), shown(&response.error)));
    }
    if !allow_partial {
        if let Some(warning) = response.warnings.iter().flatten().next() {
            return Err(AnswerError::Partial(shown(warning)));
        }
        if response.is_partial {
            return Err(AnswerError::Partial("a part of the storage did not answer".to_owned()));
        }
    }
    response.data.ok_or_else(|| AnswerError::Malformed("data is missing".to_owned()))
}

pub(crate) fn malformed(error: &serde_json::Error) -> AnswerError {
    AnswerError::Malformed(shown(&error.to_string()))
}

impl Answer {
    /// Reads the body of a response, of any status code, with at most `max_series` series. `allow_partial` accepts an
    /// answer with warnings or `isPartial`.
    pub fn parse(body: &[u8], max_series: usize, allow_partial: bool) -> Result<Self, AnswerError> {
        let data = data(body, allow_partial)?;
        match data.result_type.as_str() {
            "vector" => {
                let count = data.result.as_array().map_or(0, Vec::len);
                if count > max_series {
                    return Err(AnswerError::TooManySeries(max_series));
                }
                let series: Vec<Series> =
                    serde_json::from_value(data.result).map_err(|error| malformed(&error))?;
                Ok(Self::Vector(series.into_iter().map(Sample::try_from).collect::<Result<_, _>>()?))
            }
            "scalar" => {
                let (_, value): (f64, String) =
                    serde_json::from_value(data.result).map_err(|error| malformed(&error))?;
                Ok(Self::Scalar(finite(&value, || "the scalar".to_owned())?))
            }
            other => Err(AnswerError::Type(shown(other))),
        }
    }

    /// One number. `None` for an empty vector.
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

    /// The value of each pod, by the label `pod`.
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
        let value = finite(&value, || printed(&series.metric))?;
        Ok(Self { labels: series.metric, value, time })
    }
}

fn finite(text: &str, subject: impl FnOnce() -> String) -> Result<f64, AnswerError> {
    let value: f64 =
        text.parse().map_err(|_| AnswerError::Malformed(format!("{:?} is not a number", shown(text))))?;
    if value.is_finite() { Ok(value) } else { Err(AnswerError::NotFinite(value, subject())) }
}

pub(crate) fn printed(labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    shown(&format!("{{{}}}", labels.join(",")))
}

/// A text of a server, on one line and cut.
pub(crate) fn shown(text: &str) -> String {
    let mut end = text.len().min(MAX_SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let cut = text.get(..end).unwrap_or_default().replace(char::is_control, " ");
    if end < text.len() { format!("{cut}…") } else { cut }
}
