//! Floats as Go reads and prints them.

/// Reads a number as Prometheus does: `strconv.ParseFloat` without hexadecimal floats and underscores. A number that is
/// too large for a 64-bit float is invalid.
pub(crate) fn parse(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let signless = text.strip_prefix(['+', '-']).unwrap_or(text);
    let first = signless.bytes().next()?;
    let value: f64 = text.parse().ok()?;
    if first.is_ascii_alphabetic() {
        // Go has no signed NaN.
        return (value.is_infinite() || text.len() == signless.len()).then_some(value);
    }
    value.is_finite().then_some(value)
}

/// A value of the label `le` or `quantile` as Prometheus stores it: `1` becomes `1.0`. `None` for a text that
/// is not a number, and for hexadecimal floats, which no exporter prints.
pub(crate) fn canonical_label(text: &str) -> Option<String> {
    let value = parse(text.as_bytes())?;
    Some(if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else if value == 0.0 {
        "0.0".to_owned()
    } else {
        let mut printed = shortest(value);
        if !printed.contains(['e', '.']) {
            printed.push_str(".0");
        }
        printed
    })
}

/// Go's `strconv.FormatFloat(value, 'g', -1, 64)` of a finite value.
fn shortest(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(-4..=5) | Err(_) => format!("{value}"),
        Ok(exponent) => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_go() {
        for (text, expected) in [
            ("1", Some(1.0)),
            ("-0.5e3", Some(-500.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("+Inf", Some(f64::INFINITY)),
            ("-infinity", Some(f64::NEG_INFINITY)),
            ("1e308", Some(1e308)),
            ("1e-400", Some(0.0)),
            ("1e400", None),
            ("infi", None),
            ("+nan", None),
            ("0x10", None),
            ("0x1p3", None),
            ("1_000", None),
            ("1e", None),
            (".", None),
            ("-", None),
            ("", None),
            ("\u{0661}", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
        assert!(parse(b"NaN").is_some_and(f64::is_nan));
        assert_eq!(parse(b"\xff"), None);
    }

    #[test]
    fn label_values_of_buckets_are_canonical() {
        for (text, expected) in [
            ("1", Some("1.0")),
            ("1.0", Some("1.0")),
            ("-0", Some("0.0")),
            ("0.005", Some("0.005")),
            ("0.00001", Some("1e-05")),
            ("100000", Some("100000.0")),
            ("1000000", Some("1e+06")),
            ("1.234567e6", Some("1.234567e+06")),
            ("1e100", Some("1e+100")),
            ("+Inf", Some("+Inf")),
            ("inf", Some("+Inf")),
            ("nan", Some("NaN")),
            ("many", None),
        ] {
            assert_eq!(canonical_label(text).as_deref(), expected, "{text}");
        }
    }
}
