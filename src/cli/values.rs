//! The types of flag values, parsed like pflag and Go parse them, with their error texts.

use std::net::IpAddr;

use autoscaling::go;
use autoscaling::quantity::Quantity;

use autoscaling::duration::GoDuration;

/// The type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true`, `false` and Go's other spellings. A flag without a value means true.
    Bool,
    /// A value of [`Kind::Bool`], or `raw`.
    Version,
    /// A 64-bit integer in decimal, hexadecimal, octal or binary form.
    Int,
    /// A 32-bit integer in decimal, hexadecimal, octal or binary form.
    Int32,
    /// A float32.
    Float32,
    /// A float64.
    Float64,
    /// A Go duration.
    Duration,
    /// Any text.
    String,
    /// Comma-separated texts. Several occurrences accumulate.
    Strings,
    /// Comma-separated integers.
    Int32s,
    /// Comma-separated `key=value` pairs.
    StringMap,
    /// An IP address.
    Ip,
    /// A `resource.Quantity`.
    Quantity,
    /// `certificate,key` and optionally `:domains`. Several occurrences accumulate.
    NamedCertKey,
    /// A log level, in digits only.
    Level,
    /// Comma-separated `pattern=N` pairs.
    ModuleLevels,
    /// Comma-separated `component:Gate=bool` items. Several occurrences accumulate.
    FeatureGates,
}

/// A flag's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A value of [`Kind::Bool`].
    Bool(bool),
    /// An integer or a level.
    Int(i64),
    /// A float.
    Float(f64),
    /// A value of [`Kind::Duration`].
    Duration(GoDuration),
    /// A value of [`Kind::Quantity`].
    Quantity(Quantity),
    /// A value of a kind that is kept as text.
    Text(String),
    /// A value of a kind with accumulating occurrences.
    List(Vec<String>),
}

impl Value {
    /// Merges another occurrence of the flag: extends a list, and replaces any other value.
    pub(super) fn accumulate(&mut self, next: Self) {
        match (self, next) {
            (Self::List(list), Self::List(more)) => list.extend(more),
            (value, next) => *value = next,
        }
    }
}

impl Kind {
    /// Returns the value of a flag that is given without a value, if the kind allows that.
    pub fn bare(self) -> Option<&'static str> {
        matches!(self, Self::Bool | Self::Version).then_some("true")
    }

    /// Returns the placeholder for a value of the kind in help texts.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Bool | Self::Version => "",
            Self::Int | Self::Int32 | Self::Level => "int",
            Self::Float32 | Self::Float64 => "float",
            Self::Duration => "duration",
            Self::String => "string",
            Self::Strings => "strings",
            Self::Int32s => "ints",
            Self::StringMap => "key=value,...",
            Self::Ip => "ip",
            Self::Quantity => "quantity",
            Self::NamedCertKey => "cert,key",
            Self::ModuleLevels => "pattern=N,...",
            Self::FeatureGates => "Gate=bool,...",
        }
    }

    /// Parses a value.
    ///
    /// # Errors
    /// Returns the reason, which continues the text `invalid argument "x" for "--flag" flag: `.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Bool => parse_bool(text).map(Value::Bool),
            Self::Version if text == "raw" => Ok(Value::Text(text.to_owned())),
            Self::Version => {
                parse_bool(text).map(|print| Value::Text(if print { "true".into() } else { String::new() }))
            }
            Self::Int => parse_int(text, 64).map(Value::Int),
            Self::Int32 => parse_int(text, 32).map(Value::Int),
            Self::Float32 => parse_float(text, f64::from(f32::MAX)).map(Value::Float),
            Self::Float64 => parse_float(text, f64::MAX).map(Value::Float),
            Self::Duration => text.parse().map(Value::Duration).map_err(|error| format!("{error}")),
            Self::String => Ok(Value::Text(text.to_owned())),
            Self::Strings => split_csv(text).map(Value::List),
            Self::Int32s => {
                for item in text.split(',') {
                    parse_int(item, 32)?;
                }
                Ok(Value::Text(text.to_owned()))
            }
            Self::StringMap => {
                for item in split_csv(text)? {
                    if !item.contains('=') {
                        return Err(format!("{item} must be formatted as key=value"));
                    }
                }
                Ok(Value::Text(text.to_owned()))
            }
            Self::Ip => {
                let address = text.trim();
                address
                    .parse::<IpAddr>()
                    .map(|_| Value::Text(address.to_owned()))
                    .map_err(|_| format!("failed to parse IP: {}", go::quote(text)))
            }
            Self::Quantity => text.parse().map(Value::Quantity).map_err(|error| format!("{error}")),
            Self::NamedCertKey => {
                let files = text.rsplit_once(':').map_or(text, |(files, _)| files);
                match files.split(',').map(str::trim).collect::<Vec<_>>().as_slice() {
                    [certificate, key] if !certificate.is_empty() && !key.is_empty() => {
                        Ok(Value::List(vec![text.to_owned()]))
                    }
                    _ => Err("expected comma separated certificate and key file paths".to_owned()),
                }
            }
            Self::Level => parse_level(text).map(Value::Int),
            Self::ModuleLevels => {
                for item in text.split(',').filter(|item| !item.is_empty()) {
                    let (_, level) = item
                        .split_once('=')
                        .filter(|(pattern, _)| !pattern.is_empty())
                        .ok_or_else(|| format!("{} does not have the pattern=N format", go::quote(item)))?;
                    parse_level(level)
                        .map_err(|error| format!("parsing verbosity in {}: {error}", go::quote(item)))?;
                }
                Ok(Value::Text(text.to_owned()))
            }
            Self::FeatureGates => {
                let gates = text.split(',').map(str::trim).filter(|gate| !gate.is_empty());
                Ok(Value::List(gates.map(str::to_owned).collect()))
            }
        }
    }

    /// Parses a default as pflag prints it: an empty text for the zero value, and lists in brackets.
    pub fn parse_default(self, text: &str) -> Option<Value> {
        let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let zero = match self {
            Self::Bool => "false",
            Self::Int | Self::Int32 | Self::Float32 | Self::Float64 | Self::Level | Self::Quantity => "0",
            Self::Duration => "0s",
            Self::Strings | Self::FeatureGates | Self::NamedCertKey if text.is_empty() => {
                return Some(Value::List(Vec::new()));
            }
            Self::Int32s | Self::StringMap | Self::Ip if text.is_empty() => {
                return Some(Value::Text(String::new()));
            }
            _ => "",
        };
        self.parse(if text.is_empty() { zero } else { text }).ok()
    }
}

/// Parses a boolean like `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(syntax("ParseBool", text)),
    }
}

fn syntax(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {}: invalid syntax", go::quote(text))
}

fn range(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {}: value out of range", go::quote(text))
}

/// Parses an integer like `strconv.ParseInt` with base 0: a prefix selects the base, and `_` may separate
/// digits.
fn parse_int(text: &str, bits: u32) -> Result<i64, String> {
    let invalid = || syntax("ParseInt", text);
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = unsigned.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, lower.get(2..)),
        [b'0', b'o', ..] => (8, lower.get(2..)),
        [b'0', b'b', ..] => (2, lower.get(2..)),
        [b'0', _, ..] => (8, lower.get(1..)),
        _ => (10, Some(lower.as_str())),
    };
    let digits = digits.unwrap_or_default();
    // An underscore separates two digits. A base prefix counts as a digit before the underscore.
    let separated = digits.split('_').skip(usize::from(base != 10)).all(|group| !group.is_empty());
    let plain = digits.replace('_', "");
    if plain.is_empty()
        || !separated
        || digits.ends_with('_')
        || !plain.chars().all(|digit| digit.is_digit(base))
    {
        return Err(invalid());
    }
    let limit = 1_i128 << (bits - 1);
    i128::from_str_radix(&plain, base)
        .ok()
        .map(|magnitude| if negative { -magnitude } else { magnitude })
        .filter(|number| (-limit..limit).contains(number))
        .and_then(|number| i64::try_from(number).ok())
        .ok_or_else(|| range("ParseInt", text))
}

/// Parses a log level like `strconv.ParseUint` with base 10 and 32 bits.
fn parse_level(text: &str) -> Result<i64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax("ParseUint", text));
    }
    text.parse::<u32>().map(i64::from).map_err(|_| range("ParseUint", text))
}

/// Parses a float like `strconv.ParseFloat`, without its hexadecimal form.
fn parse_float(text: &str, max: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| syntax("ParseFloat", text))?;
    let is_infinity = text.to_ascii_lowercase().contains("inf");
    if number.abs() > max && !is_infinity {
        return Err(range("ParseFloat", text));
    }
    Ok(number)
}

/// Splits one line of comma-separated values. A value may be in double quotes.
fn split_csv(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut values = Vec::new();
    let mut rest = text;
    loop {
        let (value, after) = if let Some(quoted) = rest.strip_prefix('"') {
            split_quoted(quoted)?
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let (value, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
            if value.contains('"') {
                return Err("parse error: bare \" in non-quoted-field".to_owned());
            }
            (value.to_owned(), after)
        };
        values.push(value);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(values),
        }
    }
}

/// Splits off a quoted value after its opening quote. Two quotes within the value mean one quote.
fn split_quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (before, after) =
            rest.split_once('"').ok_or("parse error: extraneous or missing \" in quoted-field")?;
        value.push_str(before);
        if let Some(next) = after.strip_prefix('"') {
            value.push('"');
            rest = next;
        } else if after.is_empty() || after.starts_with(',') {
            return Ok((value, after));
        } else {
            return Err("parse error: extraneous or missing \" in quoted-field".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_parsed_in_every_base_of_go() {
        let int = |text| Kind::Int32.parse(text);
        for (text, expected) in [
            ("5", 5),
            ("-5", -5),
            ("+5", 5),
            ("0x1F", 31),
            ("0b11", 3),
            ("0o17", 15),
            ("017", 15),
            ("1_000", 1000),
            ("0x_1f", 31),
        ] {
            assert_eq!(int(text), Ok(Value::Int(expected)), "{text}");
        }
        for text in ["", "x", "5 ", "08", "_1", "1_", "1__0", "--5", "0x", "0x+1"] {
            assert_eq!(int(text), Err(syntax("ParseInt", text)), "{text}");
        }
        assert_eq!(int("2147483648"), Err(range("ParseInt", "2147483648")));
        assert_eq!(int("-2147483648"), Ok(Value::Int(-2_147_483_648)));
    }

    #[test]
    fn floats_are_limited_to_their_width() {
        assert_eq!(Kind::Float32.parse("1e39"), Err(range("ParseFloat", "1e39")));
        assert_eq!(Kind::Float64.parse("1e39"), Ok(Value::Float(1e39)));
        assert_eq!(Kind::Float64.parse("-inf"), Ok(Value::Float(f64::NEG_INFINITY)));
        assert_eq!(Kind::Float64.parse(".5"), Ok(Value::Float(0.5)));
        assert_eq!(Kind::Float64.parse("0,5"), Err(syntax("ParseFloat", "0,5")));
    }

    #[test]
    fn list_values_with_commas_may_be_quoted() {
        let list = |items: &[&str]| Ok(Value::List(items.iter().map(ToString::to_string).collect()));
        assert_eq!(Kind::Strings.parse(r#"a,"b,""c""",,d"#), list(&["a", "b,\"c\"", "", "d"]));
        assert_eq!(Kind::Strings.parse(""), list(&[]));
        assert!(Kind::Strings.parse("a\"b").is_err());
        assert!(Kind::Strings.parse("\"a").is_err());
    }

    #[test]
    fn every_other_type_reports_the_go_error() {
        let error = |kind: Kind, text: &str| kind.parse(text).unwrap_err();
        assert_eq!(error(Kind::Bool, "yes"), "strconv.ParseBool: parsing \"yes\": invalid syntax");
        assert_eq!(error(Kind::Duration, "15"), "time: missing unit in duration \"15\"");
        assert_eq!(error(Kind::Ip, "10.0.0"), "failed to parse IP: \"10.0.0\"");
        assert_eq!(error(Kind::StringMap, "a"), "a must be formatted as key=value");
        assert_eq!(error(Kind::Quantity, "64mm"), "unable to parse quantity's suffix");
        assert_eq!(
            error(Kind::NamedCertKey, "a.crt"),
            "expected comma separated certificate and key file paths"
        );
        assert_eq!(error(Kind::ModuleLevels, "a"), "\"a\" does not have the pattern=N format");
        assert_eq!(error(Kind::Int32s, "1,x"), "strconv.ParseInt: parsing \"x\": invalid syntax");
        assert_eq!(error(Kind::Level, "-1"), "strconv.ParseUint: parsing \"-1\": invalid syntax");
    }
}
