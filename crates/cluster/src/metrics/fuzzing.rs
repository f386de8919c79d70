//! The decoders of the three lists, for the fuzz targets.

use autoscaling::query::Answer;

use super::usage::Snapshot;
use super::{custom, external, wire};
use crate::decode::{DecodeError, ItemScanner};
use crate::error::ApiError;

/// Decodes a `PodMetricsList` from its pieces.
pub fn resource_list(pieces: &[&[u8]]) -> Result<Answer, ApiError> {
    Ok(Answer::Resource(Snapshot::read(pieces.iter().copied())?.all()))
}

/// Decodes a `MetricValueList` from its pieces.
pub fn custom_list(pieces: &[&[u8]]) -> Result<Answer, ApiError> {
    Ok(Answer::Custom(list(pieces, custom::KIND, custom::decoder())?.into()))
}

/// Decodes an `ExternalMetricValueList` from its pieces.
pub fn external_list(pieces: &[&[u8]]) -> Result<Answer, ApiError> {
    Ok(Answer::External(list(pieces, external::KIND, external::decoder())?.into()))
}

fn list<T>(
    pieces: &[&[u8]],
    kind: &str,
    mut decode: impl FnMut(&[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, ApiError> {
    let (mut scanner, mut items) = (ItemScanner::default(), Vec::new());
    let mut keep = |item: &[u8]| {
        items.push(decode(item)?);
        Ok(())
    };
    for piece in pieces {
        scanner.push(piece, &mut keep).map_err(ApiError::Decode)?;
    }
    wire::check_kind(scanner.finish().map_err(ApiError::Decode)?, kind)?;
    Ok(items)
}
