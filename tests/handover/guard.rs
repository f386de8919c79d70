//! A model of the API servers that call the webhook. The webhook configuration decides which writes they send to the
//! webhook, and the real code of a replica answers.

use std::sync::Arc;
use std::time::Duration;

use coexist::handover::objects::{BUILT_IN_USERS, GuardObjects};
use coexist::handover::proof;
use coexist::handover::scope::ControllerName;
use concertina::handover::{Plurals, Review};
use concertina::serve::webhook::Reviewer;
use controller::election::LeaseLife;
use fake_cluster::Exchange;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::plan::Edit;
use crate::rig::Replica;
use crate::support::objects::SHOP;

/// The user of the built-in loop.
pub(crate) const BUILT_IN: &str = BUILT_IN_USERS[0];
/// The correct value of `caBundle`.
const BUNDLE: &str = "cmlnaHQ=";

/// The webhook configuration and the replicas behind the webhook.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) state: Mutex<State>,
    objects: GuardObjects,
}

pub(crate) struct State {
    pub(crate) edit: Edit,
    /// Whether each API server reaches the webhook.
    pub(crate) reaches: [bool; 2],
    /// The replicas behind the Service.
    pub(crate) serving: Vec<Serving>,
    /// Number of requests to the webhook so far.
    requests: usize,
    /// Whether the first replica of [`Self::serving`] answers all requests.
    pub(crate) is_sticky: bool,
}

/// A replica that answers requests to the webhook.
pub(crate) struct Serving(Arc<Reviewer>);

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("edit", &self.edit).finish_non_exhaustive()
    }
}

impl Serving {
    pub(crate) fn new(replica: &Replica, lease: LeaseLife) -> Self {
        let review = Review {
            charges: Arc::clone(replica.charges()),
            built_in_users: BUILT_IN_USERS.map(str::to_owned).into(),
            lease: Some(lease),
            plurals: Arc::new(Plurals::default()),
            telemetry: replica.telemetry.clone(),
        };
        Self(review.reviewer())
    }
}

/// The decision of an API server about a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Allowed,
    Refused,
    /// The webhook cannot be reached, and the write is allowed.
    Failed,
}

impl Guard {
    pub(crate) fn new(is_sticky: bool) -> Arc<Self> {
        let objects = GuardObjects {
            controller: ControllerName::default(),
            built_in_users: BUILT_IN_USERS.map(str::to_owned).into(),
            namespace: "concertina-system".to_owned(),
        };
        let (edit, reaches, serving) = (Edit::None, [true; 2], Vec::new());
        let state = State { edit, reaches, serving, requests: 0, is_sticky };
        Arc::new(Self { state: Mutex::new(state), objects })
    }

    /// Checks the webhook configuration as a replica does. `Err` describes the defect.
    pub(crate) fn check(&self) -> Result<(), String> {
        let configuration = self.configuration();
        let trusts = |bundle: &str, _: &str| bundle == BUNDLE;
        proof::webhook(&self.objects, configuration.as_ref(), &trusts).map_err(|error| error.to_string())
    }

    /// Decides about a write that `user` sends to an API server.
    pub(crate) fn admit(
        &self,
        server: usize,
        user: &str,
        exchange: &Exchange,
        is_dry_run: bool,
    ) -> Admission {
        let Some(review) = review(exchange, user, is_dry_run) else { return Admission::Allowed };
        let mut state = self.state.lock();
        if !state.edit.asks(user, &review["request"]["subResource"]) {
            return Admission::Allowed;
        }
        if !state.reaches[server] || !state.edit.is_reached() || state.serving.is_empty() {
            return Admission::Failed;
        }
        state.requests += 1;
        let next = if state.is_sticky { 0 } else { state.requests % state.serving.len() };
        let reviewer = Arc::clone(&state.serving[next].0);
        drop(state);
        let answer = reviewer(review.to_string().as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
        if answer["response"]["allowed"] == json!(false) { Admission::Refused } else { Admission::Allowed }
    }

    /// The webhook configuration in the cluster. `None` if it was deleted.
    fn configuration(&self) -> Option<Value> {
        let edit = self.state.lock().edit;
        if edit == Edit::Deleted {
            return None;
        }
        let mut configuration = self.objects.webhook();
        if edit == Edit::ObjectLabel {
            configuration["metadata"]["labels"] = json!({"team": "platform"});
        }
        let webhooks = configuration["webhooks"].as_array_mut().unwrap();
        webhooks.retain(|webhook| !edit.removes(&webhook["rules"][0]["resources"][0]));
        for webhook in webhooks {
            webhook["clientConfig"]["caBundle"] = json!(BUNDLE);
            edit.change(webhook);
        }
        Some(configuration)
    }
}

impl Edit {
    fn removes(self, resource: &Value) -> bool {
        self == Self::NoScales && resource == "*/scale"
            || self == Self::NoStatuses && resource == "horizontalpodautoscalers/status"
    }

    fn change(self, webhook: &mut Value) {
        let nothing = json!({"matchLabels": {"no": "object"}});
        match self {
            Self::NamespaceSelector => webhook["namespaceSelector"] = nothing,
            Self::ObjectSelector => webhook["objectSelector"] = nothing,
            Self::OtherAuthority => webhook["clientConfig"]["caBundle"] = json!("b3RoZXI="),
            Self::OtherService => webhook["clientConfig"]["service"]["name"] = json!("other"),
            Self::OtherUsers => webhook["matchConditions"][0]["expression"] = json!("false"),
            Self::TimeLimit => webhook["timeoutSeconds"] = json!(10),
            Self::None | Self::Deleted | Self::NoScales | Self::NoStatuses | Self::ObjectLabel => {}
        }
    }

    /// Whether an API server with this configuration sends a write to the webhook. The model also sends the statuses out
    /// of scope, which the webhook allows.
    fn asks(self, user: &str, subresource: &Value) -> bool {
        BUILT_IN_USERS.contains(&user)
            && match self {
                Self::None
                | Self::OtherAuthority
                | Self::OtherService
                | Self::TimeLimit
                | Self::ObjectLabel => true,
                Self::Deleted | Self::NamespaceSelector | Self::ObjectSelector | Self::OtherUsers => false,
                Self::NoScales => subresource != "scale",
                Self::NoStatuses => subresource != "status",
            }
    }

    /// Whether the configured Service and authority are those of the webhook.
    fn is_reached(self) -> bool {
        !matches!(self, Self::OtherAuthority | Self::OtherService)
    }

    /// Whether the guard is proven.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(self, Self::None | Self::ObjectLabel)
    }
}

/// The AdmissionReview of a write. `None` for a write that no rule matches.
fn review(exchange: &Exchange, user: &str, is_dry_run: bool) -> Option<Value> {
    let operation = match exchange.verb {
        "update" | "patch" => "UPDATE",
        "create" => "CREATE",
        _ => return None,
    };
    let parts: Vec<_> = exchange.path.trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let ["namespaces", SHOP, resource, rest @ ..] = rest else { return None };
    let (name, subresource) = match *rest {
        [] => ("", ""),
        [name] => (name, ""),
        [name, subresource] => (name, subresource),
        _ => return None,
    };
    let is_ruled = match subresource {
        "scale" => true,
        "status" => *resource == "horizontalpodautoscalers",
        _ => subresource.is_empty() && *resource == "events",
    };
    let object: Value = serde_json::from_slice(&exchange.body).ok()?;
    is_ruled.then(|| {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "7", "operation": operation, "dryRun": is_dry_run, "namespace": SHOP, "name": name,
                "subResource": subresource, "userInfo": {"username": user},
                "resource": {"group": group, "version": "v1", "resource": resource}, "object": object,
            },
        })
    })
}

/// A PUT of the Scale of `target`, for dry runs.
pub(crate) fn scale_write(target: &str) -> Exchange {
    Exchange {
        method: http::Method::PUT,
        verb: "update",
        path: format!("/apis/apps/v1/namespaces/{SHOP}/deployments/{target}/scale"),
        query: String::new(),
        user_agent: "kubectl".to_owned(),
        impersonated: String::new(),
        accept: String::new(),
        content_type: "application/json".to_owned(),
        body: json!({"kind": "Scale", "spec": {"replicas": 3}}).to_string().into(),
    }
}

/// The time that an API server waits for the webhook. `unreached` is its timeout.
pub(crate) fn wait(admission: Admission, unreached: Duration) -> Duration {
    if admission == Admission::Failed { unreached } else { Duration::ZERO }
}
