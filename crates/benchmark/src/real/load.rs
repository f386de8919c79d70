//! Loads objects over the API, with many requests in flight.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use serde_json::{Value, json};

use super::control_plane::{Rest, collection, convert_error};
use crate::Failure;
use crate::world::World;

/// The maximum number of requests in flight.
const AT_ONCE: usize = 48;
/// The number of apps between two progress messages.
const PROGRESS_INTERVAL: usize = 1_000;
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Creates namespaces. Existing namespaces are not an error.
pub(super) async fn namespaces(api: &Rest, count: usize) -> Result<(), Failure> {
    for number in 0..count {
        let namespace = json!({"metadata": {"name": format!("team-{number:03}")}});
        put(api, Method::POST, "/api/v1/namespaces", &namespace).await?;
    }
    Ok(())
}

/// Creates the Deployments and pods of apps with their statuses.
pub(super) async fn apps(api: &Rest, world: &World, numbers: Range<usize>) -> Result<(), Failure> {
    let done = AtomicUsize::new(0);
    stream::iter(numbers)
        .map(|number| (number, world.objects_of_app(number)))
        .map(|(number, objects)| {
            let done = &done;
            async move {
                for object in objects {
                    with_status(api, &object).await?;
                }
                if done.fetch_add(1, Ordering::Relaxed) % PROGRESS_INTERVAL == PROGRESS_INTERVAL - 1 {
                    eprintln!("created app {number}");
                }
                Ok(())
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// Creates the HPAs of apps.
pub(super) async fn hpas(api: &Rest, world: &World, numbers: Range<usize>) -> Result<(), Failure> {
    let creations = numbers
        .filter_map(|number| world.hpa(number))
        .map(async |hpa| put(api, Method::POST, &collection(&hpa), &hpa).await);
    stream::iter(creations).buffer_unordered(AT_ONCE).try_collect().await
}

/// Deletes the HPAs of apps. Missing HPAs are not an error.
pub(super) async fn delete_hpas(api: &Rest, world: &World, numbers: Range<usize>) -> Result<(), Failure> {
    let deletions = numbers
        .filter_map(|number| world.hpa(number))
        .map(async |hpa| convert_error(api.delete_now(&path(&hpa)).await));
    stream::iter(deletions).buffer_unordered(AT_ONCE).try_collect().await
}

/// The path of an object.
pub(super) fn path(object: &Value) -> String {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    format!("{}/{name}", collection(object))
}

async fn with_status(api: &Rest, object: &Value) -> Result<(), Failure> {
    put(api, Method::POST, &collection(object), object).await?;
    put(api, Method::PUT, &format!("{}/status", path(object)), object).await
}

/// Creates or replaces an object. An existing object is not an error, because each step of a search creates the
/// namespaces again.
async fn put(api: &Rest, method: Method, path: &str, object: &Value) -> Result<(), Failure> {
    let answer = convert_error(api.send(method.clone(), path, &JSON, Some(object)).await)?;
    match answer.code {
        0..300 | 409 => Ok(()),
        code => Err(format!("{method} {path}: {code} {}", answer.text.trim()).into()),
    }
}
