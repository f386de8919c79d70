//! Ages as `kubectl` prints them: two or three significant figures.

use jiff::Timestamp;

/// Returns the time since a timestamp, or `<unknown>` if it is absent.
pub(super) fn since(timestamp: &str, now: Timestamp) -> String {
    let Ok(then) = timestamp.parse::<Timestamp>() else { return "<unknown>".to_owned() };
    human(now.duration_since(then).as_secs())
}

/// Prints seconds as Kubernetes' `duration.HumanDuration` does.
fn human(seconds: i64) -> String {
    let with_rest = |whole: String, rest: i64, unit: char| {
        if rest == 0 { whole } else { format!("{whole}{rest}{unit}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => with_rest(format!("{minutes}m"), seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => with_rest(format!("{hours}h"), minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => with_rest(format!("{days}d"), hours % 24, 'h'),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => with_rest(format!("{}y", days / 365), days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn durations_print_as_in_kubectl() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (800_000, "9d"),
            (800 * 86_400, "2y70d"),
            (-5, "<invalid>"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
