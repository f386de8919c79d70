//! Refused writes of the built-in controller. The API server sends a write to any replica, but only the leader takes
//! charge of HPAs. A standby therefore reports the refusals of its webhook with its next request for the leader's
//! histories. A query parameter contains the age of each refusal in milliseconds, and the namespace and name of its
//! HPA:
//!
//! ```text
//! refused=40.shop/web,1200.shop/api
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

use super::{Charges, Input};
use crate::store::Key;

/// Maximum number of HPAs with an unreported refusal. Refusals of further HPAs are dropped, because the built-in
/// controller retries a refused write in its next period.
const MOST: usize = 4096;
/// Maximum length of a report, in bytes. The server limits the request line and the headers together to 8 KiB.
const LONGEST: usize = 4096;
/// Maximum age of a refusal in a report.
const OLDEST: Duration = Duration::from_mins(1);

/// The ASCII characters of a report that are percent-encoded.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'/').remove(b',');

/// The refusals of a standby that it has not reported to the leader.
#[derive(Debug, Default)]
pub(super) struct Unreported {
    last_by_hpa: BTreeMap<Key, Instant>,
    /// The last HPA of the last report. The next report continues after this HPA.
    reported_to: Option<Key>,
}

/// The refusals in one request to the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The value of the parameter `refused`, percent-encoded.
    pub text: String,
    refusals: Vec<(Key, Instant)>,
}

/// A refusal in the report of a standby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The namespace and name of the HPA.
    pub key: Key,
    /// The time since the refusal.
    pub age: Duration,
}

/// The reason why a report cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not AGE.NAMESPACE/NAME with an age in milliseconds")]
pub struct RefusalError(String);

impl Unreported {
    fn add(&mut self, key: &Key, at: Instant) {
        if self.last_by_hpa.len() < MOST || self.last_by_hpa.contains_key(key) {
            self.last_by_hpa.insert(key.clone(), at);
        }
    }

    /// Returns the next report. `None` without refusals.
    fn report(&mut self, now: Instant) -> Option<Report> {
        self.last_by_hpa.retain(|_, at| now.saturating_duration_since(*at) <= OLDEST);
        let after = self.reported_to.take();
        let is_behind = |key: &Key| after.as_ref().is_none_or(|after| key > after);
        let behind = self.last_by_hpa.iter().filter(|(key, _)| is_behind(key));
        let before = self.last_by_hpa.iter().filter(|(key, _)| !is_behind(key));
        let (mut text, mut refusals) = (String::new(), Vec::new());
        for (key, at) in behind.chain(before) {
            let separator = if text.is_empty() { "" } else { "," };
            let age = now.saturating_duration_since(*at).as_millis();
            let entry = format!("{separator}{age}.{}/{}", key.namespace, key.name);
            let entry = utf8_percent_encode(&entry, PLAIN).to_string();
            if text.len() + entry.len() > LONGEST {
                break;
            }
            text.push_str(&entry);
            refusals.push((key.clone(), *at));
        }
        self.reported_to = refusals.last().map(|(key, _)| key.clone());
        (!refusals.is_empty()).then_some(Report { text, refusals })
    }

    /// Drops the refusals of a report, except those of HPAs with a later refusal.
    fn reported(&mut self, report: &Report) {
        for (key, at) in &report.refusals {
            if self.last_by_hpa.get(key) == Some(at) {
                self.last_by_hpa.remove(key);
            }
        }
    }
}

impl Refusal {
    /// Reads the value of the parameter `refused`, without percent-encoding.
    ///
    /// # Errors
    /// Returns [`RefusalError`] for the first malformed entry.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, RefusalError> {
        text.split(',').filter(|entry| !entry.is_empty()).map(Self::parse).collect()
    }

    fn parse(entry: &str) -> Result<Self, RefusalError> {
        let parts = || {
            let (age, key) = entry.split_once('.')?;
            let (namespace, name) = key.split_once('/')?;
            let age = Duration::from_millis(age.parse().ok()?);
            Some(Self { key: Key::new(namespace, name), age })
        };
        parts().ok_or_else(|| RefusalError(entry.chars().take(64).collect()))
    }
}

impl Charges {
    /// Records that this replica refused a write of the built-in controller about an HPA. The refusal proves the guard
    /// for this HPA. Does nothing for an HPA out of scope.
    pub fn write_refused(&self, namespace: &str, hpa: &str, now: Instant) {
        self.refused(&Key::new(namespace, hpa), now, Duration::ZERO, true);
    }

    /// Records the refusals of a standby. Ignores HPAs out of scope, and refusals that are older than one minute.
    pub fn refused_by_standby(&self, refusals: &[Refusal], now: Instant) {
        for Refusal { key, age } in refusals.iter().filter(|refusal| refusal.age <= OLDEST) {
            self.refused(key, now, *age, false);
        }
    }

    /// Returns the refusals of this replica for the next request to the leader. `None` without refusals.
    pub fn unreported(&self, now: Instant) -> Option<Report> {
        self.inner.lock().unreported.report(now)
    }

    /// Records that the leader has received a report.
    pub fn reported(&self, report: &Report) {
        self.inner.lock().unreported.reported(report);
    }

    fn refused(&self, key: &Key, now: Instant, age: Duration, is_own: bool) {
        let age_of_clock = SignedDuration::try_from(age).unwrap_or(SignedDuration::ZERO);
        let at = self.clock.now();
        let refused_at = at.checked_sub(age_of_clock).unwrap_or(at);
        let Some(since) = now.checked_sub(age) else { return };
        self.change(|inner| {
            let Some(entry) = inner.hpas.get_mut(key) else { return };
            entry.last_refused_write = entry.last_refused_write.max(Some(refused_at));
            inner.last_proof = inner.last_proof.max(Some(refused_at));
            if is_own && !inner.leads {
                inner.unreported.add(key, since);
            }
            inner.step(key, Input::Refused { at: since }, now, at);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("shop", name)
    }

    #[test]
    fn report_round_trips_with_ages() {
        let (start, mut unreported) = (Instant::now(), Unreported::default());
        assert_eq!(unreported.report(start), None);
        unreported.add(&key("web.v1-b"), start);
        unreported.add(&key("api"), start + Duration::from_millis(700));
        let report = unreported.report(start + Duration::from_secs(1)).unwrap();
        assert_eq!(report.text, "300.shop/api,1000.shop/web.v1-b");
        let read = Refusal::parse_all(&report.text).unwrap();
        let expected = [("api", 300), ("web.v1-b", 1000)];
        let expected =
            expected.map(|(name, age)| Refusal { key: key(name), age: Duration::from_millis(age) });
        assert_eq!(read, expected);
        // A refusal after the report remains unreported.
        unreported.add(&key("api"), start + Duration::from_secs(1));
        unreported.reported(&report);
        assert_eq!(unreported.report(start + Duration::from_secs(2)).unwrap().text, "1000.shop/api");
        assert_eq!(unreported.report(start + Duration::from_secs(62)), None);
    }

    #[test]
    fn reports_are_bounded_and_take_turns() {
        let (start, mut unreported) = (Instant::now(), Unreported::default());
        for index in 0..MOST + 10 {
            unreported.add(&key(&format!("{index:05}-{}", "a".repeat(240))), start);
        }
        let mut reported = 0;
        let mut first = Vec::new();
        while reported < MOST {
            let report = unreported.report(start).unwrap();
            assert!(report.text.len() <= LONGEST);
            reported += report.refusals.len();
            // The request fails, and the next report continues.
            first.push(report.refusals[0].0.clone());
        }
        first.dedup();
        assert_eq!(first.len(), MOST.div_ceil(16));
        let report = unreported.report(start).unwrap();
        unreported.reported(&report);
        assert_eq!(unreported.last_by_hpa.len(), MOST - report.refusals.len());
    }

    #[test]
    fn report_of_another_form_is_refused() {
        assert_eq!(Refusal::parse_all(""), Ok(vec![]));
        for wrong in ["1", "1.a", "x.a/b", "-1.a/b", "1.5", "1.a/b,,2"] {
            assert!(Refusal::parse_all(wrong).is_err(), "{wrong}");
        }
        assert!(Refusal::parse_all(&"x".repeat(5000)).unwrap_err().to_string().len() < 200);
    }
}
