//! The record of a Lease: who holds it, since when, until when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::history::replica::link::Peer;

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

/// The annotation of a Lease with the address and port where its holder serves.
pub const SERVING_ADDRESS: &str = "concertina.dev/serving-address";
/// The annotation of a Lease with the fingerprint of the certificate that its holder shows there.
pub const SERVING_CERTIFICATE: &str = "concertina.dev/serving-certificate";

impl Lease {
    /// Where the holder says that it serves.
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

    /// The metadata with where the holder serves now. What others wrote there stays.
    ///
    /// # Errors
    /// The metadata is no JSON object.
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
    use crate::history::replica::link::Fingerprint;

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
    fn the_metadata_tells_where_the_holder_serves_and_keeps_what_others_wrote() {
        let of = |metadata: &str| Lease { metadata: metadata.into(), ..Lease::default() };
        let mut peers = ["10.0.0.1:10257", "[fd00::1]:10257"].map(|address| Peer {
            address: address.parse().unwrap(),
            certificate: Fingerprint::of(address.as_bytes()),
        });
        let lease = of(r#"{"annotations":{"a":"b"},"name":"concertina","resourceVersion":"7"}"#);
        assert_eq!(lease.peer(), None);
        for peer in peers {
            let told = of(&lease.metadata_with(Some(peer)).unwrap());
            assert_eq!(told.peer(), Some(peer));
            // Written again and taken back.
            peers.reverse();
            assert_eq!(of(&told.metadata_with(Some(peers[0])).unwrap()).peer(), Some(peers[0]));
            assert_eq!(told.metadata_with(None).unwrap(), &*lease.metadata);
        }
        let bare = of(r#"{"name":"concertina"}"#);
        assert_eq!(bare.metadata_with(None).unwrap(), &*bare.metadata);
        let broken = of(
            r#"{"annotations":{"concertina.dev/serving-address":"x","concertina.dev/serving-certificate":"y"}}"#,
        );
        assert_eq!(broken.peer(), None);
    }

    #[test]
    fn fields_that_are_missing_are_as_in_a_lease_that_was_never_held() {
        let record: Record = serde_json::from_str("{}").unwrap();
        assert!(!record.is_held());
        assert_eq!(record.length(), Duration::ZERO);
    }
}
