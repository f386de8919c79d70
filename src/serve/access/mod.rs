//! Authenticates clients of the secure port, and authorizes their requests through the API server, as every
//! component of Kubernetes does.
//!
//! A client is identified by the headers of a front proxy, by a client certificate, or by a bearer token, in this
//! order. A request is refused if its review fails.

pub(in crate::serve) mod certificate;
mod reviews;
mod trust;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use self::reviews::{Reviewed, Reviews};
use self::trust::Trust;
use super::options::{Authorization, OpenPaths, ServeError, Serving};
use clock::SharedClock;
use cluster::client::{Client, ClientOptions, Clients};
use cluster::error::ApiError;
use cluster::kubeconfig;
use cluster::permission::{self as api, Action, ResourceAction, User, Verdict};

/// The group for unrestricted access in Kubernetes. Its members may make every request without a review.
const MASTERS: &str = "system:masters";
/// The group of authenticated users.
const AUTHENTICATED: &str = "system:authenticated";
/// The group of anonymous users. A front proxy may forward requests of such users.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of anonymous users.
const ANONYMOUS: &str = "system:anonymous";
/// The minimum interval between logs of failed reviews, because unauthenticated clients can cause them at any rate.
const REMINDER: Duration = Duration::from_mins(1);

/// Authenticates and authorizes requests. Clones share one state.
#[derive(Debug, Clone)]
pub struct Access(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    trust: Trust,
    /// The client for TokenReviews.
    authentication: Client,
    token_ttl: Duration,
    tokens: Reviews<Option<User>>,
    /// The client for SubjectAccessReviews.
    authorization: Client,
    options: Authorization,
    verdicts: Reviews<Verdict>,
    clock: SharedClock,
    last_warning: Mutex<Option<Instant>>,
}

/// The refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Access {
    /// Creates the access control. Reviews use the kubeconfigs that `serving` names, or `clients` by default and for
    /// the kubeconfig `own` of the controller.
    ///
    /// # Errors
    /// Returns [`ServeError`] if a kubeconfig or a file of authorities is unusable.
    pub fn new(
        serving: &Serving,
        own: Option<&Path>,
        clients: &Clients,
        options: &ClientOptions,
        clock: SharedClock,
    ) -> Result<Self, ServeError> {
        let client = |flag: &'static str, path: Option<&Path>| match path {
            // Without a secure port, no request needs a review.
            Some(path) if serving.port != 0 && own != Some(path) => {
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
            last_warning: Mutex::default(),
        })))
    }

    /// Keeps the authorities of client certificates current, until the future is dropped.
    pub(super) async fn keep_current(&self) {
        self.0.trust.keep_current().await;
    }

    /// Returns the paths without authentication and authorization.
    pub(super) fn open_paths(&self) -> &OpenPaths {
        &self.0.options.open_paths
    }

    /// Identifies the user of a request. A token must have the audience `audience`, or the audience of the API server
    /// if `audience` is `None`.
    pub(super) async fn user(
        &self,
        certificates: &[CertificateDer<'static>],
        headers: &HeaderMap,
        audience: Option<&str>,
    ) -> Result<User, Denial> {
        let identified = match self.by_certificate(certificates, headers) {
            Some(user) => Some(user),
            None => match bearer_token(headers) {
                Some(token) => self.by_token(token, audience).await?,
                None => None,
            },
        };
        let unauthorized = || Denial { status: StatusCode::UNAUTHORIZED, message: "Unauthorized".to_owned() };
        identified.map(among_authenticated).ok_or_else(unauthorized)
    }

    /// Checks that the user may perform `action`.
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
            if let Some(error) = verdict.evaluation_error.as_deref().filter(|error| !error.is_empty()) {
                tracing::debug!(error, user = user.name, "access review returned an error");
            }
            let good = verdict.allowed;
            let ttl = if good { inner.options.allowed_ttl } else { inner.options.denied_ttl };
            Ok(Reviewed { answer: verdict, good, ttl })
        };
        match inner.verdicts.get(&question, review).await {
            Ok(verdict) if verdict.allowed => Ok(()),
            Ok(verdict) => Err(forbidden(user, action, verdict.reason.as_deref().unwrap_or_default())),
            Err(error) => Err(self.unavailable("access review", "SubjectAccessReviews", &error)),
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

    async fn by_token(&self, token: &str, audience: Option<&str>) -> Result<Option<User>, Denial> {
        let inner = &self.0;
        let review = async || {
            let user = api::token(&inner.authentication, token, audience).await?;
            Ok(Reviewed { good: user.is_some(), answer: user, ttl: inner.token_ttl })
        };
        // A header value cannot contain the separator NUL.
        let question = [audience.unwrap_or_default(), token].join("\0");
        match inner.tokens.get(question.as_bytes(), review).await {
            Ok(user) => Ok(user),
            Err(error) => Err(self.unavailable("token review", "TokenReviews", &error)),
        }
    }

    /// Logs the cause of a failed review, and creates the refusal. The refusal omits the cause, which could reveal
    /// details of the cluster to an unauthenticated client.
    fn unavailable(&self, review: &str, reviews: &str, error: &ApiError) -> Denial {
        let mut last_warning = self.0.last_warning.lock();
        if last_warning.is_none_or(|at| at.elapsed() >= REMINDER) {
            *last_warning = Some(Instant::now());
            tracing::warn!(%error, "failed to create {reviews}; refusing requests to the secure port");
        }
        let hint = if error.is_forbidden() {
            "the controller may not make reviews; bind it to ClusterRole system:auth-delegator"
        } else {
            "the API server is unavailable"
        };
        Denial { status: StatusCode::SERVICE_UNAVAILABLE, message: format!("{review} failed: {hint}") }
    }
}

/// Adds the group `system:authenticated`, except to anonymous users, like the API server.
fn among_authenticated(mut user: User) -> User {
    let is_assigned = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    if user.name != ANONYMOUS && !user.groups.iter().any(is_assigned) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// Returns the token of the header `Authorization: Bearer …`, by the rules of the API server.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut words = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().splitn(3, ' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Creates the refusal, with the API server's text.
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
    fn bearer_token_is_the_second_word() {
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer abc x").as_deref(), Some("abc"));
        for header in ["Bearer", "Bearer ", "Basic abc", "abc", "Bearer  abc"] {
            assert_eq!(token(header), None, "{header}");
        }
    }

    #[test]
    fn user_is_authenticated_unless_a_front_proxy_calls_it_anonymous() {
        let groups = |name: &str, groups: &[&str]| {
            let groups = groups.iter().map(|&group| group.to_owned()).collect();
            among_authenticated(User { name: name.to_owned(), groups, ..User::default() }).groups
        };
        assert_eq!(groups("jane", &["dev"]), ["dev", AUTHENTICATED]);
        assert_eq!(groups("jane", &[AUTHENTICATED]), [AUTHENTICATED]);
        assert_eq!(groups(ANONYMOUS, &[UNAUTHENTICATED]), [UNAUTHENTICATED]);
        assert_eq!(groups("unidentified", &[UNAUTHENTICATED]), [UNAUTHENTICATED]);
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
