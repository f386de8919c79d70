//! Answers what-if questions about an HPA: the result by `simulate`, and the change as a command and as lines of YAML.

use std::fmt::Write as _;

use ::console::Subject;
use ::console::whatif::{Question, WhatIf, WhatIfError};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::explain::Explainer;
use super::form::{self, Asked};
use super::past;
use crate::pointer::at;
use crate::simulate::what_if::{self, Objects, play};
use crate::why::Situation;
use crate::why::situation::FlagOrigin;
use crate::words;

/// The flags of the scenario that have the controller's values, if these are known.
const FLAGS: [&str; 4] = [
    "horizontal-pod-autoscaler-tolerance",
    "horizontal-pod-autoscaler-downscale-stabilization",
    "horizontal-pod-autoscaler-cpu-initialization-period",
    "horizontal-pod-autoscaler-initial-readiness-delay",
];
const SYNC_PERIOD: &str = "horizontal-pod-autoscaler-sync-period";

/// Number of unchanged lines to show before and after a change.
const CONTEXT: usize = 3;

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
        let sources = past::source_loads(situation, self.sources.as_deref(), range).await;
        let question = what_if::Question {
            objects,
            past,
            length,
            sources,
            changed: after.clone(),
            flags: flags(situation),
            process: self.process,
        };
        // Dropping the future stops the simulation, which runs in other threads.
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
            command: command(namespace, name, &old, &new),
            diff: diff(&yaml(&old), &yaml(&new)),
        };
        serde_json::to_vec(&answer).map_err(|error| failed(&error))
    }
}

/// Returns the parts of an HPA that the form can change, with its name and namespace.
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

/// Returns the flags of [`FLAGS`] with a known value, and the sync period.
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

/// Returns the command that changes an HPA of a cluster: one line for a POSIX shell, in ASCII. Empty without a change.
fn command(namespace: &str, name: &str, before: &Value, after: &Value) -> String {
    let patch = merge_patch(before, after);
    if patch.as_object().is_none_or(Map::is_empty) {
        return String::new();
    }
    format!(
        "kubectl patch hpa {} --namespace {} --type=merge --patch {}",
        quoted(name),
        quoted(namespace),
        quoted(&ascii(&patch.to_string()))
    )
}

/// Returns the JSON merge patch (RFC 7386) that turns `before` into `after`.
fn merge_patch(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return after.clone() };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(old) if old == value => {}
            Some(old) if old.is_object() && value.is_object() => {
                patch.insert(key.clone(), merge_patch(old, value));
            }
            _ => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// Escapes the DEL character and all characters outside of ASCII in a JSON text, because a terminal may hide or reorder
/// such characters.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let mut units = [0; 2];
    for character in json.chars() {
        if character.is_ascii() && character != '\u{7f}' {
            text.push(character);
        } else {
            for unit in character.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

/// Quotes a word for a POSIX shell, unless the word starts with a letter or digit and has only plain characters.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let starts_plain = word.starts_with(|character: char| character.is_ascii_alphanumeric());
    if starts_plain && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Returns the changed lines of two texts with [`CONTEXT`] lines around them, similar to `diff -u`. Empty without a
/// change.
fn diff(before: &str, after: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let lines = edits(&old, &new);
    let is_near = |index: usize| {
        let from = index.saturating_sub(CONTEXT);
        lines.iter().skip(from).take(index - from + CONTEXT + 1).any(|(sign, _)| *sign != ' ')
    };
    let mut text = String::new();
    let (mut was_shown, mut numbers) = (false, (1, 1));
    for (index, (sign, line)) in lines.iter().enumerate() {
        let shown = is_near(index);
        if shown && !was_shown {
            let _ = writeln!(text, "@@ -{} +{} @@", numbers.0, numbers.1);
        }
        if shown {
            let _ = writeln!(text, "{sign}{line}");
        }
        was_shown = shown;
        numbers = (numbers.0 + usize::from(*sign != '+'), numbers.1 + usize::from(*sign != '-'));
    }
    text
}

/// Returns all lines of both texts with the signs `-`, `+` or space, by the longest common subsequence.
fn edits<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let same = |(one, other): &(&&str, &&str)| one == other;
    let head = old.iter().zip(new).take_while(same).count();
    let (old_rest, new_rest) = (old.get(head..).unwrap_or_default(), new.get(head..).unwrap_or_default());
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(same).count();
    let middle = |lines: &'_ [&'a str]| lines.get(..lines.len() - tail).unwrap_or_default().to_vec();
    let (a, b) = (middle(old_rest), middle(new_rest));
    // lengths[i][j]: the length of the longest common subsequence of a[i..] and b[j..].
    let mut lengths = vec![vec![0_u32; b.len() + 1]; a.len() + 1];
    let at = |lengths: &Vec<Vec<u32>>, i: usize, j: usize| {
        lengths.get(i).and_then(|row| row.get(j)).copied().unwrap_or(0)
    };
    for (i, one) in a.iter().enumerate().rev() {
        for (j, other) in b.iter().enumerate().rev() {
            let length = if one == other {
                at(&lengths, i + 1, j + 1) + 1
            } else {
                at(&lengths, i + 1, j).max(at(&lengths, i, j + 1))
            };
            if let Some(cell) = lengths.get_mut(i).and_then(|row| row.get_mut(j)) {
                *cell = length;
            }
        }
    }
    let mut lines: Vec<_> = old.iter().take(head).map(|line| (' ', *line)).collect();
    let (mut i, mut j) = (0, 0);
    loop {
        match (a.get(i).copied(), b.get(j).copied()) {
            (Some(one), Some(other)) if one == other => {
                lines.push((' ', one));
                (i, j) = (i + 1, j + 1);
            }
            (Some(one), other) if other.is_none() || at(&lengths, i + 1, j) >= at(&lengths, i, j + 1) => {
                lines.push(('-', one));
                i += 1;
            }
            (_, Some(other)) => {
                lines.push(('+', other));
                j += 1;
            }
            (_, None) => break,
        }
    }
    lines.extend(old_rest.iter().skip(old_rest.len() - tail).map(|line| (' ', *line)));
    lines
}

#[cfg(test)]
mod tests;
