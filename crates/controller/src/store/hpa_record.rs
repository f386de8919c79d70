//! One HPA as received. The metrics of a large HPA are compressed.
//!
//! A decoded spec with tens of thousands of metrics takes several times the memory of its JSON. The same applies to the
//! status with the values of these metrics. A large spec and its status are therefore decoded only for the duration of
//! a sync. Usual specs are far smaller.

use std::io::{self, Read, Write};
use std::sync::Arc;

use autoscaling::spec::Spec;
use autoscaling::status::{MetricStatus, Status};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::Key;

/// Minimum size of the JSON of a spec that is compressed, in bytes.
pub const LARGE_SPEC: usize = 256 << 10;

/// One HPA as received.
#[derive(Debug, Clone)]
pub struct HpaRecord {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.generation`. API servers before 1.37 set none.
    pub generation: Option<i64>,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata`, byte for byte. A status PUT must send all of it, or the server deletes the missing parts.
    pub metadata: Box<RawValue>,
    /// `spec`, byte for byte; `null` if it is packed.
    pub spec_raw: Arc<RawValue>,
    /// `spec`, decoded; without metrics if it is packed.
    pub spec: Arc<Spec>,
    /// `spec` and the metrics of `status`, if `spec` is large.
    pub packed: Option<PackedHpa>,
    /// `status`, decoded; without metrics if it is packed.
    pub status: Arc<Status>,
    /// Writers of `status`, from `managedFields`.
    pub status_writers: Vec<StatusWriter>,
}

/// A field manager that wrote the status of an HPA, and the time of its last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusWriter {
    /// The field manager.
    pub manager: Arc<str>,
    /// Time of the manager's last write, by the server's clock, in whole seconds.
    pub at: Timestamp,
}

impl From<(String, Timestamp)> for StatusWriter {
    fn from((manager, at): (String, Timestamp)) -> Self {
        Self { manager: manager.into(), at }
    }
}

/// The parts of a large HPA that its record lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedHpa {
    /// `spec`.
    spec: PackedJson,
    /// `status.currentMetrics`.
    metrics: PackedJson,
}

/// Compressed JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackedJson(Arc<[u8]>);

impl PackedJson {
    fn new(write: impl FnOnce(&mut DeflateEncoder<Vec<u8>>) -> io::Result<()>) -> io::Result<Self> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        write(&mut encoder)?;
        Ok(Self(encoder.finish()?.into()))
    }

    fn json(&self) -> io::Result<String> {
        let mut json = String::new();
        DeflateDecoder::new(&*self.0).read_to_string(&mut json)?;
        Ok(json)
    }
}

impl PackedHpa {
    fn new(spec: &str, metrics: &[MetricStatus]) -> io::Result<Self> {
        Ok(Self {
            spec: PackedJson::new(|encoder| encoder.write_all(spec.as_bytes()))?,
            metrics: PackedJson::new(|encoder| Ok(serde_json::to_writer(encoder, metrics)?))?,
        })
    }

    fn metrics(&self) -> io::Result<Vec<MetricStatus>> {
        Ok(serde_json::from_str(&self.metrics.json()?)?)
    }
}

impl HpaRecord {
    /// Compresses the spec, and the metrics of the status, if the spec has at least [`LARGE_SPEC`] bytes. The record
    /// keeps spec and status without metrics.
    #[must_use]
    pub fn pack(mut self) -> Self {
        if self.spec_raw.get().len() < LARGE_SPEC {
            return self;
        }
        if let Ok(packed) = PackedHpa::new(self.spec_raw.get(), &self.status.current_metrics) {
            let Spec { target, min_replicas, max_replicas, behavior, .. } = &*self.spec;
            self.spec = Arc::new(Spec {
                target: target.clone(),
                min_replicas: *min_replicas,
                max_replicas: *max_replicas,
                metrics: Box::default(),
                behavior: behavior.clone(),
            });
            self.spec_raw = RawValue::NULL.to_owned().into();
            let Status { observed_generation, last_scale_time, current_replicas, desired_replicas, .. } =
                *self.status;
            self.status = Arc::new(Status {
                observed_generation,
                last_scale_time,
                current_replicas,
                desired_replicas,
                current_metrics: Vec::new(),
                conditions: self.status.conditions.clone(),
            });
            self.packed = Some(packed);
        }
        self
    }

    /// Returns the record with its whole spec and status.
    ///
    /// # Errors
    /// The compressed parts are damaged.
    pub fn unpack(self: &Arc<Self>) -> io::Result<Arc<Self>> {
        let Some(packed) = &self.packed else { return Ok(Arc::clone(self)) };
        let spec_raw = RawValue::from_string(packed.spec.json()?)?;
        let spec = Arc::new(serde_json::from_str(spec_raw.get())?);
        let status = self.whole_status()?;
        Ok(Arc::new(Self { packed: None, spec_raw: spec_raw.into(), spec, status, ..(**self).clone() }))
    }

    /// Returns the status with its metrics.
    ///
    /// # Errors
    /// The compressed parts are damaged.
    pub fn whole_status(&self) -> io::Result<Arc<Status>> {
        let Some(packed) = &self.packed else { return Ok(Arc::clone(&self.status)) };
        Ok(Arc::new(Status { current_metrics: packed.metrics()?, ..(*self.status).clone() }))
    }

    /// Returns whether both records are the same version of the same object.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.resource_version == other.resource_version
    }

    /// Returns whether both records have the same spec.
    pub fn has_same_spec(&self, other: &Self) -> bool {
        let [one, two] = [self, other].map(|record| record.packed.as_ref().map(|packed| &packed.spec));
        self.spec == other.spec && one == two
    }

    /// Returns the compressed metrics of the status. Equal metrics have equal bytes.
    pub(crate) fn packed_metrics(&self) -> Option<&PackedJson> {
        self.packed.as_ref().map(|packed| &packed.metrics)
    }

    /// Returns whether both records have the same status.
    pub fn has_same_status(&self, other: &Self) -> bool {
        self.status == other.status && self.packed_metrics() == other.packed_metrics()
    }
}
