//! Who asks, and whether that one may: decided by the API server, as for every component of Kubernetes.
//!
//! Somebody is known by a client certificate, by what a front proxy says, or by a bearer token; in that order, the first
//! that fits. What cannot be found out is not allowed.

pub(in crate::serve) mod certificate;
mod reviews;
mod trust;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use self::reviews::{Reviewed, Reviews};
use self::trust::Trust;
use super::error::ServeError;
use crate::api::client::{Client, ClientOptions, Clients};
use crate::api::error::ApiError;
use crate::api::kubeconfig;
use crate::api::reviews::{self as api, Action, ResourceAction, User, Verdict};
use crate::cli::Config;
use crate::cli::config::{Authorization, OpenPaths};
use crate::clock::SharedClock;

/// Whoever is in it may do everything, also without an API server.
const MASTERS: &str = "system:masters";
/// Everybody who is known is in it.
const AUTHENTICATED: &str = "system:authenticated";
/// Whoever is not: a front proxy may pass on a request of somebody unknown.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of all who are not known.
const ANONYMOUS: &str = "system:anonymous";
/// How often it is told that reviews fail: strangers could make it happen all the time.
const REMINDER: Duration = Duration::from_mins(1);

/// Decides about requests. Clones are the same.
#[derive(Debug, Clone)]
pub struct Access(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    trust: Trust,
    /// Reviews bearer tokens.
    authentication: Client,
    token_ttl: Duration,
    tokens: Reviews<Option<User>>,
    /// Reviews what somebody may see.
    authorization: Client,
    options: Authorization,
    verdicts: Reviews<Verdict>,
    clock: SharedClock,
    told: Mutex<Option<Instant>>,
}

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Access {
    /// With the rights of the kubeconfigs that the flags name, or else with those of the controller.
    pub fn new(
        config: &Config,
        clients: &Clients,
        options: &ClientOptions,
        clock: SharedClock,
    ) -> Result<Self, ServeError> {
        let serving = &config.serving;
        let client = |flag: &'static str, path: Option<&Path>| match path {
            // Without a port nobody will ask.
            Some(path) if serving.port != 0 && !config.reviews_itself(Some(path)) => {
                let cluster = kubeconfig::load(Some(path), None)
                    .map_err(|source| ServeError::Kubeconfig { flag, source: Box::new(source) })?;
                let own = Clients::new(&cluster, options)
                    .map_err(|source| ServeError::Client { flag, source: Box::new(source) })?;
                Ok(own.reviews)
            }
            _ => Ok(clients.reviews.clone()),
        };
        let authentication =
            client("--authentication-kubeconfig", serving.authentication.kubeconfig.as_deref())?;
        let authorization =
            client("--authorization-kubeconfig", serving.authorization.kubeconfig.as_deref())?;
        let trust =
            Trust::new(serving.authentication.clone(), authentication.clone(), Arc::new(default_provider()));
        if serving.port != 0 {
            trust.check_files()?;
        }
        Ok(Self(Arc::new(Inner {
            trust,
            authentication,
            token_ttl: serving.authentication.token_ttl,
            tokens: Reviews::new(),
            authorization,
            options: serving.authorization.clone(),
            verdicts: Reviews::new(),
            clock,
            told: Mutex::default(),
        })))
    }

    /// Keeps the authorities of client certificates up to date. Never ends.
    pub(super) async fn keep_current(&self) {
        self.0.trust.keep_current().await;
    }

    /// Paths that are answered to everybody.
    pub(super) fn open_paths(&self) -> &OpenPaths {
        &self.0.options.open_paths
    }

    /// Who asks.
    pub(super) async fn user(
        &self,
        certificates: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<User, Denial> {
        let known = match self.by_certificate(certificates, headers) {
            Some(user) => Some(user),
            None => match bearer_token(headers) {
                Some(token) => self.by_token(token).await?,
                None => None,
            },
        };
        let unknown = || Denial { status: StatusCode::UNAUTHORIZED, message: "Unauthorized".to_owned() };
        known.map(among_authenticated).ok_or_else(unknown)
    }

    /// Whether this one may do this.
    pub(super) async fn allow(&self, user: &User, action: &Action) -> Result<(), Denial> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let inner = &self.0;
        let Ok(question) = serde_json::to_vec(&(user, action)) else {
            return Err(forbidden(user, action, ""));
        };
        let review = async || {
            let verdict = api::access(&inner.authorization, user, action).await?;
            if !verdict.evaluation_error.is_empty() {
                tracing::debug!(error = verdict.evaluation_error, user = user.name, "in a review of access");
            }
            let good = verdict.allowed;
            let ttl = if good { inner.options.allowed_ttl } else { inner.options.denied_ttl };
            Ok(Reviewed { answer: verdict, good, ttl })
        };
        match inner.verdicts.get(&question, review).await {
            Ok(verdict) if verdict.allowed => Ok(()),
            Ok(verdict) => Err(forbidden(user, action, &verdict.reason)),
            Err(error) => Err(self.unavailable("what the user may see", "SubjectAccessReviews", &error)),
        }
    }

    fn by_certificate(&self, chain: &[CertificateDer<'static>], headers: &HeaderMap) -> Option<User> {
        if chain.is_empty() {
            return None;
        }
        let trusted = self.0.trust.now();
        let now = Duration::try_from(self.0.clock.now().duration_since(jiff::Timestamp::UNIX_EPOCH)).ok()?;
        let by_proxy = trusted.proxies.and_then(|proxies| {
            let proxy = proxies.authorities.subject(chain, now)?;
            proxies.user(&proxy, headers)
        });
        by_proxy.or_else(|| {
            let subject = trusted.clients?.subject(chain, now)?;
            let name = subject.common_name.filter(|name| !name.is_empty())?;
            Some(User { name, groups: subject.organizations, ..User::default() })
        })
    }

    async fn by_token(&self, token: &str) -> Result<Option<User>, Denial> {
        let inner = &self.0;
        let review = async || {
            let user = api::token(&inner.authentication, token).await?;
            Ok(Reviewed { good: user.is_some(), answer: user, ttl: inner.token_ttl })
        };
        match inner.tokens.get(token.as_bytes(), review).await {
            Ok(user) => Ok(user),
            Err(error) => Err(self.unavailable("whose token this is", "TokenReviews", &error)),
        }
    }

    /// What went wrong is for the log: a stranger could learn of the cluster from it.
    fn unavailable(&self, what: &str, reviews: &str, error: &ApiError) -> Denial {
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= REMINDER) {
            *told = Some(Instant::now());
            tracing::warn!(%error, "{reviews} cannot be made: requests to the secure port are turned away");
        }
        let hint = if error.is_forbidden() {
            "the controller may not ask: ClusterRole system:auth-delegator lets it"
        } else {
            "the API server does not answer"
        };
        Denial {
            status: StatusCode::SERVICE_UNAVAILABLE,
            message: format!("it cannot be found out {what}: {hint}"),
        }
    }
}

/// Adds the group of everybody who is known, to whom it belongs.
fn among_authenticated(mut user: User) -> User {
    let is_told = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    if user.name != ANONYMOUS && !user.groups.iter().any(is_told) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// `Authorization: Bearer …`, read as the API server reads it.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut words = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().splitn(3, ' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// In the words of the API server.
fn forbidden(user: &User, action: &Action, reason: &str) -> Denial {
    let name = &user.name;
    let mut message = match action {
        Action::NonResourceAttributes { path, verb } => {
            format!("forbidden: User {name:?} cannot {verb} path {path:?}")
        }
        Action::ResourceAttributes(ResourceAction {
            verb, group, resource, namespace, name: object, ..
        }) => {
            let object = if object.is_empty() { String::new() } else { format!(" {object:?}") };
            let scope = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            format!(
                "{resource}.{group}{object} is forbidden: User {name:?} cannot {verb} resource {resource:?} in API \
                 group {group:?} {scope}"
            )
        }
    };
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    Denial { status: StatusCode::FORBIDDEN, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, header.parse().unwrap());
        bearer_token(&headers).map(str::to_owned)
    }

    #[test]
    fn a_bearer_token_is_the_second_word() {
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer abc x").as_deref(), Some("abc"));
        for header in ["Bearer", "Bearer ", "Basic abc", "abc", "Bearer  abc"] {
            assert_eq!(token(header), None, "{header}");
        }
    }

    #[test]
    fn whoever_is_known_is_authenticated_and_whom_a_front_proxy_does_not_know_is_not() {
        let groups = |name: &str, groups: &[&str]| {
            let groups = groups.iter().map(|&group| group.to_owned()).collect();
            among_authenticated(User { name: name.to_owned(), groups, ..User::default() }).groups
        };
        assert_eq!(groups("jane", &["dev"]), ["dev", AUTHENTICATED]);
        assert_eq!(groups("jane", &[AUTHENTICATED]), [AUTHENTICATED]);
        assert_eq!(groups(ANONYMOUS, &[UNAUTHENTICATED]), [UNAUTHENTICATED]);
        assert_eq!(groups("nobody", &[UNAUTHENTICATED]), [UNAUTHENTICATED]);
        assert!(groups(ANONYMOUS, &[]).is_empty());
    }

    #[test]
    fn refusals_have_the_words_of_the_api_server() {
        let user = User { name: "jane".into(), ..User::default() };
        let path = Action::NonResourceAttributes { path: "/metrics".into(), verb: "get".into() };
        assert_eq!(
            forbidden(&user, &path, "").message,
            "forbidden: User \"jane\" cannot get path \"/metrics\""
        );
        let one = ResourceAction {
            verb: "get",
            group: "autoscaling",
            version: "v2",
            resource: "horizontalpodautoscalers",
            namespace: "shop".into(),
            name: "web".into(),
        };
        assert_eq!(
            forbidden(&user, &Action::ResourceAttributes(one.clone()), "no").message,
            "horizontalpodautoscalers.autoscaling \"web\" is forbidden: User \"jane\" cannot get resource \
             \"horizontalpodautoscalers\" in API group \"autoscaling\" in the namespace \"shop\": no"
        );
        let all = ResourceAction { verb: "list", namespace: String::new(), name: String::new(), ..one };
        assert_eq!(
            forbidden(&user, &Action::ResourceAttributes(all), "").message,
            "horizontalpodautoscalers.autoscaling is forbidden: User \"jane\" cannot list resource \
             \"horizontalpodautoscalers\" in API group \"autoscaling\" at the cluster scope"
        );
    }
}
