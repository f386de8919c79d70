//! Evaluates each alert with promtool on series for which it fires, and on similar series for which it does not fire.
//! `tests/prometheus/build.sh promtool` builds promtool.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::monitoring::groups;

/// Labels of every series: one replica of one installation.
const REPLICA: &str = r#"job="concertina",namespace="kube-system",service="concertina",pod="a",instance="a""#;
/// The minutes of input. The evaluation is at the end of the input.
const MINUTES: u32 = 400;

/// A metric, further labels, and the values of its series. In the notation of promtool, `0+1x9` is 0, 1, …, 9, with one
/// value per minute.
type Series = (&'static str, &'static str, &'static str);

const LEADER: Series = ("leader_election_master_status", "", "1x400");
const STANDBY: Series = ("leader_election_master_status", "", "0x400");
const POLICY: Series = ("concertina_handover_guard", r#"guard="policy""#, "1x400");
const UP: Series = ("up", "", "1x400");
const HPA: &str = r#"hpa_name="web""#;
const DESIRED: &str = "horizontal_pod_autoscaler_controller_desired_replicas";
const SYNCS: &str = "horizontal_pod_autoscaler_controller_reconciliations_total";
const REQUESTS: &str = "concertina_requests_total";
const LATE: &str = "concertina_sync_lateness_seconds_bucket";
const UNANSWERED: &str = "concertina_handover_unanswered_total";
const FAILED_OPEN: &str = "apiserver_admission_webhook_fail_open_count";
const REJECTED: &str = "apiserver_admission_webhook_rejection_count";
const WEBHOOK: &str = r#"name="status.handover.concertina.dev",type="validating""#;
const ALL: Series = ("concertina_sync_lateness_seconds_count", "", "0+100x400");

/// The alerts, each at least once, with series for which the alert fires, and series for which it does not fire.
const CASES: &[(&str, &[Series], &[Series])] = &[
    ("ConcertinaSyncsLate", &[(LATE, r#"le="1""#, "0+98x400"), ALL], &[(LATE, r#"le="1""#, "0+99x400"), ALL]),
    (
        "ConcertinaSyncsOftenLate",
        &[(LATE, r#"le="1""#, "0+99x400"), ALL],
        &[(LATE, r#"le="1""#, "0+100x400"), ALL],
    ),
    ("ConcertinaDown", &[("up", "", "0x400")], &[UP]),
    ("ConcertinaNoLeader", &[STANDBY], &[LEADER]),
    (
        "ConcertinaTwoLeaders",
        &[LEADER, ("leader_election_master_status", r#"replica="b""#, "1x400")],
        &[LEADER, ("leader_election_master_status", r#"replica="b""#, "0x400")],
    ),
    (
        "ConcertinaRestarting",
        &[("process_start_time_seconds", "", "1x395 2 3 4 5 6")],
        &[("process_start_time_seconds", "", "1x395 2 3 4 4 4")],
    ),
    (
        "ConcertinaMemoryNearLimit",
        &[
            ("process_resident_memory_bytes", "", "95x400"),
            ("kube_pod_container_resource_limits", r#"container="concertina",resource="memory""#, "100x400"),
        ],
        &[
            ("process_resident_memory_bytes", "", "85x400"),
            ("kube_pod_container_resource_limits", r#"container="concertina",resource="memory""#, "100x400"),
        ],
    ),
    (
        "ConcertinaOpenFilesNearLimit",
        &[("process_open_fds", "", "850x400"), ("process_max_fds", "", "1000x400")],
        &[("process_open_fds", "", "750x400"), ("process_max_fds", "", "1000x400")],
    ),
    (
        "ConcertinaCheckpointFails",
        &[("concertina_checkpoint_writes_total", r#"result="failed""#, "0+1x400")],
        &[("concertina_checkpoint_writes_total", r#"result="failed""#, "3x400")],
    ),
    (
        "ConcertinaCheckpointIncomplete",
        &[("concertina_checkpoint_left_out_hpas", "", "3x400")],
        &[("concertina_checkpoint_left_out_hpas", "", "0x400")],
    ),
    (
        "ConcertinaNotActing",
        &[LEADER, ("concertina_takeover_state", r#"state="holding""#, "1x400")],
        // The state of a quiet or empty cluster.
        &[
            LEADER,
            ("concertina_takeover_state", r#"state="observing""#, "1x400"),
            ("concertina_takeover_state", r#"state="holding""#, "0x400"),
        ],
    ),
    (
        "ConcertinaTwoControllers",
        &[
            LEADER,
            ("concertina_takeover_state", r#"state="acting""#, "1x400"),
            ("concertina_foreign_writes_total", "", "0+1x400"),
        ],
        &[
            LEADER,
            ("concertina_takeover_state", r#"state="acting""#, "1x400"),
            ("concertina_foreign_writes_total", "", "7x400"),
        ],
    ),
    (
        "ConcertinaShadowDiffers",
        &[("concertina_shadow_decisions_total", r#"result="different""#, "0+1x400")],
        &[("concertina_shadow_decisions_total", r#"result="equal""#, "0+1x400")],
    ),
    (
        "ConcertinaContested",
        &[("concertina_hpas", r#"state="contested""#, "2x400")],
        &[("concertina_hpas", r#"state="contested""#, "0x400")],
    ),
    (
        "ConcertinaGuardMissing",
        &[
            ("concertina_hpas", r#"state="in_charge""#, "2x400"),
            ("concertina_handover_last_proof_timestamp_seconds", "", "0x400"),
        ],
        &[
            ("concertina_hpas", r#"state="in_charge""#, "2x400"),
            ("concertina_handover_last_proof_timestamp_seconds", "", "0+60x400"),
        ],
    ),
    (
        "ConcertinaHandoverWithoutLeader",
        &[STANDBY, POLICY, ("concertina_hpas", r#"state="in_charge""#, "2x400")],
        &[LEADER, POLICY, ("concertina_hpas", r#"state="in_charge""#, "2x400")],
    ),
    (
        "ConcertinaWebhookUnanswered",
        &[(UNANSWERED, r#"reason="closed""#, "0+1x400"), (UNANSWERED, r#"reason="late""#, "0+1x400")],
        // The outage is over.
        &[(UNANSWERED, r#"reason="closed""#, "90x400"), (UNANSWERED, r#"reason="late""#, "0x395 1x5")],
    ),
    (
        "ConcertinaWebhookFailsOpen",
        &[(FAILED_OPEN, WEBHOOK, "0+1x400")],
        &[
            (FAILED_OPEN, r#"name="another.example.com""#, "0+1x400"),
            (FAILED_OPEN, WEBHOOK, "90x400"),
            (REJECTED, r#"name="status.handover.concertina.dev",error_type="no_error""#, "0+9x400"),
        ],
    ),
    (
        "ConcertinaWebhookFailsOpen",
        &[(
            REJECTED,
            r#"name="status.handover.concertina.dev",error_type="calling_webhook_error""#,
            "0+1x400",
        )],
        &[(REJECTED, r#"name="another.example.com",error_type="calling_webhook_error""#, "0+1x400")],
    ),
    (
        "ConcertinaSyncsFailing",
        &[(SYNCS, r#"error="internal""#, "0+2x400"), (SYNCS, r#"error="none""#, "0+8x400")],
        &[(SYNCS, r#"error="internal""#, "0+1x400"), (SYNCS, r#"error="none""#, "0+99x400")],
    ),
    (
        "ConcertinaSyncStuck",
        &[("workqueue_longest_running_processor_seconds", r#"name="horizontalpodautoscaler""#, "0+60x400")],
        &[("workqueue_longest_running_processor_seconds", r#"name="horizontalpodautoscaler""#, "9x400")],
    ),
    (
        "ConcertinaForbidden",
        &[(REQUESTS, r#"verb="list",resource="pods",code="403""#, "0+1x400")],
        &[(REQUESTS, r#"verb="list",resource="pods",code="200""#, "0+1x400")],
    ),
    (
        "ConcertinaMetricsUnavailable",
        &[(REQUESTS, r#"resource="pods.metrics.k8s.io",code="503""#, "0+1x400")],
        &[
            (REQUESTS, r#"resource="pods.metrics.k8s.io",code="503""#, "0+1x400"),
            (REQUESTS, r#"resource="pods.metrics.k8s.io",code="200""#, "0+2x400"),
        ],
    ),
    (
        "ConcertinaMetricsApiDown",
        &[("concertina_metrics_api_down", r#"api="metrics.k8s.io""#, "1x400")],
        &[("concertina_metrics_api_down", r#"api="metrics.k8s.io""#, "0x400")],
    ),
    (
        "ConcertinaMetricSourceDown",
        &[("concertina_metric_source_down", r#"source="main""#, "1x400")],
        &[("concertina_metric_source_down", r#"source="main""#, "0x400")],
    ),
    (
        "ConcertinaMetricSourceFailing",
        &[("concertina_metric_source_errors_total", r#"source="main",reason="Timeout""#, "0+1x400")],
        // One pod of several has no number.
        &[
            ("concertina_metric_source_errors_total", r#"source="pods",reason="Timeout""#, "0+1x400"),
            ("concertina_metric_age_seconds_count", r#"source="pods""#, "0+1x400"),
        ],
    ),
    (
        "ConcertinaMetricSourceStale",
        &[("concertina_metric_source_errors_total", r#"source="main",reason="TooOld""#, "0+1x400")],
        &[
            ("concertina_metric_source_errors_total", r#"source="main",reason="Timeout""#, "0+1x400"),
            ("concertina_metric_age_seconds_bucket", r#"source="main",le="30""#, "0+9x400"),
            ("concertina_metric_age_seconds_bucket", r#"source="main",le="+Inf""#, "0+9x400"),
        ],
    ),
    (
        "ConcertinaMetricSourcesInvalid",
        &[("concertina_metric_sources_valid", "", "0x400")],
        &[("concertina_metric_sources_valid", "", "1x400")],
    ),
    (
        "ConcertinaRequestsFailing",
        &[(REQUESTS, r#"resource="pods",code="503""#, "0+1x400")],
        &[
            (REQUESTS, r#"resource="pods",code="503""#, "0+1x400"),
            (REQUESTS, r#"resource="pods",code="200""#, "0+20x400"),
        ],
    ),
    (
        "ConcertinaViewOld",
        &[("concertina_watch_age_seconds", r#"resource="pods""#, "200x400")],
        &[("concertina_watch_age_seconds", r#"resource="pods""#, "60x400")],
    ),
    (
        "ConcertinaWatchesBreak",
        &[("concertina_watch_restarts_total", r#"resource="pods",reason="error""#, "0+1x400")],
        &[("concertina_watch_restarts_total", r#"resource="pods",reason="ended""#, "0+1x400")],
    ),
    (
        "ConcertinaMetricsOld",
        &[
            ("concertina_metrics_age_seconds_bucket", r#"api="a",le="120""#, "0+1x400"),
            ("concertina_metrics_age_seconds_bucket", r#"api="a",le="240""#, "0+9x400"),
            ("concertina_metrics_age_seconds_bucket", r#"api="a",le="+Inf""#, "0+9x400"),
        ],
        &[
            ("concertina_metrics_age_seconds_bucket", r#"api="a",le="120""#, "0+9x400"),
            ("concertina_metrics_age_seconds_bucket", r#"api="a",le="+Inf""#, "0+9x400"),
        ],
    ),
    (
        "ConcertinaClockSkew",
        &[("concertina_clock_skew_seconds", "", "-8x400")],
        &[("concertina_clock_skew_seconds", "", "2x400")],
    ),
    (
        "ConcertinaHpaFlapping",
        &[(DESIRED, HPA, "2x360 4 2 4 2 4 2 4 2 4 2 4 2 4 2 4 2 2x24")],
        // The count rises and falls once.
        &[(DESIRED, HPA, "2x360 3 4 5 6 7 8 7 6 5 4 3 2 2x28")],
    ),
    (
        "ConcertinaHpaAtMaximum",
        &[("concertina_hpa_at_maximum", HPA, "1x400")],
        // The first series has ended. The second series is younger than the `for` time of the alert.
        &[
            ("concertina_hpa_at_maximum", HPA, "1x380"),
            ("concertina_hpa_at_maximum", r#"hpa_name="api""#, "_x390 1x10"),
        ],
    ),
    (
        "ConcertinaHpaNotActive",
        &[("concertina_hpa_not_active", HPA, "1x400")],
        &[("concertina_hpa_not_active", HPA, "1x380"), (DESIRED, HPA, "3x400")],
    ),
];

/// Creates a test for promtool, which expects that an alert fires or does not fire.
fn case(name: &str, series: &[Series], fires: bool) -> Value {
    let series = series.iter().map(|(metric, labels, values)| {
        let mut name = format!("{metric}{{{REPLICA}");
        if !labels.is_empty() {
            let _ = write!(name, ",{labels}");
        }
        json!({"series": name + "}", "values": values})
    });
    let samples = if fires { json!([{"labels": "{}", "value": 1}]) } else { json!([]) };
    json!({
        "name": format!("{name} {}", if fires { "fires" } else { "does not fire" }),
        "interval": "1m",
        "input_series": series.collect::<Vec<_>>(),
        "promql_expr_test": [{
            "expr": format!("count(ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}})"),
            "eval_time": format!("{MINUTES}m"),
            "exp_samples": samples,
        }],
    })
}

fn promtool(arguments: &[&str]) -> String {
    let promtool = std::env::var("PROMTOOL").expect("PROMTOOL: run tests/prometheus/build.sh promtool");
    let output = Command::new(promtool).args(arguments).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

#[test]
fn every_alert_has_a_case() {
    let alerts: BTreeSet<String> = groups()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .filter_map(|rule| rule["alert"].as_str().map(str::to_owned))
        .collect();
    let cases: BTreeSet<String> = CASES.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(alerts, cases);
}

#[test]
#[ignore = "needs PROMTOOL: run tests/prometheus/build.sh promtool"]
fn every_alert_fires_only_when_it_should() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("alerts");
    fs::create_dir_all(&folder).unwrap();
    let (rules, tests) = (folder.join("rules.yaml"), folder.join("tests.yaml"));
    // JSON is YAML.
    fs::write(&rules, json!({"groups": groups()}).to_string()).unwrap();
    let cases =
        CASES.iter().flat_map(|(name, fires, quiet)| [case(name, fires, true), case(name, quiet, false)]);
    let document = json!({
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": cases.collect::<Vec<_>>(),
    });
    fs::write(&tests, document.to_string()).unwrap();
    promtool(&["check", "rules", rules.to_str().unwrap()]);
    promtool(&["test", "rules", tests.to_str().unwrap()]);
    fs::remove_dir_all(&folder).unwrap();
}
