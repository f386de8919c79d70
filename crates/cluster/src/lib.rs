//! The requests of the controller and of `why` to the cluster. The table lists the caller and the required permission
//! of each request.
//!
//! The controller sends requests to the API server only through this crate. Every request belongs to one of the
//! [`client::Clients`] and waits for a token if that client has a token bucket. A request that could change the cluster
//! passes the [`gate::Gate`]. Errors are [`error::ApiError`] with the texts of Go's client, because users and alerts
//! match these texts.
//!
//! | request | caller | RBAC: verb, resource |
//! |---|---|---|
//! | `GET /api`, `/apis/{group}`, `/apis/{group}/{version}` | [`mapper`], [`metrics`] | none (discovery) |
//! | `GET …/horizontalpodautoscalers` (cluster-wide, or of one namespace), with `watch`, or of one name after a lost response or a conflict | [`watch`], [`status`] | list, watch `horizontalpodautoscalers.autoscaling` |
//! | `GET /api/v1/pods` (cluster-wide, or of one namespace), with `watch` | [`watch`] | list, watch `pods` |
//! | `GET …/{resource}/{name}/scale` | [`scale`] | get `*/scale` |
//! | `GET …/{resource}` (cluster-wide, or of one namespace), with `watch`, of the kinds that HPAs scale | [`watch`] for `targets` | list, watch the kinds, optional |
//! | `GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}` of a kind that HPAs scale | [`scale`] | get the definition, optional |
//! | `PUT …/{resource}/{name}/scale` | [`scale`] | update `*/scale` |
//! | `PUT …/horizontalpodautoscalers/{name}/status` | [`status`] | update `horizontalpodautoscalers.autoscaling/status` |
//! | `GET /apis/metrics.k8s.io/v1beta1/namespaces/{ns}/pods` | [`metrics`] | list `pods.metrics.k8s.io` |
//! | `GET /apis/custom.metrics.k8s.io/{v}/…` | [`metrics`] | get, list `*.custom.metrics.k8s.io` |
//! | `GET /apis/external.metrics.k8s.io/v1beta1/…` | [`metrics`] | list `*.external.metrics.k8s.io` |
//! | `GET …/{horizontalpodautoscalers,pods,events}`, of one namespace or of all | [`watch`], for `why` | list each |
//! | `GET …/{resource}/{name}` of targets and owners of pods | `why` | get each |
//! | `GET` of a Lease, a pod and its `portforward` | `forward`, for `why` | get each, create `pods/portforward` |
//! | `GET /version`, `/apis` | [`server`], `why`, `check` | none (discovery) |
//! | `GET` of Deployments, ConfigMaps, monitors, guards, an APIService, and of pods in `kube-system` | `check` | get or list each, optional |
//! | `POST /apis/authentication.k8s.io/v1/tokenreviews` | [`permission`] | create `tokenreviews.authentication.k8s.io` |
//! | `POST /apis/authorization.k8s.io/v1/subjectaccessreviews` | [`permission`] | create `subjectaccessreviews.authorization.k8s.io` |
//! | `GET /api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication` | `serve` | get the ConfigMap |
//! | `POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews` | `permissions` | none (granted to all authenticated users) |
//! | `GET`, `POST`, `PUT` of one Lease, with `watch` | `election::leases` | get, update, watch the Lease, create `leases.coordination.k8s.io` |
//! | `GET /api/v1/events`, of one namespace or of all | `history`, at the start of leadership | list `events` |
//! | `GET`, `PUT`, `POST` of the ConfigMaps of the checkpoint | [`typed`], unless `--history-checkpoint=false` | get, update the ConfigMaps |
//! | `POST …/serviceaccounts/{name}/token`, and `GET`, `POST` of the account | [`connect`], with `--use-service-account-credentials` | create `serviceaccounts/token`, get and create `serviceaccounts` |
//! | `POST /api/v1/namespaces/{ns}/events` | [`events`] | create `events` |
//! | `PATCH /api/v1/namespaces/{ns}/events/{name}` | [`events`] | patch `events` |
//! | `GET /api/v1/namespaces`, with `watch` | [`watch`] for `policy` and `handover` | list, watch `namespaces` |
//! | `GET` of scaling policies, with `watch`, and `PATCH` of their status | `policy`, with [`watch`] | list, watch the policies, patch their status |
//! | `GET /apis/{group}/…` of an adapter that the file of metric sources lists | [`metrics`] | get, list `*` of the group |
//! | `GET` of a Secret that a scaling policy names | `sources` | get the Secret |
//! | `GET`, `PUT` of the Secret of the handover webhook | `handover`, with `--handover-guard=webhook` | get, update the Secret |
//! | `GET` of the guard's objects, and `PUT` of its webhook configuration | `handover` | get the objects, update the configuration |
//! | `POST /apis/authentication.k8s.io/v1/selfsubjectreviews` | `app` | none (granted to all authenticated users) |
//!
//! Requests for Leases, ConfigMaps, reviews, tokens and the objects of the handover guard use kube's typed client
//! ([`typed`]) over the same [`client::Clients`]. So do the requests of `forward`. All other requests are built as
//! [`call::Call`], because they are frequent or users see their error texts.
//!
//! Scales and statuses of HPAs are never patched, because the built-in role does not permit patches. A PUT with the
//! resourceVersion that was read conflicts in the same cases as in the built-in controller.

mod api_client;
pub mod body;
mod cache;
pub mod call;
pub mod client;
pub mod connect;
pub mod decode;
pub mod error;
pub mod events;
pub mod fair;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod gate;
pub mod kubeconfig;
pub mod limit;
pub mod mapper;
pub mod metrics;
pub mod permission;
pub mod platform;
pub mod scale;
pub mod server;
pub mod status;
mod text;
mod turn;
pub mod typed;
pub mod user;
pub mod watch;

#[cfg(test)]
mod tests;
