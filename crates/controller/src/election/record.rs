//! The record of a Lease: its holder and its times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Peer;

/// `spec` of a Lease of coordination.k8s.io/v1, as leader election uses it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// The holder. Empty after a release.
    #[serde(rename = "holderIdentity")]
    pub holder: String,
    /// Seconds from the last renewal to the expiry.
    pub lease_duration_seconds: i32,
    /// Time at which the holder acquired the Lease.
    #[serde(skip_serializing_if = "Option::is_none", with = "micro_time")]
    pub acquire_time: Option<Timestamp>,
    /// Time of the holder's last renewal, by the holder's clock. Other candidates must not rely on it.
    #[serde(skip_serializing_if = "Option::is_none", with = "micro_time")]
    pub renew_time: Option<Timestamp>,
    /// Number of changes of the holder.
    #[serde(rename = "leaseTransitions")]
    pub transitions: i32,
}

impl Record {
    /// The lease duration.
    pub fn length(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_duration_seconds).unwrap_or(0))
    }

    /// Whether the Lease has a holder, expired or not.
    pub fn is_held(&self) -> bool {
        !self.holder.is_empty()
    }
}

/// A record with its version on the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lease {
    /// The record.
    pub record: Record,
    /// `metadata.resourceVersion`. A write names the version that it replaces, so that only one of two
    /// concurrent writes succeeds.
    pub version: String,
    /// `metadata` as received, with the version. A write sends it back.
    pub metadata: Arc<str>,
}

/// The annotation of a Lease with the address and port on which its holder serves.
pub const SERVING_ADDRESS: &str = "concertina.dev/serving-address";
/// The annotation of a Lease with the fingerprint of its holder's serving certificate.
pub const SERVING_CERTIFICATE: &str = "concertina.dev/serving-certificate";

impl Lease {
    /// The serving address of the holder, from the annotations.
    pub fn peer(&self) -> Option<Peer> {
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            annotations: BTreeMap<String, String>,
        }
        let Metadata { annotations } = serde_json::from_str(&self.metadata).ok()?;
        let address = annotations.get(SERVING_ADDRESS)?.parse().ok()?;
        let certificate = annotations.get(SERVING_CERTIFICATE)?.parse().ok()?;
        Some(Peer { address, certificate })
    }

    /// The metadata with the holder's current serving address. Other annotations stay.
    ///
    /// # Errors
    /// The metadata is not a JSON object.
    pub fn metadata_with(&self, peer: Option<Peer>) -> Result<String, serde_json::Error> {
        let mut metadata: BTreeMap<String, Value> = serde_json::from_str(&self.metadata)?;
        let annotations = metadata.entry("annotations".to_owned()).or_default();
        if !annotations.is_object() {
            *annotations = Value::Object(Map::new());
        }
        if let Value::Object(annotations) = annotations {
            if let Some(Peer { address, certificate }) = peer {
                annotations.insert(SERVING_ADDRESS.to_owned(), address.to_string().into());
                annotations.insert(SERVING_CERTIFICATE.to_owned(), certificate.to_string().into());
            } else {
                annotations.remove(SERVING_ADDRESS);
                annotations.remove(SERVING_CERTIFICATE);
            }
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        serde_json::to_string(&metadata)
    }
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
    use cluster::fingerprint::Fingerprint;

    #[test]
    fn record_is_serialized_like_client_go() {
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
    fn metadata_contains_the_serving_address_and_keeps_other_annotations() {
        let lease_with = |metadata: &str| Lease { metadata: metadata.into(), ..Lease::default() };
        let mut peers = ["10.0.0.1:10257", "[fd00::1]:10257"].map(|address| Peer {
            address: address.parse().unwrap(),
            certificate: Fingerprint::from_der(address.as_bytes()),
        });
        let lease = lease_with(r#"{"annotations":{"a":"b"},"name":"concertina","resourceVersion":"7"}"#);
        assert_eq!(lease.peer(), None);
        for peer in peers {
            let annotated = lease_with(&lease.metadata_with(Some(peer)).unwrap());
            assert_eq!(annotated.peer(), Some(peer));
            // The annotations are replaced, then removed.
            peers.reverse();
            assert_eq!(lease_with(&annotated.metadata_with(Some(peers[0])).unwrap()).peer(), Some(peers[0]));
            assert_eq!(annotated.metadata_with(None).unwrap(), &*lease.metadata);
        }
        let bare = lease_with(r#"{"name":"concertina"}"#);
        assert_eq!(bare.metadata_with(None).unwrap(), &*bare.metadata);
        let broken = lease_with(
            r#"{"annotations":{"concertina.dev/serving-address":"x","concertina.dev/serving-certificate":"y"}}"#,
        );
        assert_eq!(broken.peer(), None);
    }

    #[test]
    fn missing_fields_equal_a_lease_without_a_holder() {
        let record: Record = serde_json::from_str("{}").unwrap();
        assert!(!record.is_held());
        assert_eq!(record.length(), Duration::ZERO);
    }
}
