//! Assertions on the results of an autoscaler: replicas, conditions, status and events.

use std::time::Duration;

use serde_json::Value;

use crate::outcome::{Failure, Outcome, ensure, eventually, throughout};
use crate::rest::conditions;
use crate::world::{SOON, World};

impl World {
    pub(crate) async fn replicas(&self, target: &str) -> Outcome<i64> {
        Ok(self.api.get(target).await?["spec"]["replicas"].as_i64().unwrap_or(1))
    }

    pub(crate) async fn replicas_become(&self, target: &str, wanted: i64) -> Outcome {
        let description = format!("{wanted} replicas of {target}");
        let outcome = eventually(SOON, &description, async || {
            let replicas = self.replicas(target).await?;
            ensure(replicas == wanted, || format!("{replicas} replicas"))
        });
        self.with_statuses(outcome.await).await
    }

    pub(crate) async fn replicas_stay(&self, target: &str, wanted: i64, time: Duration) -> Outcome {
        let description = format!("{wanted} replicas of {target} stay");
        let outcome = throughout(time, &description, async || {
            let replicas = self.replicas(target).await?;
            ensure(replicas == wanted, || format!("{replicas} replicas"))
        });
        self.with_statuses(outcome.await).await
    }

    /// Waits for a condition, written as `Type=Status Reason: message`.
    pub(crate) async fn condition(&self, hpa: &str, wanted: &str) -> Outcome {
        self.any_condition(hpa, wanted, |condition| condition == wanted).await
    }

    /// Waits for a condition that `matches` accepts, for cases with more than one correct text.
    pub(crate) async fn any_condition(
        &self,
        hpa: &str,
        description: &str,
        matches: impl Fn(&str) -> bool,
    ) -> Outcome {
        eventually(SOON, &format!("condition \"{description}\" on {hpa}"), async || {
            let object = self.api.get(&self.hpas(hpa)).await?;
            let all = conditions(&object);
            ensure(all.iter().any(|condition| matches(condition)), || format!("\n  {}", all.join("\n  ")))
        })
        .await
    }

    /// Waits for a value in the status.
    pub(crate) async fn status(&self, hpa: &str, pointer: &str, wanted: Value) -> Outcome {
        eventually(SOON, &format!("status{pointer} of {hpa} is {wanted}"), async || {
            let object = self.api.get(&self.hpas(hpa)).await?;
            let status = &object["status"];
            ensure(status.pointer(pointer) == Some(&wanted), || status.to_string())
        })
        .await
    }

    /// Waits for an event on an HPA.
    pub(crate) async fn event(&self, hpa: &str, reason: &str, message: &str) -> Outcome {
        self.any_event(hpa, reason, &[message.to_owned()]).await
    }

    /// Waits for an event, for cases with more than one correct message.
    pub(crate) async fn any_event(&self, hpa: &str, reason: &str, messages: &[String]) -> Outcome {
        eventually(SOON, &format!("event {reason} {messages:?} on {hpa}"), async || {
            let events = self.events(hpa).await?;
            let found = events.iter().any(|event| event.0 == reason && messages.contains(&event.1));
            ensure(found, || {
                let lines = events.iter().map(|(reason, message)| format!("\n  {reason} {message}"));
                lines.collect::<String>()
            })
        })
        .await
    }

    /// Returns the reason and message of every event on an HPA. Fails if an event has a wrong form.
    pub(crate) async fn events(&self, hpa: &str) -> Outcome<Vec<(String, String)>> {
        let path = format!(
            "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.kind%3DHorizontalPodAutoscaler,involvedObject.name%3D{hpa}",
            self.namespace
        );
        let mut found = Vec::new();
        for event in self.api.list(&path).await? {
            let text =
                |pointer| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            // What a scaling policy does is no fault.
            let is_normal =
                matches!(&*text("/reason"), "SuccessfulRescale" | "MaxStep" | "ScalingPolicyInactive");
            let kind = if is_normal { "Normal" } else { "Warning" };
            let is_well_formed = text("/source/component") == "horizontal-pod-autoscaler"
                && text("/type") == kind
                && text("/involvedObject/apiVersion") == "autoscaling/v2"
                && !text("/involvedObject/uid").is_empty()
                && event["count"].as_i64().is_some_and(|count| count > 0)
                && text("/firstTimestamp") <= text("/lastTimestamp");
            ensure(is_well_formed, || format!("malformed event: {event}"))?;
            found.push((text("/reason"), text("/message")));
        }
        Ok(found)
    }

    /// Checks that `manager` wrote the scale subresource of the target.
    pub(crate) async fn scale_is_managed_by(&self, target: &str, manager: &str) -> Outcome {
        let object = self.api.get(target).await?;
        let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        let owner = entries
            .into_iter()
            .flatten()
            .find(|entry| entry["subresource"] == "scale")
            .ok_or_else(|| Failure(format!("the scale of {target} was never written")))?;
        ensure(owner["manager"] == manager && owner["operation"] == "Update", || {
            format!("the scale is managed by {owner}")
        })
    }

    /// Adds the statuses of all HPAs to a failure.
    async fn with_statuses(&self, outcome: Outcome) -> Outcome {
        let Err(Failure(reason)) = outcome else { return Ok(()) };
        let all = self.api.list(self.hpas("").trim_end_matches('/')).await.unwrap_or_default();
        let texts = all.iter().map(|hpa| {
            let (name, metrics) = (&hpa["metadata"]["name"], &hpa["status"]["currentMetrics"]);
            format!("{name} with {metrics}:\n  {}", conditions(hpa).join("\n  "))
        });
        Err(Failure(format!("{reason}\n{}", texts.collect::<Vec<_>>().join("\n"))))
    }
}
