//! Go's durations, as PodMetrics writes its window: `30s`, `1m0.5s`.

/// Nanoseconds; `None` if it is no duration or does not fit.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at_checked(number)?;
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit)?;
        rest = after;
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        // Finer than a nanosecond is cut off; 18 digits are more than any unit can show.
        let fraction = fraction.get(..18).unwrap_or(fraction);
        if !fraction.is_empty() {
            let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            total = total.checked_add(fraction.parse::<i128>().ok()?.checked_mul(unit)? / scale)?;
        }
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn go_durations_are_read_and_others_refused() {
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
            assert_eq!(parse(text), Some(nanos), "{text}");
        }
        for text in ["", "30", "s", ".s", "1x", "99999999999h", "1.2.3s", "- 1s", "é"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
