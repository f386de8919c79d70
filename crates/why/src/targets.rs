//! Lists the targets of many HPAs. Each resource that more than [`FEW`] HPAs refer to is read with one list, instead of
//! several requests for each HPA.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::target_group;
use parking_lot::RwLock;

use super::responses;
use super::situation::TargetObject;
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::mapper::{Mapper, Mapping};
use cluster::scale::{Scalable, Shape, WireScale, has_projection};
use cluster::watch::{Collection, WatchStatus, Watched, each};
use engine::store::{Hpas, Key, Target};
use engine::targets::CachedScales;

/// The number of HPAs up to which the targets of a resource are read one by one.
const FEW: usize = 8;

/// The listed targets of the last round.
#[derive(Debug, Default)]
pub(super) struct ListedTargets {
    /// The targets by resource, such as `deployments.apps`, then by namespace and name. A resource without an entry was
    /// not listed.
    by_resource: RwLock<BTreeMap<String, BTreeMap<Key, ListedTarget>>>,
}

/// A target from a list.
#[derive(Debug)]
struct ListedTarget {
    object: TargetObject,
    /// The Scale in the object. `None` if only the server can compute it.
    scale: Option<Target>,
}

impl ListedTargets {
    /// Lists the targets of `hpas`, in one namespace or in all. A resource that cannot be listed is skipped, because
    /// its targets can then be read one by one.
    pub(super) async fn read(&self, client: &Client, mapper: &Mapper, hpas: &Hpas, namespace: Option<&str>) {
        let mut wanted: BTreeMap<(String, String), BTreeSet<Key>> = BTreeMap::new();
        for hpa in hpas.all().values() {
            let target = &hpa.spec.target;
            let Ok(group) = target_group(target) else { continue };
            let key = Key::new(Arc::clone(&hpa.key.namespace), target.name.as_str());
            wanted.entry((group.to_owned(), target.kind.clone())).or_default().insert(key);
        }
        let mut by_resource = BTreeMap::new();
        for ((group, kind), wanted) in wanted.into_iter().filter(|(_, wanted)| wanted.len() > FEW) {
            let Some(mapping) = mapping(mapper, &group, &kind).await else { continue };
            match list(client, &mapping, namespace, &wanted).await {
                Ok(Some(listed)) => {
                    by_resource.insert(mapping.group_resource(), listed);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(resource = %mapping.group_resource(), %error, "failed to list targets");
                }
            }
        }
        *self.by_resource.write() = by_resource;
    }

    /// Returns the metadata of a listed object.
    pub(super) fn object(&self, mapping: &Mapping, namespace: &str, name: &str) -> Option<TargetObject> {
        self.find(mapping, &Key::new(namespace, name), |listed| listed.object.clone())
    }

    fn find<T>(&self, mapping: &Mapping, key: &Key, get: impl FnOnce(&ListedTarget) -> T) -> Option<T> {
        self.by_resource.read().get(&mapping.group_resource())?.get(key).map(get)
    }
}

impl CachedScales for ListedTargets {
    fn cached_scale(&self, hpa: &Key, mapping: &Mapping, name: &str) -> Option<Target> {
        let key = Key::new(Arc::clone(&hpa.namespace), name);
        self.find(mapping, &key, |listed| listed.scale.clone())?
    }

    // Each round lists again and decides once per HPA, so versions need not be compared.

    fn observe_version(&self, _: &Key, _: &str) {}

    fn mark_unknown(&self, _: &Key) {}

    fn forget(&self, _: &Key) {}

    fn release(&self, _: &Key) {}

    fn levels(&self) -> (Vec<(WatchStatus, usize)>, Vec<Arc<str>>) {
        (Vec::new(), Vec::new())
    }
}

/// Returns the resource of a kind if its objects may contain their Scales.
async fn mapping(mapper: &Mapper, group: &str, kind: &str) -> Option<Mapping> {
    let mappings = mapper.mappings(group, kind).await.ok()?;
    mappings.first().filter(|first| has_projection(first)).cloned()
}

/// Lists the objects of a resource, and keeps those in `wanted`. Returns `None` if no definition contains the paths of
/// the replica counts.
async fn list(
    client: &Client,
    mapping: &Mapping,
    namespace: Option<&str>,
    wanted: &BTreeSet<Key>,
) -> Result<Option<BTreeMap<Key, ListedTarget>>, ApiError> {
    let Some(shape) = Shape::read(client, mapping).await? else { return Ok(None) };
    let Mapping { group, version, resource, .. } = mapping;
    let scalable = Scalable { mapping: mapping.clone(), shape };
    let collection = Collection { group, version, namespace, resource, fields: "" };
    let mut listed = BTreeMap::new();
    each(client, collection, |object| {
        let target = scalable.decode(object)?;
        let key = Key::new(&*target.namespace, &*target.name);
        if wanted.contains(&key) {
            let object = responses::meta(object)?.into();
            listed.insert(key, ListedTarget { object, scale: target.scale.map(scale) });
        }
        Ok(())
    })
    .await?;
    Ok(Some(listed))
}

fn scale(wire: WireScale) -> Target {
    let WireScale { replicas, status_replicas, selector } = wire;
    Target { replicas, status_replicas, selector: selector.into() }
}
