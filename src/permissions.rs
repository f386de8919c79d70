//! Checks whether the needed permissions are granted, by reviews of the API server, and logs missing permissions.
//!
//! A failed review does not mean a missing permission, because the API server may be starting or may serve no reviews.
//! A missing essential permission makes the process unready, so a rollout stops at its first replica. Other missing
//! permissions are only logged, and the affected HPAs report an error.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;

use cluster::client::Clients;
use cluster::error::ApiError;
use cluster::permission::{Missing, Permission, Subject, missing_verbs};

/// The maximum number of concurrent reviews.
const AT_ONCE: usize = 8;
/// The interval between checks while an essential permission is missing, or after a failed review.
const AGAIN: Duration = Duration::from_secs(30);
/// The interval between checks while only optional permissions are missing. The role of the built-in controller lacks
/// some optional permissions.
const SELDOM: Duration = Duration::from_mins(5);

/// The reason why the process is not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// The first check has not finished.
    #[error("permissions are not checked yet")]
    NotChecked,
    /// The essential permissions that are missing, each as text.
    #[error("{}", .0.join("; "))]
    Missing(Vec<String>),
}

/// The result of the last check. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Findings(Arc<Mutex<LastCheck>>);

#[derive(Debug, Default)]
struct LastCheck {
    /// Whether the first check has finished.
    done: bool,
    missing: Vec<Missing>,
}

impl Findings {
    /// Returns the permissions that the last check found missing.
    pub fn missing(&self) -> Vec<Missing> {
        self.0.lock().missing.clone()
    }

    /// Checks for readiness that no essential permission is missing.
    ///
    /// # Errors
    /// Returns the missing essential permissions. Also returns an error before the first check, so that a rollout does
    /// not proceed to the next replica in this time.
    pub fn ready(&self) -> Result<(), Unready> {
        let known = self.0.lock();
        if !known.done {
            return Err(Unready::NotChecked);
        }
        let missing = &known.missing;
        let essential: Vec<_> =
            missing.iter().filter(|missing| missing.permission.essential).map(ToString::to_string).collect();
        if essential.is_empty() { Ok(()) } else { Err(Unready::Missing(essential)) }
    }

    fn replace(&self, missing: Vec<Missing>) -> Vec<Missing> {
        let mut known = self.0.lock();
        known.done = true;
        std::mem::replace(&mut known.missing, missing)
    }
}

/// The result of one check of all permissions.
#[derive(Debug)]
pub struct Checked {
    /// The permissions that are not granted, in the order of the needed permissions.
    pub missing: Vec<Missing>,
    /// The error of the last failed review. A permission with a failed review keeps its previous state.
    pub error: Option<ApiError>,
}

/// Checks the permissions repeatedly until all are granted, and logs each change.
pub async fn run(clients: Clients, needed: Vec<Permission>, findings: Findings) {
    loop {
        let Checked { missing, error } = check(&clients, &needed, &findings.missing()).await;
        let known = findings.replace(missing.clone());
        log_changes(&known, &missing);
        let pause = match error {
            None if missing.is_empty() => return,
            None if findings.ready().is_ok() => SELDOM,
            None => AGAIN,
            Some(error) => {
                tracing::debug!(%error, "failed to check permissions; retrying");
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Reviews each verb of each permission. `known` contains the missing permissions of the previous check.
pub async fn check(clients: &Clients, needed: &[Permission], known: &[Missing]) -> Checked {
    let mut checked = Checked { missing: Vec::new(), error: None };
    let questions: Vec<_> = needed
        .iter()
        .map(|permission| {
            let client = match permission.subject {
                Subject::Controller => &clients.watch,
                Subject::Credentials => &clients.reviews,
            };
            missing_verbs(client, None, permission)
        })
        .collect();
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

/// Logs each newly missing permission and each newly granted permission.
fn log_changes(known: &[Missing], missing: &[Missing]) {
    let new: Vec<_> = missing.iter().filter(|missing| !known.contains(missing)).collect();
    for missing in &new {
        let Permission { why, without, .. } = &missing.permission;
        tracing::warn!("{missing}; needed {why}; without this permission, {without}");
    }
    if !new.is_empty() {
        tracing::warn!(
            "apply the output of concertina rbac with the flags of this process to grant the missing permissions"
        );
    }
    for granted in
        known.iter().filter(|known| !missing.iter().any(|missing| missing.permission == known.permission))
    {
        tracing::info!("now allowed to {}", granted.to_string().trim_start_matches("not allowed to "));
    }
}

#[cfg(test)]
mod tests {
    //! Tests against the embedded cluster, with a fault rule in place of a role.

    use super::*;
    use clock::VirtualClock;
    use cluster::client::ClientOptions;
    use controller::options::Options;
    use fake_cluster::{Cluster, FaultAction, FaultRule, Status as Failure};
    use flags::Config;
    use flags::permissions::needed;

    const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

    fn cluster() -> (Cluster, Clients) {
        let cluster =
            Cluster::new(Arc::new(VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())));
        let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
        (cluster, clients)
    }

    fn denied() -> FaultRule {
        FaultRule::new(FaultAction::Body(r#"{"status": {"allowed": false, "reason": "no"}}"#.to_owned()))
            .path_prefix(REVIEWS)
    }

    fn texts(missing: &[Missing]) -> Vec<String> {
        missing.iter().map(ToString::to_string).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn check_reviews_each_verb_and_finds_granted_ones_not_missing() {
        let (cluster, clients) = cluster();
        let needed = needed(&Config::default());
        let checked = check(&clients, &needed, &[]).await;
        assert!(checked.missing.is_empty() && checked.error.is_none(), "{checked:?}");
        let reviews = |permission: &Permission| permission.verbs.len() * permission.names.len().max(1);
        let expected: usize = needed.iter().map(reviews).sum();
        assert_eq!(cluster.requests().entries().len(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn missing_permission_names_verbs_resource_and_namespace() {
        let (cluster, clients) = cluster();
        cluster.faults().add(denied());
        let config = Config::from(Options {
            watch_namespaces: Some(["shop".to_owned()].into()),
            ..Options::default()
        });
        let checked = check(&clients, &needed(&config), &[]).await;
        let texts = texts(&checked.missing);
        for text in [
            "not allowed to list, watch horizontalpodautoscalers.autoscaling in namespace shop",
            "not allowed to list, watch pods in namespace shop",
            "not allowed to get, update */scale in namespace shop",
            "not allowed to get, update, watch leases.coordination.k8s.io concertina in namespace kube-system",
            "not allowed to create tokenreviews.authentication.k8s.io in the whole cluster",
        ] {
            assert!(texts.iter().any(|known| known == text), "{text} in {texts:#?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn check_keeps_previous_state_when_a_review_fails() {
        let (cluster, clients) = cluster();
        let needed = needed(&Config::default());
        cluster.faults().add(denied());
        let known = check(&clients, &needed, &[]).await.missing;
        cluster.faults().clear();
        let broken = FaultAction::Status(Failure::new(503, "ServiceUnavailable", "later"));
        cluster.faults().add(FaultRule::new(broken).path_prefix(REVIEWS));
        let checked = check(&clients, &needed, &[]).await;
        assert!(checked.missing.is_empty() && checked.error.is_some());
        assert_eq!(check(&clients, &needed, &known).await.missing, known);
    }

    #[tokio::test(start_paused = true)]
    async fn process_is_ready_once_essential_permissions_are_granted() {
        let (cluster, clients) = cluster();
        cluster.faults().add(denied());
        let findings = Findings::default();
        assert_eq!(findings.ready(), Err(Unready::NotChecked));
        let checking = tokio::spawn(run(clients, needed(&Config::default()), findings.clone()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let error = findings.ready().unwrap_err().to_string();
        assert!(
            error.contains("leases.coordination.k8s.io concertina") && !error.contains("events"),
            "{error}"
        );
        cluster.faults().clear();
        tokio::time::sleep(AGAIN).await;
        assert_eq!(findings.ready(), Ok(()));
        checking.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn process_is_ready_without_access_to_metrics_apis() {
        let (cluster, clients) = cluster();
        cluster.faults().add(denied());
        let all = needed(&Config::default());
        let metrics: Vec<_> = all.into_iter().filter(|row| row.group.ends_with("metrics.k8s.io")).collect();
        let findings = Findings::default();
        let checking = tokio::spawn(run(clients, metrics, findings.clone()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(texts(&findings.missing()).len(), 3);
        assert_eq!(findings.ready(), Ok(()));
        cluster.faults().clear();
        tokio::time::sleep(AGAIN).await;
        assert_eq!(findings.missing().len(), 3, "optional permissions are rechecked at the longer interval");
        tokio::time::sleep(SELDOM).await;
        assert_eq!(findings.missing(), []);
        checking.await.unwrap();
    }
}
