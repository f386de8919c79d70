//! Authenticates clients of the secure port, and authorizes their requests through the API server, as every
//! component of Kubernetes does.
//!
//! A client is identified by the headers of a front proxy, by a client certificate, or by a bearer token, in this
//! order. A request is refused if its review fails. Reviews are cached, and concurrent equal reviews share one request.

#[cfg(test)]
mod tests;
pub(in crate::serve) mod trust;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use self::trust::Trust;
use super::error::ServeError;
use clock::SharedClock;
use cluster::client::{Client, ClientOptions, Clients};
use cluster::error::ApiError;
use cluster::kubeconfig;
use cluster::permission::{self as api, Action, ResourceAction, User, Verdict};
use flags::serving::{Authorization, OpenPaths, Serving};

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
    /// Creates the access control. Reviews use the kubeconfigs that `serving` names. Without such a kubeconfig, or if
    /// it is `own`, the kubeconfig of the controller, they use `clients`.
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

    /// Identifies the user of a request.
    pub(super) async fn user(
        &self,
        certificates: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<User, Denial> {
        let identified = match self.by_certificate(certificates, headers) {
            Some(user) => Some(user),
            None => match bearer_token(headers) {
                Some(token) => self.by_token(token).await?,
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

    async fn by_token(&self, token: &str) -> Result<Option<User>, Denial> {
        let inner = &self.0;
        let review = async || {
            let user = api::token(&inner.authentication, token).await?;
            Ok(Reviewed { good: user.is_some(), answer: user, ttl: inner.token_ttl })
        };
        match inner.tokens.get(token.as_bytes(), review).await {
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

/// Adds the group `system:authenticated`, like the API server. Anonymous users and members of `system:unauthenticated`
/// do not get the group.
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

/// The maximum number of concurrent reviews, so that invalid tokens do not flood the API server.
const AT_ONCE: usize = 16;
/// The maximum number of cached results.
const MAX_CACHED: usize = 1024;

/// The SHA-256 digest of the input of a review. The cache does not contain the input, which may be a token.
type Key = [u8; 32];

/// The cached results of one kind of review.
#[derive(Debug)]
struct Reviews<T> {
    entries: Mutex<BTreeMap<Key, Entry<T>>>,
    permits: Semaphore,
}

#[derive(Debug, Clone)]
struct Entry<T> {
    /// The result. The first caller makes the review, and concurrent callers wait.
    answer: Arc<OnceCell<CachedAnswer<T>>>,
    since: Instant,
}

#[derive(Debug, Clone)]
struct CachedAnswer<T> {
    answer: T,
    until: Instant,
    /// Whether the token is valid or the action is allowed. The cache evicts results without this flag first.
    good: bool,
}

/// A result with its time to live, and the value of [`CachedAnswer::good`].
#[derive(Debug)]
struct Reviewed<T> {
    answer: T,
    good: bool,
    ttl: Duration,
}

impl<T: Clone> Reviews<T> {
    fn new() -> Self {
        Self { entries: Mutex::default(), permits: Semaphore::new(AT_ONCE) }
    }

    /// Returns the cached result for `question`, or makes a review with `ask`. Failures are not cached.
    async fn get(
        &self,
        question: &[u8],
        ask: impl AsyncFnOnce() -> Result<Reviewed<T>, ApiError>,
    ) -> Result<T, ApiError> {
        let key = key(question);
        let cell = self.entry(key);
        let asked = cell
            .get_or_try_init(async || {
                // The semaphore is never closed.
                let _permit = self.permits.acquire().await.ok();
                let Reviewed { answer, good, ttl } = ask().await?;
                let now = Instant::now();
                // A large value of the flag for the time to live may overflow the clock.
                let until = now.checked_add(ttl).unwrap_or(now + Duration::from_hours(24));
                Ok::<_, ApiError>(CachedAnswer { answer, until, good })
            })
            .await;
        match asked {
            Ok(held) => Ok(held.answer.clone()),
            Err(error) => {
                self.forget(key, &cell);
                Err(error)
            }
        }
    }

    fn entry(&self, key: Key) -> Arc<OnceCell<CachedAnswer<T>>> {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(&key)
            && entry.answer.get().is_none_or(|held| now < held.until)
        {
            return Arc::clone(&entry.answer);
        }
        entries.remove(&key);
        if entries.len() >= MAX_CACHED {
            entries.retain(|_, entry| entry.answer.get().is_none_or(|held| now < held.until));
        }
        if entries.len() >= MAX_CACHED {
            let worst = entries
                .iter()
                .min_by_key(|(_, entry)| (entry.answer.get().is_some_and(|held| held.good), entry.since))
                .map(|(key, _)| *key);
            worst.map(|worst| entries.remove(&worst));
        }
        let entry = Entry { answer: Arc::default(), since: now };
        let answer = Arc::clone(&entry.answer);
        entries.insert(key, entry);
        answer
    }

    fn forget(&self, key: Key, cell: &Arc<OnceCell<CachedAnswer<T>>>) {
        let mut entries = self.entries.lock();
        // The entry remains if a concurrent caller has succeeded.
        if entries.get(&key).is_some_and(|entry| Arc::ptr_eq(&entry.answer, cell) && cell.get().is_none()) {
            entries.remove(&key);
        }
    }
}

fn key(question: &[u8]) -> Key {
    let mut key = Key::default();
    key.iter_mut().zip(digest(&SHA256, question).as_ref()).for_each(|(to, from)| *to = *from);
    key
}
