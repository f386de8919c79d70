//! Answers what-if questions about an HPA, by `simulate`.

use ::console::Subject;
use ::console::whatif::{Question, WhatIf, WhatIfError};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::explain::Explainer;
use super::form::{self, Asked};
use super::{past, patch, prometheus};
use crate::pointer::at;
use crate::simulate::what_if::{self, Objects, play};
use crate::why::Situation;
use crate::why::situation::FlagOrigin;
use crate::words;

/// The flags that a scenario takes from the controller, if they are known.
const FLAGS: [&str; 4] = [
    "horizontal-pod-autoscaler-tolerance",
    "horizontal-pod-autoscaler-downscale-stabilization",
    "horizontal-pod-autoscaler-cpu-initialization-period",
    "horizontal-pod-autoscaler-initial-readiness-delay",
];
const SYNC_PERIOD: &str = "horizontal-pod-autoscaler-sync-period";

/// The answer: the simulated result, and the change to copy.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    played: what_if::Answer,
    /// The command that changes the HPA. Empty without a change.
    command: String,
    /// The changed lines of the YAML. Empty without a change.
    diff: String,
}

impl Explainer {
    async fn what_if(self, question: Question) -> Result<Vec<u8>, WhatIfError> {
        let Question { subject, fields } = question;
        let Subject { namespace, name, .. } = &subject;
        let refusals = self.refusals.lock().await;
        let answer = self.situation(&refusals, &subject).await.map_err(WhatIfError::general)?;
        let objects = Objects::read(&self.clients, namespace, name).await;
        drop(refusals);
        let objects = objects.map_err(|error| WhatIfError::general(error.to_string()))?;
        let before = objects.hpa().clone();
        let Asked { hpa: after, hours } = form::apply(&before, &fields)?;
        let situation = &answer.situation;
        let past = past::past(situation, answer.record.as_ref(), &subject, &self.changes)
            .ok_or_else(|| WhatIfError::general("the HPA was not read"))?;
        let length = SignedDuration::from_hours(hours.into());
        let range = what_if::range(&past, length);
        let sources = prometheus::past(situation, self.sources.as_deref(), range).await;
        let question = what_if::Question {
            objects,
            past,
            length,
            sources,
            changed: after.clone(),
            flags: flags(situation),
            process: self.process,
        };
        // A dropped future stops the runs, which are in threads of their own.
        let stop = CancellationToken::new();
        let dropped = stop.clone().drop_guard();
        let played = tokio::task::spawn_blocking(move || play(&question, &stop)).await;
        drop(dropped);
        let failed = |error: &dyn std::error::Error| WhatIfError::general(error.to_string());
        let played = played.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        let (old, new) = (shown(&before), shown(&after));
        let yaml = |object: &Value| serde_saphyr::to_string(object).unwrap_or_default();
        let answer = Answer {
            played,
            command: patch::command(namespace, name, &old, &new),
            diff: patch::diff(&yaml(&old), &yaml(&new)),
        };
        serde_json::to_vec(&answer).map_err(|error| failed(&error))
    }
}

/// The parts of an HPA that fields of the form change, with its name and namespace.
fn shown(hpa: &Value) -> Value {
    let mut metadata =
        json!({"name": at(hpa, "/metadata/name"), "namespace": at(hpa, "/metadata/namespace")});
    let annotations = hpa.pointer("/metadata/annotations").filter(|it| !it.is_null());
    if let (Some(annotations), Some(fields)) = (annotations, metadata.as_object_mut()) {
        fields.insert("annotations".to_owned(), annotations.clone());
    }
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": at(hpa, "/spec"),
    })
}

/// The flags of [`FLAGS`] with a known value, and the sync period.
fn flags(situation: &Situation) -> Vec<(&'static str, String)> {
    let known = |origin| matches!(origin, FlagOrigin::Record | FlagOrigin::Given);
    let known = situation.flags.iter().filter(|flag| FLAGS.contains(&flag.name) && known(flag.origin));
    let mut flags: Vec<_> = known.map(|flag| (flag.name, flag.value.clone())).collect();
    flags.push((SYNC_PERIOD, words::duration(situation.period)));
    flags
}

impl WhatIf for Explainer {
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Vec<u8>, WhatIfError>> {
        self.clone().what_if(question).boxed()
    }
}
