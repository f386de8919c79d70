//! All requests to the cluster: who makes them, and what they need.
//!
//! Nothing else in the crate talks to the API server. Every request is made by one of the [`client::Clients`], waits for
//! a token of that client's bucket, and passes the [`gate::Gate`] if it could change anything. Errors are
//! [`error::ApiError`], whose text is what Go's client prints, because users and their alerts see it.
//!
//! | request | made by | RBAC: verb, resource |
//! |---|---|---|
//! | `GET /api`, `/apis/{group}`, `/apis/{group}/{version}` | [`mapper`], [`metrics`] | none (discovery) |
//! | `GET …/horizontalpodautoscalers` (cluster-wide, or of one namespace), with `watch`; of one name after a lost answer or a conflict | [`watch`], [`status`] | list, watch `horizontalpodautoscalers.autoscaling` |
//! | `GET /api/v1/pods` (cluster-wide, or of one namespace), with `watch` | [`watch`] | list, watch `pods` |
//! | `GET …/{resource}/{name}/scale` | [`scale`] | get `*/scale` |
//! | `GET …/{resource}` (cluster-wide, or of one namespace), with `watch`, of the kinds that HPAs scale | [`watch`] for `targets` | list, watch of those, if it is allowed |
//! | `GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}` of such a kind | [`scale`] | get of that one, if it is allowed |
//! | `PUT …/{resource}/{name}/scale` | [`scale`] | update `*/scale` |
//! | `PUT …/horizontalpodautoscalers/{name}/status` | [`status`] | update `horizontalpodautoscalers.autoscaling/status` |
//! | `GET /apis/metrics.k8s.io/v1beta1/namespaces/{ns}/pods` | [`metrics`] | list `pods.metrics.k8s.io` |
//! | `GET /apis/custom.metrics.k8s.io/{v}/…` | [`metrics`] | get, list `*.custom.metrics.k8s.io` |
//! | `GET /apis/external.metrics.k8s.io/v1beta1/…` | [`metrics`] | list `*.external.metrics.k8s.io` |
//! | `GET …/{horizontalpodautoscalers,pods,events}`, of one namespace or of all | [`list`], for `why` | list each |
//! | `GET …/{resource}/{name}` of targets and owners of pods | `why` | get each |
//! | `GET` of a Lease, a pod and its `portforward` | `forward`, for `why` | get each, create `pods/portforward` |
//! | `GET /history` of the replica that leads, at its own port | [`crate::history::replica`], as the [`user`] of the configuration | list `horizontalpodautoscalers.autoscaling` |
//! | `GET /version`, `/apis` | [`server`], `why` | none (discovery) |
//! | `POST /apis/authentication.k8s.io/v1/tokenreviews` | [`reviews`] | create `tokenreviews.authentication.k8s.io` |
//! | `POST /apis/authorization.k8s.io/v1/subjectaccessreviews` | [`reviews`] | create `subjectaccessreviews.authorization.k8s.io` |
//! | `GET /api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication` | `serve` | get that one |
//! | `POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews` | `permissions` | none (everybody may) |
//! | `GET`, `POST`, `PUT` of one Lease, with `watch` | [`leases`] | get, update, watch of that one, create `leases.coordination.k8s.io` |
//! | `GET /api/v1/events`, of one namespace or of all | `history`, when leading begins | list `events` |
//! | `GET`, `PUT`, `POST` of the ConfigMaps of the checkpoint | [`config_maps`], with `--history-checkpoint` | get, update of those |
//! | `POST …/serviceaccounts/{name}/token`, and `GET`, `POST` of the account | [`connect`], with `--use-service-account-credentials` | create `serviceaccounts/token`, get and create `serviceaccounts` |
//! | `POST /api/v1/namespaces/{ns}/events` | [`events`] | create `events` |
//! | `PATCH /api/v1/namespaces/{ns}/events/{name}` | [`events`] | patch `events` |
//!
//! No scale and no status is ever patched: the built-in role does not allow it, and a PUT with the resourceVersion that
//! was read meets conflicts where the built-in controller meets them.

mod body;
pub mod call;
pub mod client;
pub mod config_maps;
pub mod connect;
pub mod decode;
pub mod error;
pub mod events;
#[cfg(feature = "tools")]
pub mod forward;
mod fresh;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod gate;
mod items;
pub mod jitter;
pub mod kubeconfig;
pub mod leases;
pub mod limit;
pub mod list;
mod lru;
pub mod mapper;
pub mod metrics;
pub mod peers;
pub mod reviews;
pub mod scale;
pub mod server;
pub mod status;
pub mod user;
pub mod watch;

#[cfg(test)]
mod tests;
