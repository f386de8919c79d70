//! Generates a world from bytes: an HPA, the settings, and the state of the cluster at each sync.
//!
//! Most numbers are small, so that equal counts, values and targets occur. Some numbers are at the limits of their
//! types.

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use autoscaling::failure::{MetricFailureClass, ScaleFailureClass};
use autoscaling::pod::{
    ConditionStatus, ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition, ResourceList,
};
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{Answer, ContainerUsage, CustomValue, ExternalValue, PodUsage, Query, QueryError};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::{
    Behavior, InvalidMetric, MetricSource, PolicyKind, ResourceTarget, ScalingPolicy, ScalingRules,
    SelectPolicy, Spec, ValueTarget,
};
use autoscaling::status::{Condition, CrossVersionObjectReference, MetricIdentifier, SCALED_TO_ZERO, Status};
use autoscaling::{Overlap, Scale, ScaleFailure, WriteOutcome};
use jiff::{SignedDuration, Timestamp};

/// The inputs that all syncs share. Only the status changes.
pub struct World {
    pub settings: Settings,
    pub spec: Spec,
    pub status: Status,
    pub generation: Option<i64>,
    pub start: Timestamp,
}

/// The inputs of one sync.
pub struct Step {
    pub now: Timestamp,
    /// A foreign rescale before the sync. `None` keeps the count after the previous sync.
    pub replicas: Option<i32>,
    pub status_replicas: Option<i32>,
    pub selector: &'static str,
    pub scale_failed: bool,
    pub overlap: Overlap,
    pub pods: Vec<Arc<Pod>>,
    pub answers: Vec<Result<Answer, QueryError>>,
    pub outcome: WriteOutcome,
    /// Whether a write with a lost response has succeeded.
    pub done: bool,
    /// The event before the sync.
    pub before: Before,
}

/// An event before a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// No event.
    Nothing,
    /// A failover to a standby with the complete history.
    FailOver,
    /// A restart, after which the history is rebuilt from the status and the events.
    Restart {
        /// The assumed minimum distance of syncs in seconds.
        apart: u8,
    },
}

/// 2026-11-21 at noon in UTC, in seconds since 1970.
const START_SECOND: i64 = 1_795_262_400;

pub fn world(u: &mut Unstructured<'_>) -> Result<World> {
    let start = time(u, Timestamp::from_second(START_SECOND).unwrap())?;
    Ok(World {
        settings: settings(u)?,
        spec: spec(u)?,
        status: status(u, start)?,
        generation: u.arbitrary()?,
        start,
    })
}

pub fn step(u: &mut Unstructured<'_>, world: &World, before: Timestamp) -> Result<Step> {
    let now = match u.int_in_range(0..=15_u8)? {
        0 => time(u, before)?,
        1 => before,
        2 => after(before, SignedDuration::from_nanos(u.arbitrary::<i32>()?.into())),
        _ => after(before, SignedDuration::from_secs(u.int_in_range(0..=400_i64)? * 5)),
    };
    let pods = pods(u, now)?;
    let answers =
        world.spec.metrics.iter().map(|metric| answer(u, metric, &pods, now)).collect::<Result<Vec<_>>>()?;
    Ok(Step {
        now,
        replicas: if u.ratio(1, 3_u8)? { Some(count(u)?) } else { None },
        status_replicas: if u.ratio(1, 6_u8)? { Some(count(u)?) } else { None },
        selector: if u.ratio(1, 30_u8)? { *u.choose(&["", "app in (web,api),!old"])? } else { "app=web" },
        scale_failed: u.ratio(1, 40_u8)?,
        overlap: match u.int_in_range(0..=40_u8)? {
            0 => Overlap::Deleted,
            1 => Overlap::Shared(vec!["shop/api".to_owned(), "shop/web".to_owned()]),
            _ => Overlap::None,
        },
        pods,
        answers,
        outcome: match u.int_in_range(0..=15_u8)? {
            0 => WriteOutcome::Failed("conflict".to_owned()),
            1 => WriteOutcome::Withheld,
            2 => WriteOutcome::Unknown("unexpected EOF".to_owned()),
            _ => WriteOutcome::Done,
        },
        done: u.arbitrary()?,
        before: match u.int_in_range(0..=23_u8)? {
            0 | 1 => Before::FailOver,
            2 => Before::Restart { apart: u.arbitrary()? },
            _ => Before::Nothing,
        },
    })
}

/// Increases the usage of one pod, or one value of a metric. Returns `None` if the answer has no values.
pub fn raise(u: &mut Unstructured<'_>, answer: &Answer) -> Result<Option<Answer>> {
    let grow = |u: &mut Unstructured<'_>, quantity: Quantity| -> Result<Quantity> {
        let by = Quantity::from_milli(milli(u)?.saturating_abs(), Format::DecimalSi);
        Ok(quantity.saturating_add(by))
    };
    Ok(match answer {
        Answer::Resource(usages) => {
            let mut usages = usages.to_vec();
            let places = usages.len();
            let Some(usage) = places
                .checked_sub(1)
                .and_then(|last| u.int_in_range(0..=last).ok().and_then(|at| usages.get_mut(at)))
            else {
                return Ok(None);
            };
            for container in &mut usage.containers {
                let mut grown = Vec::new();
                for (name, quantity) in container.usage.iter() {
                    grown.push((Arc::from(name), grow(u, quantity)?));
                }
                container.usage = ResourceList::new(grown);
            }
            Some(Answer::Resource(usages.into()))
        }
        Answer::Custom(values) => {
            let mut values = values.to_vec();
            let Some(last) = values.len().checked_sub(1) else { return Ok(None) };
            let value = &mut values[u.int_in_range(0..=last)?];
            value.value = grow(u, value.value)?;
            Some(Answer::Custom(values.into()))
        }
        Answer::External(values) => {
            let mut values = values.to_vec();
            let Some(last) = values.len().checked_sub(1) else { return Ok(None) };
            let value = &mut values[u.int_in_range(0..=last)?];
            value.value = grow(u, value.value)?;
            Some(Answer::External(values.into()))
        }
    })
}

fn settings(u: &mut Unstructured<'_>) -> Result<Settings> {
    let version = *u.choose(&Version::ALL)?;
    let mut settings = Settings::new(version);
    if u.ratio(1, 4_u8)? {
        settings.tolerance = f64::from(u.arbitrary::<u16>()?) / 1000.0;
        settings.downscale_stabilization = Duration::from_secs(u.int_in_range(0..=4000_u64)?);
        settings.cpu_initialization_period = Duration::from_secs(u.int_in_range(0..=4000_u64)?);
        settings.initial_readiness_delay = Duration::from_secs(u.int_in_range(0..=4000_u64)?);
        settings.generation = u.arbitrary()?;
        settings.configurable_tolerance = u.arbitrary()?;
    }
    settings.scale_to_zero = u.arbitrary()?;
    Ok(settings)
}

fn spec(u: &mut Unstructured<'_>) -> Result<Spec> {
    let min = if u.ratio(1, 3_u8)? { None } else { Some(count(u)?) };
    // Most generated ranges are valid.
    let max = match u.int_in_range(0..=7_u8)? {
        0 => count(u)?,
        _ => min.unwrap_or(1).saturating_add(u.int_in_range(0..=40)?),
    };
    let metrics = (0..u.int_in_range(1..=3_u8)?).map(|_| metric(u)).collect::<Result<_>>()?;
    let behavior =
        if u.arbitrary()? { Some(Behavior { scale_up: rules(u)?, scale_down: rules(u)? }) } else { None };
    let target = reference("Deployment", "web", "apps/v1");
    Ok(Spec { target, min_replicas: min, max_replicas: max, metrics, behavior, is_too_large: false })
}

fn reference(kind: &str, name: &str, api_version: &str) -> CrossVersionObjectReference {
    CrossVersionObjectReference { kind: kind.into(), name: name.into(), api_version: api_version.into() }
}

fn metric(u: &mut Unstructured<'_>) -> Result<MetricSource> {
    let resource: Arc<str> = if u.ratio(1, 3_u8)? { "memory" } else { "cpu" }.into();
    let identifier = MetricIdentifier { name: "requests".to_owned(), selector: None };
    Ok(match u.int_in_range(0..=16_u8)? {
        0..=5 => MetricSource::Resource { resource, target: resource_target(u)? },
        6 | 7 => {
            MetricSource::ContainerResource { resource, container: "app".into(), target: resource_target(u)? }
        }
        8..=10 => MetricSource::Pods { metric: identifier, average: quantity(u)? },
        11 | 12 => MetricSource::Object {
            described: reference("Ingress", "main", "networking.k8s.io/v1"),
            metric: identifier,
            target: value_target(u)?,
        },
        13..=15 => MetricSource::External { metric: identifier, target: value_target(u)? },
        _ => MetricSource::Invalid(InvalidMetric {
            reason: "InvalidMetricSourceType",
            prefix: String::new(),
            message: "unknown metric source type \"New\"".to_owned(),
            kind: "New".into(),
        }),
    })
}

fn resource_target(u: &mut Unstructured<'_>) -> Result<ResourceTarget> {
    Ok(if u.ratio(1, 3_u8)? {
        ResourceTarget::AverageValue(quantity(u)?)
    } else if u.ratio(1, 8_u8)? {
        ResourceTarget::Utilization(count(u)?)
    } else {
        ResourceTarget::Utilization(u.int_in_range(1..=120)?)
    })
}

fn value_target(u: &mut Unstructured<'_>) -> Result<ValueTarget> {
    Ok(if u.arbitrary()? {
        ValueTarget::Value(quantity(u)?)
    } else {
        ValueTarget::AverageValue(quantity(u)?)
    })
}

fn rules(u: &mut Unstructured<'_>) -> Result<ScalingRules> {
    let policies = (0..u.int_in_range(0..=3_u8)?)
        .map(|_| {
            Ok(ScalingPolicy {
                kind: match u.int_in_range(0..=12_u8)? {
                    0 => PolicyKind::Unknown,
                    1..=6 => PolicyKind::Pods,
                    _ => PolicyKind::Percent,
                },
                value: if u.ratio(1, 8_u8)? { count(u)? } else { u.int_in_range(1..=120)? },
                period_seconds: if u.ratio(1, 16_u8)? { count(u)? } else { u.int_in_range(1..=60)? * 30 },
            })
        })
        .collect::<Result<_>>()?;
    Ok(ScalingRules {
        stabilization_window_seconds: match u.int_in_range(0..=8_u8)? {
            0 => Some(count(u)?),
            1..=4 => Some(u.int_in_range(0..=60)? * 60),
            _ => None,
        },
        select_policy: match u.int_in_range(0..=8_u8)? {
            0 => SelectPolicy::Disabled,
            1..=3 => SelectPolicy::Min,
            _ => SelectPolicy::Max,
        },
        policies,
        tolerance: if u.ratio(1, 5_u8)? {
            Some(Quantity::from_milli(u.int_in_range(0..=1500)?, Format::DecimalSi))
        } else {
            None
        },
    })
}

fn status(u: &mut Unstructured<'_>, start: Timestamp) -> Result<Status> {
    if u.arbitrary()? {
        return Ok(Status::default());
    }
    let zero = Condition {
        kind: SCALED_TO_ZERO.into(),
        status: if u.ratio(1, 4_u8)? { "False" } else { "True" }.into(),
        last_transition_time: Some(start),
        ..Condition::default()
    };
    Ok(Status {
        current_replicas: count(u)?,
        desired_replicas: count(u)?,
        last_scale_time: if u.arbitrary()? { Some(whole(time(u, start)?)) } else { None },
        conditions: if u.arbitrary()? { vec![zero] } else { Vec::new() },
        ..Status::default()
    })
}

fn pods(u: &mut Unstructured<'_>, now: Timestamp) -> Result<Vec<Arc<Pod>>> {
    let requests = Arc::new(PodRequests {
        containers: ["app", "side"]
            .into_iter()
            .take(u.int_in_range(1..=2)?)
            .map(|name| {
                let mut requests = Vec::new();
                for resource in ["cpu", "memory"] {
                    if !u.ratio(1, 16_u8)? {
                        requests.push((resource.into(), quantity(u)?));
                    }
                }
                Ok(ContainerRequests {
                    name: name.into(),
                    restartable: false,
                    requests: ResourceList::new(requests),
                })
            })
            .collect::<Result<_>>()?,
        init_containers: Box::default(),
        pod_level: ResourceList::default(),
    });
    let labels = Arc::new(LabelSet::new([("app".into(), "web".into())]));
    let healthy: bool = u.ratio(1, 2_u8)?;
    (0..u.int_in_range(0..=12_u8)?)
        .map(|number| {
            let usual = healthy || u.ratio(1, 2_u8)?;
            Ok(Arc::new(Pod {
                name: format!("web-{number:02}").into(),
                labels: Arc::clone(&labels),
                requests: Arc::clone(&requests),
                phase: if usual {
                    Phase::Running
                } else {
                    *u.choose(&[
                        Phase::Running,
                        Phase::Pending,
                        Phase::Failed,
                        Phase::Succeeded,
                        Phase::Unknown,
                    ])?
                },
                terminating: !usual && u.ratio(1, 4_u8)?,
                ready: if usual {
                    Some(ReadyCondition {
                        status: ConditionStatus::True,
                        since: Some(after(now, SignedDuration::from_hours(-1))),
                    })
                } else {
                    ready(u, now)?
                },
                start_time: if usual {
                    Some(after(now, SignedDuration::from_hours(-2)))
                } else if u.ratio(1, 6_u8)? {
                    None
                } else {
                    Some(time(u, now)?)
                },
            }))
        })
        .collect()
}

fn ready(u: &mut Unstructured<'_>, now: Timestamp) -> Result<Option<ReadyCondition>> {
    let status = match u.int_in_range(0..=6_u8)? {
        0 => return Ok(None),
        1 => ConditionStatus::Unknown,
        2 | 3 => ConditionStatus::False,
        _ => ConditionStatus::True,
    };
    Ok(Some(ReadyCondition { status, since: if u.ratio(1, 8_u8)? { None } else { Some(time(u, now)?) } }))
}

fn answer(
    u: &mut Unstructured<'_>,
    metric: &MetricSource,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> Result<Result<Answer, QueryError>> {
    if u.ratio(1, 16_u8)? {
        return Ok(Err(QueryError::new(
            MetricFailureClass::ApiUnavailable,
            "the server is currently unable to handle the request",
        )));
    }
    let whole_cluster = u.ratio(3, 4_u8)?;
    let mut measured: Vec<Arc<str>> = Vec::new();
    for pod in pods {
        if whole_cluster || u.ratio(3, 4_u8)? {
            measured.push(Arc::clone(&pod.name));
        }
    }
    if u.ratio(1, 16_u8)? {
        measured.push("unknown-pod".into());
    }
    // In half of the cases, all pods have one value.
    let common = if u.ratio(1, 2_u8)? { Some(quantity(u)?) } else { None };
    let taken = if u.ratio(1, 4_u8)? { Some(time(u, now)?) } else { Some(now) };
    Ok(Ok(match metric {
        MetricSource::Resource { .. } | MetricSource::ContainerResource { .. } => {
            let mut usages = Vec::new();
            for pod in measured {
                let amount = common.map_or_else(|| quantity(u), Ok)?;
                let usage = ResourceList::new([("cpu".into(), amount), ("memory".into(), amount)]);
                let mut containers = vec![ContainerUsage { name: "app".into(), usage: usage.clone() }];
                if u.ratio(1, 8_u8)? {
                    containers.push(ContainerUsage { name: "side".into(), usage });
                } else if u.ratio(1, 16_u8)? {
                    containers.clear();
                }
                let containers = containers.into();
                usages.push(PodUsage { pod, timestamp: taken, window_nanos: 30_000_000_000, containers });
            }
            Answer::Resource(usages.into())
        }
        MetricSource::Pods { .. } => {
            let mut values = Vec::new();
            for object in measured {
                let value = common.map_or_else(|| quantity(u), Ok)?;
                values.push(CustomValue { object, timestamp: taken, window_seconds: None, value });
            }
            Answer::Custom(values.into())
        }
        MetricSource::Object { .. } => {
            let values = if u.ratio(1, 16_u8)? { u.int_in_range(0..=2)? } else { 1 };
            let value = common.map_or_else(|| quantity(u), Ok)?;
            let one = CustomValue { object: "main".into(), timestamp: taken, window_seconds: None, value };
            Answer::Custom(vec![one; values].into())
        }
        MetricSource::External { .. } | MetricSource::Invalid(_) => {
            let values = (0..u.int_in_range(0..=3_u8)?)
                .map(|_| Ok(ExternalValue { timestamp: taken, value: quantity(u)? }))
                .collect::<Result<Vec<_>>>()?;
            Answer::External(values.into())
        }
    }))
}

impl Step {
    /// Returns the Scale of the target, or a failure to read it. `last` is the count after the previous sync.
    pub fn scale(&self, last: i32, version: Version) -> Result<Scale, ScaleFailure> {
        let failure = |message| ScaleFailure { class: ScaleFailureClass::InvalidReference, message };
        if self.scale_failed {
            return Err(failure("no matches for kind \"Deployment\" in group \"apps\"".to_owned()));
        }
        let replicas = self.replicas.unwrap_or(last);
        Scale::new(replicas, self.status_replicas.unwrap_or(replicas), self.selector, version)
            .map_err(|error| failure(error.to_string()))
    }

    /// Returns the answers to the queries of a plan, at the indexes of the queries.
    pub fn answers<'a>(
        &self,
        queries: impl Iterator<Item = (usize, &'a Query)>,
    ) -> Vec<Option<Result<Answer, QueryError>>> {
        let mut answers = vec![None; self.answers.len()];
        for (index, _) in queries {
            answers[index] = Some(self.answers[index].clone());
        }
        answers
    }
}

/// Generates a replica count, or another 32-bit number.
pub fn count(u: &mut Unstructured<'_>) -> Result<i32> {
    Ok(match u.int_in_range(0..=19_u8)? {
        0 => *u.choose(&[i32::MAX, i32::MIN, -1, i32::MAX - 1, i32::MAX / 2, 1_000_000, 100_000])?,
        1 => u.arbitrary()?,
        2 => 0,
        3..=5 => u.int_in_range(0..=1000)?,
        _ => u.int_in_range(0..=14)?,
    })
}

/// Generates an amount in milli-units.
fn milli(u: &mut Unstructured<'_>) -> Result<i64> {
    Ok(match u.int_in_range(0..=19_u8)? {
        0 => *u.choose(&[i64::MAX, i64::MIN, -1, 1, 1_i64 << 53, i64::MAX / 100, 0])?,
        1 => u.arbitrary()?,
        2 => u.arbitrary::<u32>()?.into(),
        _ => i64::from(u.int_in_range(0..=400_u16)?) * 5,
    })
}

fn quantity(u: &mut Unstructured<'_>) -> Result<Quantity> {
    Ok(match u.int_in_range(0..=31_u8)? {
        0 => Quantity::from_nanos(u.arbitrary()?, Format::DecimalSi),
        1 => Quantity::from_units(u.arbitrary()?, Format::BinarySi),
        _ => Quantity::from_milli(milli(u)?, Format::DecimalSi),
    })
}

/// Generates a time close to `near`, or at the limits of the type.
fn time(u: &mut Unstructured<'_>, near: Timestamp) -> Result<Timestamp> {
    Ok(match u.int_in_range(0..=31_u8)? {
        0 => *u.choose(&[Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH])?,
        1 => after(near, SignedDuration::from_nanos(u.arbitrary()?)),
        _ => after(near, SignedDuration::from_secs(u.int_in_range(-1000..=100_i64)?)),
    })
}

fn after(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX })
}

/// Truncates a time to whole seconds.
pub fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap()
}
