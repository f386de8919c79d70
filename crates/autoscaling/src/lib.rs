//! The rules of Kubernetes' HorizontalPodAutoscaler controller as pure functions.
//!
//! The crate has no I/O, no async, no clock and no logging: the time is an argument. The rules, and the texts of
//! statuses and events, come from `pkg/controller/podautoscaler` of Kubernetes v1.37.1, called *upstream*. With
//! [`settings::Version::V1_36`], they are those of v1.36.
//!
//! A sync of an HPA has three steps, and the caller sends the requests between them:
//!
//! 1. [`plan()`] checks the HPA and its [`Scale`], and returns the [queries](query) to the metrics APIs if metrics are
//!    needed.
//! 2. [`decide()`] computes the replica count and its [explanation] from the answers, the pods, the [history] and the
//!    time. The caller writes the Scale if the [`Verdict`] is a rescale.
//! 3. [`conclude()`] derives the new [status], the [events](event) and the [changes](history::Changes) of the history
//!    from the decision and the outcome of the write. The caller commits the changes.
//!
//! An HPA with many metrics can be evaluated one metric at a time, with [`Evaluation`] in place of [`decide()`].
//!
//! # Example
//!
//! Two pods use 90 % of the cpu that they request. The target is 60 %, so the HPA scales to 3.
//!
//! ```
//! use std::sync::Arc;
//!
//! use autoscaling::history::History;
//! use autoscaling::pod::{ConditionStatus, ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition};
//! use autoscaling::pod::ResourceList;
//! use autoscaling::query::{Answer, ContainerUsage, PodUsage};
//! use autoscaling::settings::{Settings, Version};
//! use autoscaling::spec::Spec;
//! use autoscaling::status::Status;
//! use autoscaling::{Answers, Hpa, Overlap, Scale, Verdict, WriteOutcome, conclude, decide, plan};
//!
//! let spec: Spec = serde_json::from_str(
//!     r#"{
//!         "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
//!         "maxReplicas": 10,
//!         "metrics": [{"type": "Resource", "resource": {
//!             "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}
//!         }}]
//!     }"#,
//! )?;
//! let (status, settings) = (Status::default(), Settings::default());
//! let hpa = Hpa { namespace: "shop", name: "web", generation: Some(1), spec: &spec, status: &status };
//! let started = jiff::Timestamp::UNIX_EPOCH;
//! let now = started + jiff::SignedDuration::from_hours(1);
//!
//! let cpu = |amount: &str| Ok::<_, Box<dyn std::error::Error>>(ResourceList::new([("cpu".into(), amount.parse()?)]));
//! let requests = Arc::new(PodRequests {
//!     containers: [ContainerRequests { name: "web".into(), restartable: false, requests: cpu("200m")? }].into(),
//!     ..PodRequests::default()
//! });
//! let mut pods = Vec::new();
//! let mut usage = Vec::new();
//! for name in ["web-1", "web-2"] {
//!     pods.push(Arc::new(Pod {
//!         name: name.into(),
//!         labels: Arc::new(LabelSet::new([("app".into(), "web".into())])),
//!         requests: Arc::clone(&requests),
//!         phase: Phase::Running,
//!         terminating: false,
//!         ready: Some(ReadyCondition { status: ConditionStatus::True, since: Some(started) }),
//!         start_time: Some(started),
//!     }));
//!     usage.push(PodUsage {
//!         pod: name.into(),
//!         timestamp: Some(now),
//!         window_nanos: 30_000_000_000,
//!         containers: [ContainerUsage { name: "web".into(), usage: cpu("180m")? }].into(),
//!     });
//! }
//!
//! let scale = Scale::new(2, 2, "app=web", Version::default())?;
//! let plan = plan(&hpa, Ok(scale), |_| Overlap::None, &settings);
//! let answers = Answers { metrics: vec![Some(Ok(Answer::Resource(usage.into())))], pods: &pods };
//! let mut history = History::default();
//! let decision = decide(&hpa, &plan, &answers, &history, &settings, now);
//! assert!(matches!(decision.verdict(), Verdict::Rescale { to: 3, .. }));
//! let sentence = "goes from 2 to 3: cpu is at 90 %, above its target of 60 %";
//! assert_eq!(decision.explanation().sentence(now), sentence);
//!
//! let conclusion = conclude(&hpa, decision, &WriteOutcome::Done, &settings, now);
//! history.commit(&conclusion.changes);
//! assert_eq!(conclusion.events[0].reason, "SuccessfulRescale");
//! assert_eq!(conclusion.status.expect("changed").desired_replicas, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(clippy::missing_errors_doc)]

mod behavior;
mod conclude;
mod decide;
#[doc(hidden)] // for the flags of the controller
pub mod duration;
mod evaluation;
pub mod event;
pub mod explanation;
pub mod failure;
pub mod hash;
pub mod history;
mod hpa;
mod metric;
mod number;
mod plan;
pub mod pod;
pub mod precision;
pub mod quantity;
pub mod query;
mod readiness;
mod replicas;
pub mod selector;
pub mod settings;
pub mod spec;
mod stabilization;
pub mod status;

pub use conclude::{
    Action, Computation, Conclusion, Decision, ErrorLabel, Verdict, WriteOutcome, conclude,
    failed_update_status,
};
pub use decide::{Answers, decide};
pub use evaluation::{Choice, Evaluation, MetricOutcome};
pub use hpa::Hpa;
pub use plan::{ApiVersionError, Overlap, Plan, Scale, ScaleError, ScaleFailure, plan, target_group};
