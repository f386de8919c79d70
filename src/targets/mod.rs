//! What the targets of HPAs look like, without asking for each of them in each sync.
//!
//! Each scalable resource that an HPA refers to is watched, in the namespaces that are watched, from the first sync that
//! refers to it until no HPA does any more. A sync takes the Scale from there, if it may be taken for what the API server
//! would answer: the watch is followed, and has shown what this controller itself has read or written since. Everything
//! else is read from the server, as are errors, whose texts are the server's; and so is every Scale before it is written.

mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use self::view::View;
use crate::api::client::{Client, Clients};
use crate::api::mapper::Mapping;
use crate::api::watch::{Informer, WatchStatus};
use crate::store::{Key, Target};

/// How targets are watched.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether a missing permission is a warning.
    pub warn: bool,
    /// Whether each namespace is watched by itself.
    pub by_namespace: bool,
    /// Waits of a watch between tries grow up to this.
    pub longest_wait: Duration,
    /// Spreads waits and watch lengths.
    pub seed: u64,
}

/// The targets that are watched.
#[derive(Debug)]
pub struct Targets {
    means: Arc<Means>,
    state: Mutex<State>,
    stop: CancellationToken,
    /// Nobody looks any more when this is gone.
    _stops: DropGuard,
}

/// What every watch needs.
#[derive(Debug)]
struct Means {
    watch: Client,
    discovery: Client,
    options: Options,
}

#[derive(Debug, Default)]
struct State {
    views: BTreeMap<Place, Used>,
    references: BTreeMap<Key, Reference>,
    begun: u64,
    /// The resources of which metrics were shown last.
    shown: BTreeSet<Arc<str>>,
}

/// A view and by how many HPAs it is used.
#[derive(Debug)]
struct Used {
    view: Arc<View>,
    by: usize,
    /// Ends its watch.
    stop: CancellationToken,
}

/// What an HPA refers to.
#[derive(Debug)]
struct Reference {
    view: Arc<View>,
    name: Box<str>,
}

/// A resource, and where it is watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    group: String,
    version: String,
    resource: String,
    namespace: Option<Arc<str>>,
}

impl Place {
    fn is_of(&self, mapping: &Mapping) -> bool {
        self.group == mapping.group && self.version == mapping.version && self.resource == mapping.resource
    }
}

impl Targets {
    /// Watches nothing yet. Everything ends with `stop`, or with this.
    pub fn new(clients: &Clients, options: Options, stop: &CancellationToken) -> Self {
        let means = Means { watch: clients.watch.clone(), discovery: clients.discovery.clone(), options };
        let stop = stop.child_token();
        Self { means: Arc::new(means), state: Mutex::default(), _stops: stop.clone().drop_guard(), stop }
    }

    /// Notes that an HPA refers to an object of this resource in its own namespace, and answers with what its Scale shows;
    /// `None` if it has to be read. The first reference to a resource begins to watch it.
    pub fn look(&self, hpa: &Key, mapping: &Mapping, name: &str) -> Option<Target> {
        self.refer(hpa, mapping, name)?.look(&hpa.namespace, name)
    }

    /// Remembers that the target of an HPA was read or written at a version.
    pub fn saw(&self, hpa: &Key, resource_version: &str) {
        self.of(hpa, |view, name| view.objects.saw(&hpa.namespace, name, resource_version));
    }

    /// Remembers that the target of an HPA was written to, without knowing what came of it.
    pub fn lost_sight(&self, hpa: &Key) {
        self.of(hpa, |view, name| view.objects.lost_sight(&hpa.namespace, name));
    }

    /// Takes in that the target of an HPA is not there: what was remembered of it is over.
    pub fn forget(&self, hpa: &Key) {
        self.of(hpa, |view, name| view.objects.forget(&hpa.namespace, name));
    }

    /// Takes in that an HPA refers to nothing that can be watched, or is gone.
    pub fn release(&self, hpa: &Key) {
        let mut state = self.lock();
        if let Some(reference) = state.references.remove(hpa) {
            state.unuse(hpa, &reference);
        }
    }

    /// How the watches are doing, all of one resource together, and how many objects each shows; and which resources are
    /// not watched any more since this was asked last.
    pub fn levels(&self) -> (Vec<(WatchStatus, usize)>, Vec<Arc<str>>) {
        let mut state = self.lock();
        let mut by_resource: BTreeMap<Arc<str>, (Vec<_>, usize)> = BTreeMap::new();
        for Used { view, .. } in state.views.values() {
            if let Some(handle) = view.handle() {
                let all = by_resource.entry(view.resource()).or_default();
                all.0.push(handle);
                all.1 += view.objects.len();
            }
        }
        let shown = by_resource.keys().cloned().collect();
        let before = std::mem::replace(&mut state.shown, shown);
        let gone = before.into_iter().filter(|resource| !state.shown.contains(resource)).collect();
        let levels = by_resource.into_values();
        (levels.map(|(handles, objects)| (Informer::new(handles).status(), objects)).collect(), gone)
    }

    fn refer(&self, hpa: &Key, mapping: &Mapping, name: &str) -> Option<Arc<View>> {
        let mut state = self.lock();
        if let Some(reference) = state.references.get(hpa)
            && *reference.name == *name
            && reference.view.place().is_of(mapping)
        {
            return Some(Arc::clone(&reference.view));
        }
        // The new one first: a watch that both use goes on.
        let view = mapping.namespaced.then(|| self.begin(&mut state, hpa, mapping));
        let new = view.clone().map(|view| Reference { view, name: name.into() });
        let old = match new {
            Some(new) => state.references.insert(hpa.clone(), new),
            None => state.references.remove(hpa),
        };
        if let Some(old) = old {
            state.unuse(hpa, &old);
        }
        view
    }

    fn begin(&self, state: &mut State, hpa: &Key, mapping: &Mapping) -> Arc<View> {
        let Mapping { group, version, resource, .. } = mapping.clone();
        let namespace = self.means.options.by_namespace.then(|| Arc::clone(&hpa.namespace));
        let place = Place { group, version, resource, namespace };
        let State { views, begun, .. } = state;
        let used = views.entry(place).or_insert_with_key(|place| {
            *begun += 1;
            let (view, stop) = (Arc::new(View::new(place.clone(), mapping.clone())), self.stop.child_token());
            let running = Arc::clone(&view).run(Arc::clone(&self.means), *begun);
            tokio::spawn(stop.clone().run_until_cancelled_owned(running));
            Used { view, by: 0, stop }
        });
        used.by += 1;
        Arc::clone(&used.view)
    }

    fn of(&self, hpa: &Key, act: impl FnOnce(&View, &str)) {
        if let Some(reference) = self.lock().references.get(hpa) {
            act(&reference.view, &reference.name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn unuse(&mut self, hpa: &Key, reference: &Reference) {
        let place = reference.view.place();
        reference.view.objects.forget(&hpa.namespace, &reference.name);
        if let Some(used) = self.views.get_mut(place) {
            used.by -= 1;
            if used.by == 0 {
                used.stop.cancel();
                self.views.remove(place);
            }
        }
    }
}
