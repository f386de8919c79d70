//! The scalar values of a scenario file: durations, quantities, shares and times. The error about an invalid value
//! contains the expected format.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use autoscaling::duration::GoDuration;
use autoscaling::quantity::Quantity;
use jiff::Timestamp;
use jiff::civil::Time as TimeOfDay;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// The default start of a scenario: midnight of a Monday.
const MONDAY: &str = "2030-01-07T00:00:00Z";

/// A duration in Go's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Length(pub(crate) Duration);

/// A Kubernetes quantity that is not negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub(crate) struct Amount(pub(crate) f64);

/// A fraction, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub(crate) struct Share(pub(crate) f64);

/// The start of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start(pub(crate) Timestamp);

/// The value of a flag as a text. The file may contain a text, a number or a boolean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlagText(pub(crate) String);

impl Default for Start {
    fn default() -> Self {
        Self(MONDAY.parse().unwrap_or(Timestamp::UNIX_EPOCH))
    }
}

/// The error about a text that is not a valid value of its type.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("invalid {what} {text:?}: must be {form}")]
    Format { text: String, what: &'static str, form: &'static str },
    #[error("invalid {what} {text:?}: must not be negative")]
    Negative { text: String, what: &'static str },
}

impl Length {
    fn read(text: &str) -> Result<Self, ValueError> {
        let (text, what, form) = (text.to_owned(), "duration", "a value such as 30s or 1h30m");
        match text.parse::<GoDuration>().map(GoDuration::unsigned) {
            Ok(Some(duration)) => Ok(Self(duration)),
            Ok(None) => Err(ValueError::Negative { text, what }),
            Err(_) => Err(ValueError::Format { text, what, form }),
        }
    }
}

impl Amount {
    fn read(text: &str) -> Result<Self, ValueError> {
        let (text, what, form) = (text.to_owned(), "quantity", "a value such as 250m, 1.5 or 64Mi");
        match text.parse::<Quantity>().map(Quantity::as_f64) {
            Ok(amount) if amount < 0.0 => Err(ValueError::Negative { text, what }),
            Ok(amount) => Ok(Self(amount)),
            Err(_) => Err(ValueError::Format { text, what, form }),
        }
    }
}

impl Share {
    fn read(text: &str) -> Result<Self, ValueError> {
        let number = match text.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
            None => text.parse::<f64>(),
        };
        let number = number.ok().filter(|number| (0.0..=1.0).contains(number));
        number.map(Self).ok_or_else(|| ValueError::Format {
            text: text.to_owned(),
            what: "share",
            form: "from 0 to 1, or from 0% to 100%",
        })
    }
}

impl Start {
    fn read(text: &str) -> Result<Self, ValueError> {
        if let Ok(start) = text.parse::<Timestamp>() {
            return Ok(Self(start));
        }
        let at = ["%H:%M", "%H:%M:%S"].iter().find_map(|form| TimeOfDay::strptime(form, text).ok());
        let since =
            at.and_then(|at| Self::default().0.checked_add(at.duration_since(TimeOfDay::midnight())).ok());
        since.map(Self).ok_or_else(|| ValueError::Format {
            text: text.to_owned(),
            what: "time",
            form: "a value such as 08:00 (of a Monday, UTC) or 2030-01-07T00:00:00Z",
        })
    }
}

/// A value that a scenario file contains as text.
trait Written: Sized {
    /// The expected format, for the error about a value of another type.
    const WHAT: &'static str;
    /// Whether YAML numbers and booleans are also read, by their text.
    const NUMBERS: bool;

    fn from_text(text: &str) -> Result<Self, ValueError>;
}

macro_rules! written {
    ($type:ty, $name:literal, $what:literal, numbers: $numbers:literal, schema: $schema:tt) => {
        impl Written for $type {
            const WHAT: &'static str = $what;
            const NUMBERS: bool = $numbers;

            fn from_text(text: &str) -> Result<Self, ValueError> {
                Self::read(text)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(WrittenVisitor(std::marker::PhantomData))
            }
        }

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                false
            }

            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

written!(Length, "Duration", "a duration such as 30s or 1h30m", numbers: false, schema: {
    "description": "A duration in Go's format, such as 90s, 1m30s or 250ms.",
    "type": "string",
    "pattern": r"^\+?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$",
});
written!(Amount, "Quantity", "a quantity such as 250m, 1.5 or 64Mi", numbers: true, schema: {
    "description": "A Kubernetes quantity, such as 250m, 1.5 or 64Mi.",
    "type": ["string", "number"],
    "minimum": 0,
});
written!(Share, "Share", "a share from 0 to 1, or from 0% to 100%", numbers: true, schema: {
    "description": "A share of something, from 0 to 1 or from 0% to 100%.",
    "type": ["string", "number"],
    "minimum": 0,
    "maximum": 1,
});
written!(Start, "Start", "a time such as 08:00 or 2030-01-07T00:00:00Z", numbers: false, schema: {
    "description": "A time such as 2030-01-07T00:00:00Z, or a time of day such as 08:00, of Monday 2030-01-07 in UTC.",
    "type": "string",
});

impl FlagText {
    #[expect(clippy::unnecessary_wraps, reason = "as its siblings")]
    fn read(text: &str) -> Result<Self, ValueError> {
        Ok(Self(text.to_owned()))
    }
}

written!(FlagText, "FlagValue", "the value of a flag", numbers: true, schema: {
    "description": "The value of a flag, as on a command line.",
    "type": ["string", "number", "boolean"],
});

struct WrittenVisitor<T>(std::marker::PhantomData<T>);

impl<T: Written> WrittenVisitor<T> {
    fn number<E: de::Error>(number: impl fmt::Display) -> Result<T, E> {
        let text = number.to_string();
        if T::NUMBERS {
            T::from_text(&text).map_err(E::custom)
        } else {
            Err(E::custom(format!("{text} is not {}", T::WHAT)))
        }
    }
}

impl<T: Written> Visitor<'_> for WrittenVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        Self::number(number)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        Self::number(number)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        Self::number(number)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<T, E> {
        Self::number(value)
    }
}

/// Implements the deserialization and the JSON schema of an enum with one variant for a scalar and one for a map.
/// Unlike an untagged enum of serde, the enum keeps the error of the variant that the input selects.
macro_rules! either {
    (
        $type:ident, $name:literal, $what:literal,
        scalar: $scalar:ident($of_scalar:ty), map: $map:ident($of_map:ty), with: $wrap:expr
    ) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Either;

                impl Either {
                    fn scalar<E: serde::de::Error>(
                        value: impl serde::de::IntoDeserializer<'static, E>,
                    ) -> Result<$type, E> {
                        <$of_scalar as serde::Deserialize>::deserialize(value.into_deserializer())
                            .map($type::$scalar)
                    }
                }

                impl<'de> serde::de::Visitor<'de> for Either {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($what)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        Self::scalar(text.to_owned())
                    }

                    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<$type, E> {
                        Self::scalar(number)
                    }

                    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<$type, E> {
                        Self::scalar(number)
                    }

                    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<$type, E> {
                        Self::scalar(number)
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$type, A::Error> {
                        let map = serde::de::value::MapAccessDeserializer::new(map);
                        <$of_map as serde::Deserialize>::deserialize(map).map($wrap).map($type::$map)
                    }
                }

                from.deserialize_any(Either)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let scalar = generator.subschema_for::<$of_scalar>();
                let map = generator.subschema_for::<$of_map>();
                schemars::json_schema!({ "anyOf": [scalar, map] })
            }
        }
    };
}

pub(super) use either;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<T: for<'de> Deserialize<'de>>(value: serde_json::Value) -> Result<T, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn length_parses_go_durations() {
        assert_eq!(read(json!("1m30s")), Ok(Length(Duration::from_secs(90))));
        assert_eq!(
            read::<Length>(json!("fast")).unwrap_err(),
            "invalid duration \"fast\": must be a value such as 30s or 1h30m"
        );
        assert_eq!(read::<Length>(json!(30)).unwrap_err(), "30 is not a duration such as 30s or 1h30m");
        assert!(read::<Length>(json!("-5s")).unwrap_err().contains("must not be negative"));
        assert!(read::<Length>(json!([])).unwrap_err().contains("expected a duration such as 30s"));
    }

    #[test]
    fn amount_parses_quantities() {
        assert_eq!(read(json!("250m")), Ok(Amount(0.25)));
        assert_eq!(read(json!(2.5)), Ok(Amount(2.5)));
        assert_eq!(read(json!("1Ki")), Ok(Amount(1024.0)));
        assert_eq!(
            read::<Amount>(json!("many")).unwrap_err(),
            "invalid quantity \"many\": must be a value such as 250m, 1.5 or 64Mi"
        );
        assert!(read::<Amount>(json!(-1)).unwrap_err().contains("must not be negative"));
    }

    #[test]
    fn share_parses_fractions_and_percentages() {
        assert_eq!(read(json!("25%")), Ok(Share(0.25)));
        assert_eq!(read(json!(0.5)), Ok(Share(0.5)));
        for wrong in [json!(2), json!("150%"), json!("half")] {
            assert!(read::<Share>(wrong).unwrap_err().contains("must be from 0 to 1, or from 0% to 100%"));
        }
    }

    #[test]
    fn start_parses_times_and_times_of_day() {
        let at = |text: &str| Start(text.parse().unwrap());
        assert_eq!(read(json!("08:30")), Ok(at("2030-01-07T08:30:00Z")));
        assert_eq!(read(json!("2031-05-06T07:08:09Z")), Ok(at("2031-05-06T07:08:09Z")));
        assert!(read::<Start>(json!("noon")).unwrap_err().contains("must be a value such as 08:00"));
    }

    #[test]
    fn flag_text_accepts_scalars_of_any_type() {
        for (value, text) in
            [(json!(0.2), "0.2"), (json!("1m"), "1m"), (json!(true), "true"), (json!(5), "5")]
        {
            assert_eq!(read(value), Ok(FlagText(text.to_owned())));
        }
    }
}
