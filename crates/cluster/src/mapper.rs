//! Maps group and kind to resources by discovery, like Go's RESTMapper in the built-in controller.
//!
//! Groups are fetched on demand, with one fetch per group at a time, and cached for 30 s. Missing groups are cached
//! too. If a refresh fails, the stale result stays in use, so that targets remain resolvable while an API server is
//! unavailable. A group is evicted after ten minutes without use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::failure::ScaleFailureClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource, APIResourceList, APIVersions};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::cache::{CachedFetch, FetchFailure};
use super::call::Call;
use super::client::Client;
use super::error::ApiError;

/// The lifetime of a cached group. The built-in controller resets its cache every 30 s.
pub const LIFE: Duration = Duration::from_secs(30);
/// The wait after a failed refresh, if a stale result exists.
const PAUSE: Duration = Duration::from_secs(5);
/// The time after which an unused group is evicted. HPAs may name any group, so the cache must be bounded.
const UNUSED: Duration = Duration::from_mins(10);
/// Maximum number of cached groups. The least recently used group is evicted first.
const GROUPS: usize = 1024;
/// Maximum length of a group name, which is a DNS subdomain. Longer names are not requested.
const LONGEST_NAME: usize = 253;

/// A resource with the requested kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The API group. Empty for the core group.
    pub group: String,
    /// The most preferred version that has the resource.
    pub version: String,
    /// The plural name, as in paths, such as `deployments`.
    pub resource: String,
    /// The kind in discovery.
    pub kind: String,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
    /// The `apiVersion` of the resource's Scales in discovery. `None` if discovery lists no scale subresource.
    pub scale_version: Option<String>,
}

impl Mapping {
    /// Returns the resource with its group, such as `deployments.apps`, or `pods` for the core group.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// Returns group, version and resource as Go prints them, such as `apps/v1, Resource=deployments`.
    pub fn group_version_resource(&self) -> String {
        format!("{}/{}, Resource={}", self.group, self.version, self.resource)
    }

    /// Returns the path segments of one object in a namespace.
    pub fn path<'a>(&'a self, namespace: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
        let root = if self.group.is_empty() { ["api", ""] } else { ["apis", &self.group] };
        let rest = [self.version.as_str(), "namespaces", namespace, &self.resource, name];
        root.into_iter().filter(|segment| !segment.is_empty()).chain(rest)
    }
}

/// An error in the mapping of a kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The group does not exist, or has no resource of the kind.
    #[error(
        "no matches for kind {} in group {}",
        autoscaling::failure::quote(kind),
        autoscaling::failure::quote(group)
    )]
    NoMatch {
        /// The API group. Empty for the core group.
        group: String,
        /// The kind, as in the HPA.
        kind: String,
    },
    /// Discovery failed without a cached result.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl MapError {
    /// Returns the class of a failure to read a Scale.
    pub fn scale_class(&self) -> ScaleFailureClass {
        match self {
            Self::NoMatch { .. } => ScaleFailureClass::NoMatchForKind,
            Self::Api(error) => error.scale_class(),
        }
    }
}

/// Maps kinds to resources.
#[derive(Debug)]
pub struct Mapper {
    client: Client,
    groups: Mutex<BTreeMap<String, Group>>,
}

/// The cached versions of a group, the preferred version first.
type CachedGroup = CachedFetch<Arc<[Version]>, ApiError>;

#[derive(Debug)]
struct Group {
    cache: Arc<CachedGroup>,
    used: Instant,
}

/// A version of a group, with its resources.
#[derive(Debug)]
struct Version {
    name: String,
    resources: Vec<APIResource>,
    /// The `apiVersion` of the Scales, by the plural name of the resource.
    scales: BTreeMap<String, String>,
}

impl Version {
    /// Splits the resources of a version from their scale subresources. Other subresources are dropped.
    fn new(group: &str, name: String, list: Vec<APIResource>) -> Self {
        let (mut resources, mut scales) = (Vec::new(), BTreeMap::new());
        for resource in list {
            match resource.name.split_once('/') {
                None => resources.push(resource),
                Some((of, "scale")) => {
                    let scale = scale_version(group, &name, &resource);
                    scales.entry(of.to_owned()).or_insert(scale);
                }
                Some(_) => {}
            }
        }
        Self { name, resources, scales }
    }
}

/// Returns the `apiVersion` of a scale subresource. If discovery does not state group and version of the subresource,
/// the `apiVersion` of the resource applies.
fn scale_version(group: &str, version: &str, scale: &APIResource) -> String {
    let own = scale.group.as_deref().zip(scale.version.as_deref());
    match own.filter(|(group, version)| !group.is_empty() && !version.is_empty()) {
        Some((group, version)) => format!("{group}/{version}"),
        None if group.is_empty() => version.to_owned(),
        None => format!("{group}/{version}"),
    }
}

/// Returns the versions of a group, the preferred version first.
fn ordered(group: APIGroup) -> Vec<String> {
    let mut versions: Vec<_> = group.versions.into_iter().map(|version| version.version).collect();
    if let Some(preferred) = group.preferred_version {
        // The sort is stable, so the other versions keep their order.
        versions.sort_by_key(|version| *version != preferred.version);
    }
    versions
}

/// Fetches the versions of a group, the preferred version first. Empty if the group does not exist.
pub(super) async fn versions(client: &Client, group: &str) -> Result<Vec<String>, ApiError> {
    let found = if group.is_empty() {
        client.json::<APIVersions>(&Call::get(["api"])).await.map(|core| core.versions)
    } else {
        client.json::<APIGroup>(&Call::get(["apis", group])).await.map(ordered)
    };
    match found {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        found => found,
    }
}

impl Mapper {
    /// Creates a mapper with an empty cache.
    pub fn new(client: Client) -> Self {
        Self { client, groups: Mutex::default() }
    }

    /// Returns the number of cached groups.
    pub fn known_groups(&self) -> usize {
        self.groups.lock().len()
    }

    /// Returns the resources of the group that have the kind in any version. Each resource is mapped at its most
    /// preferred version. The result is never empty.
    pub async fn mappings(&self, group: &str, kind: &str) -> Result<Arc<[Mapping]>, MapError> {
        let versions = self.group(group).await?;
        let mut mappings: Vec<Mapping> = Vec::new();
        for version in versions.iter() {
            for resource in version.resources.iter().filter(|resource| has_kind(resource, kind)) {
                if mappings.iter().all(|mapping| mapping.resource != resource.name) {
                    mappings.push(Mapping {
                        group: group.to_owned(),
                        version: version.name.clone(),
                        resource: resource.name.clone(),
                        kind: resource.kind.clone(),
                        namespaced: resource.namespaced,
                        scale_version: version.scales.get(&resource.name).cloned(),
                    });
                }
            }
        }
        if mappings.is_empty() {
            return Err(MapError::NoMatch { group: group.to_owned(), kind: kind.to_owned() });
        }
        Ok(mappings.into())
    }

    /// Returns the versions of a group, fetched if the cache is stale. Concurrent callers get the stale result, or wait
    /// for the fetch in flight.
    async fn group(&self, name: &str) -> Result<Arc<[Version]>, ApiError> {
        if name.len() > LONGEST_NAME {
            return Ok(Arc::default());
        }
        let cached = self.slot(name);
        if let Some(versions) = cached.meanwhile(PAUSE) {
            return Ok(versions);
        }
        match cached.get(LIFE, async || self.fetch(name).await.map(Arc::from)).await {
            Err(FetchFailure { error, cached: Some(versions) }) => {
                tracing::debug!(group = name, %error, "discovery failed, using the stale result");
                Ok(versions)
            }
            answer => answer.map_err(|failed| failed.error),
        }
    }

    fn slot(&self, name: &str) -> Arc<CachedGroup> {
        let now = Instant::now();
        let mut groups = self.groups.lock();
        if let Some(group) = groups.get_mut(name) {
            group.used = now;
            return Arc::clone(&group.cache);
        }
        groups.retain(|_, group| now < group.used + UNUSED);
        if groups.len() >= GROUPS {
            let oldest = groups.iter().min_by_key(|(_, group)| group.used).map(|(name, _)| name.clone());
            oldest.map(|name| groups.remove(&name));
        }
        let cached = Arc::<CachedGroup>::default();
        groups.insert(name.to_owned(), Group { cache: Arc::clone(&cached), used: now });
        cached
    }

    async fn fetch(&self, group: &str) -> Result<Vec<Version>, ApiError> {
        let mut found = Vec::new();
        let mut failed = None;
        for version in versions(&self.client, group).await? {
            let call = if group.is_empty() {
                Call::get(["api", &version])
            } else {
                Call::get(["apis", group, &version])
            };
            match self.client.json::<APIResourceList>(&call).await {
                Ok(list) => found.push(Version::new(group, version, list.resources)),
                Err(error) if error.is_not_found() => {}
                // As in Go, a failed version does not affect the other versions.
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }
}

/// Returns whether a resource has a kind. Go's mapper also accepts the kind in lower case, or with the suffix `List`.
fn has_kind(resource: &APIResource, kind: &str) -> bool {
    resource.kind == kind
        || kind.strip_suffix("List") == Some(&resource.kind)
        || !resource.kind.is_empty() && resource.kind.chars().flat_map(char::to_lowercase).eq(kind.chars())
}
