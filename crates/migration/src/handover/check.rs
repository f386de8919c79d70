//! `handover check`: tries the writes of the built-in controller as dry runs, by impersonation.
//!
//! The Scale and the HPA are sent as they were read, with `dryRun=All`, so the writes change nothing. A dry run passes
//! through admission like any other request.

use std::fmt;
use std::sync::Arc;

use autoscaling::status::CrossVersionObjectReference;
use autoscaling::target_group;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Method;
use serde::Serialize;

use super::census::Census;
use super::{API_VERSION, HandoverError, Session, Verdict, unavailable};
use cluster::call::Call;
use cluster::client::{Client, Clients};
use cluster::error::ApiError;
use cluster::mapper::Mapper;
use cluster::permission::{self, Permission};
use engine::store::Key;
use terminal::explain::{Cell, Role, plain};
use terminal::words::counted;

/// Maximum number of concurrent dry runs.
const AT_ONCE: usize = 8;
/// Maximum number of attempts at a write. A write of another client between the read and the dry run causes a conflict.
const ATTEMPTS: u32 = 5;
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The answer as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "HandoverCheck"))]
pub(super) struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    controller_name: &'a str,
    users: &'a [User],
    attempts: &'a [Attempt],
    notes: &'a [String],
    passed: bool,
}

/// A user of the built-in controller.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct User {
    name: String,
    /// Whether RBAC permits the user to write the status of HPAs.
    may_write: bool,
}

/// The scale write and the status write for one HPA by one user.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Attempt {
    namespace: String,
    name: String,
    in_scope: bool,
    user: String,
    scale: WriteResult,
    status: WriteResult,
    /// Whether both writes have the intended result.
    ok: bool,
}

pub(super) async fn run(session: &mut Session<'_>, users: &[String]) -> Result<Verdict, HandoverError> {
    let namespace = session.options.cluster.namespace.clone();
    let page = session.page.read().await;
    let name = session.controller_name(&page)?;
    let is_all = page.as_ref().is_ok_and(|page| page.scope == "all");
    let mut notes: Vec<String> = page.err().as_ref().map(unavailable).into_iter().collect();
    let census = Census::read(session.clients, namespace.as_deref()).await?;
    notes.extend(census.unknown_namespaces.clone());
    let mut tried = Vec::new();
    for user in users {
        tried.push(User { name: user.clone(), may_write: may_write(session.clients, user).await? });
    }
    let mut keys: Vec<(&Key, bool)> = if is_all {
        census.hpas.keys().map(|key| (key, true)).collect()
    } else {
        census.in_scope(&name).map(|(key, _, _)| (key, true)).collect()
    };
    let in_scope = keys.len();
    if !is_all {
        // One HPA out of scope is also tried. Neither this HPA nor its namespace may have the label, because the guard
        // of another instance may refuse writes of a labelled HPA.
        let outside = census
            .hpas
            .iter()
            .find(|(key, hpa)| hpa.label.is_none() && census.namespace_label(&key.namespace).is_none());
        match outside {
            Some((key, _)) => keys.push((key, false)),
            None => notes.push("no HPA is out of scope, so no write was tried that must pass".to_owned()),
        }
    }
    let mapper = Arc::new(Mapper::new(session.clients.discovery.clone()));
    let active = tried.iter().filter(|user| user.may_write);
    let writers = active.map(|user| Writer::new(session.clients, Arc::clone(&mapper), &user.name));
    let writers = writers.collect::<Result<Vec<_>, _>>().map_err(|error| HandoverError::Unreadable {
        what: "the scale of HPAs as the built-in controller",
        error: Box::new(error),
    })?;
    let pairs = writers.iter().flat_map(|writer| keys.iter().map(move |key| (writer, key)));
    let attempts: Vec<Attempt> = stream::iter(pairs)
        .map(|(writer, (key, in_scope))| attempt(writer, key, *in_scope, &census))
        .buffered(AT_ONCE)
        .collect()
        .await;
    let no_writer = writers.is_empty();
    if no_writer && !is_all {
        notes.push(
            "none of the users may write the status of HPAs: find the user of the built-in controller with handover \
             plan, and pass it with --built-in-users"
                .to_owned(),
        );
    }
    if in_scope == 0 {
        notes.push("no HPA is in scope, so no write was tried that must be refused".to_owned());
    }
    // Without an HPA in scope, the check proves nothing.
    let passed = in_scope > 0 && attempts.iter().all(|attempt| attempt.ok) && (is_all || !no_writer);
    let text = text(&tried, &attempts, &notes, in_scope, session);
    session.say(&text)?;
    session.document(&Document {
        api_version: API_VERSION,
        kind: "HandoverCheck",
        controller_name: name.as_str(),
        users: &tried,
        attempts: &attempts,
        notes: &notes,
        passed,
    })?;
    Ok(Verdict::good_if(passed))
}

async fn attempt(writer: &Writer, key: &Key, in_scope: bool, census: &Census) -> Attempt {
    let target = census.hpas.get(key).map(|hpa| hpa.target.clone()).unwrap_or_default();
    let scale = writer.scale(&key.namespace, &target).await;
    let status = writer.status(key).await;
    let intended = |result: &WriteResult| match result {
        WriteResult::Refused { .. } | WriteResult::Unauthorized { .. } => in_scope,
        WriteResult::Passed => !in_scope,
        WriteResult::NoTarget { .. } => true,
        WriteResult::Failed { .. } => false,
    };
    Attempt {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        in_scope,
        user: writer.user.clone(),
        ok: intended(&scale) && intended(&status),
        scale,
        status,
    }
}

/// Returns whether RBAC permits a user to write the status of HPAs. Fails if the caller may not impersonate the user.
pub(super) async fn may_write(clients: &Clients, user: &str) -> Result<bool, HandoverError> {
    let failed = |error| HandoverError::Unreadable { what: "permissions", error: Box::new(error) };
    let (permission, name) = impersonation(user);
    let allowed =
        permission::allowed(&clients.core, &permission, &name, "impersonate").await.map_err(failed)?;
    if !allowed {
        let needed = Permission { names: vec![name], ..permission };
        let role = match &needed.namespace {
            Some(namespace) => format!("Role in namespace {namespace}, or a ClusterRole"),
            None => "ClusterRole".to_owned(),
        };
        return Err(HandoverError::MayNotImpersonate { user: user.to_owned(), rule: needed.rule(), role });
    }
    let status = Permission {
        subresource: "status",
        ..permission::row("autoscaling", "horizontalpodautoscalers", &["update"])
    };
    let client = clients.core.impersonating(user).map_err(failed)?;
    permission::allowed(&client, &status, "", "update").await.map_err(failed)
}

/// Returns the permission to impersonate a user, and the name of the user or of the service account.
fn impersonation(user: &str) -> (Permission, String) {
    let account = user.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':'));
    let row = |resource| permission::row("", resource, &["impersonate"]);
    match account {
        Some((namespace, name)) => {
            (Permission { namespace: Some(namespace.to_owned()), ..row("serviceaccounts") }, name.to_owned())
        }
        None => (row("users"), user.to_owned()),
    }
}

fn text(
    users: &[User],
    attempts: &[Attempt],
    notes: &[String],
    in_scope: usize,
    session: &Session<'_>,
) -> String {
    let style = session.style();
    let mut text = String::new();
    for user in users {
        let rights =
            if user.may_write { "may write the status of HPAs" } else { "may not write the status of HPAs" };
        text.push_str(&style.text_line("user", format!("{} {rights}", user.name)));
    }
    for note in notes {
        text.push_str(&style.text_line("note", note.as_str()));
    }
    let wrong: Vec<&Attempt> = attempts.iter().filter(|attempt| !attempt.ok).collect();
    if wrong.is_empty() && in_scope == 0 {
        return text;
    }
    if wrong.is_empty() {
        let outside = attempts.iter().filter(|attempt| !attempt.in_scope).count();
        let line = format!(
            "{} in scope refused, {} out of scope passed",
            counted(in_scope, "HPA"),
            counted(outside, "write pair")
        );
        text.push_str(&style.text_line("", line));
        return text;
    }
    let rows: Vec<Vec<Cell>> = wrong
        .iter()
        .map(|attempt| {
            vec![
                plain(attempt.namespace.as_str()),
                plain(attempt.name.as_str()),
                plain(if attempt.in_scope { "in" } else { "out" }),
                plain(attempt.user.as_str()),
                cell(&attempt.scale, attempt.in_scope),
                cell(&attempt.status, attempt.in_scope),
            ]
        })
        .collect();
    text.push_str(&style.table(&["NAMESPACE", "NAME", "SCOPE", "USER", "SCALE", "STATUS"], &rows));
    text
}

fn cell(result: &WriteResult, in_scope: bool) -> Cell {
    let role = match result {
        WriteResult::Refused { .. } | WriteResult::Unauthorized { .. } if in_scope => Role::Good,
        WriteResult::Passed if !in_scope => Role::Good,
        WriteResult::NoTarget { .. } => Role::Dim,
        _ => Role::Bad,
    };
    (role, result.to_string())
}

/// The result of one write as a dry run.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum WriteResult {
    /// Admission refused the write, although RBAC permits it.
    Refused { message: String },
    /// RBAC does not permit the write.
    Unauthorized { message: String },
    /// The write would have been stored.
    Passed,
    /// The object was not found, or its kind cannot be resolved. The built-in controller does not write such an object
    /// either.
    NoTarget { message: String },
    /// The write failed for another reason.
    Failed { message: String },
}

impl fmt::Display for WriteResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { .. } => f.write_str("refused"),
            Self::Unauthorized { message } => write!(f, "not authorized: {message}"),
            Self::Passed => f.write_str("passed"),
            Self::NoTarget { message } => write!(f, "no target: {message}"),
            Self::Failed { message } => write!(f, "failed: {message}"),
        }
    }
}

/// Sends writes as an impersonated user, and reads as the caller.
#[derive(Debug)]
struct Writer {
    user: String,
    own: Client,
    impersonating: Client,
    mapper: Arc<Mapper>,
}

impl Writer {
    fn new(clients: &Clients, mapper: Arc<Mapper>, user: &str) -> Result<Self, ApiError> {
        let impersonating = clients.core.impersonating(user)?;
        Ok(Self { user: user.to_owned(), own: clients.core.clone(), impersonating, mapper })
    }

    /// Writes the unchanged Scale of a target.
    async fn scale(&self, namespace: &str, target: &CrossVersionObjectReference) -> WriteResult {
        let failed = |message: String| WriteResult::Failed { message };
        let group = match target_group(target) {
            Ok(group) => group,
            Err(error) => return WriteResult::NoTarget { message: error.to_string() },
        };
        let mappings = match self.mapper.mappings(group, &target.kind).await {
            Ok(mappings) => mappings,
            Err(error) => return WriteResult::NoTarget { message: error.to_string() },
        };
        let Some(mapping) = mappings.iter().find(|mapping| mapping.namespaced) else {
            return failed(format!("{} is not a namespaced kind", target.kind));
        };
        let permission = Permission {
            subresource: "scale",
            namespace: Some(namespace.to_owned()),
            ..permission::row(&mapping.group, &mapping.resource, &["update"])
        };
        let path: Vec<&str> = mapping.path(namespace, &target.name).chain(["scale"]).collect();
        self.write(&path, &permission, &target.name).await
    }

    /// Writes the unchanged status of an HPA.
    async fn status(&self, key: &Key) -> WriteResult {
        let permission = Permission {
            subresource: "status",
            namespace: Some(key.namespace.to_string()),
            ..permission::row("autoscaling", "horizontalpodautoscalers", &["update"])
        };
        let path = [
            "apis",
            "autoscaling",
            "v2",
            "namespaces",
            &key.namespace,
            "horizontalpodautoscalers",
            &key.name,
            "status",
        ];
        self.write(&path, &permission, &key.name).await
    }

    /// Reads an object and writes it unchanged.
    async fn write(&self, path: &[&str], permission: &Permission, name: &str) -> WriteResult {
        let mut attempt = 1;
        loop {
            let read = Call::get(path.iter().copied()).about(permission.full_resource(), name);
            let object = match self.own.bytes(&read).await {
                Ok(object) => object,
                Err(error) if error.is_not_found() => {
                    return WriteResult::NoTarget { message: error.to_string() };
                }
                Err(error) => {
                    return WriteResult::Failed { message: format!("cannot read the object: {error}") };
                }
            };
            match self.put(path, permission, name, object).await {
                Ok(()) => return WriteResult::Passed,
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
                Err(error) if error.is_forbidden() => return self.refused(permission, name, &error).await,
                Err(error) => return WriteResult::Failed { message: error.to_string() },
            }
        }
    }

    async fn put(
        &self,
        path: &[&str],
        permission: &Permission,
        name: &str,
        object: Bytes,
    ) -> Result<(), ApiError> {
        let call = Call::send(Method::PUT, path.iter().copied(), "application/json", object.to_vec());
        let call = call.query("dryRun", "All").about(permission.full_resource(), name);
        self.impersonating.bytes(&call).await.map(drop)
    }

    /// Distinguishes a refusal by admission from a refusal by RBAC. Both have the status code 403.
    async fn refused(&self, permission: &Permission, name: &str, error: &ApiError) -> WriteResult {
        let message = error.to_string();
        match permission::allowed(&self.impersonating, permission, name, "update").await {
            Ok(true) => WriteResult::Refused { message },
            Ok(false) => WriteResult::Unauthorized { message },
            Err(error) => {
                WriteResult::Failed { message: format!("{message}; its cause is unknown: {error}") }
            }
        }
    }
}
