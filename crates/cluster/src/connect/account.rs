//! Authenticates as a ServiceAccount, like kube-controller-manager's `--use-service-account-credentials`. The tokens of
//! the ServiceAccount are requested with the configured credentials.
//!
//! A request in the last 20 % to 30 % of a token's lifetime starts a refresh in the background. While the refresh
//! fails, the current token is used until it expires. A missing account is created. Lifetimes are measured on the
//! monotonic clock, so a wrong time of day has no effect.

use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ObjectMeta, PostParams};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::credentials::bearer;
use crate::api_client::Client;
use crate::decode::DecodeError;
use crate::error::{AccountError, ApiError, CredentialError};
use clock::Jitter;

/// The requested lifetime of a token, as in kube-controller-manager. The server may grant a shorter lifetime.
const LIFE: Duration = Duration::from_hours(1);
/// The assumed minimum lifetime of a token.
const SHORTEST: Duration = Duration::from_mins(1);
/// The age from which requests refresh a token, as a fraction of its lifetime. Jitter reduces the age.
const RENEWAL: f64 = 0.8;
/// The maximum jitter, as a fraction of the lifetime. Jitter prevents replicas that started together from refreshing at
/// the same time.
const SPREAD: f64 = 0.1;
/// The wait after a failed refresh. Also the minimum age at which a refused token is replaced.
const PAUSE: Duration = Duration::from_secs(10);

/// The wait after a failed attempt while no token is valid.
const RETRY: Duration = Duration::from_secs(1);

/// A ServiceAccount that the controller acts as.
#[derive(Debug)]
pub(crate) struct Account {
    /// The client that requests tokens, with the configured credentials.
    client: Client,
    namespace: String,
    name: String,
    state: Mutex<State>,
    /// Locked while a token is requested.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    token: Option<Arc<Token>>,
    /// Time and error of the last completed attempt. `None` unless that attempt failed.
    failed: Option<(Instant, AccountError)>,
    /// The number of completed attempts.
    attempts: u64,
    jitter: Jitter,
}

#[derive(Debug)]
pub(super) struct Token {
    pub(super) header: HeaderValue,
    issued: Instant,
    renew: Instant,
    expires: Instant,
}

impl Account {
    pub(crate) fn new(client: Client, namespace: &str, name: &str, jitter: Jitter) -> Self {
        let state = Mutex::new(State { token: None, failed: None, attempts: 0, jitter });
        let turn = tokio::sync::Mutex::default();
        Self { client, namespace: namespace.to_owned(), name: name.to_owned(), state, turn }
    }

    /// Returns the current token, or waits for another token if the current token has expired or was refused.
    pub(super) async fn current(self: &Arc<Self>) -> Result<Arc<Token>, CredentialError> {
        let (current, attempts) = {
            let state = self.state.lock();
            (state.token.clone(), state.attempts)
        };
        let now = Instant::now();
        match current.filter(|token| now < token.expires) {
            Some(token) if now < token.renew || self.failed_within(PAUSE, now).is_some() => Ok(token),
            Some(token) => {
                if self.turn.try_lock().is_ok() {
                    // If the task panics, the next request starts another refresh.
                    tokio::spawn(Arc::clone(self).renew(attempts));
                }
                Ok(token)
            }
            None => {
                if let Some(error) = self.failed_within(RETRY, now) {
                    return Err(CredentialError::Account(error));
                }
                // The attempt runs in a separate task, so that the next caller can use its result if this caller is
                // cancelled.
                let renewed = tokio::spawn(Arc::clone(self).renew(attempts)).await;
                renewed
                    .unwrap_or_else(|error| Err(self.failure(ApiError::Request(error.to_string()))))
                    .map_err(CredentialError::Account)
            }
        }
    }

    /// Records that the server refused `token`. The next request fetches another token, unless `token` is younger than
    /// [`PAUSE`].
    pub(super) fn refused(&self, token: &Arc<Token>) {
        let mut state = self.state.lock();
        let is_current = state.token.as_ref().is_some_and(|current| Arc::ptr_eq(current, token));
        if is_current && token.issued.elapsed() >= PAUSE {
            state.token = None;
        }
    }

    /// Returns the error of the last attempt, if the attempt failed less than `time` ago.
    fn failed_within(&self, time: Duration, now: Instant) -> Option<AccountError> {
        self.state.lock().failed.as_ref().filter(|(at, _)| now < *at + time).map(|(_, error)| error.clone())
    }

    /// Requests a token. If another attempt has completed since `attempts_before` was read, returns the result of that
    /// attempt instead, even an error.
    async fn renew(self: Arc<Self>, attempts_before: u64) -> Result<Arc<Token>, AccountError> {
        let _turn = self.turn.lock().await;
        {
            let state = self.state.lock();
            match (&state.failed, &state.token) {
                _ if state.attempts == attempts_before => {}
                (Some((_, error)), _) => return Err(error.clone()),
                (None, Some(token)) => return Ok(Arc::clone(token)),
                (None, None) => {}
            }
        }
        let asked = Instant::now();
        let answer = self.request_or_create().await;
        let mut state = self.state.lock();
        state.attempts += 1;
        let result = answer.and_then(|answer| {
            let granted = answer.spec.and_then(|spec| spec.expiration_seconds);
            let granted = granted.and_then(|seconds| u64::try_from(seconds).ok());
            let life = granted.map_or(LIFE, Duration::from_secs).max(SHORTEST);
            let token = answer.status.and_then(|status| status.token).filter(|token| !token.is_empty());
            let token =
                token.ok_or_else(|| ApiError::Decode(DecodeError::new("TokenRequest without a token")))?;
            let header = bearer(&token).map_err(|error| ApiError::Request(error.to_string()))?;
            let renew = life.mul_f64(RENEWAL - SPREAD * state.jitter.fraction());
            Ok(Arc::new(Token { header, issued: asked, renew: asked + renew, expires: asked + life }))
        });
        match result {
            Ok(token) => {
                state.token = Some(Arc::clone(&token));
                if state.failed.take().is_some() {
                    tracing::info!(account = self.full_name(), "token refresh recovered");
                }
                Ok(token)
            }
            Err(error) => {
                let error = self.failure(error);
                if state.token.is_some() {
                    tracing::warn!(%error, "token refresh failed, using the previous token until it expires");
                }
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn request_or_create(&self) -> Result<TokenRequest, ApiError> {
        match self.request_token().await {
            Err(error) if error.is_not_found() => {
                tracing::info!(account = self.full_name(), "ServiceAccount does not exist, creating it");
                self.create().await?;
                self.request_token().await
            }
            answer => answer,
        }
    }

    async fn request_token(&self) -> Result<TokenRequest, ApiError> {
        let expiration_seconds = i64::try_from(LIFE.as_secs()).ok();
        let spec = TokenRequestSpec { expiration_seconds, ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let accounts = self.client.namespaced::<ServiceAccount>(&self.namespace);
        Ok(accounts.create_subresource("token", &self.name, &PostParams::default(), &request).await?)
    }

    async fn create(&self) -> Result<(), ApiError> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        let accounts = self.client.namespaced(&self.namespace);
        match accounts.create(&PostParams::default(), &account).await.map_err(ApiError::from) {
            // Another replica has created the account in the meantime.
            Err(error) if error.code() == Some(409) => Ok(()),
            answer => answer.map(drop),
        }
    }

    fn failure(&self, error: ApiError) -> AccountError {
        AccountError { account: self.full_name(), error: Box::new(error) }
    }

    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    //! Tests against the embedded cluster. Fault rules provide the responses to TokenRequests.

    use serde_json::json;

    use super::*;
    use crate::client::{ClientOptions, Clients};
    use crate::gate::{Gate, Refusal};
    use clock::VirtualClock;
    use fake_cluster::{Cluster, FaultAction, FaultRule, Status as Failure};

    const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";

    struct Rig {
        cluster: Cluster,
        account: Arc<Account>,
    }

    fn rig_with(gate: Arc<Gate>) -> Rig {
        let cluster =
            Cluster::new(Arc::new(VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())));
        let clients =
            Clients::over(cluster.connector(), &ClientOptions { gate, ..ClientOptions::default() }).unwrap();
        let account = Account::new(clients.reviews, "kube-system", "hpa", Jitter::seeded(0));
        Rig { cluster, account: Arc::new(account) }
    }

    fn rig() -> Rig {
        rig_with(Gate::open())
    }

    impl Rig {
        fn answer(&self, action: FaultAction) {
            self.cluster.faults().clear();
            self.cluster.faults().add(FaultRule::new(action).path_suffix("/token"));
        }

        fn issue(&self, token: &str, seconds: u64) {
            let body = json!({"spec": {"expirationSeconds": seconds}, "status": {"token": token}});
            self.answer(FaultAction::Body(body.to_string()));
        }

        fn fail(&self, code: u16, reason: &str) {
            self.answer(FaultAction::Status(Failure::new(code, reason, "no")));
        }

        async fn token(&self) -> Result<String, String> {
            let token = self.account.current().await.map_err(|error| error.to_string())?;
            Ok(token.header.to_str().unwrap().to_owned())
        }

        /// Waits until a refresh in the background has completed.
        async fn settle(&self) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }

        fn requests(&self) -> usize {
            self.cluster.requests().entries().len()
        }
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn token_serves_until_a_fifth_of_its_lifetime_is_left() {
        let rig = rig();
        rig.issue("one", 3600);
        let all = futures::future::join_all((0..5).map(|_| rig.token())).await;
        assert!(all.iter().all(|token| token.as_deref() == Ok("Bearer one")), "{all:?}");
        pass(2500).await;
        assert_eq!((rig.token().await.unwrap().as_str(), rig.requests()), ("Bearer one", 1));
        pass(400).await;
        rig.issue("two", 3600);
        // This request starts a refresh without waiting for its result.
        assert_eq!(rig.token().await.unwrap(), "Bearer one");
        rig.settle().await;
        assert_eq!((rig.token().await.unwrap().as_str(), rig.requests()), ("Bearer two", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn token_is_used_until_it_expires_when_refreshes_fail() {
        let rig = rig();
        rig.issue("one", 3600);
        rig.token().await.unwrap();
        pass(3000).await;
        rig.fail(500, "InternalError");
        for _ in 0..5 {
            assert_eq!(rig.token().await.unwrap(), "Bearer one");
            rig.settle().await;
        }
        assert_eq!(rig.requests(), 2, "one attempt, then a pause");
        pass(10).await;
        rig.token().await.unwrap();
        rig.settle().await;
        assert_eq!(rig.requests(), 3);
        pass(600).await;
        let error = rig.token().await.unwrap_err();
        assert!(error.starts_with("failed to create a token of ServiceAccount kube-system/hpa"), "{error}");
        rig.issue("two", 3600);
        pass(1).await;
        assert_eq!(rig.token().await.unwrap(), "Bearer two");
    }

    #[tokio::test(start_paused = true)]
    async fn missing_token_is_requested_once_a_second_for_all_requests() {
        let rig = rig();
        rig.fail(500, "InternalError");
        for second in 1..=5 {
            for _ in 0..100 {
                let error = rig.token().await.unwrap_err();
                assert!(
                    error.starts_with("failed to create a token of ServiceAccount kube-system/hpa"),
                    "{error}"
                );
            }
            assert_eq!(rig.requests(), second);
            pass(1).await;
        }
        rig.issue("one", 3600);
        assert_eq!(rig.token().await.unwrap(), "Bearer one");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_token_is_replaced_unless_it_is_recent() {
        let rig = rig();
        rig.issue("one", 3600);
        let first = rig.account.current().await.unwrap();
        rig.account.refused(&first);
        assert_eq!((rig.token().await.unwrap().as_str(), rig.requests()), ("Bearer one", 1));
        pass(10).await;
        rig.issue("two", 3600);
        rig.account.refused(&first);
        assert_eq!((rig.token().await.unwrap().as_str(), rig.requests()), ("Bearer two", 2));
        // A late response about the first token does not affect the second token.
        pass(10).await;
        rig.account.refused(&first);
        assert_eq!((rig.token().await.unwrap().as_str(), rig.requests()), ("Bearer two", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn missing_account_is_created() {
        let rig = rig();
        let token = json!({"spec": {}, "status": {"token": "one"}}).to_string();
        let missing = FaultAction::Status(Failure::new(404, "NotFound", "no such account"));
        rig.cluster.faults().add(FaultRule::new(missing).path_suffix("/token").times(1));
        rig.cluster.faults().add(FaultRule::new(FaultAction::Body(token)).path_suffix("/token"));
        rig.cluster.faults().add(FaultRule::new(FaultAction::Body("{}".to_owned())).path_suffix("accounts"));
        assert_eq!(rig.token().await.unwrap(), "Bearer one");
        let paths: Vec<_> =
            rig.cluster.requests().entries().into_iter().map(|request| request.path).collect();
        let token = format!("{ACCOUNTS}/hpa/token");
        assert_eq!(paths, [token.clone(), ACCOUNTS.to_owned(), token]);
    }

    #[tokio::test(start_paused = true)]
    async fn dry_run_requests_tokens_and_creates_no_account() {
        let rig = rig_with(Gate::refusing(Refusal::DryRun));
        rig.fail(404, "NotFound");
        let error = rig.token().await.unwrap_err();
        assert!(error.ends_with("not written: dry run"), "{error}");
        rig.issue("one", 3600);
        pass(1).await;
        assert_eq!(rig.token().await.unwrap(), "Bearer one");
    }

    #[tokio::test(start_paused = true)]
    async fn shorter_lifetime_than_requested_is_respected() {
        let rig = rig();
        rig.issue("one", 600);
        rig.token().await.unwrap();
        pass(601).await;
        rig.issue("two", 600);
        assert_eq!(rig.token().await.unwrap(), "Bearer two");
    }
}
