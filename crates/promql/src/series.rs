//! Decodes the series of an answer one by one, and stops at the first one beyond a limit. As a tree of values, a hostile
//! answer would take up to 80 times its length.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use limits::answer::LABELS as MAX_LABELS;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{AnswerError, malformed, number};

/// A series of an instant vector or of a matrix.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Series {
    pub(crate) labels: BTreeMap<String, String>,
    /// The time in seconds and the value of an instant vector.
    pub(crate) value: Option<(f64, String)>,
    /// Pairs of a time of a matrix, in milliseconds since the Unix epoch, and a finite value.
    pub(crate) values: Vec<(i64, f64)>,
    /// Whether a series of a matrix has native histograms.
    pub(crate) has_histograms: bool,
}

/// Decodes a list of at most `max_series` series.
pub(crate) fn decode(list: &RawValue, max_series: usize) -> Result<Vec<Series>, AnswerError> {
    let limits = Limits { max_series, labels_left: Cell::new(MAX_LABELS), failure: RefCell::default() };
    let series = SeriesList(&limits).deserialize(&mut serde_json::Deserializer::from_str(list.get()));
    series.map_err(|error| limits.failure.take().unwrap_or_else(|| malformed(&error)))
}

struct Limits {
    max_series: usize,
    labels_left: Cell<usize>,
    /// The reason of an error of the decoder, which can contain only a text.
    failure: RefCell<Option<AnswerError>>,
}

impl Limits {
    fn fail<E: serde::de::Error>(&self, failure: AnswerError) -> E {
        let error = E::custom(&failure);
        self.failure.replace(Some(failure));
        error
    }
}

struct SeriesList<'a>(&'a Limits);
struct OneSeries<'a>(&'a Limits);
struct Labels<'a>(&'a Limits);
struct Points<'a>(&'a Limits);

impl<'de> DeserializeSeed<'de> for SeriesList<'_> {
    type Value = Vec<Series>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SeriesList<'_> {
    type Value = Vec<Series>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(series) = list.next_element_seed(OneSeries(self.0))? {
            if all.len() == self.0.max_series {
                return Err(self.0.fail(AnswerError::TooManySeries(self.0.max_series)));
            }
            all.push(series);
        }
        Ok(all)
    }
}

impl<'de> DeserializeSeed<'de> for OneSeries<'_> {
    type Value = Series;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OneSeries<'_> {
    type Value = Series;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Series, A::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Field {
            Metric,
            Value,
            Values,
            Histograms,
            #[serde(other)]
            Other,
        }
        let mut series = Series::default();
        while let Some(field) = fields.next_key()? {
            match field {
                Field::Metric => series.labels = fields.next_value_seed(Labels(self.0))?,
                Field::Value => series.value = fields.next_value()?,
                Field::Values => series.values = fields.next_value_seed(Points(self.0))?,
                Field::Histograms => {
                    // A list of nothing takes no memory.
                    series.has_histograms = !fields.next_value::<Vec<IgnoredAny>>()?.is_empty();
                }
                Field::Other => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(series)
    }
}

impl<'de> DeserializeSeed<'de> for Labels<'_> {
    type Value = BTreeMap<String, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Labels<'_> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut labels: A) -> Result<Self::Value, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((name, value)) = labels.next_entry()? {
            let left = self.0.labels_left.get().checked_sub(1);
            let left = left.ok_or_else(|| self.0.fail::<A::Error>(AnswerError::TooManyLabels(MAX_LABELS)))?;
            self.0.labels_left.set(left);
            all.insert(name, value);
        }
        Ok(all)
    }
}

impl<'de> DeserializeSeed<'de> for Points<'_> {
    type Value = Vec<(i64, f64)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Points<'_> {
    type Value = Vec<(i64, f64)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut points = Vec::new();
        while let Some((time, text)) = list.next_element::<(f64, Cow<'_, str>)>()? {
            let value = number(&text).map_err(|failure| self.0.fail::<A::Error>(failure))?;
            if let Some(time) = milliseconds(time).filter(|_| value.is_finite()) {
                points.push((time, value));
            }
        }
        Ok(points)
    }
}

/// Rounds to the nearest millisecond. `None` if the time is out of range.
fn milliseconds(seconds: f64) -> Option<i64> {
    let rounded = (seconds * 1e3).round();
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    let whole = rounded as i64;
    (rounded.abs() < 1e15).then_some(whole)
}

/// The first text of a list.
#[derive(Debug, Default)]
pub(crate) struct First(pub(crate) Option<String>);

impl<'de> Deserialize<'de> for First {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = First;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<First, A::Error> {
                let first = list.next_element()?;
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(First(first))
            }
        }
        deserializer.deserialize_seq(Texts)
    }
}
