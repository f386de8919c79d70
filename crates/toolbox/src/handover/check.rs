//! `handover check`: tries the writes of the built-in controller as dry runs, by impersonation.
//!
//! The writes change nothing: the Scale and the HPA are sent as they were read, with `dryRun=All`. A dry run
//! passes through admission like any other request.

mod attempt;

use std::sync::Arc;

use cluster::mapper::Mapper;
use cluster::permission::{self, Permission};
use futures::{StreamExt, stream};
use serde::Serialize;

use self::attempt::{WriteResult, Writer};
use super::census::Census;
use super::table::{self, Cell, plain};
use super::{API_VERSION, HandoverError, Session, Verdict, unavailable};
use crate::explain::Role;
use crate::words::counted;
use cluster::client::Clients;
use controller::store::Key;

/// Maximum number of concurrent dry runs.
const AT_ONCE: usize = 8;
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
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
struct User {
    name: String,
    /// Whether RBAC permits the user to write the status of HPAs.
    may_write: bool,
}

/// The scale write and the status write for one HPA by one user.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
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
        // An HPA is excluded if it or its namespace has the label, because the guard of another instance may refuse the
        // write.
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
    let passed = attempts.iter().all(|attempt| attempt.ok) && (is_all || !no_writer);
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

/// Whether RBAC permits a user to write the status of HPAs. Checks first that the caller may impersonate the
/// user.
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

/// The permission to impersonate a user, and the name in it.
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
        text.push_str(&table::labelled("user", format!("{} {rights}", user.name), style));
    }
    for note in notes {
        text.push_str(&table::labelled("note", note.as_str(), style));
    }
    let wrong: Vec<&Attempt> = attempts.iter().filter(|attempt| !attempt.ok).collect();
    if wrong.is_empty() {
        let outside = attempts.iter().filter(|attempt| !attempt.in_scope).count();
        let line = format!(
            "{} in scope refused, {} out of scope passed",
            counted(in_scope, "HPA"),
            counted(outside, "write pair")
        );
        text.push_str(&table::line(line, style));
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
    text.push_str(&table::render(&["NAMESPACE", "NAME", "SCOPE", "USER", "SCALE", "STATUS"], &rows, style));
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
