//! Asks the API server whether what is needed is allowed, and tells what is not.
//!
//! A review that fails is no missing permission: the API server may be starting, or serve no reviews at all. What
//! without which no HPA is acted on makes the process not ready; so an upgrade that needs a permission that nobody has
//! granted stops at its first replica. The rest is told in the log, and by the HPAs that it concerns.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::{Permission, Subject};
use crate::api::call::Call;
use crate::api::client::{Client, Clients};
use crate::api::error::ApiError;

/// How many reviews are asked for at once.
const AT_ONCE: usize = 8;
/// After what time it is looked whether a missing permission was granted without which no HPA is acted on.
const AGAIN: Duration = Duration::from_secs(30);
/// The same of those that are done without: some roles never have them, such as the built-in controller's.
const SELDOM: Duration = Duration::from_mins(5);

/// A permission that is needed and not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What is needed.
    pub permission: Permission,
    /// Which of its verbs are not allowed.
    pub verbs: Vec<&'static str>,
}

impl fmt::Display for Missing {
    /// `not allowed to update horizontalpodautoscalers.autoscaling/status in the whole cluster`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Permission { namespace, names, .. } = &self.permission;
        write!(f, "not allowed to {} {}", self.verbs.join(", "), self.permission.full_resource())?;
        if !names.is_empty() {
            write!(f, " {}", names.join(", "))?;
        }
        match namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => f.write_str(" in the whole cluster"),
        }
    }
}

/// What is known to be missing. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Findings(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// It was asked once; whether that told anything or not.
    asked: bool,
    missing: Vec<Missing>,
}

impl Findings {
    /// What was missing when it was asked last.
    pub fn missing(&self) -> Vec<Missing> {
        self.lock().missing.clone()
    }

    /// For readiness: an error names what is missing without which no HPA is acted on. Before it was asked for the first
    /// time nothing is ready: a rollout must not go on to the next replica in that moment.
    ///
    /// # Errors
    /// The missing permissions, as text.
    pub fn ready(&self) -> Result<(), String> {
        let known = self.lock();
        if !known.asked {
            return Err("not checked yet".to_owned());
        }
        let missing = &known.missing;
        let essential: Vec<_> =
            missing.iter().filter(|missing| missing.permission.essential).map(ToString::to_string).collect();
        if essential.is_empty() { Ok(()) } else { Err(essential.join("; ")) }
    }

    fn replace(&self, missing: Vec<Missing>) -> Vec<Missing> {
        let mut known = self.lock();
        known.asked = true;
        std::mem::replace(&mut known.missing, missing)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one round of questions showed.
#[derive(Debug)]
pub struct Checked {
    /// What is not allowed; by the order of what is needed.
    pub missing: Vec<Missing>,
    /// Why something could not be asked, if so. It keeps the state that it was known to have.
    pub error: Option<ApiError>,
}

/// Asks until nothing is missing, and logs what is found.
pub async fn run(clients: Clients, needed: Vec<Permission>, findings: Findings) {
    loop {
        let Checked { missing, error } = check(&clients, &needed, &findings.missing()).await;
        let known = findings.replace(missing.clone());
        tell(&known, &missing);
        let pause = match error {
            None if missing.is_empty() => return,
            None if findings.ready().is_ok() => SELDOM,
            None => AGAIN,
            Some(error) => {
                tracing::debug!(%error, "permissions could not be checked, will be asked again");
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Asks for each verb of each permission. `known`: what was missing so far.
pub async fn check(clients: &Clients, needed: &[Permission], known: &[Missing]) -> Checked {
    let mut checked = Checked { missing: Vec::new(), error: None };
    let questions: Vec<_> = needed.iter().map(|permission| missing_verbs(clients, permission)).collect();
    let mut answers = stream::iter(questions).buffered(AT_ONCE);
    let mut permissions = needed.iter();
    while let (Some(answer), Some(permission)) = (answers.next().await, permissions.next()) {
        match answer {
            Ok(verbs) if verbs.is_empty() => {}
            Ok(verbs) => checked.missing.push(Missing { permission: permission.clone(), verbs }),
            Err(error) => {
                checked.missing.extend(known.iter().find(|known| known.permission == *permission).cloned());
                checked.error = Some(error);
            }
        }
    }
    checked
}

async fn missing_verbs(clients: &Clients, permission: &Permission) -> Result<Vec<&'static str>, ApiError> {
    let mut missing = Vec::new();
    for verb in permission.verbs {
        let names = permission.names.iter().map(String::as_str);
        // One question about all of them if it names none.
        let names: Vec<_> = names.chain(permission.names.is_empty().then_some("")).collect();
        let mut are_allowed = true;
        let client = match permission.subject {
            Subject::Controller => &clients.watch,
            Subject::Credentials => &clients.reviews,
        };
        for name in names {
            are_allowed = are_allowed && allowed(client, permission, name, verb).await?;
        }
        if !are_allowed {
            missing.push(*verb);
        }
    }
    Ok(missing)
}

#[derive(Deserialize)]
struct Review {
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    allowed: bool,
}

/// One SelfSubjectAccessReview, which everybody may make, as the one whose permission it is.
pub(crate) async fn allowed(
    client: &Client,
    permission: &Permission,
    name: &str,
    verb: &str,
) -> Result<bool, ApiError> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "group": permission.group,
            "resource": permission.resource,
            "subresource": permission.subresource,
            "verb": verb,
            "namespace": permission.namespace.as_deref().unwrap_or_default(),
            "name": name,
        }},
    });
    let path = ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"];
    let call = Call::send(Method::POST, path, "application/json", review.to_string().into_bytes())
        .about("selfsubjectaccessreviews.authorization.k8s.io", "");
    let review: Review = client.json(&call).await?;
    Ok(review.status.allowed)
}

/// One line for each permission that is missing now and was not before, and for each that is there now.
fn tell(known: &[Missing], missing: &[Missing]) {
    let new: Vec<_> = missing.iter().filter(|missing| !known.contains(missing)).collect();
    for missing in &new {
        let Permission { why, without, .. } = &missing.permission;
        tracing::warn!("{missing}, {why}: {without}");
    }
    if !new.is_empty() {
        tracing::warn!("concertina rbac with the flags of this process prints the roles that it needs");
    }
    for granted in
        known.iter().filter(|known| !missing.iter().any(|missing| missing.permission == known.permission))
    {
        tracing::info!("allowed now to {}", granted.to_string().trim_start_matches("not allowed to "));
    }
}

#[cfg(test)]
mod tests;
