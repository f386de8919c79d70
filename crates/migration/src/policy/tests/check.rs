//! Tests of `policy check`, also with the annotations of `examples/policies`.

use std::path::Path;

use super::*;

const NIGHT: &str = "
apiVersion: autoscaling.concertina.dev/v1alpha1
kind: ScalingPolicy
metadata: {name: hours, namespace: shop}
spec:
  selector: {matchLabels: {team: shop}}
  mode: ScaleUpOnly
  until: 2026-11-23T14:00:00Z
  schedules:
  - {name: office, timeZone: Europe/Berlin, start: 0 8 * * 1-5, end: 0 19 * * 1-5, minReplicas: 10}
";

async fn offline(folder: &Folder, text: &str) -> Ran {
    let file = folder.file("a.yaml", text);
    run(folder, &["check", "--offline", "--utc", &file], None).await
}

#[tokio::test(start_paused = true)]
async fn fields_without_effect_are_listed_with_their_paths() {
    let folder = Folder::new("check-fields");
    for (text, expected) in [
        ("mode: Paused", "a.yaml: document 1: annotation: valid\n  now: mode Paused\n"),
        (
            "forecast: {timeZone: Asia/Tokyo}",
            "a.yaml: document 1: annotation: valid\n  now: forecast as a preview\n",
        ),
        (
            "forecast: {mode: Floor, maximumFloor: 60%}",
            "a.yaml: document 1: annotation: valid\n  now: forecast as a floor up to 60 % of maxReplicas\n",
        ),
        (
            "forecast: {mode: Floor, budget: 5}",
            "a.yaml: document 1: annotation: 1 problem\n  forecast.budget: must be a percentage from 1% to 100%, not 5\n  \
             now: no mode and no schedule is active\n",
        ),
        (
            "gards: {rollout: Hold}\nmode: Pause",
            "a.yaml: document 1: annotation: 2 problems\n  gards: is unknown and has no effect; did you mean guards?\n  \
             mode: must be Auto, Paused, ScaleUpOnly, ScaleDownOnly, Pinned or DryRun, not \"Pause\"; the count is held\n  \
             now: mode Invalid\n",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, annotations: {concertina.dev/policy: 'tolerence: 1'}}",
            "a.yaml: document 1: annotation of Deployment web: 1 problem\n  \
             metadata.annotations[concertina.dev/policy].tolerence: is unknown and has no effect; did you mean tolerance?\n  \
             now: no mode and no schedule is active\n",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, annotations: {concertina.dev/policy: {mode: Paused}}}",
            "a.yaml: document 1: annotation of Deployment web: 1 problem\n  \
             metadata.annotations[concertina.dev/policy]: must be a string\n  \
             now: no mode and no schedule is active\n",
        ),
        (
            NIGHT,
            "a.yaml: document 1: ScalingPolicy shop/hours: valid\n  now: mode ScaleUpOnly until 14:00:00Z, minReplicas 10 \
             (schedule office until 18:00:00Z), next change 14:00:00Z\n  matches 0 HPAs\n",
        ),
        (
            "apiVersion: autoscaling.concertina.dev/v1\nkind: ScalingPolici\nmetadata: {}\nspecs: {}",
            "a.yaml: document 1: ScalingPolici without a name: 5 problems\n  apiVersion: must be autoscaling.concertina.dev/v1alpha1\n  \
             kind: must be ScalingPolicy or ClusterScalingPolicy\n  metadata.name: is missing\n  spec: is missing\n  \
             specs: is unknown and has no effect; did you mean \"spec\"?\n  now: no mode and no schedule is active\n",
        ),
        (
            "apiVersion: autoscaling.concertina.dev/v1alpha1\nkind: ScalingPolicy\nmetadata: {name: a}\nspec: {selector: {matchLabels: {a b: c}}, \
             mode: Paused, limits: {highestFloor: 1}}",
            "a.yaml: document 1: ScalingPolicy default/a: 2 problems\n  spec.limits: has an effect in a ClusterScalingPolicy only\n  \
             spec.selector: ",
        ),
    ] {
        let ran = offline(&folder, text).await;
        assert!(ran.out.starts_with(expected), "{text}\n{}", ran.out);
        let is_good = expected.contains(": valid\n");
        assert_eq!(ran.verdict, Ok(if is_good { Verdict::Good } else { Verdict::Attention }), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn valid_fields_that_surprise_have_a_note() {
    let folder = Folder::new("check-notes");
    let notes = async |text: &str| {
        let ran = offline(&folder, text).await;
        assert_eq!(ran.verdict, Ok(Verdict::Good), "{}", ran.out);
        ran.out
            .lines()
            .filter_map(|line| line.trim().strip_prefix("note: "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        notes("{mode: Paused, until: 2026-11-23T12:00:00Z, schedules: [{name: sale, from: 2025-11-27T00:00:00Z, to: 2025-11-30T00:00:00Z, minReplicas: 5}]}").await,
        ["until 2026-11-23T12:00:00Z is in the past: the mode is Auto", "schedule sale ended at 2025-11-30T00:00:00Z"]
    );
    assert_eq!(
        notes("schedules: [{name: sale, from: 2026-11-27T00:00:00Z, to: 2026-11-30T00:00:00Z, minReplicas: 5}, {name: cap, from: 2026-11-29T00:00:00Z, to: 2026-12-01T00:00:00Z, maxReplicas: 4}]").await,
        ["at 2026-11-29T00:00:00Z, minReplicas 5 of schedule sale is above maxReplicas 4 of schedule cap: maxReplicas applies"]
    );
    assert_eq!(notes("{mode: Paused, until: 2026-11-23T12:00:01Z}").await, Vec::<String>::new());
    let all = policy("ScalingPolicy", "all", &json!({"mode": "Paused"}));
    assert_eq!(
        notes(&all.to_string()).await,
        ["spec.selector is empty: the policy applies to every HPA of the namespace"]
    );
    let all = policy("ClusterScalingPolicy", "all", &json!({"mode": "Paused", "selector": {}}));
    assert_eq!(
        notes(&all.to_string()).await,
        ["spec.selector is empty: the policy applies to every HPA of the selected namespaces"]
    );
}

#[tokio::test(start_paused = true)]
async fn long_annotation_is_reported_like_by_the_controller() {
    let folder = Folder::new("check-long");
    let ran = offline(&folder, &format!("mode: Paused # {}", "x".repeat(200_000))).await;
    let expected = "the policy has 200015 bytes, at most 65536 are allowed; the policy is ignored";
    assert!(ran.out.contains(expected), "{}", ran.out);
    assert_eq!(ran.verdict, Ok(Verdict::Attention));
}

#[tokio::test(start_paused = true)]
async fn files_without_a_policy_are_an_error() {
    let folder = Folder::new("check-nothing");
    let ran = offline(&folder, "kind: Service\napiVersion: v1\nmetadata: {name: web}").await;
    assert_eq!(
        ran.verdict.unwrap_err(),
        "a.yaml has no ScalingPolicy, ClusterScalingPolicy, annotation concertina.dev/policy or metric sources"
    );
}

#[tokio::test(start_paused = true)]
async fn hpas_of_the_files_are_matched_without_a_cluster() {
    let folder = Folder::new("check-hpa");
    let hpa = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web, namespace: shop, labels: {team: shop}, \
               annotations: {concertina.dev/policy: 'syncPeriodSeconds: 5'}}\nspec: {maxReplicas: 8}";
    let ran = offline(&folder, &format!("{hpa}\n---{NIGHT}")).await;
    assert!(
        ran.out.ends_with(
            "
HPA      MODE        MIN MAX NEXT CHANGE POLICIES
shop/web ScaleUpOnly 8   8   14:00:00Z   annotation concertina.dev/policy, ScalingPolicy shop/hours
shop/web: schedule office sets minReplicas to 8 instead of 1 (10 is out of bounds) until 2026-11-23T18:00:00Z
"
        ),
        "{}",
        ran.out
    );
    assert_eq!(ran.verdict, Ok(Verdict::Good));
}

#[tokio::test(start_paused = true)]
async fn check_merges_with_the_policies_of_the_cluster() {
    let folder = Folder::new("check-merge");
    let file = folder.file("a.yaml", NIGHT);
    let cluster = cluster();
    let words = ["check", "--utc", "-o", "json", &file];
    let ran = run(&folder, &words, Some(&cluster)).await;
    let hpas = |ran: &Ran| ran.document()["hpas"].clone();
    assert_eq!(
        hpas(&ran),
        json!([{
            "namespace": "shop", "name": "web", "policies": ["ScalingPolicy shop/hours"], "mode": "ScaleUpOnly",
            "until": "2026-11-23T14:00:00Z", "minReplicas": 10, "maxReplicas": 20,
            "bounds": ["schedule office sets minReplicas to 10 instead of 2 until 2026-11-23T18:00:00Z"],
            "nextChange": "2026-11-23T14:00:00Z", "overridden": [], "problems": [],
        }])
    );
    let document = ran.document();
    assert_eq!((&document["kind"], &document["at"]), (&json!("PolicyCheck"), &json!(NOW)));
    assert_eq!(document["policies"][0]["matched"], 1);
    assert_eq!(document["notes"], json!([]));
    // The cluster also has an older policy of the same kind, a ClusterScalingPolicy with limits, and a
    // ClusterScalingPolicy whose namespaceSelector does not match.
    let older = json!({"mode": "Paused", "selector": {"matchLabels": {"team": "shop"}}});
    cluster.create(policy("ScalingPolicy", "older", &older)).unwrap();
    let limits = json!({"selector": {}, "limits": {"highestFloor": 6, "allowedModes": ["Paused"]}});
    cluster.create(policy("ClusterScalingPolicy", "platform", &limits)).unwrap();
    let elsewhere = json!({"mode": "DryRun", "namespaceSelector": {"matchLabels": {"tier": "gold"}}});
    cluster.create(policy("ClusterScalingPolicy", "gold", &elsewhere)).unwrap();
    let ran = run(&folder, &words, Some(&cluster)).await;
    let row = &hpas(&ran)[0];
    assert_eq!(
        row["policies"],
        json!(["ScalingPolicy shop/older", "ScalingPolicy shop/hours", "ClusterScalingPolicy platform"])
    );
    assert_eq!((&row["mode"], &row["minReplicas"]), (&json!("Paused"), &json!(6)));
    assert_eq!(row["overridden"], json!([]), "a mode that is not allowed overrides nothing");
    assert_eq!(
        row["problems"],
        json!([
            {"policy": "ScalingPolicy shop/hours", "field": "mode",
             "message": "exceeds allowedModes of ClusterScalingPolicy platform; the field is ignored"},
            {"policy": "ScalingPolicy shop/hours", "field": "schedules.office.minReplicas",
             "message": "exceeds highestFloor 6 of ClusterScalingPolicy platform; 6 applies"},
        ])
    );
    assert_eq!(ran.verdict, Ok(Verdict::Attention));
    // Without the limits, the mode of the older policy takes precedence.
    cluster.delete("autoscaling.concertina.dev/clusterscalingpolicies", "", "platform").unwrap();
    let ran = run(&folder, &words, Some(&cluster)).await;
    assert_eq!(
        hpas(&ran)[0]["overridden"],
        json!(["mode of ScalingPolicy shop/hours has no effect: ScalingPolicy shop/older is older"])
    );
    assert_eq!(ran.verdict, Ok(Verdict::Good));
    // With the label of the namespace, the namespaceSelector of the policy `gold` matches.
    let mut namespace = cluster.get("namespaces", "", "shop").unwrap();
    namespace["metadata"]["labels"] = json!({"tier": "gold"});
    cluster.update(namespace).unwrap();
    let ran = run(&folder, &words, Some(&cluster)).await;
    assert_eq!(hpas(&ran)[0]["policies"][2], "ClusterScalingPolicy gold");
}

#[tokio::test(start_paused = true)]
async fn policy_of_a_file_replaces_the_one_in_the_cluster() {
    let folder = Folder::new("check-replace");
    let cluster = cluster();
    let stored = json!({"mode": "Pinned", "replicas": 3, "selector": {"matchLabels": {"team": "shop"}}});
    cluster.create(policy("ScalingPolicy", "hours", &stored)).unwrap();
    let other = json!({"tolerance": 0.2, "mode": "DryRun"});
    cluster.create(policy("ScalingPolicy", "other", &other)).unwrap();
    let file = folder.file("a.yaml", NIGHT);
    let ran = run(&folder, &["check", "--utc", &file], Some(&cluster)).await;
    let table = ran.out.split_once("\n\n").unwrap().1;
    // The stored policy is older than the other policy, and its replacement keeps the time of creation.
    assert!(
        table.contains(
            "shop/web ScaleUpOnly 10  20  14:00:00Z   ScalingPolicy shop/hours, ScalingPolicy shop/other"
        ),
        "{}",
        ran.out
    );
    assert!(
        ran.out.contains("mode of ScalingPolicy shop/other has no effect: ScalingPolicy shop/hours is older"),
        "{}",
        ran.out
    );
    assert_eq!(ran.verdict, Ok(Verdict::Good));
}

#[tokio::test(start_paused = true)]
async fn cluster_policy_matches_all_namespaces_and_yaml_equals_json() {
    let folder = Folder::new("check-cluster");
    let cluster = cluster();
    let pinned =
        policy("ClusterScalingPolicy", "freeze", &json!({"selector": {}, "mode": "Pinned", "replicas": 4}));
    let file = folder.file("a.yaml", &pinned.to_string());
    let json = run(&folder, &["check", "-o", "json", &file], Some(&cluster)).await.document();
    let names: Vec<_> = json["hpas"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["jobs", "web"]);
    assert_eq!((&json["hpas"][0]["mode"], &json["hpas"][0]["replicas"]), (&json!("Pinned"), &json!(4)));
    assert_eq!((&json["hpas"][0]["minReplicas"], &json["policies"][0]["matched"]), (&json!(2), &json!(2)));
    let yaml = run(&folder, &["check", "-o", "yaml", &file], Some(&cluster)).await.out;
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json);
    // `-n` limits the check to the HPAs of one namespace.
    let one = run(&folder, &["check", "-n", "back", "-o", "json", &file], Some(&cluster)).await.document();
    assert_eq!(one["hpas"].as_array().unwrap().len(), 1);
    let none = run(&folder, &["check", "--offline", "-o", "json", &file], Some(&cluster)).await.document();
    assert_eq!(none["hpas"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_noted() {
    use fake_cluster::{FaultAction, FaultRule, Status};
    let folder = Folder::new("check-faults");
    let file = folder.file("a.yaml", NIGHT);
    let cluster = cluster();
    let refuse = |path: &str, code: u16, reason: &str| {
        let rule = FaultRule::new(FaultAction::Status(Status::new(code, reason, "no")));
        cluster.faults().add(rule.path_suffix(path))
    };
    refuse("/clusterscalingpolicies", 404, "NotFound");
    refuse("/scalingpolicies", 403, "Forbidden");
    refuse("/namespaces", 403, "Forbidden");
    let ran = run(&folder, &["check", "-o", "json", &file], Some(&cluster)).await;
    let notes = ran.document()["notes"].clone();
    let notes: Vec<_> =
        notes.as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned()).collect();
    assert!(notes[0].starts_with("cannot read scalingpolicies: "), "{notes:?}");
    assert!(notes[1].starts_with("the cluster has no clusterscalingpolicies: install "), "{notes:?}");
    assert!(notes[2].starts_with("cannot read the labels of namespaces: "), "{notes:?}");
    assert_eq!(notes.len(), 3);
    assert_eq!(ran.document()["hpas"][0]["mode"], "ScaleUpOnly");
    // A policy with a namespaceSelector matches no HPA while the labels of namespaces are unknown.
    let spec = json!({"mode": "Paused", "namespaceSelector": {"matchLabels": {"tier": "gold"}}});
    let file = folder.file("b.yaml", &policy("ClusterScalingPolicy", "gold", &spec).to_string());
    let ran = run(&folder, &["check", "-o", "json", &file], Some(&cluster)).await;
    assert!(ran.document()["notes"].to_string().contains("matches no HPA"), "{}", ran.out);
    refuse("/horizontalpodautoscalers", 403, "Forbidden");
    let error = run(&folder, &["check", &file], Some(&cluster)).await.verdict.unwrap_err();
    assert!(
        error.starts_with("cannot read HPAs: ") && error.ends_with("--offline validates without a cluster"),
        "{error}"
    );
}

/// The examples by file name, each with the expected state at one or more times.
const EXAMPLES: [(&str, &[(&str, &str)]); 10] = [
    ("forecast-sale", &[(NOW, "forecast as a floor up to 80 % of maxReplicas")]),
    ("forecast-shop", &[(NOW, "forecast as a floor up to 80 % of maxReplicas")]),
    (
        "sale-weekend",
        &[
            ("2026-11-26T21:59:59Z", "no mode and no schedule is active, next change 22:00:00Z"),
            (
                "2026-11-26T22:00:00Z",
                "minReplicas 30 (schedule warm-up until 23:00:00Z), next change 23:00:00Z",
            ),
            (
                "2026-11-26T23:00:00Z",
                "minReplicas 50 (schedule sale until 2026-11-29 23:00:00Z), maxReplicas 120 (schedule sale until \
                 2026-11-29 23:00:00Z), next change 2026-11-29 23:00:00Z",
            ),
            ("2026-11-29T23:00:00Z", "no mode and no schedule is active"),
        ],
    ),
    (
        "office-hours",
        &[
            ("2026-11-23T06:59:59Z", "no mode and no schedule is active, next change 07:00:00Z"),
            (
                "2026-11-23T07:00:00Z",
                "minReplicas 10 (schedule berlin until 18:00:00Z), next change 13:00:00Z",
            ),
            (
                "2026-11-23T18:00:00Z",
                "minReplicas 6 (schedule new-york until 2026-11-24 00:00:00Z), next change 2026-11-24 00:00:00Z",
            ),
            // Berlin has ended daylight saving time, and New York has not.
            (
                "2026-10-26T07:00:00Z",
                "minReplicas 10 (schedule berlin until 18:00:00Z), next change 12:00:00Z",
            ),
            // 2026-11-28 is a Saturday.
            ("2026-11-28T12:00:00Z", "no mode and no schedule is active, next change 2026-11-30 07:00:00Z"),
        ],
    ),
    ("adapter-outage", &[(NOW, "no mode and no schedule is active")]),
    ("pending-gpu-pods", &[(NOW, "no mode and no schedule is active")]),
    ("bad-rollout", &[(NOW, "no mode and no schedule is active")]),
    (
        "pause-with-expiry",
        &[
            (NOW, "mode Paused until 2026-12-01 07:00:00Z, next change 2026-12-01 07:00:00Z"),
            ("2026-12-01T07:00:00Z", "no mode and no schedule is active"),
        ],
    ),
    ("vanished-queue", &[(NOW, "no mode and no schedule is active")]),
    ("sidecars", &[(NOW, "no mode and no schedule is active")]),
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies")
}

#[tokio::test(start_paused = true)]
async fn examples_are_valid_and_do_what_they_describe() {
    for (name, states) in EXAMPLES {
        let file = examples().join(format!("{name}.yaml")).display().to_string();
        for (now, expected) in states {
            let folder = Folder::new("examples");
            let ran = run_at(now, &folder, &["check", "--offline", "--utc", &file], None).await;
            assert_eq!(ran.verdict, Ok(Verdict::Good), "{name}: {}", ran.out);
            assert!(ran.out.contains("annotation: valid\n"), "{name}: {}", ran.out);
            assert!(ran.out.ends_with(&format!("  now: {expected}\n")), "{name} at {now}: {}", ran.out);
        }
    }
}

#[test]
fn examples_are_listed_and_have_a_command() {
    let readme = std::fs::read_to_string(examples().join("../README.md")).unwrap();
    let mut files = 0;
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(EXAMPLES.iter().any(|(example, _)| *example == name), "{name} has no test");
        assert!(readme.contains(&format!("(policies/{name}.yaml)")), "{name} is not listed");
        let text = std::fs::read_to_string(&path).unwrap();
        let command = format!("concertina.dev/policy=\"$(cat examples/policies/{name}.yaml)\"");
        assert!(text.contains(&command), "{name}");
        let scenario = std::fs::read_to_string(examples().join(format!("scenarios/{name}.yaml"))).unwrap();
        assert!(scenario.contains(&format!("file: ../{name}.yaml")), "{name}");
        files += 1;
    }
    assert_eq!(files, EXAMPLES.len());
}

#[tokio::test]
async fn file_of_metric_sources_is_recognized() {
    let folder = Folder::new("sources");
    let good = folder.file(
        "good.yaml",
        "prometheus: [{name: main, url: 'https://prometheus:9090'}]\npods: {enabled: true}\n",
    );
    let ran = run(&folder, &["check", &good, "-o", "json"], None).await;
    assert_eq!(ran.verdict, Ok(Verdict::Good), "{}", ran.out);
    let document = ran.document();
    assert_eq!(document["sources"], json!([{"location": "good.yaml: document 1", "valid": true}]));
    assert_eq!(document["policies"], json!([]));
    for (text, problem) in [
        ("prometheus: [{name: main, url: nowhere}]\n", "prometheus[0].url must be http:// or https://"),
        ("pods: {enabled: true}\nkubelets: {}\n", "unknown field"),
    ] {
        let wrong = folder.file("wrong.yaml", text);
        let ran = run(&folder, &["check", &wrong], None).await;
        assert_eq!(ran.verdict, Ok(Verdict::Attention), "{}", ran.out);
        let expected = "wrong.yaml: document 1: metric sources: ";
        assert!(ran.out.starts_with(expected) && ran.out.contains(problem), "{}", ran.out);
    }
}

#[test]
fn answer_has_a_published_schema() {
    crate::schemas::check::<super::super::check::Answer<'static>>("policy-check");
}
