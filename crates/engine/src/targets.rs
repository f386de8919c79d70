//! Watches the targets of HPAs, so that a sync needs no request for its target.
//!
//! Each scalable resource that an HPA refers to is watched in the watched namespaces. The watch starts with the first
//! sync that refers to the resource, and stops when no HPA has referred to it for ten minutes. A sync takes the Scale
//! from the watch if the watch is current and has delivered every version that this controller has read or written.
//! Otherwise the sync reads the Scale from the API server, which also provides the texts of errors. Every Scale is read
//! before it is written.

mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::view::View;
use crate::store::{Key, Target};
use crate::tasks::Tasks;
use cluster::client::{Client, Clients};
use cluster::mapper::Mapping;
use cluster::permission::{Permission, row};
use cluster::scale::has_projection;
use cluster::watch::{Informer, WatchStatus};

/// Minimum time without a reference to a resource after which its watch stops. Each start of a watch lists the
/// resource, and the author of an HPA chooses the resource. With this time, an HPA whose `kind` changes all the time
/// causes at most one list per kind and ten minutes.
const MIN_UNUSED: Duration = Duration::from_mins(10);
/// Interval between checks for unused watches.
const UNUSED_CHECK: Duration = Duration::from_mins(1);

/// Options of the watches of targets.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether each namespace has a separate watch.
    pub by_namespace: bool,
    /// Maximum wait between two attempts of a watch.
    pub longest_wait: Duration,
    /// Seed for the jitter of waits and of watch lengths.
    pub seed: u64,
}

/// The Scales of targets that a sync need not read.
pub trait CachedScales: Debug + Send + Sync {
    /// Returns the Scale of an HPA's target, which is in the HPA's own namespace. `None` if the Scale must be read.
    fn cached_scale(&self, hpa: &Key, mapping: &Mapping, name: &str) -> Option<Target>;
    /// Records the version at which the target of an HPA was read or written.
    fn observe_version(&self, hpa: &Key, resource_version: &str);
    /// Records a write to the target of an HPA with an unknown outcome.
    fn mark_unknown(&self, hpa: &Key);
    /// Drops the recorded version of an HPA's target that does not exist.
    fn forget(&self, hpa: &Key);
    /// Unregisters the target of an HPA that was deleted or has no target to watch.
    fn release(&self, hpa: &Key);
    /// Returns the status of the watches by resource, each with the number of objects. The second list contains the
    /// resources with watches that stopped since the last call.
    fn levels(&self) -> (Vec<(WatchStatus, usize)>, Vec<Arc<str>>);
}

/// The watched targets.
#[derive(Debug)]
pub struct Targets {
    context: Arc<WatchContext>,
    state: Arc<Mutex<State>>,
    tasks: Tasks,
    stop: CancellationToken,
    /// Stops all watches when dropped.
    _stops: DropGuard,
}

/// Clients and options of every watch.
#[derive(Debug)]
struct WatchContext {
    watch: Client,
    discovery: Client,
    options: Options,
}

#[derive(Debug, Default)]
struct State {
    views: BTreeMap<WatchScope, SharedView>,
    references: BTreeMap<Key, Reference>,
    started: u64,
    /// Resources in the last scrape of the metrics.
    shown: BTreeSet<Arc<str>>,
}

/// A view and the number of HPAs that use it.
#[derive(Debug)]
struct SharedView {
    view: Arc<View>,
    users: usize,
    /// Time at which the last HPA stopped using the view. `None` while the view is in use.
    unused: Option<Instant>,
}

/// The target of an HPA.
#[derive(Debug)]
struct Reference {
    view: Arc<View>,
    name: Box<str>,
}

/// A resource and the scope of its watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct WatchScope {
    group: String,
    version: String,
    resource: String,
    namespace: Option<Arc<str>>,
}

impl WatchScope {
    fn is_of(&self, mapping: &Mapping) -> bool {
        self.group == mapping.group && self.version == mapping.version && self.resource == mapping.resource
    }
}

impl Targets {
    /// Creates a set of targets without watches. All watches end with `stop`, or when the set is dropped.
    pub fn new(clients: &Clients, options: Options, tasks: &Tasks, stop: &CancellationToken) -> Self {
        let context =
            WatchContext { watch: clients.watch.clone(), discovery: clients.discovery.clone(), options };
        let stop = stop.child_token();
        Self {
            context: Arc::new(context),
            state: Arc::default(),
            tasks: tasks.clone(),
            _stops: stop.clone().drop_guard(),
            stop,
        }
    }

    fn refer(&self, hpa: &Key, mapping: &Mapping, name: &str) -> Option<Arc<View>> {
        let watchable = has_projection(mapping);
        let mut state = self.state.lock();
        if watchable
            && let Some(reference) = state.references.get(hpa)
            && *reference.name == *name
            && reference.view.scope.is_of(mapping)
        {
            return Some(Arc::clone(&reference.view));
        }
        // Add the new reference before the previous reference is released, so that a watch for both references
        // continues.
        let view = watchable.then(|| self.start(&mut state, hpa, mapping));
        let new = view.clone().map(|view| Reference { view, name: name.into() });
        let old = match new {
            Some(new) => state.references.insert(hpa.clone(), new),
            None => state.references.remove(hpa),
        };
        if let Some(old) = old {
            state.release(hpa, &old);
        }
        view
    }

    fn start(&self, state: &mut State, hpa: &Key, mapping: &Mapping) -> Arc<View> {
        let Mapping { group, version, resource, .. } = mapping.clone();
        let namespace = self.context.options.by_namespace.then(|| Arc::clone(&hpa.namespace));
        let scope = WatchScope { group, version, resource, namespace };
        let State { views, started, .. } = state;
        let used = views.entry(scope).or_insert_with_key(|scope| {
            *started += 1;
            let view = Arc::new(View::new(scope.clone(), mapping.clone()));
            let unused = remove_unused(Arc::clone(&self.state), scope.clone());
            let running = Arc::clone(&view).run(Arc::clone(&self.context), *started);
            let stop = self.stop.child_token();
            let unused_stop = stop.clone();
            let watching = async move {
                tokio::select! {
                    biased;
                    () = unused => unused_stop.cancel(),
                    () = running => {}
                }
            };
            self.tasks.spawn_until(&stop, format!("watch of {}", view.resource()), watching);
            SharedView { view, users: 0, unused: None }
        });
        used.users += 1;
        used.unused = None;
        Arc::clone(&used.view)
    }

    fn with_target(&self, hpa: &Key, act: impl FnOnce(&View, &str)) {
        if let Some(reference) = self.state.lock().references.get(hpa) {
            act(&reference.view, &reference.name);
        }
    }
}

impl CachedScales for Targets {
    /// The first reference to a resource starts its watch.
    fn cached_scale(&self, hpa: &Key, mapping: &Mapping, name: &str) -> Option<Target> {
        self.refer(hpa, mapping, name)?.scale(&hpa.namespace, name)
    }

    fn observe_version(&self, hpa: &Key, resource_version: &str) {
        self.with_target(hpa, |view, name| {
            view.objects.observe_version(&hpa.namespace, name, resource_version);
        });
    }

    fn mark_unknown(&self, hpa: &Key) {
        self.with_target(hpa, |view, name| view.objects.mark_unknown(&hpa.namespace, name));
    }

    fn forget(&self, hpa: &Key) {
        self.with_target(hpa, |view, name| view.objects.forget(&hpa.namespace, name));
    }

    fn release(&self, hpa: &Key) {
        let mut state = self.state.lock();
        if let Some(reference) = state.references.remove(hpa) {
            state.release(hpa, &reference);
        }
    }

    fn levels(&self) -> (Vec<(WatchStatus, usize)>, Vec<Arc<str>>) {
        let mut state = self.state.lock();
        let mut by_resource: BTreeMap<Arc<str>, (Vec<_>, usize)> = BTreeMap::new();
        for SharedView { view, .. } in state.views.values() {
            if let Some(handle) = view.handle() {
                let all = by_resource.entry(view.resource()).or_default();
                all.0.push(handle);
                all.1 += view.objects.len();
            }
        }
        let shown = by_resource.keys().cloned().collect();
        let previous = std::mem::replace(&mut state.shown, shown);
        let removed = previous.into_iter().filter(|resource| !state.shown.contains(resource)).collect();
        let levels = by_resource.into_values();
        (levels.map(|(handles, objects)| (Informer::new(handles).status(), objects)).collect(), removed)
    }
}

impl State {
    fn release(&mut self, hpa: &Key, reference: &Reference) {
        reference.view.objects.forget(&hpa.namespace, &reference.name);
        if let Some(used) = self.views.get_mut(&reference.view.scope) {
            used.users -= 1;
            used.unused = (used.users == 0).then(Instant::now);
        }
    }
}

/// Removes a view once it has been unused for [`MIN_UNUSED`], and then returns.
async fn remove_unused(state: Arc<Mutex<State>>, scope: WatchScope) {
    loop {
        tokio::time::sleep(UNUSED_CHECK).await;
        let views = &mut state.lock().views;
        let unused = views.get(&scope).and_then(|shared| shared.unused);
        if unused.is_some_and(|since| since.elapsed() >= MIN_UNUSED) {
            views.remove(&scope);
            return;
        }
    }
}

/// Returns the permission to watch targets in all namespaces, or in one namespace.
pub fn target_watch_permission(group: &str, resource: &str, namespace: Option<&str>) -> Permission {
    Permission {
        namespace: namespace.map(str::to_owned),
        why: "to watch targets, instead of one request for the replica count per sync",
        without: "each sync of an HPA with such a target makes one more request",
        ..row(group, resource, &["list", "watch"])
    }
}

/// Returns the permission to find the replica count in objects of a custom resource. `name`: the name of its
/// definition.
pub fn definition_permission(name: &str) -> Permission {
    Permission {
        names: vec![name.to_owned()],
        why: "to find the replica counts of targets of this kind",
        without: "each sync of an HPA with such a target makes one more request",
        ..row("apiextensions.k8s.io", "customresourcedefinitions", &["get"])
    }
}
