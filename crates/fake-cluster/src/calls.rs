//! Reads and writes from within the process, without HTTP.

use serde_json::Value;

use super::Cluster;
use super::object::{meta, text};
use super::registry::ResourceType;
use super::route::Filter;
use super::status::Status;
use super::store::{BareScale, ScalePath};
use super::write::{self, DeleteOptions, Write};

impl Cluster {
    /// Creates an object by the rules of a POST. Unlike a POST, it first creates a missing namespace.
    pub fn create(&self, object: Value) -> Result<Value, Status> {
        let ty = type_of(&object)?;
        let namespace = namespace_of(ty, &object);
        let mut state = self.lock();
        write::ensure_namespace(&mut state, &namespace, self.now());
        let stored = write::create(&mut state, ty, &namespace, object, &self.write())?;
        drop(state);
        Ok(stored.value())
    }

    /// Updates an object, by the rules of a PUT.
    pub fn update(&self, object: Value) -> Result<(), Status> {
        let ty = type_of(&object)?;
        let (namespace, name) = (namespace_of(ty, &object), meta(&object, "name").to_owned());
        write::update(&mut self.lock(), ty, &namespace, &name, object, &self.write())?;
        Ok(())
    }

    /// Updates the status of an object, by the rules of a PUT of the status subresource.
    pub fn update_status(&self, object: Value) -> Result<(), Status> {
        let ty = type_of(&object)?;
        let (namespace, name) = (namespace_of(ty, &object), meta(&object, "name").to_owned());
        write::update_status(&mut self.lock(), ty, &namespace, &name, object, &self.write())?;
        Ok(())
    }

    /// Returns an object. `resource` is `group/resource`, or the resource alone in the core group: `apps/deployments`,
    /// `pods`. `namespace` is empty for cluster-scoped types.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let ty = ResourceType::named(resource)?;
        let stored = self.lock().get(ty, namespace, name).cloned();
        stored.map(|stored| stored.value())
    }

    /// Lists the objects of a resource in one namespace or in all, ordered by namespace and name.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        self.select(resource, namespace, "").unwrap_or_default()
    }

    /// Lists the objects of a resource with labels that match a selector in text form, ordered by namespace and name.
    pub fn select(
        &self,
        resource: &str,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Value>, Status> {
        let Some(ty) = ResourceType::named(resource) else {
            return Ok(Vec::new());
        };
        let filter = Filter::by_labels(labels)?;
        let matching: Vec<_> = {
            let state = self.lock();
            state.list(ty, namespace, None).filter(|stored| filter.matches(stored)).cloned().collect()
        };
        Ok(matching.iter().map(|stored| stored.value()).collect())
    }

    /// Returns the number of objects of a resource.
    pub fn count(&self, resource: &str) -> usize {
        ResourceType::named(resource).map_or(0, |ty| self.lock().count(ty))
    }

    /// Deletes an object by the rules of a DELETE without options and returns its last state. Pods on a node get a
    /// deletionTimestamp and remain until [`Cluster::delete_now`] deletes them.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        self.delete_with(resource, namespace, name, &DeleteOptions::default())
    }

    /// Deletes an object without a grace period, as the kubelet does when a pod has ended.
    pub fn delete_now(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        let options = DeleteOptions { grace_period: Some(0), ..DeleteOptions::default() };
        self.delete_with(resource, namespace, name, &options)
    }

    /// Stores an object without defaulting and validation, and notifies watches. Missing required fields are filled in:
    /// uid, creationTimestamp, generation and the namespace.
    ///
    /// An object of an unregistered kind is not stored and is returned unchanged.
    pub fn put_raw(&self, object: Value) -> Value {
        let Ok(ty) = type_of(&object) else { return object };
        write::put_raw(&mut self.lock(), ty, object, self.now()).value()
    }

    /// Creates or changes an object of a namespaced type from the JSON text of its spec, without defaulting and
    /// validation. The text is copied and not parsed, so a spec of several megabytes is cheap. An unregistered resource
    /// is ignored.
    pub fn put_spec(&self, resource: &str, namespace: &str, name: &str, spec: &str) {
        if let Some(ty) = ResourceType::named(resource) {
            write::put_spec(&mut self.lock(), ty, namespace, name, spec, self.now());
        }
    }

    /// Adds a scale target without a workload object. The target serves GET, PUT and PATCH of its path and takes
    /// precedence over a workload of the same name. The selector may be any text.
    pub fn put_scale(&self, path: &ScalePath, scale: BareScale) {
        self.lock().set_scale(path.clone(), scale);
    }

    /// Returns the current state of a bare scale target.
    pub fn scale(&self, path: &ScalePath) -> Option<BareScale> {
        self.lock().scale(path).map(|(scale, _)| scale.clone())
    }

    /// Removes a bare scale target.
    pub fn remove_scale(&self, path: &ScalePath) {
        self.lock().remove_scale(path);
    }

    fn delete_with(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Value, Status> {
        let ty = ResourceType::named(resource).ok_or_else(Status::unknown_resource)?;
        let (stored, _) = write::delete(&mut self.lock(), ty, namespace, name, options, &self.write())?;
        Ok(stored.value())
    }

    fn write(&self) -> Write<'static> {
        Write { now: self.now(), dry_run: false, manager: None, subresource: "" }
    }
}

fn type_of(object: &Value) -> Result<&'static ResourceType, Status> {
    let (version, kind) = (text(object, &["apiVersion"]), text(object, &["kind"]));
    ResourceType::for_kind(version, kind)
        .ok_or_else(|| Status::bad_request(format!("no kind {kind:?} is registered for version {version:?}")))
}

/// Returns the namespace for a write from within the process: `default` if the object has none.
fn namespace_of(ty: &ResourceType, object: &Value) -> String {
    match meta(object, "namespace") {
        "" if ty.namespaced => "default".to_owned(),
        namespace => namespace.to_owned(),
    }
}
