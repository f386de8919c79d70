//! The record of a Lease: who holds it, since when, until when.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `spec` of a Lease of coordination.k8s.io/v1, as leader election uses it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Who holds it; empty if it was released.
    #[serde(rename = "holderIdentity")]
    pub holder: String,
    /// For how many seconds after its last renewal it holds.
    pub lease_duration_seconds: i32,
    /// When the holder got it.
    #[serde(skip_serializing_if = "Option::is_none", with = "micro_time")]
    pub acquire_time: Option<Timestamp>,
    /// When the holder renewed it last, by the holder's clock. Nobody else may judge by it.
    #[serde(skip_serializing_if = "Option::is_none", with = "micro_time")]
    pub renew_time: Option<Timestamp>,
    /// How often it changed hands.
    #[serde(rename = "leaseTransitions")]
    pub transitions: i32,
}

impl Record {
    /// How long it holds after it was seen to change.
    pub fn length(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_duration_seconds).unwrap_or(0))
    }

    /// Whether somebody holds it, or did when this was written.
    pub fn is_held(&self) -> bool {
        !self.holder.is_empty()
    }
}

/// A record with the version under which the server keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lease {
    /// The record.
    pub record: Record,
    /// `metadata.resourceVersion`: a write names the version that it replaces, so that of two only one succeeds.
    pub version: String,
    /// `metadata` as it was received, version included, to be sent back.
    pub metadata: Arc<str>,
}

/// `MicroTime`: RFC 3339 with six digits.
mod micro_time {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes fields by reference")]
    pub(super) fn serialize<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.collect_str(&format_args!("{time:.6}")),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        Option::<Timestamp>::deserialize(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_the_reference_writes_it() {
        let record = Record {
            holder: "node-1_abc".to_owned(),
            lease_duration_seconds: 15,
            acquire_time: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            renew_time: Some("2026-01-02T03:04:05.123456789Z".parse().unwrap()),
            transitions: 2,
        };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(
            text,
            r#"{"holderIdentity":"node-1_abc","leaseDurationSeconds":15,"acquireTime":"2026-01-02T03:04:05.000000Z","renewTime":"2026-01-02T03:04:05.123456Z","leaseTransitions":2}"#
        );
    }

    #[test]
    fn fields_that_are_missing_are_as_in_a_lease_that_was_never_held() {
        let record: Record = serde_json::from_str("{}").unwrap();
        assert!(!record.is_held());
        assert_eq!(record.length(), Duration::ZERO);
    }
}
