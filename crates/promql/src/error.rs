//! The errors of answers.

/// Maximum length of a server's text in an error, in bytes.
const MAX_SHOWN: usize = 256;

/// An answer without usable numbers.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// The response is not an answer of the query API.
    #[error("the answer is not one of Prometheus' query API: {0}")]
    Malformed(String),
    /// The server reports an error. Contains the type and the text of the error.
    #[error("the server refused the query: {0}: {1}")]
    Refused(String, String),
    /// The answer may lack series. Contains the first warning.
    #[error("the answer may be incomplete: {0}")]
    Partial(String),
    /// The query does not return one number per series. Contains the type of the result.
    #[error("the query returns a {0}: it must return an instant vector or a scalar")]
    Type(String),
    /// A series has native histograms.
    #[error("the query returns a native histogram: apply histogram_quantile or another function to it")]
    Histogram,
    /// A value is NaN or infinite. Contains the value and the labels of its series.
    #[error("the query returns {0} for {1}: it must return finite numbers")]
    NotFinite(f64, String),
    /// The answer has too many series. Contains the limit.
    #[error("the query returns more than {0} series: aggregate them")]
    TooManySeries(usize),
    /// The series of the answer have too many labels. Contains the limit.
    #[error("the series of the query have more than {0} labels: aggregate them")]
    TooManyLabels(usize),
    /// A series has no label `pod`. Contains the labels of the series.
    #[error("the series {0} has no label pod: aggregate by (pod)")]
    NoPod(String),
    /// Two series have the same pod. Contains the name of the pod.
    #[error("several series have the pod {0}: aggregate by (pod)")]
    DuplicatePod(String),
    /// The answer has several series where one number is needed. Contains the number of series.
    #[error("the query returns {0} series: it must return one number")]
    SeveralSeries(usize),
}

pub(crate) fn malformed(error: &serde_json::Error) -> AnswerError {
    AnswerError::Malformed(shown(&error.to_string()))
}

pub(crate) fn number(text: &str) -> Result<f64, AnswerError> {
    text.parse().map_err(|_| AnswerError::Malformed(format!("{:?} is not a number", shown(text))))
}

/// Returns a server's text as one line, truncated to [`MAX_SHOWN`] bytes.
pub(crate) fn shown(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_SHOWN);
    let cut = text.get(..end).unwrap_or_default().replace(char::is_control, " ");
    if end < text.len() { format!("{cut}…") } else { cut }
}
