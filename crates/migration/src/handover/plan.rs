//! `handover plan`: the identity of the built-in controller, the guard that fits, and its manifests.
//!
//! The text is valid input for `kubectl apply -f -`: all lines except the manifests are comments.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::census::Census;
use super::{API_VERSION, HandoverError, Session, Verdict, check, unavailable};
use crate::handover::options::Guard;
use cluster::server::{self, Server};
use coexist::handover::objects::{BUILT_IN_USERS, GuardObjects};
use terminal::options::to_yaml;
use terminal::words::{self, counted};

/// The first minor version of Kubernetes in which match conditions of webhooks and ValidatingAdmissionPolicies are
/// stable.
const FIRST_MINOR: u32 = 30;
/// The namespace of the default installation with `--scope=labelled`.
const NAMESPACE: &str = "concertina-system";
/// The ServiceAccount of the default installation.
const ACCOUNT: &str = "concertina";
const RBAC: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: system:controller:horizontal-pod-autoscaler
  annotations: {rbac.authorization.kubernetes.io/autoupdate: \"false\"}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:controller:horizontal-pod-autoscaler
subjects: []
";
const FLAG: &str = "\
# Append -horizontal-pod-autoscaler-controller to --controllers of kube-controller-manager, and keep its other entries,
# such as bootstrapsigner and tokencleaner. docs/getting-started/install.md has the lists of the distributions.
";
const GKE_USER: &str = "system:vpa-recommender";

/// The answer as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "HandoverPlan"))]
pub(super) struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    server_version: &'a str,
    status_writers: Vec<StatusWriter>,
    users: Vec<User>,
    guard: &'static str,
    reasons: Vec<String>,
    notes: Vec<String>,
    manifests: String,
}

/// A field manager of HPAs' statuses.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StatusWriter {
    manager: String,
    hpas: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
    last: Option<Timestamp>,
}

/// A possible user of the built-in controller.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct User {
    name: &'static str,
    /// Whether RBAC permits the user to write the status of HPAs. `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_write: Option<bool>,
}

pub(super) async fn run(session: &mut Session<'_>, given: Option<Guard>) -> Result<Verdict, HandoverError> {
    let failed =
        |error| HandoverError::Unreadable { what: "the API server's version", error: Box::new(error) };
    let server = server::read(&session.clients.discovery, &*session.clock).await.map_err(failed)?;
    let census = Census::read(session.clients, session.options.cluster.namespace.as_deref()).await?;
    let page = session.page.read().await;
    let mut notes: Vec<String> = page.as_ref().err().map(unavailable).into_iter().collect();
    let leader = session.options.leader.as_ref();
    let objects = GuardObjects {
        controller: session.controller_name(&page)?,
        built_in_users: BUILT_IN_USERS.map(str::to_owned).to_vec(),
        namespace: leader.map_or(NAMESPACE, |leader| leader.namespace.as_str()).to_owned(),
    };
    let scope_is_all = page.is_ok_and(|page| page.scope == "all");
    let status_writers = status_writers(&census);
    let mut users = Vec::new();
    for name in BUILT_IN_USERS {
        let may_write = match check::may_write(session.clients, name).await {
            Ok(may_write) => Some(may_write),
            Err(error) => {
                notes.push(error.to_string());
                None
            }
        };
        users.push(User { name, may_write });
    }
    let is_gke = server.version.contains("-gke.")
        || status_writers.iter().any(|writer| writer.manager == "vpa-recommender");
    if is_gke && !users.iter().any(|user| user.name == GKE_USER && user.may_write == Some(true)) {
        notes.push(format!(
            "this looks like GKE, where the built-in controller is expected to act as {GKE_USER}"
        ));
    }
    let guard = given.unwrap_or_else(|| fitting(&server));
    let reasons = reasons(guard, &server, is_gke, scope_is_all);
    let document = Document {
        api_version: API_VERSION,
        kind: "HandoverPlan",
        server_version: &server.version,
        status_writers,
        users,
        guard: guard.as_str(),
        reasons,
        notes,
        manifests: manifests(guard, &objects)?,
    };
    let text = text(&document, session);
    session.say(&text)?;
    session.document(&document)?;
    Ok(Verdict::Good)
}

/// Returns the manifests of a guard as YAML documents, or a comment for the guard `flag`.
fn manifests(guard: Guard, objects: &GuardObjects) -> Result<String, HandoverError> {
    let documents: Vec<_> = match guard {
        Guard::Webhook => {
            let policy = objects.update_policy(ACCOUNT);
            policy.into_iter().chain([objects.webhook()]).collect()
        }
        Guard::Policy => objects.policies().into_iter().chain(objects.bindings()).collect(),
        Guard::Rbac => return Ok(RBAC.to_owned()),
        Guard::Flag => return Ok(FLAG.to_owned()),
    };
    let mut text = String::new();
    for document in documents {
        text.extend(["---\n", to_yaml(&document)?.trim_end(), "\n"]);
    }
    Ok(text)
}

/// Returns the field managers of HPAs' statuses, sorted by the number of HPAs in descending order.
fn status_writers(census: &Census) -> Vec<StatusWriter> {
    let mut by_manager: BTreeMap<&str, (usize, Option<Timestamp>)> = BTreeMap::new();
    for writer in census.hpas.values().flat_map(|hpa| &hpa.writers) {
        let (hpas, last) = by_manager.entry(writer.manager.as_str()).or_default();
        *hpas += 1;
        *last = (*last).max(writer.at);
    }
    let mut writers: Vec<_> = by_manager
        .into_iter()
        .map(|(manager, (hpas, last))| StatusWriter { manager: manager.to_owned(), hpas, last })
        .collect();
    writers.sort_by(|a, b| b.hpas.cmp(&a.hpas).then_with(|| a.manager.cmp(&b.manager)));
    writers
}

/// Returns the guard that fits a server.
fn fitting(server: &Server) -> Guard {
    if server.minor.is_some_and(|minor| minor < FIRST_MINOR) { Guard::Rbac } else { Guard::Webhook }
}

/// Returns the effects and requirements of a guard.
fn reasons(guard: Guard, server: &Server, is_gke: bool, scope_is_all: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut add = |reason: &str| reasons.push(reason.to_owned());
    match guard {
        Guard::Webhook => {
            add(
                "if no replica responds, the API server lets the built-in controller write, and scaling continues",
            );
            add("the control plane must reach the pods of Concertina");
            add(
                "Secret and Service of the webhook are in deploy/kustomize/overlays/scope-labelled, with the controller",
            );
            add(
                "the policy lets the account concertina change only caBundle of the webhook: edit it for another account",
            );
            if is_gke {
                add(
                    "on a private GKE cluster, this needs a firewall rule for the port of the webhook, or port 10250",
                );
            }
        }
        Guard::Policy => {
            add("no request leaves the API server, so the control plane need not reach pods");
            add("while Concertina is down, no labelled HPA scales until the label or the policy is removed");
        }
        Guard::Rbac => {
            add("the built-in controller cannot read scales, for the whole cluster: only with --scope=all");
            add("while Concertina is down, no HPA scales; a provider may restore the binding (GKE does)");
        }
        Guard::Flag => {
            add("only where you start kube-controller-manager, and only with --scope=all");
            add("while Concertina is down, no HPA scales");
        }
    }
    let needs_all = matches!(guard, Guard::Rbac | Guard::Flag);
    if scope_is_all && !needs_all {
        add("the leader runs with --scope=all: restart it with --scope=labelled");
    }
    if server.minor.is_some_and(|minor| minor < FIRST_MINOR) && !needs_all {
        add("the server is older than 1.30, which this guard requires");
    }
    reasons
}

fn text(document: &Document<'_>, session: &Session<'_>) -> String {
    let (zone, now) = (session.zone(), session.clock.now());
    let mut lines = vec![format!("server: {}", document.server_version)];
    if document.status_writers.is_empty() {
        lines.push("status of HPAs: not written yet".to_owned());
    }
    for StatusWriter { manager, hpas, last } in &document.status_writers {
        let last = last.map(|last| format!(", last at {}", zone.time(last, now))).unwrap_or_default();
        lines.push(format!("status of HPAs: written by {manager} ({}{last})", counted(*hpas, "HPA")));
    }
    for User { name, may_write } in &document.users {
        let rights = match may_write {
            Some(true) => "may write the status of HPAs",
            Some(false) => "may not write the status of HPAs",
            None => "unknown rights",
        };
        lines.push(format!("user: {name}, {rights}"));
    }
    lines.push(format!("guard: {}", document.guard));
    lines.extend(document.reasons.iter().map(|reason| format!("  {reason}")));
    lines.extend(document.notes.iter().map(|note| format!("note: {note}")));
    lines.push(
        "next: apply this, label one HPA with concertina handover enable NAMESPACE/NAME, then run concertina handover \
         check"
            .to_owned(),
    );
    let mut text = String::new();
    for line in lines {
        text.extend(["# ", &*words::terminal(&line), "\n"]);
    }
    text.push_str(&document.manifests);
    text
}
