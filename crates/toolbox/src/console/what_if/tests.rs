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
    let after = json!({"metadata": {"annotations": {"concertina.dev/policy": policy}}, "spec": {"max": 4}});
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
