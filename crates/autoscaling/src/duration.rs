//! Go's durations, with the results of `time.ParseDuration` and `Duration.String`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Go's `time.Duration`, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct GoDuration(pub i64);

/// The reason why a text is not a duration, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not have the syntax of a duration, or its value exceeds 64 bits.
    #[error("time: invalid duration {0}")]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {0}")]
    MissingUnit(String),
    /// A number has a unit that Go does not define, such as `d`.
    #[error("time: unknown unit {0} in duration {1}")]
    UnknownUnit(String, String),
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The magnitude of the most negative duration.
const LIMIT: u64 = 1 << 63;

impl GoDuration {
    /// Converts to [`Duration`]. Returns `None` if the value is negative.
    pub fn unsigned(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    /// Parses an optional sign, followed by one or more pairs of a decimal number and a unit. `0` needs no unit.
    ///
    /// # Errors
    /// Fails for a text without this syntax, and for a value beyond 64 bits of nanoseconds.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || DurationError::Invalid(quote(text));
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (whole, after) = split_while(rest, |character| character.is_ascii_digit());
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => split_while(after, |character| character.is_ascii_digit()),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            // As in Go, a number above 2⁶³ is reported before a missing unit.
            let whole = leading_integer(whole).ok_or_else(invalid)?;
            let (unit, after) =
                split_while(after, |character| character != '.' && !character.is_ascii_digit());
            rest = after;
            let unit = match unit {
                "" => return Err(DurationError::MissingUnit(quote(text))),
                "ns" => 1,
                "us" | "µs" | "μs" => MICROSECOND,
                "ms" => MILLISECOND,
                "s" => SECOND,
                "m" => MINUTE,
                "h" => HOUR,
                unknown => return Err(DurationError::UnknownUnit(quote(unknown), quote(text))),
            };
            let part = whole.checked_mul(unit).filter(|part| *part <= LIMIT).ok_or_else(invalid)?;
            total = part
                .checked_add(fraction_of(fraction, unit))
                .and_then(|part| total.checked_add(part))
                .filter(|total| *total <= LIMIT)
                .ok_or_else(invalid)?;
        }
        let nanos = if negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() };
        nanos.map(Self).ok_or_else(invalid)
    }
}

fn split_while(text: &str, condition: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|character| !condition(character)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Parses digits. An empty text is zero. `None` if the value exceeds 2⁶³.
fn leading_integer(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok().filter(|number| *number <= LIMIT)
}

/// The nanoseconds of a fraction of a unit, computed in float64 as in Go. Digits that would raise the number above 2⁶³
/// are dropped.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes().map(|digit| u64::from(digit & 0x0f)) {
        let next = number.checked_mul(10).and_then(|tenfold| tenfold.checked_add(digit));
        let Some(next) = next.filter(|next| *next <= LIMIT) else {
            break;
        };
        number = next;
        scale *= 10.0;
    }
    truncate(number as f64 * (unit as f64 / scale))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a fraction of at most an hour in nanoseconds is neither negative nor near 2⁶⁴"
)]
fn truncate(nanos: f64) -> u64 {
    nanos as u64
}

/// Prints `1h30m0s`, `1.5s`, `250ms` or `0s`. Values below one second have the largest unit with a nonzero integer
/// part. Other values have hours, minutes and seconds, from the largest unit that is not zero.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..MICROSECOND => write!(f, "{nanos}ns"),
            MICROSECOND..MILLISECOND => write_in(f, nanos, MICROSECOND, 3, "µs"),
            MILLISECOND..SECOND => write_in(f, nanos, MILLISECOND, 6, "ms"),
            SECOND.. => {
                if nanos >= HOUR {
                    write!(f, "{}h", nanos / HOUR)?;
                }
                if nanos >= MINUTE {
                    write!(f, "{}m", nanos % HOUR / MINUTE)?;
                }
                write_in(f, nanos % MINUTE, SECOND, 9, "s")
            }
        }
    }
}

/// Writes a decimal number with a unit, without trailing zeros of the fraction.
fn write_in(f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64, places: usize, name: &str) -> fmt::Result {
    write!(f, "{}", nanos / unit)?;
    if !nanos.is_multiple_of(unit) {
        let fraction = format!("{:0places$}", nanos % unit);
        write!(f, ".{}", fraction.trim_end_matches('0'))?;
    }
    f.write_str(name)
}

/// Quotes a text like the unexported `quote` of Go's package `time`. In contrast to `strconv.Quote`, it writes the
/// bytes of non-ASCII characters, and of characters below the blank, in hex.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        if !character.is_ascii() || character < ' ' {
            let mut buffer = [0; 4];
            for byte in character.encode_utf8(&mut buffer).bytes() {
                quoted.push_str("\\x");
                quoted.extend(
                    [byte >> 4, byte & 0x0f].map(|nibble| char::from_digit(nibble.into(), 16).unwrap_or('0')),
                );
            }
        } else {
            if matches!(character, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(character);
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::PathBuf;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Row {
        text: String,
        error: Option<String>,
        nanos: Option<i64>,
        printed: Option<String>,
    }

    /// `CONCERTINA_CONFORMANCE` selects a folder other than `tests/conformance`, with or without tables.
    #[test]
    fn durations_parse_and_print_as_recorded_from_go() {
        let named = std::env::var_os("CONCERTINA_CONFORMANCE").map(PathBuf::from);
        let replaced = named.is_some();
        let ours = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
        let folder = named.unwrap_or_else(ours).join("tables");
        if replaced && !folder.is_dir() {
            return;
        }
        let file = std::fs::File::open(folder.join("durations.jsonl.gz")).unwrap();
        let mut lines = String::new();
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut lines).unwrap();
        let mut rows = 0;
        for line in lines.lines() {
            let Row { text, error, nanos, printed } = serde_json::from_str(line).unwrap();
            let parsed = text.parse::<GoDuration>();
            let got_error = parsed.as_ref().err().map(ToString::to_string);
            let parsed = parsed.ok();
            let got =
                (got_error, parsed.map(|duration| duration.0), parsed.map(|duration| duration.to_string()));
            assert_eq!(got, (error, nanos, printed), "{text:?}");
            rows += 1;
        }
        assert!(rows > 0, "the table is empty");
    }

    #[test]
    fn the_most_negative_duration_parses_and_prints() {
        let text = "-9223372036854775808ns";
        assert_eq!(text.parse(), Ok(GoDuration(i64::MIN)));
        assert_eq!(GoDuration(i64::MIN).to_string(), "-2562047h47m16.854775808s");
        assert_eq!(
            text[1..].parse::<GoDuration>().unwrap_err().to_string(),
            format!("time: invalid duration {:?}", &text[1..])
        );
    }

    #[test]
    fn errors_quote_non_ascii_bytes_in_hex() {
        let error = "1é\n\"".parse::<GoDuration>().unwrap_err();
        assert_eq!(error.to_string(), r#"time: unknown unit "\xc3\xa9\x0a\"" in duration "1\xc3\xa9\x0a\"""#);
    }

    #[test]
    fn metric_windows_parse_and_malformed_texts_fail() {
        for (text, nanos) in [
            ("30s", 30_000_000_000),
            ("1m0s", 60_000_000_000),
            ("1h2m3.5s", 3_723_500_000_000),
            ("0", 0),
            ("0s", 0),
            (".5s", 500_000_000),
            ("-1.5ms", -1_500_000),
            ("14.871s", 14_871_000_000),
        ] {
            assert_eq!(text.parse(), Ok(GoDuration(nanos)), "{text}");
        }
        for text in ["", "30", "s", ".s", "1x", "99999999999h", "1.2.3s", "- 1s", "é"] {
            assert!(text.parse::<GoDuration>().is_err(), "{text}");
        }
    }
}
