//! Times of day in readable form.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The time zone of printed times. Every printed time includes its offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Creates the zone UTC: `14:03:20Z`.
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Creates the zone UTC, or the zone of the system.
    pub(crate) fn local(utc: bool) -> Self {
        if utc { Self::utc() } else { Self(TimeZone::system()) }
    }

    /// Creates another zone: `14:03:20+02:00`.
    #[cfg(test)]
    pub fn new(zone: TimeZone) -> Self {
        Self(zone)
    }

    /// Formats the time of day, with the date unless `near` is on the same day.
    pub fn time(&self, at: Timestamp, near: Timestamp) -> String {
        let same_day = at.to_zoned(self.0.clone()).date() == near.to_zoned(self.0.clone()).date();
        self.format(at, if same_day { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" })
    }

    /// Formats date and time of day.
    pub fn full(&self, at: Timestamp) -> String {
        self.format(at, "%Y-%m-%d %H:%M:%S")
    }

    fn format(&self, at: Timestamp, format: &str) -> String {
        let local = at.to_zoned(self.0.clone());
        // The zone of the system may be UTC by another name, such as Etc/UTC in a container.
        let offset =
            if local.offset().is_zero() { "Z".to_owned() } else { local.strftime("%:z").to_string() };
        format!("{}{offset}", local.strftime(format))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_their_offset_and_a_date_only_on_another_day() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let berlin = Zone::new(TimeZone::fixed(jiff::tz::offset(2)));
        let now = at("2026-07-01T12:03:20Z");
        assert_eq!(berlin.time(now, now), "14:03:20+02:00");
        assert_eq!(Zone::utc().time(now, now), "12:03:20Z");
        let other_name = Zone::new(TimeZone::posix("GMT0").unwrap());
        assert_eq!(other_name.time(now, now), "12:03:20Z");
        assert_eq!(berlin.time(at("2026-06-30T21:59:59Z"), now), "2026-06-30 23:59:59+02:00");
        assert_eq!(Zone::utc().full(now), "2026-07-01 12:03:20Z");
    }
}
