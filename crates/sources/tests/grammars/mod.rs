//! The grammars of the texts of tenants: their words, and how words become a text of the maximum length.

use std::fmt::Write as _;

use autoscaling::quantity::Quantity;
use autoscaling::selector::{LabelSelector, Selector};
use autoscaling::settings::Version;
use cluster::decode;
use cluster::watch::Watched as _;
use exposition::{Limits, Scrape, SeriesSelector};
use jiff::Timestamp;
use limits::{answer, hpa, object, page, policy, quantity, query, selector};
use policies::spec::{Level, parse};
use promql::{Answer, Query, RangeAnswer, Tenant};
use rulebook::Kind;

/// The texts of a kind that a search tries.
pub(crate) struct Grammar {
    /// The kind of the text, as `docs/internals/bounds.md` names it.
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    /// The words, separated by `¦`.
    pub(crate) words: &'static str,
    /// Returns a text of the maximum length that repeats some words.
    pub(crate) text: Box<dyn Fn(&str) -> String>,
    /// Reads a text as the controller does.
    pub(crate) read: fn(&str),
}

pub(crate) fn all() -> Vec<Grammar> {
    let grammar = |kind, name, words, read, text: Box<dyn Fn(&str) -> String>| Grammar {
        kind,
        name,
        words,
        text,
        read,
    };
    let between = |before: &'static str, after: &'static str, bytes: usize| -> Box<dyn Fn(&str) -> String> {
        Box::new(move |words| {
            let inner = filled(words, bytes - before.len() - after.len());
            format!("{before}{inner}{after}")
        })
    };
    let members = |before: &'static str, after: &'static str| -> Box<dyn Fn(&str) -> String> {
        Box::new(move |words| {
            let inner = numbered(words, object::BYTES - 200);
            format!(r#"{{"metadata":{{"name":"a","namespace":"b"}},{before}{inner}"":""{after}}}"#)
        })
    };
    let mut all = vec![
        grammar("policy", "YAML", YAML, read_policy, between("", "", policy::BYTES)),
        grammar("policy", "schedules", YAML, read_policy, between("schedules: [", "]", policy::BYTES)),
        grammar("policy", "metrics", METRICS, read_policy, between("metrics: [", "]", policy::BYTES)),
        grammar("policy", "names of fields", NAMES, read_policy, between("{\"", "\": 0}", policy::BYTES)),
        grammar(
            "policy",
            "names of one field",
            NAMES,
            read_policy,
            between("{\"mode", "\": 0}", policy::BYTES),
        ),
    ];
    all.push(grammar("policy", "aliases", ALIASES, read_policy, Box::new(aliases)));
    for end in ["0 0 29 2 *", "* * * * *", "0 0 1 * 1", "59 23 31 12 *"] {
        let text = Box::new(move |words: &str| schedules(words.trim(), end));
        all.push(grammar("schedules", "100 cron expressions", CRON, read_policy, text));
    }
    let zones = Box::new(|words: &str| zones(words));
    let pod = r#"{"metadata":{"name":"a","labels":{"#;
    let containers = r#"{"metadata":{"name":"a"},"spec":{"containers":["#;
    let vector = r#"{"status":"success","data":{"resultType":"vector","result":["#;
    let matrix = r#"{"status":"success","data":{"resultType":"matrix","result":["#;
    let spec = r#"{"metadata":{"name":"a","namespace":"b"},"spec":{"maxReplicas":9,"metrics":["#;
    let hpa_labels = r#"{"metadata":{"name":"a","namespace":"b","labels":{"#;
    let annotations = r#"{"metadata":{"name":"a","namespace":"b","annotations":{"#;
    all.extend([
        grammar("schedules", "100 time zones", ZONES, read_policy, zones),
        grammar("query", "PromQL", PROMQL, read_query, between("", "", query::BYTES)),
        grammar("query", "short PromQL", PROMQL, read_query, between("", "", 1 << 10)),
        grammar("answer", "series", SERIES, read_answer, between(vector, "]}}", answer::BYTES)),
        grammar("answer", "matrix", SERIES, read_range, between(matrix, "]}}", answer::BYTES)),
        grammar("answer", "any JSON", SERIES, read_answer, between("", "", answer::BYTES)),
        grammar(
            "answer",
            "distinct series",
            SERIES,
            read_answer,
            Box::new(move |words| {
                format!("{vector}{}]}}}}", numbered(words, answer::BYTES - vector.len() - 3))
            }),
        ),
        grammar("page", "series", PAGE, read_page, Box::new(|words| numbered(words, page::BYTES))),
        grammar("page", "equal lines", PAGE, read_page, between("", "", page::BYTES)),
        grammar("selector", "text", SELECTOR, read_selector, between("", "", selector::BYTES)),
        grammar("selector", "text too long", SELECTOR, read_selector, between("", "", object::BYTES)),
        grammar(
            "selector",
            "structure",
            STRUCTURE,
            read_structure,
            between(r#"{"matchExpressions":["#, "]}", policy::BYTES),
        ),
        grammar("quantity", "text", QUANTITY, read_quantity, between("", "", quantity::BYTES)),
        grammar("quantity", "text too long", QUANTITY, read_quantity, between("", "", object::BYTES)),
        grammar(
            "labels",
            "pod",
            LABELS,
            read_pod,
            Box::new(move |words| format!("{pod}{}\"\":\"\"}}}}}}", numbered(words, object::BYTES - 99))),
        ),
        grammar("labels", "containers", CONTAINERS, read_pod, between(containers, "]}}", object::BYTES)),
        grammar(
            "labels",
            "HPA",
            LABELS,
            read_hpa,
            Box::new(move |words| {
                format!("{hpa_labels}{}\"\":\"\"}}}}}}", numbered(words, object::BYTES - 99))
            }),
        ),
        grammar(
            "labels",
            "annotations",
            LABELS,
            read_hpa,
            Box::new(move |words| {
                format!("{annotations}{}\"\":\"\"}}}}}}", numbered(words, object::BYTES - 99))
            }),
        ),
        grammar("spec of an HPA", "metrics", HPA, read_hpa, between(spec, "]}}", hpa::BYTES)),
        grammar("policy object", "spec", OBJECT, read_object, members(r#""spec":{"#, "}")),
        grammar("policy object", "lists", OBJECT, read_object, members(r#""spec":{"schedules":[{"#, "}]}")),
        grammar(
            "policy object",
            "matchLabels",
            OBJECT,
            read_object,
            members(r#""spec":{"selector":{"matchLabels":{"#, "}}}"),
        ),
        grammar(
            "policy object",
            "conditions",
            OBJECT,
            read_object,
            members(r#""status":{"conditions":[{"#, "}]}"),
        ),
    ]);
    all
}

/// Repeats a text up to a length.
fn filled(text: &str, bytes: usize) -> String {
    text.repeat(bytes / text.len().max(1))
}

/// Repeats a text up to a length, with another number in place of each `§`.
fn numbered(text: &str, bytes: usize) -> String {
    let mut all = String::with_capacity(bytes + text.len());
    let mut number = 0_u32;
    while all.len() < bytes && !text.is_empty() {
        for (index, part) in text.split('§').enumerate() {
            if index > 0 {
                write!(all, "{number:x}").unwrap();
                number += 1;
            }
            all.push_str(part);
        }
    }
    // A page or an object that is cut off would cost less.
    all
}

/// Lists of which each contains some words, with the name of the previous list in place of each `§`.
fn aliases(words: &str) -> String {
    let mut text = "a0: &a0 [0]\n".to_owned();
    for level in 1..30 {
        let previous = format!("a{}", level - 1);
        writeln!(text, "a{level}: &a{level} [{}]", words.replace('§', &previous)).unwrap();
    }
    text
}

/// 100 schedules that start at the times of an expression. `end` is also a start of many expressions.
fn schedules(start: &str, end: &str) -> String {
    let mut text = "schedules:\n".to_owned();
    for index in 0..policy::ENTRIES {
        let zone = if index.is_multiple_of(2) { "Europe/Berlin" } else { "America/New_York" };
        let start = start.get(..start.floor_char_boundary(limits::schedule::BYTES)).unwrap();
        writeln!(
            text,
            "- {{name: a{index}, timeZone: {zone}, start: {start:?}, end: {end:?}, minReplicas: 1}}"
        )
        .unwrap();
    }
    text
}

fn zones(zone: &str) -> String {
    let entry = |index: usize| {
        let name = filled(zone, 500);
        format!("{{name: a{index}, timeZone: {name:?}, start: 0 0 * * *, end: 1 0 * * *, minReplicas: 1}}")
    };
    format!("schedules: [{}]", (0..policy::ENTRIES).map(entry).collect::<Vec<_>>().join(", "))
}

fn read_policy(text: &str) {
    let now: Timestamp = "2026-10-25T01:30:00Z".parse().unwrap();
    let parsed = parse(text, Level::Annotation);
    for schedule in parsed.spec.schedules.iter().flat_map(|schedules| schedules.iter()) {
        schedule.when.phase(now);
    }
}

fn read_query(text: &str) {
    drop(Query::parse(text, Some(Tenant { label: "namespace", namespace: "shop" })));
}

fn read_answer(text: &str) {
    if let Ok(answer) = Answer::parse(text.as_bytes(), answer::SERIES, false) {
        drop(answer.by_pod());
    }
}

fn read_range(text: &str) {
    if let Ok(answer) = RangeAnswer::parse(text.as_bytes(), answer::SERIES, false) {
        drop(answer.sum_of_pods(|_| true));
    }
}

/// Reads a page for as many metrics as a page may have, each with as many labels as a metric may have. The labels match
/// but for the last one, or a part of the series.
fn read_page(text: &str) {
    let selector = |metric: usize| {
        let label = |index: usize| match index {
            0 if metric.is_multiple_of(2) => ("absent".to_owned(), metric.to_string()),
            0 => ("z".to_owned(), String::new()),
            index => (format!("l{index}"), String::new()),
        };
        SeriesSelector { series: "a".into(), labels: (0..policy::LABELS).rev().map(label).collect() }
    };
    let mut scrape = Scrape::new(Limits::default(), (0..page::METRICS).map(selector));
    if text.as_bytes().chunks(16 << 10).all(|piece| scrape.push(piece).is_ok()) {
        drop(scrape.finish());
    }
}

fn read_selector(text: &str) {
    let labels = [("a".to_owned(), "b".to_owned())].into_iter().collect::<std::collections::BTreeMap<_, _>>();
    if let Ok(selector) = Selector::parse_scale(text, Version::V1_38) {
        selector.matches(&labels);
        drop(selector.to_string());
    }
    drop(Selector::parse(text));
}

fn read_structure(text: &str) {
    if let Ok(selector) = serde_json::from_str::<LabelSelector>(text) {
        drop(Selector::from_label_selector(Some(&selector)));
    }
}

fn read_quantity(text: &str) {
    drop(text.parse::<Quantity>());
}

fn read_pod(text: &str) {
    drop(decode::pod(text.as_bytes()));
}

fn read_hpa(text: &str) {
    drop(decode::hpa(text.as_bytes()));
}

fn read_object(text: &str) {
    if let Ok(object) = Kind::Cluster.decode(text.as_bytes()) {
        drop(rulebook::read_object(&object));
    }
}

const YAML: &str = "a¦a: ¦- ¦\n¦\n  ¦{¦}¦[¦]¦, ¦\"¦'¦&a ¦*a¦<<: ¦? ¦!!str ¦|\n¦#¦{a: 0}, ¦[], ¦\\u00e9¦é¦\
                    mode: Paused\n¦schedules: [¦- {name: a, metric: b}\n¦0, ¦---\n¦~¦metrics:\n¦0x¦1e9¦{\"a\":{}},¦\
                    \0¦\u{202e}¦\u{feff}¦{name: a, from: 2026-01-01T00:00:00Z, to: 2027-01-01T00:00:00Z, minReplicas: 1}, ¦\
                    {name: a, start: 0 0 * * *, end: 1 0 * * *, timeZone: UTC, minReplicas: 1}, ";
const ALIASES: &str = "*§, ¦0, ¦{a: *§}, ¦{<<: *§}, ¦[], ¦&b 0, ¦*b, ";
const METRICS: &str = "{metric: a}, ¦{metric: a, prometheus: {server: m, query: ¦\"¦}¦}}, ¦a¦ + ¦{metric: b, pods: {port: 1, series: a, ¦\
                       labels: {¦a: b, ¦rateSeconds: 3¦, ¦{metric: a, source: {apiGroup: a.b}}, ¦a.¦a: 0, ¦é";
const NAMES: &str =
    "a¦m¦o¦d¦e¦mode¦schedules¦metrics¦sync¦Period¦Seconds¦\\u00e9¦é¦cpuInitializationPeriodSeconds¦\": 0, \"";
const CRON: &str = "*¦ ¦* ¦0 ¦29 ¦2 ¦*/7 ¦1-5 ¦?¦,¦/¦-¦L ¦W ¦#5 ¦+1 ¦31 ¦4,6,9,11 ¦FEB ¦MON ¦59,58,57,56,55 ¦\
                    0 0 29 2 * ¦* * * * * ¦0 0 29 2 1";
const ZONES: &str = "a¦Berlin¦Europe/Berlin¦/¦é¦America/¦Argentina/¦UTC";
const PROMQL: &str = "a¦a,¦(¦)¦{¦}¦a{b=~\"¦\"}¦\\\\w{180}¦\\\\pL¦[1m]¦ + ¦-¦sum(¦a{b=\"c\"}+¦rate(a[1m])+¦ and ¦ by (a)¦`¦'¦#¦\n¦\
                      1+¦a{b=~\"\\\\w{180}\"}+¦=~¦!~¦\"a\",¦offset 1d¦label_replace(a,¦0x1¦1e9¦a{b!~\"(((a*)*)*)*\"}¦é¦\
                      \u{202e}¦\0¦b=\"c\",¦{b=\"c\"}or";
const SERIES: &str = "{\"metric\":{¦\"§\":\"\",¦\"a§\":\"b\",¦\"pod\":\"§\"¦\"pod\":\"web-§\"}¦},¦\"value\":[1,\"1\"]},¦\
                      \"values\":[¦[1,\"1\"],¦[§,\"1\"],¦[1,\"1\"]]},¦{\"a\":0},¦{\"metric\":{},\"value\":[1,\"1\"]},¦\
                      {\"metric\":{\"pod\":\"§\"},\"value\":[1,\"1\"]},¦{\"metric\":{\"pod\":\"§\",\"a\":\"\",\"b\":\"\"},\"value\":[1,\"1\"]},¦\
                      {\"metric\":{\"pod\":\"§\"},\"values\":[[§,\"1\"]]},¦{}¦,¦[¦\\u00e9¦a¦NaN¦{\"metric\":{\"pod\":\"§\",\"a\":\"\",\"b\":\"\",\"c\":\"\",\"d\":\"\",\"e\":\"\",\
                      \"f\":\"\",\"g\":\"\",\"h\":\"\",\"i\":\"\"},\"value\":[1,\"1\"]},¦\"¦{\"metric\":{\"pod\":\"NaN\"},\"value\":[1,\"NaN\"]},";
const PAGE: &str = "a 1\n¦a{¦} 1\n¦l1=\"\",¦l2=\"\",¦l1=\"x\",¦m§=\"\",¦a=\"\\\\\",¦b§ 1\n¦a{b=\"§\"} 1\n¦# TYPE a counter\n¦# HELP ¦\n¦\
                    a{m1=\"\",m2=\"\",m3=\"\",m4=\"\",m5=\"\",m6=\"\",m7=\"\",m8=\"\",m9=\"\",n1=\"\",n2=\"\",n3=\"\"} 1\n¦é¦ 1e300\n¦\
                    a{l29=\"§\"} 1\n¦{\"a\",¦\"m§\"=\"\",¦\0¦a NaN\n";
const SELECTOR: &str =
    "a¦=¦==¦!=¦!¦,¦a,¦ in (¦)¦(¦a=b,¦a in (b),¦a in (b,c,¦a notin (b,¦a>1,¦é¦ ¦a!=b,¦\0¦a/b=c,";
const STRUCTURE: &str = "{\"key\":\"a\",\"operator\":\"Exists\"},¦{\"key\":\"a\",\"operator\":\"In\",\"values\":[\"b\"]},¦{¦},¦{},¦\
                         {\"key\":\"a\",\"operator\":\"In\",\"values\":[¦\"a\",¦\"\",¦]},¦{\"key\":\"é\"},";
const QUANTITY: &str = "1¦0¦.¦e¦E¦9¦-¦+¦Ki¦m¦n¦k¦E1¦e-9¦000000¦999999¦0.¦1Ki¦ ";
const LABELS: &str = "\"§\":\"\",¦\"a§\":\"b\",¦\"\":\"\",¦\"a\":\"\\u00e9\",¦\"\\n\":\"\\n\",¦\"concertina.dev/policy\":\"a\",¦{¦}¦\"a\":{},¦\"a\":null,";
const CONTAINERS: &str = "{\"name\":\"a\"},¦{\"name\":\"a\",\"image\":\"b\",\"imagePullPolicy\":\"Always\"},¦\
                          {\"name\":\"a\",\"resources\":{\"requests\":{¦\"cpu\":\"1\",¦\"cpu\":\"0.1Ki\",¦\"a\":\"1\"¦}}},¦{},¦\
                          {\"name\":\"\\u00e9\"},¦{\"ports\":[{\"containerPort\":1}]},";
const HPA: &str = "{\"type\":\"External\",\"external\":{\"metric\":{\"name\":\"a\"},\"target\":{\"type\":\"Value\",\"value\":\"1\"}}},¦{},¦\
                   {\"type\":\"Resource\",\"resource\":{\"name\":\"cpu\",\"target\":{\"type\":\"Utilization\",\"averageUtilization\":1}}},¦\
                   {\"type\":\"a\"},¦{¦}¦[¦],¦{\"type\":\"External\",\"external\":{\"metric\":{\"name\":\"a\",\"selector\":{\"matchExpressions\":[¦\
                   {\"key\":\"a\",\"operator\":\"Exists\"},¦{\"key\":\"a\",\"operator\":\"In\",\"values\":[\"b\"]},¦]}}}},¦\"\\u00e9\"¦null,";
const OBJECT: &str =
    "\"§\":0,¦\"\":\"\",¦\"§\":{},¦\"é§\":[[]],¦\"type\":\"a\",¦\"matchExpressions\":[],¦\"name\":\"a\"},{";
