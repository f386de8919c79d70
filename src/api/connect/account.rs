//! Acting as a ServiceAccount with tokens that other credentials may ask for, as kube-controller-manager does with
//! `--use-service-account-credentials`.
//!
//! A token is renewed when a fifth of its life is left, by a request that does not wait for it; while that fails, the
//! old one is used until it expires. The account is made if it is missing. Only spans are reckoned with, so a clock
//! that is wrong changes nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use http::header::HeaderValue;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::credentials::{CredentialError, bearer};
use crate::api::call::Call;
use crate::api::client::Client;
use crate::api::error::ApiError;
use crate::api::jitter::Jitter;

/// For how long a token is asked for; kube-controller-manager's number. The server may give less.
const LIFE: Duration = Duration::from_hours(1);
/// What a token is taken to last at least.
const SHORTEST: Duration = Duration::from_mins(1);
/// After this part of its life a token is renewed, or a little earlier.
const RENEWAL: f64 = 0.8;
/// How much earlier at most, as a part of its life: replicas that started together do not renew together.
const SPREAD: f64 = 0.1;
/// The wait after a renewal that failed, and the shortest time between two tokens of which the server refuses the first.
const PAUSE: Duration = Duration::from_secs(10);

/// The wait after an attempt that failed while there is no token to go on with: every request asks for one.
const RETRY: Duration = Duration::from_secs(1);

/// Why there is no token.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no token for ServiceAccount {account} (--use-service-account-credentials): {error}")]
pub struct AccountError {
    account: String,
    /// Boxed, because errors that may hold this one are many and this one is rare.
    pub(in crate::api) error: Box<ApiError>,
}

/// A ServiceAccount to act as.
#[derive(Debug)]
pub(in crate::api) struct Account {
    /// With the credentials that ask for tokens.
    client: Client,
    namespace: String,
    name: String,
    state: Mutex<State>,
    /// Held while a token is asked for.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    token: Option<Arc<Token>>,
    /// The last attempt, if it failed.
    failed: Option<(Instant, AccountError)>,
    /// How many attempts have ended.
    attempts: u64,
    jitter: Jitter,
}

/// A token that was given.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) header: HeaderValue,
    given: Instant,
    renew: Instant,
    expires: Instant,
}

#[derive(Deserialize)]
struct TokenRequest {
    spec: Spec,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    expiration_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct Status {
    token: String,
}

impl Account {
    pub(in crate::api) fn new(client: Client, namespace: &str, name: &str, jitter: Jitter) -> Self {
        let state = Mutex::new(State { token: None, failed: None, attempts: 0, jitter });
        let turn = tokio::sync::Mutex::default();
        Self { client, namespace: namespace.to_owned(), name: name.to_owned(), state, turn }
    }

    /// A token that is good, as far as is known. Waits only if there is none.
    pub(super) async fn current(self: &Arc<Self>) -> Result<Arc<Token>, CredentialError> {
        let (known, attempts) = {
            let state = self.state();
            (state.token.clone(), state.attempts)
        };
        let now = Instant::now();
        match known.filter(|token| now < token.expires) {
            Some(token) if now < token.renew || self.is_pausing(now) => Ok(token),
            Some(token) => {
                if self.turn.try_lock().is_ok() {
                    tokio::spawn(Arc::clone(self).renew(attempts));
                }
                Ok(token)
            }
            None => {
                if let Some(error) = self.just_failed(now) {
                    return Err(CredentialError::Account(error));
                }
                // Whoever asks may give up; the next one shall find what was begun.
                let renewed = tokio::spawn(Arc::clone(self).renew(attempts)).await;
                renewed
                    .unwrap_or_else(|error| Err(self.failure(ApiError::Request(error.to_string()))))
                    .map_err(CredentialError::Account)
            }
        }
    }

    /// The server does not let this token in: the next request asks for another, unless this one is new.
    pub(super) fn refused(&self, token: &Arc<Token>) {
        let mut state = self.state();
        let is_current = state.token.as_ref().is_some_and(|current| Arc::ptr_eq(current, token));
        if is_current && token.given.elapsed() >= PAUSE {
            state.token = None;
        }
    }

    fn is_pausing(&self, now: Instant) -> bool {
        self.state().failed.as_ref().is_some_and(|(at, _)| now < *at + PAUSE)
    }

    /// Why there is no token, as the server has just said.
    fn just_failed(&self, now: Instant) -> Option<AccountError> {
        self.state().failed.as_ref().filter(|(at, _)| now < *at + RETRY).map(|(_, error)| error.clone())
    }

    /// Asks for a token, unless somebody has since that many attempts: then that result counts, even if it is an error.
    async fn renew(self: Arc<Self>, seen: u64) -> Result<Arc<Token>, AccountError> {
        let _turn = self.turn.lock().await;
        {
            let state = self.state();
            match (&state.failed, &state.token) {
                _ if state.attempts == seen => {}
                (Some((_, error)), _) => return Err(error.clone()),
                (None, Some(token)) => return Ok(Arc::clone(token)),
                (None, None) => {}
            }
        }
        let asked = Instant::now();
        let answer = self.ask().await;
        let mut state = self.state();
        state.attempts += 1;
        let result = answer.and_then(|answer| {
            let life = answer.spec.expiration_seconds.map_or(LIFE, Duration::from_secs).max(SHORTEST);
            let header =
                bearer(&answer.status.token).map_err(|error| ApiError::Request(error.to_string()))?;
            let renew = life.mul_f64(RENEWAL - SPREAD * state.jitter.fraction());
            Ok(Arc::new(Token { header, given: asked, renew: asked + renew, expires: asked + life }))
        });
        match result {
            Ok(token) => {
                state.token = Some(Arc::clone(&token));
                if state.failed.take().is_some() {
                    tracing::info!(account = self.full_name(), "there is a new token again");
                }
                Ok(token)
            }
            Err(error) => {
                let error = self.failure(error);
                if state.token.is_some() {
                    tracing::warn!(%error, "the last token is used until it expires");
                }
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn ask(&self) -> Result<TokenRequest, ApiError> {
        match self.request_token().await {
            Err(error) if error.is_not_found() => {
                tracing::info!(account = self.full_name(), "there is no such ServiceAccount, making it");
                self.create().await?;
                self.request_token().await
            }
            answer => answer,
        }
    }

    async fn request_token(&self) -> Result<TokenRequest, ApiError> {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFE.as_secs()},
        });
        let path = ["api", "v1", "namespaces", &self.namespace, "serviceaccounts", &self.name, "token"];
        let call = Call::send(Method::POST, path, "application/json", body.to_string().into_bytes());
        self.client.json(&call.about("serviceaccounts", &self.name)).await
    }

    async fn create(&self) -> Result<(), ApiError> {
        let body = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": self.name, "namespace": self.namespace},
        });
        let path = ["api", "v1", "namespaces", &self.namespace, "serviceaccounts"];
        let call = Call::send(Method::POST, path, "application/json", body.to_string().into_bytes());
        match self.client.bytes(&call.about("serviceaccounts", &self.name)).await {
            // Another replica was faster.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
