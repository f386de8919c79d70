//! Answers what-if questions about an HPA: the result by `simulate`, and the change as a command and as lines of YAML.

use std::fmt::Write as _;

use crate::Subject;
use crate::whatif::{Field, Question, WhatIf, WhatIfError};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::explain::Explainer;
use super::form::{self, Asked};
use super::past;
use simulate::what_if::{self, Objects, play};
use terminal::flag_use::FlagOrigin;
use terminal::values::at;
use terminal::words;
use why::Situation;

/// The flags whose values the scenario copies from the controller, if the values are known.
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
        let answer = self.situation(&refusals, &subject).await;
        let answer = answer.map_err(|error| WhatIfError::general(error.to_string()))?;
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

/// Returns the command that changes fields of an HPA. Empty without a valid change.
pub(super) fn change(namespace: &str, name: &str, hpa: &Value, fields: &[Field]) -> String {
    let asked = form::apply(hpa, fields);
    asked.map(|asked| command(namespace, name, &shown(hpa), &shown(&asked.hpa))).unwrap_or_default()
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
    // The scenario contains the scaling policy, which may set another period.
    flags.push((SYNC_PERIOD, words::duration(situation.period)));
    flags
}

impl WhatIf for Explainer {
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Vec<u8>, WhatIfError>> {
        self.clone().what_if(question).boxed()
    }
}

/// Returns the command that changes an HPA, for a POSIX shell. The command is one line of ASCII if `namespace` and
/// `name` are valid. Empty without a change.
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
mod tests {
    use std::process::Command;

    use super::*;

    /// Applies a merge patch as RFC 7386 defines it.
    fn applied(target: &Value, patch: &Value) -> Value {
        let Value::Object(changes) = patch else { return patch.clone() };
        let mut fields = target.as_object().cloned().unwrap_or_default();
        for (key, change) in changes {
            if change.is_null() {
                fields.remove(key);
            } else {
                let old = fields.get(key).cloned().unwrap_or_default();
                fields.insert(key.clone(), applied(&old, change));
            }
        }
        Value::Object(fields)
    }

    #[test]
    fn patch_makes_the_other_object() {
        let before = json!({"metadata": {"name": "web"}, "spec": {"min": 1, "list": [1, 2], "rules": {"a": 1, "b": {"c": 1}}}});
        for after in [
            json!({"metadata": {"name": "web"}, "spec": {"min": 2, "list": [1, 2], "rules": {"a": 1, "b": {"c": 1}}}}),
            json!({"metadata": {"name": "web", "annotations": {"x": "y"}}, "spec": {"list": [3], "rules": {"b": {"c": 2}}}}),
            json!({"spec": {"min": 1}}),
            before.clone(),
        ] {
            assert_eq!(applied(&before, &merge_patch(&before, &after)), after);
        }
        assert_eq!(merge_patch(&before, &before), json!({}));
        let after = json!({"metadata": {"name": "web"}, "spec": {"min": 2, "list": [1, 2], "rules": {"a": 1, "b": {"c": 1}}}});
        assert_eq!(merge_patch(&before, &after), json!({"spec": {"min": 2}}));
    }

    #[test]
    fn command_is_one_line_that_a_shell_reads_back() {
        let policy = "mode: 'paused' # it's \"so\" $HOME `id` \\ \u{202e}txet\u{0}\u{e9}\u{1f600}\n<b>";
        let before = json!({"spec": {"max": 3}});
        let after =
            json!({"metadata": {"annotations": {"concertina.dev/policy": policy}}, "spec": {"max": 4}});
        for (namespace, name) in [("shop", "web"), ("-n", "it's; rm -rf $HOME\n\u{202e}")] {
            let command = command(namespace, name, &before, &after);
            let (_, patch) = command.split_once("--patch ").unwrap();
            assert!(patch.is_ascii() && !patch.contains('\n'), "{command}");
            let script = format!("kubectl() {{ printf '%s\\0' \"$@\"; }}\n{command}");
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let words: Vec<&str> = text.split('\0').collect();
            let expected = ["patch", "hpa", name, "--namespace", namespace, "--type=merge", "--patch"];
            assert_eq!((words.len(), &words[..7]), (9, &expected[..]), "{words:?}");
            assert_eq!(serde_json::from_str::<Value>(words[7]).unwrap(), merge_patch(&before, &after));
        }
        assert_eq!(
            command("shop", "web", &before, &json!({"spec": {"max": 4}})),
            r#"kubectl patch hpa web --namespace shop --type=merge --patch '{"spec":{"max":4}}'"#
        );
        assert_eq!(command("shop", "web", &before, &before), "");
    }

    #[test]
    fn diff_has_changed_lines_with_their_context() {
        let before = (1..=20).map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat();
        let after = before.replace("line 5\n", "line five\nand more\n").replace("line 18\n", "");
        let expected = "@@ -2 +2 @@\n line 2\n line 3\n line 4\n-line 5\n+line five\n+and more\n line 6\n line 7\n line 8\n\
                    @@ -15 +16 @@\n line 15\n line 16\n line 17\n-line 18\n line 19\n line 20\n";
        assert_eq!(diff(&before, &after), expected);
        assert_eq!(diff(&before, &before), "");
        assert_eq!(diff("", "a\n"), "@@ -1 +1 @@\n+a\n");
        assert_eq!(diff("a\nb\na\n", "a\na\n"), "@@ -1 +1 @@\n a\n-b\n a\n");
    }
}
