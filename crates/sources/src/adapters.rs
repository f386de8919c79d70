//! `adapters`: API groups with the resources of custom.metrics.k8s.io or external.metrics.k8s.io, each served by a
//! further metrics adapter. The controller reads their metrics through the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use policies::spec::is_api_group;
use serde::Deserialize;

use crate::field::{Field, FileError};

/// Maximum number of groups. Each group has its own limits.
const MAX_ADAPTERS: usize = 20;

/// One API group of a metrics adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterGroup {
    /// `apiGroup`.
    pub api_group: Arc<str>,
    /// The namespaces whose HPAs may use the group. `None` for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// Maximum requests in flight. A namespace holds at most half of them.
    pub concurrency: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AdapterFields {
    api_group: String,
    namespaces: Option<BTreeSet<String>>,
    concurrency: Option<u16>,
}

/// Checks the entries of the file. No entry may have the name of a server in `servers`, because metrics use both names
/// as labels.
pub(crate) fn check<T>(
    entries: Vec<AdapterFields>,
    servers: &BTreeMap<Arc<str>, T>,
    file: &PathBuf,
) -> Result<BTreeMap<Arc<str>, Arc<AdapterGroup>>, FileError> {
    if entries.len() > MAX_ADAPTERS {
        return Err(Field { file, path: String::new() }
            .error("adapters", format!("has more than {MAX_ADAPTERS} entries")));
    }
    let mut groups = BTreeMap::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let field = Field { file, path: format!("adapters[{index}].") };
        let AdapterFields { api_group, namespaces, concurrency } = entry;
        if !is_api_group(&api_group) {
            return Err(field.error(
                "apiGroup",
                format!("must be an API group such as external.metrics.example.com, and none of the default ones, not {api_group:?}"),
            ));
        }
        let concurrency = field.count("concurrency", concurrency.map(u32::from), 32, 1_000)?;
        let api_group: Arc<str> = api_group.into();
        let group = AdapterGroup { api_group: Arc::clone(&api_group), namespaces, concurrency };
        if servers.contains_key(&api_group)
            || groups.insert(Arc::clone(&api_group), Arc::new(group)).is_some()
        {
            return Err(field.error("apiGroup", format!("{api_group:?} is the name of an earlier source")));
        }
    }
    Ok(groups)
}
