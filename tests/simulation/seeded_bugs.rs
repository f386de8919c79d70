//! Planted bugs: the faults of an incorrect process, injected into its requests, its flags or its clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fake_cluster::{Answer, Exchange, Pieces, Server, Whole};
use flags::config::TakeOver;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api_link::ApiLink;
use crate::many_seeds::bugs;
use crate::plan::{Class, FaultKind, InitialState};
use crate::request_log::Subject;

bugs! { SeededBug:
    /// A rescale without a response is sent again over any newer state.
    BlindRetry: "blind-retry",
    /// A write is delayed by 13 s, and may be sent after the process has lost the right to write.
    LateWrite: "late-write",
    /// A count above 6 overflows.
    OverflowWraps: "overflow-wraps",
    /// A metric that failed is treated as zero.
    ErrorsAreZero: "errors-are-zero",
    /// Policies do not limit scale-ups.
    RatesIgnored: "rates-ignored",
    /// The deletion of an HPA is not reported.
    DeletedGoesOn: "deleted-goes-on",
    /// An HPA with failing metrics stops the syncs of all other HPAs.
    OneStopsAll: "one-stops-all",
    /// A status is written despite a conflict.
    StatusOverConflict: "status-over-conflict",
    /// A 410 in a watch is ignored.
    NoRelist: "no-relist",
    /// A broken watch restarts at the current version.
    WatchFromNow: "watch-from-now",
    /// Failed requests are retried at once, many times.
    RequestStorm: "request-storm",
    /// A candidate that lost the election considers itself the leader.
    TwoWriters: "two-writers",
    /// The tolerance has the value of another flag.
    ToleranceOff: "tolerance-off",
    /// A cached Scale is written over newer changes.
    StaleScale: "stale-scale",
    /// A truncated metrics response is treated as a complete response without load.
    HalfIsWhole: "half-is-whole",
    /// The checkpoint is not written.
    CheckpointUnwritten: "checkpoint-unwritten",
    /// Each process writes the checkpoint once and never again.
    CheckpointStale: "checkpoint-stale",
    /// The checkpoint is not read.
    CheckpointUnread: "checkpoint-unread",
    /// Neither status nor events show a rescale.
    PastHidden: "past-hidden",
    /// A sync panics. The process contains the panic.
    SyncPanics: "sync-panics",
    /// Requests for other tenants wait for requests of a hostile tenant.
    TenantFirst: "tenant-first",
    /// A process writes while another controller is active.
    TakeoverIgnored: "takeover-ignored",
}

impl SeededBug {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|plant| plant.name() == name)
    }

    /// The faults that expose the bug.
    pub(crate) fn exposing_faults(self) -> &'static [FaultKind] {
        use FaultKind as K;
        match self {
            Self::BlindRetry => &[K::ResetBefore, K::ResetAfter],
            Self::LateWrite => &[K::Partition, K::Storm],
            Self::ErrorsAreZero | Self::OneStopsAll => &[K::MetricsDown],
            Self::StatusOverConflict => &[K::WatchLate, K::WatchSilent],
            Self::NoRelist => &[K::WatchGone, K::WatchHole],
            Self::WatchFromNow => &[K::WatchCut],
            Self::RequestStorm => &[K::Storm, K::Partition],
            Self::HalfIsWhole => &[K::MetricsCut],
            Self::PastHidden => &[K::Restart, K::CrashBefore, K::CrashAfter],
            Self::CheckpointUnwritten | Self::CheckpointStale | Self::CheckpointUnread => &[K::Restart],
            Self::TenantFirst => &[K::TenantMetrics, K::TenantHangs, K::TenantEdits],
            Self::TakeoverIgnored => &[K::OtherController],
            _ => &[],
        }
    }

    /// Whether the seeds for this bug favour faults that expose it, unlike ordinary seeds.
    pub(crate) fn is_favoured(self) -> bool {
        !self.exposing_faults().is_empty()
    }

    /// Changes the scene so that the bug can be exposed.
    pub(crate) fn prepare(self, scene: &mut InitialState) {
        match self {
            Self::CheckpointUnwritten | Self::CheckpointStale | Self::CheckpointUnread => {
                (scene.processes, scene.election, scene.checkpoint) = (2, true, true);
            }
            Self::TakeoverIgnored => scene.takeover = TakeOver::Wait,
            Self::PastHidden => {
                (scene.processes, scene.checkpoint) = (1, false);
                let slow = json!({
                    "stabilizationWindowSeconds": 0,
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 120}],
                });
                for hpa in &mut scene.hpas {
                    hpa.behavior = Some(json!({"scaleUp": slow, "scaleDown": slow}));
                }
            }
            _ => {}
        }
    }

    /// Handles a request as the bug does.
    pub(crate) async fn intercept(self, link: Arc<ApiLink>, exchange: Exchange, server: Server) -> Answer {
        let subject = Subject::from_exchange(&exchange);
        let is_checkpoint = exchange.path.contains("/configmaps");
        match (self, subject.class) {
            (Self::CheckpointUnwritten, _) if is_checkpoint && exchange.verb != "get" => accepted(&exchange),
            (Self::CheckpointStale, _) if is_checkpoint && exchange.verb != "get" => {
                if link.has_written() {
                    accepted(&exchange)
                } else {
                    link.forward(exchange, server).await
                }
            }
            (Self::CheckpointUnread, _) if is_checkpoint && exchange.verb == "get" => {
                altered(link.forward(exchange, server).await, |map| {
                    map.as_object_mut().and_then(|map| map.remove("binaryData"));
                })
            }
            (Self::PastHidden, _) if exchange.verb == "list" && exchange.path.ends_with("/events") => {
                altered(link.forward(exchange, server).await, |list| list["items"] = json!([]))
            }
            (Self::PastHidden, Class::ListHpas | Class::HpaGet) => {
                altered(link.forward(exchange, server).await, hide_rescales)
            }
            (Self::PastHidden, Class::WatchHpas) => {
                let hidden = |line: Bytes| {
                    let Ok(mut event) = serde_json::from_slice::<Value>(&line) else { return Some(line) };
                    hide_rescales(&mut event["object"]);
                    Some(format!("{event}\n").into())
                };
                lines(link.forward(exchange, server).await, hidden, false)
            }
            (Self::BlindRetry, Class::ScalePut) => {
                let first = Arc::clone(&link).forward(exchange.clone(), server.clone()).await;
                if !matches!(first, Answer::Broken) {
                    return first;
                }
                link.forward(without_version(exchange), server).await
            }
            (Self::LateWrite, Class::ScalePut) => {
                // The write is sent even if the process drops the request.
                let late = async move {
                    sleep(Duration::from_secs(13)).await;
                    link.forward(exchange, server).await
                };
                tokio::spawn(late).await.unwrap_or(Answer::Broken)
            }
            (Self::OverflowWraps, Class::ScalePut) => {
                let wrapped = with_replicas(exchange, |replicas| {
                    if replicas < 7 { replicas } else { replicas + i64::from(i32::MIN) }
                });
                link.forward(wrapped, server).await
            }
            (Self::RatesIgnored, Class::ScalePut) => {
                let hpa = subject.hpa.unwrap_or(0);
                let most = link.run.plan.scene.hpas[hpa].max;
                let current = link.run.replicas(hpa).unwrap_or(0);
                let more =
                    with_replicas(exchange, |replicas| if replicas > current { most } else { replicas });
                link.forward(more, server).await
            }
            (Self::ErrorsAreZero, Class::Metrics) => {
                let answer = link.forward(exchange.clone(), server).await;
                if answer.code() == Some(200) { answer } else { zeros(&exchange) }
            }
            (Self::HalfIsWhole, Class::Metrics) => match link.forward(exchange.clone(), server).await {
                Answer::Cut(..) => zeros(&exchange),
                Answer::Whole(Whole { code: 200, body, .. })
                    if serde_json::from_slice::<Value>(&body).is_err() =>
                {
                    zeros(&exchange)
                }
                answer => answer,
            },
            (Self::OneStopsAll, Class::Metrics) => {
                let answer = Arc::clone(&link).forward(exchange, server).await;
                if answer.code().is_none_or(|code| code >= 400) {
                    link.stop_others(subject.hpa);
                }
                answer
            }
            (Self::OneStopsAll, Class::ScaleGet) if link.is_stopped(subject.hpa) => {
                std::future::pending().await
            }
            (Self::StatusOverConflict, Class::StatusPut) => {
                let answer = Arc::clone(&link).forward(exchange.clone(), server.clone()).await;
                if answer.code() != Some(409) {
                    return answer;
                }
                let hpa = subject.hpa.unwrap_or(0);
                let (namespace, name) = (InitialState::namespace(hpa), InitialState::name(hpa));
                let newest = server.cluster().get("autoscaling/horizontalpodautoscalers", namespace, &name);
                let version = newest.map_or(Value::Null, |hpa| hpa["metadata"]["resourceVersion"].clone());
                let over = with_body(exchange, |body| body["metadata"]["resourceVersion"] = version);
                link.forward(over, server).await
            }
            (Self::NoRelist, Class::WatchHpas | Class::WatchPods) => {
                lines(link.forward(exchange, server).await, |line| drop_events("ERROR", line), true)
            }
            (Self::DeletedGoesOn, Class::WatchHpas) => {
                lines(link.forward(exchange, server).await, |line| drop_events("DELETED", line), false)
            }
            (Self::WatchFromNow, Class::WatchHpas | Class::WatchPods)
                if !exchange.query.contains("sendInitialEvents") =>
            {
                let newest = server.cluster().resource_version();
                let parts = exchange.query.split('&').map(|part| match part.split_once('=') {
                    Some(("resourceVersion", _)) => format!("resourceVersion={newest}"),
                    _ => part.to_owned(),
                });
                let query = parts.collect::<Vec<_>>().join("&");
                link.forward(Exchange { query, ..exchange }, server).await
            }
            (Self::RequestStorm, _) => {
                let mut answer = Arc::clone(&link).forward(exchange.clone(), server.clone()).await;
                for _ in 0..30 {
                    if answer.code().is_some_and(|code| code < 500) {
                        break;
                    }
                    answer = Arc::clone(&link).forward(exchange.clone(), server.clone()).await;
                }
                answer
            }
            (Self::TwoWriters, Class::LeaseGet) => {
                // The Lease appears released.
                let answer = link.forward(exchange, server).await;
                let Answer::Whole(whole) = answer else { return answer };
                let Ok(mut lease) = serde_json::from_slice::<Value>(&whole.body) else {
                    return Answer::Whole(whole);
                };
                if let Some(spec) = lease.get_mut("spec") {
                    spec["holderIdentity"] = "".into();
                }
                Answer::json(whole.code, lease.to_string())
            }
            (Self::TwoWriters, Class::LeaseWrite) => {
                let believed = exchange.body.clone();
                let answer = link.forward(exchange, server).await;
                if answer.code() == Some(409) { Answer::json(200, believed) } else { answer }
            }
            (Self::TenantFirst, _) if subject.hpa.is_some() && link.run.has_tenant() => {
                sleep(Duration::from_secs(20)).await;
                link.forward(exchange, server).await
            }
            (Self::StaleScale, Class::ScaleGet) => {
                let answer = Arc::clone(&link).forward(exchange, server).await;
                link.first_scale(subject.hpa, answer)
            }
            (Self::StaleScale, Class::ScalePut) => link.forward(without_version(exchange), server).await,
            _ => link.forward(exchange, server).await,
        }
    }
}

/// A metrics response with zeros.
fn zeros(exchange: &Exchange) -> Answer {
    let parts: Vec<&str> = exchange.path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, metric) = (parts[1], parts[2], parts[parts.len() - 1]);
    let now = "2030-01-01T00:00:00Z";
    let object = json!({"kind": "Service", "namespace": "shop", "name": "x", "apiVersion": "v1"});
    let (kind, items) = match group {
        "metrics.k8s.io" => ("PodMetricsList", vec![]),
        "custom.metrics.k8s.io" => (
            "MetricValueList",
            vec![json!({"describedObject": object, "metric": {"name": metric}, "metricName": metric,
                "timestamp": now, "value": "0"})],
        ),
        _ => (
            "ExternalMetricValueList",
            vec![json!({"metricName": metric, "metricLabels": {}, "timestamp": now, "value": "0"})],
        ),
    };
    let version = format!("{group}/{version}");
    Answer::json(
        200,
        json!({"kind": kind, "apiVersion": version, "metadata": {}, "items": items}).to_string(),
    )
}

fn without_version(exchange: Exchange) -> Exchange {
    with_body(exchange, |body| {
        if let Some(meta) = body["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
    })
}

fn with_replicas(exchange: Exchange, change: impl FnOnce(i64) -> i64) -> Exchange {
    with_body(exchange, |body| {
        let replicas = body["spec"]["replicas"].as_i64().unwrap_or(0);
        body["spec"]["replicas"] = change(replicas).into();
    })
}

fn with_body(exchange: Exchange, change: impl FnOnce(&mut Value)) -> Exchange {
    let Ok(mut body) = serde_json::from_slice(&exchange.body) else { return exchange };
    change(&mut body);
    Exchange { body: body.to_string().into(), ..exchange }
}

/// A success response for a write that is not applied.
fn accepted(exchange: &Exchange) -> Answer {
    let mut object: Value = serde_json::from_slice(&exchange.body).unwrap_or_default();
    object["metadata"]["resourceVersion"] = "1".into();
    Answer::json(200, object.to_string())
}

/// Alters the object of a successful response.
fn altered(answer: Answer, alter: impl FnOnce(&mut Value)) -> Answer {
    match answer {
        Answer::Whole(whole) if whole.code == 200 => {
            let Ok(mut body) = serde_json::from_slice(&whole.body) else { return Answer::Whole(whole) };
            alter(&mut body);
            Answer::json(200, body.to_string())
        }
        answer => answer,
    }
}

/// Removes `lastScaleTime` from an HPA, or from all HPAs of a list.
fn hide_rescales(object: &mut Value) {
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("lastScaleTime");
    }
    let items = object.get_mut("items").and_then(Value::as_array_mut);
    items.into_iter().flatten().for_each(hide_rescales);
}

/// Drops a line if it is an event of type `kind`.
fn drop_events(kind: &str, line: Bytes) -> Option<Bytes> {
    (!line.starts_with(format!("{{\"type\":\"{kind}\"").as_bytes())).then_some(line)
}

/// Filters the lines of a watch. If `then_silent` is set, the watch stays silent after a dropped line.
fn lines(answer: Answer, pass: fn(Bytes) -> Option<Bytes>, then_silent: bool) -> Answer {
    let Answer::Pieces(pieces) = answer else { return answer };
    let state = (pieces, VecDeque::<Bytes>::new(), false);
    let kept = futures::stream::unfold(state, move |(mut pieces, mut lines, mut silent)| async move {
        loop {
            if silent {
                std::future::pending::<()>().await;
            }
            if let Some(line) = lines.pop_front() {
                if let Some(line) = pass(line) {
                    return Some((Ok(line), (pieces, lines, silent)));
                }
                silent = then_silent;
                continue;
            }
            match pieces.next().await? {
                Err(error) => return Some((Err(error), (pieces, lines, silent))),
                Ok(mut rest) => {
                    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                        lines.push_back(rest.split_to(end + 1));
                    }
                }
            }
        }
    });
    Answer::Pieces(Box::pin(kept) as Pieces)
}
