//! Maps a path and a method to a verb on a resource, and calls the store.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::list::{self, Format, ListOptions, ListPage};
use super::metrics::{MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
use super::registry::{AUTHENTICATION, AUTHORIZATION, ResourceType, TYPES};
use super::requests::Answer;
use super::route::{Call, Filter, ResourcePath};
use super::scale;
use super::status::Status;
use super::store::{Key, StoredObject};
use super::watch::{WatchOptions, Watcher};
use super::write::{self, DeleteOptions, Write};
use super::{Cluster, discovery, hpa, object, patch, ports, protobuf, reviews};

/// Returns the response of Kubernetes servers to an unknown path.
fn no_such_path() -> Answer {
    Answer::text(404, "404 page not found\n")
}

pub(crate) fn answer(cluster: &Cluster, call: &Call) -> Answer {
    let segments: Vec<&str> = call.route.segments.iter().map(String::as_str).collect();
    let hidden = cluster.hidden();
    let json = |object: &Value| Bytes::from(object::encode(object));
    let found = match segments.as_slice() {
        ["healthz" | "readyz" | "livez", ..] => return Answer::text(200, "ok"),
        ["version"] => Some(json(&discovery::version())),
        ["api"] => Some(json(&discovery::core_versions())),
        ["apis"] => Some(json(&discovery::group_list(&hidden, &cluster.metrics_groups()))),
        ["api", version] => discovery::resources(&hidden, "", version),
        ["apis", group] => discovery::group(&hidden, group),
        ["apis", group, version] => discovery::resources(&hidden, group, version),
        ["openapi", "v3"] => Some(json(&discovery::openapi_index(&hidden))),
        ["openapi", "v3", "api", version] => discovery::openapi_document("", version).as_ref().map(json),
        ["openapi", "v3", "apis", group, version] => {
            discovery::openapi_document(group, version).as_ref().map(json)
        }
        _ => None,
    };
    if let Some(text) = found {
        return Answer::json(200, text);
    }
    if let ["apis", group, version @ ..] = segments.as_slice()
        && version.len() <= 1
        && let Some(served) = cluster.metrics_groups().get(*group)
        && let Some(document) = discovery::metrics_group(group, version.first().copied(), served)
    {
        return Answer::json(200, json(&document));
    }
    match (&call.route.resource, segments.as_slice()) {
        (Some(path), _) if !hidden.contains(&path.group) => on_resource(cluster, call, path),
        // For an unknown version of an existing group, clients expect a Status.
        (None, ["apis", group, _]) if discovery::group(&hidden, group).is_some() => {
            Status::unknown_resource().into()
        }
        _ => no_such_path(),
    }
}

fn on_resource(cluster: &Cluster, call: &Call, path: &ResourcePath) -> Answer {
    if let Some(api) = MetricsApi::from_group(&path.group) {
        let backend = cluster.metrics_backend();
        return backend.map_or_else(no_such_path, |backend| metrics(cluster, call, path, api, &*backend));
    }
    if [AUTHORIZATION, AUTHENTICATION].contains(&(path.group.as_str(), path.version.as_str())) {
        return review(cluster, call, path);
    }
    if (path.group.as_str(), path.version.as_str()) == hpa::v1::V1 {
        return on_v1_hpas(cluster, call, path).unwrap_or_else(Answer::from);
    }
    if path.subresource.as_deref() == Some("scale") {
        return on_scale(cluster, call, path).unwrap_or_else(Answer::from);
    }
    let Some(ty) = ResourceType::at(&path.group, &path.version, &path.resource) else {
        if let Some(served) = cluster.metrics_groups().get(&path.group)
            && served.versions.contains(&&*path.version)
        {
            // Only a path of an external metric has one segment.
            let api = if path.rest.len() == 1 { MetricsApi::External } else { MetricsApi::Custom };
            return metrics(cluster, call, path, api, &*served.backend);
        }
        let group_exists = TYPES.iter().any(|ty| ty.group == path.group);
        return if group_exists { Status::unknown_resource().into() } else { no_such_path() };
    };
    if path.rest.len() > 3 || ty.namespaced && path.namespace.is_none() && path.name.is_some() {
        return no_such_path();
    }
    match path.subresource.as_deref() {
        None => on_objects(cluster, call, path, ty).unwrap_or_else(Answer::from),
        Some("status") if ty.status.is_some() => {
            on_status(cluster, call, path, ty).unwrap_or_else(Answer::from)
        }
        Some("portforward") if ty.resource == "pods" => {
            ports::allow(cluster, call, path).unwrap_or_else(Answer::from)
        }
        Some(_) => no_such_path(),
    }
}

fn metrics(
    cluster: &Cluster,
    call: &Call,
    path: &ResourcePath,
    api: MetricsApi,
    backend: &dyn MetricsBackend,
) -> Answer {
    if !matches!(call.route.verb, "get" | "list") {
        return Status::method_not_allowed().into();
    }
    let request = MetricsRequest {
        cluster,
        api,
        version: &path.version,
        namespace: path.names().0,
        path: &path.rest,
        label_selector: call.query.get("labelSelector"),
        metric_label_selector: call.query.get("metricLabelSelector"),
    };
    match backend.answer(&request) {
        MetricsReply::Json(object) => Answer::json(200, object::encode(&object)),
        MetricsReply::Encoded(text) => Answer::json(200, text),
        MetricsReply::Status(status) => status.into(),
        MetricsReply::Text { code, body } => Answer::text(code, body),
        MetricsReply::Absent => no_such_path(),
    }
}

/// Answers a review of a token, of a permission, or of the client itself.
fn review(cluster: &Cluster, call: &Call, path: &ResourcePath) -> Answer {
    let Some(kind) = reviews::kind(&path.group, &path.resource) else { return no_such_path() };
    if call.route.verb != "create" {
        return Status::method_not_allowed().into();
    }
    // Any body is accepted, because kubectl sends SelfSubjectAccessReviews as protobuf.
    let mut review = body(call).unwrap_or_else(|_| json!({ "spec": {} }));
    let status = cluster.reviews().status(kind, &review);
    let fields = object::map(&mut review);
    fields.insert("apiVersion".to_owned(), format!("{}/{}", path.group, path.version).into());
    fields.insert("kind".to_owned(), kind.into());
    fields.insert("status".to_owned(), status);
    Answer::json(201, object::encode(&review))
}

fn on_scale(cluster: &Cluster, call: &Call, path: &ResourcePath) -> Result<Answer, Status> {
    let Some(target) = path.scale_path() else {
        return Ok(no_such_path());
    };
    let write = write_context(cluster, call);
    let mut state = cluster.lock();
    let scale = match call.route.verb {
        "get" => scale::get(&state, &target)?,
        "update" => scale::update(&mut state, &target, &body(call)?, &write)?,
        "patch" => {
            let mut scale = serde_json::from_slice(&scale::get(&state, &target)?).unwrap_or_default();
            patch::apply(call.content_type.as_str(), false, &mut scale, &call.body)?;
            scale::update(&mut state, &target, &scale, &write)?
        }
        _ => return Err(Status::method_not_allowed()),
    };
    Ok(Answer::json(200, scale))
}

fn on_status(
    cluster: &Cluster,
    call: &Call,
    path: &ResourcePath,
    ty: &'static ResourceType,
) -> Result<Answer, Status> {
    let (namespace, name) = path.names();
    let write = write_context(cluster, call);
    // A PUT of the status uses only these fields of the body.
    let fields = |json: &[u8]| object::fields(json, &["apiVersion", "kind", "metadata", "status"]);
    let sent = if call.route.verb == "update" { read_body(call, fields)? } else { Value::Null };
    let mut state = cluster.lock();
    let stored = match call.route.verb {
        "get" => write::existing(&state, ty, namespace, name)?,
        "update" => write::update_status(&mut state, ty, namespace, name, sent, &write)?,
        "patch" => {
            let mut object = write::existing(&state, ty, namespace, name)?.value();
            patch::apply(call.content_type.as_str(), !ty.custom, &mut object, &call.body)?;
            write::update_status(&mut state, ty, namespace, name, object, &write)?
        }
        _ => return Err(Status::method_not_allowed()),
    };
    drop(state);
    Ok(one(cluster, call, 200, &stored))
}

fn on_objects(
    cluster: &Cluster,
    call: &Call,
    path: &ResourcePath,
    ty: &'static ResourceType,
) -> Result<Answer, Status> {
    let (namespace, name) = path.names();
    let write = write_context(cluster, call);
    match call.route.verb {
        "list" => list_objects(cluster, call, path, ty),
        "watch" => watch_objects(cluster, call, path, ty),
        "get" => {
            let stored = write::existing(&cluster.lock(), ty, namespace, name)?;
            Ok(one(cluster, call, 200, &stored))
        }
        "create" if path.name.is_some() || ty.namespaced && path.namespace.is_none() => {
            Err(Status::method_not_allowed())
        }
        "create" => {
            let stored = write::create(&mut cluster.lock(), ty, namespace, body(call)?, &write)?;
            Ok(one(cluster, call, 201, &stored))
        }
        "update" if path.name.is_some() => {
            let stored = write::update(&mut cluster.lock(), ty, namespace, name, body(call)?, &write)?;
            Ok(one(cluster, call, 200, &stored))
        }
        "patch" if path.name.is_some() => {
            let mut state = cluster.lock();
            let mut object = write::existing(&state, ty, namespace, name)?.value();
            patch::apply(call.content_type.as_str(), !ty.custom, &mut object, &call.body)?;
            let stored = write::update(&mut state, ty, namespace, name, object, &write)?;
            drop(state);
            Ok(one(cluster, call, 200, &stored))
        }
        "delete" => {
            let options = delete_options(call)?;
            let (stored, gone) = write::delete(&mut cluster.lock(), ty, namespace, name, &options, &write)?;
            // For these kinds, Kubernetes returns the object instead of a Status.
            let returns_object = matches!(ty.kind, "Pod" | "Namespace" | "Service" | "ServiceAccount");
            Ok(if gone && !returns_object {
                Answer::json(200, object::encode(&deleted(&stored)))
            } else {
                one(cluster, call, 200, &stored)
            })
        }
        "deletecollection" => delete_collection(cluster, call, path, ty, &write),
        _ => Err(Status::method_not_allowed()),
    }
}

/// Serves HPAs of autoscaling/v1. Converts requests and responses, and stores v2.
fn on_v1_hpas(cluster: &Cluster, call: &Call, path: &ResourcePath) -> Result<Answer, Status> {
    let hpas = ResourceType::named("autoscaling/horizontalpodautoscalers");
    let Some(ty) = hpas.filter(|ty| ty.resource == path.resource && path.subresource.is_none()) else {
        return Err(Status::unknown_resource());
    };
    let mut call = call.clone();
    match call.route.verb {
        "create" | "update" => {
            call.body = object::encode(&hpa::v1::to_v2(body(&call)?)).into();
            call.content_type.clear();
        }
        "patch" => {
            let (namespace, name) = path.names();
            let stored = write::existing(&cluster.lock(), ty, namespace, name)?;
            let mut object = hpa::v1::from_v2(stored.value());
            patch::apply(&call.content_type, true, &mut object, &call.body)?;
            call.body = object::encode(&hpa::v1::to_v2(object)).into();
            call.content_type.clear();
            call.route.verb = "update";
        }
        "get" | "list" | "delete" => {}
        _ => return Err(Status::method_not_allowed()),
    }
    let mut answer = on_objects(cluster, &call, path, ty)?;
    if let Answer::Whole(whole) = &mut answer {
        let hpa = serde_json::from_slice(&whole.body).map(hpa::v1::from_v2).unwrap_or_default();
        whole.body = object::encode(&hpa).into();
    }
    Ok(answer)
}

fn list_objects(
    cluster: &Cluster,
    call: &Call,
    path: &ResourcePath,
    ty: &'static ResourceType,
) -> Result<Answer, Status> {
    let options = ListOptions {
        filter: filter(call, ty)?,
        limit: call.query.get("limit").parse().unwrap_or(0),
        next: call.query.get("continue").to_owned(),
        version: call.query.get("resourceVersion").to_owned(),
        version_match: call.query.get("resourceVersionMatch").to_owned(),
    };
    let listed = list::list(&cluster.lock(), ty, path.namespace.as_deref(), &options)?;
    Ok(many(cluster, call, ty, &listed))
}

fn watch_objects(
    cluster: &Cluster,
    call: &Call,
    path: &ResourcePath,
    ty: &'static ResourceType,
) -> Result<Answer, Status> {
    let mut filter = filter(call, ty)?;
    if let Some(name) = &path.name {
        filter.only(name);
    }
    let options = WatchOptions {
        filter,
        version: call.query.get("resourceVersion").to_owned(),
        version_match: call.query.get("resourceVersionMatch").to_owned(),
        bookmarks: call.query.flag("allowWatchBookmarks") == Some(true),
        initial_events: call.query.flag("sendInitialEvents"),
        timeout: call.query.get("timeoutSeconds").parse().ok().map(Duration::from_secs),
    };
    let subject = call.route.subject(&call.user_agent, "");
    let watcher =
        Watcher::open(cluster, ty, path.namespace.as_deref(), options, Format::from_call(call), subject)?;
    Ok(Answer::Pieces(watcher.pieces()))
}

fn delete_collection(
    cluster: &Cluster,
    call: &Call,
    path: &ResourcePath,
    ty: &'static ResourceType,
    write: &Write<'_>,
) -> Result<Answer, Status> {
    let options = delete_options(call)?;
    let listing = ListOptions { filter: filter(call, ty)?, ..ListOptions::default() };
    let mut state = cluster.lock();
    let listed = list::list(&state, ty, path.namespace.as_deref(), &listing)?;
    let keys: Vec<Key> =
        listed.items.iter().map(|stored| Key::new(stored.namespace(), stored.name())).collect();
    for key in keys {
        // An earlier iteration may already have removed the object.
        let _ = write::delete(&mut state, ty, &key.namespace, &key.name, &options, write);
    }
    drop(state);
    Ok(many(cluster, call, ty, &listed))
}

fn filter(call: &Call, ty: &ResourceType) -> Result<Filter, Status> {
    Filter::parse(ty, call.query.get("labelSelector"), call.query.get("fieldSelector"))
}

fn many(cluster: &Cluster, call: &Call, ty: &ResourceType, listed: &ListPage) -> Answer {
    let mut out = Vec::new();
    Format::from_call(call).list(ty, listed, cluster.now(), &mut out);
    Answer::json(200, out)
}

fn one(cluster: &Cluster, call: &Call, code: u16, stored: &StoredObject) -> Answer {
    let mut out = Vec::with_capacity(stored.size());
    Format::from_call(call).object(stored, cluster.now(), &mut out);
    Answer::json(code, out)
}

/// Returns the `metav1.Status` of a completed deletion.
fn deleted(stored: &StoredObject) -> Value {
    let mut details = json!({ "name": stored.name(), "kind": stored.ty.resource, "uid": &*stored.uid });
    if !stored.ty.group.is_empty() {
        object::map(&mut details).insert("group".to_owned(), stored.ty.group.into());
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

fn delete_options(call: &Call) -> Result<DeleteOptions, Status> {
    let given = if call.body.is_empty() { Value::Null } else { body(call)? };
    let query = call.query.get("gracePeriodSeconds");
    let policy = match call.query.get("propagationPolicy") {
        "" => object::text(&given, &["propagationPolicy"]),
        policy => policy,
    };
    let precondition = |key: &str| {
        Some(object::text(&given, &["preconditions", key]).to_owned()).filter(|text| !text.is_empty())
    };
    Ok(DeleteOptions {
        grace_period: query.parse().ok().or_else(|| object::int(&given, &["gracePeriodSeconds"])),
        orphan: policy == "Orphan" || given.get("orphanDependents") == Some(&Value::Bool(true)),
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
    })
}

fn write_context<'a>(cluster: &Cluster, call: &'a Call) -> Write<'a> {
    let given = call.query.get("fieldManager");
    let agent = call.user_agent.split('/').next().unwrap_or("");
    let manager = if given.is_empty() { agent } else { given };
    let in_body = || body(call).is_ok_and(|body| !object::list(&body, &["dryRun"]).is_empty());
    Write {
        now: cluster.now(),
        dry_run: call.query.get("dryRun") == "All" || call.route.verb.starts_with("delete") && in_body(),
        manager: Some(if manager.is_empty() { "unknown" } else { manager }),
        subresource: "",
    }
}

/// Reads the body as an object, from JSON or protobuf.
fn body(call: &Call) -> Result<Value, Status> {
    if call.content_type.split(';').next().is_some_and(|kind| kind.trim() == protobuf::MEDIA) {
        return protobuf::decode(&call.body).map_err(|error| Status::bad_request(error.to_string()));
    }
    read_body(call, |json| serde_json::from_slice(json).ok().filter(Value::is_object))
}

fn read_body(call: &Call, read: impl FnOnce(&[u8]) -> Option<Value>) -> Result<Value, Status> {
    let kind = call.content_type.split(';').next().unwrap_or("").trim();
    if !matches!(kind, "" | "application/json") {
        return Err(Status::unsupported_media_type("application/json"));
    }
    read(&call.body).ok_or_else(|| {
        Status::bad_request(
            "the object provided is unrecognized (must be of type Object): the body is not a JSON object",
        )
    })
}
