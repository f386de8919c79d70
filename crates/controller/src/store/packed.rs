//! Large specs, which the store keeps compressed.
//!
//! A spec with tens of thousands of metrics takes several times the memory of its JSON when it is decoded. Such a
//! spec is decoded for the duration of a sync only. No usual spec is as large.

use std::io::{self, Read, Write};
use std::sync::Arc;

use autoscaling::spec::Spec;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde_json::value::RawValue;

use super::HpaRecord;

/// The number of bytes of JSON from which a spec is compressed.
pub const LARGE_SPEC: usize = 256 << 10;

/// The JSON of a spec, compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedSpec(Arc<[u8]>);

impl PackedSpec {
    fn new(json: &str) -> io::Result<Self> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(json.as_bytes())?;
        Ok(Self(encoder.finish()?.into()))
    }

    fn json(&self) -> io::Result<String> {
        let mut json = String::new();
        DeflateDecoder::new(&*self.0).read_to_string(&mut json)?;
        Ok(json)
    }
}

impl HpaRecord {
    /// Compresses the spec if it is large. The record keeps the decoded spec without its metrics.
    #[must_use]
    pub fn pack(mut self) -> Self {
        if self.spec_raw.get().len() < LARGE_SPEC {
            return self;
        }
        if let Ok(packed) = PackedSpec::new(self.spec_raw.get()) {
            let Spec { target, min_replicas, max_replicas, behavior, .. } = &*self.spec;
            self.spec = Arc::new(Spec {
                target: target.clone(),
                min_replicas: *min_replicas,
                max_replicas: *max_replicas,
                metrics: Box::default(),
                behavior: behavior.clone(),
            });
            self.spec_raw = RawValue::NULL.to_owned().into();
            self.packed = Some(packed);
        }
        self
    }

    /// The record with its whole spec.
    ///
    /// # Errors
    /// The compressed spec is damaged.
    pub fn unpack(self: &Arc<Self>) -> io::Result<Arc<Self>> {
        let Some(packed) = &self.packed else { return Ok(Arc::clone(self)) };
        let spec_raw = RawValue::from_string(packed.json()?)?;
        let spec = Arc::new(serde_json::from_str(spec_raw.get())?);
        Ok(Arc::new(Self { packed: None, spec_raw: spec_raw.into(), spec, ..(**self).clone() }))
    }
}
