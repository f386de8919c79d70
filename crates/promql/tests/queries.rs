//! Tests of the restriction of queries to a namespace.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use promql::{PodNames, Query, QueryError, Tenant, Variables};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const SHOP: Tenant<'static> = Tenant { label: "namespace", namespace: "shop" };

fn restricted(query: &str) -> Result<String, QueryError> {
    Query::parse(query, Some(SHOP)).map(|query| query.template().to_owned())
}

#[test]
fn every_selector_is_restricted() {
    for (query, expected) in [
        ("up", r#"up{namespace="shop"}"#),
        (r#"up{namespace="other"}"#, r#"up{namespace="other",namespace="shop"}"#),
        (r#"up{namespace="shop",pod="a"}"#, r#"up{namespace="shop",pod="a"}"#),
        (r#"{__name__=~".+"}"#, r#"{__name__=~".+",namespace="shop"}"#),
        ("a / b", r#"a{namespace="shop"} / b{namespace="shop"}"#),
        ("-a", r#"-a{namespace="shop"}"#),
        ("(a)", r#"(a{namespace="shop"})"#),
        ("rate(a[1m] offset 5m)", r#"rate(a{namespace="shop"}[1m] offset 5m)"#),
        ("max_over_time(rate(a[1m])[5m:10s])", r#"max_over_time(rate(a{namespace="shop"}[1m])[5m:10s])"#),
        // The parameter of an aggregation may also contain a selector.
        ("topk(scalar(b), a)", r#"topk(scalar(b{namespace="shop"}), a{namespace="shop"})"#),
        ("quantile(scalar(b), a)", r#"quantile(scalar(b{namespace="shop"}), a{namespace="shop"})"#),
        ("absent(a) or vector(1)", r#"absent(a{namespace="shop"}) or vector(1)"#),
        ("a @ 1609746000", r#"a{namespace="shop"} @ 1609746000.000"#),
        ("vector(1)", "vector(1)"),
        // Groups without labels change nothing.
        ("sum(a) by ()", r#"sum(a{namespace="shop"})"#),
        ("a / ignoring () b", r#"a{namespace="shop"} / b{namespace="shop"}"#),
        ("a unless ignoring () b", r#"a{namespace="shop"} unless b{namespace="shop"}"#),
        ("a or on () b", r#"a{namespace="shop"} or on () b{namespace="shop"}"#),
        (
            r#"label_replace(a, "x", "$1", "y", "(.*)\"} or b{")"#,
            r#"label_replace(a{namespace="shop"}, "x", "$1", "y", "(.*)\"} or b{")"#,
        ),
    ] {
        match restricted(query) {
            Ok(text) => assert_eq!(text, expected),
            Err(error) => panic!("{query}: {error}"),
        }
    }
}

#[test]
fn queries_that_cannot_be_restricted_are_refused() {
    for query in [r#"up{a="b" or c="d"}"#, "info(up)", "up{", "", "up up", "sum(", "up or", "\u{0}"] {
        assert!(restricted(query).is_err(), "{query}: {:?}", restricted(query));
    }
    let label = Tenant { label: "name space", namespace: "shop" };
    assert_eq!(Query::parse("up", Some(label)), Err(QueryError::Label("name space".to_owned())));
    let namespace = Tenant { label: "namespace", namespace: "shop\"} or b{x=\"" };
    assert!(matches!(Query::parse("up", Some(namespace)), Err(QueryError::Variable(_))));
}

#[test]
fn raw_strings_and_separated_digits_are_accepted() {
    for (query, expected) in [
        (r"x{path=~`/api/\d+`} > 100_000", r#"x{namespace="shop",path=~"/api/\\d+"} > 100000"#),
        (
            r#"label_replace(x, "a", "$1", "b", `(\d+)"`)"#,
            r#"label_replace(x{namespace="shop"}, "a", "$1", "b", "(\\d+)\"")"#,
        ),
        // The string ends at the second backtick, so the rest is another selector.
        (r#"x{a=`\`} or y{b="`"}"#, r#"x{a="\\",namespace="shop"} or y{b="`",namespace="shop"}"#),
    ] {
        assert_eq!(restricted(query).as_deref(), Ok(expected));
    }
}

#[test]
fn syntax_that_the_parser_does_not_know_is_sent_as_it_is_if_nothing_is_restricted() {
    for query in [
        r#"rate(x{a="$name"}[step()])"#,
        "x[5m*2]",
        "x offset (5m+1m)",
        "rate(x[5m] smoothed)",
        "x </ 5",
        "x >/ 5",
    ] {
        assert!(
            matches!(restricted(query), Err(QueryError::UnknownSyntax(_))),
            "{query}: {:?}",
            restricted(query)
        );
        let sent = Query::parse(query, None).unwrap();
        let text = sent.text(&Variables { namespace: "shop", name: "web", pods: &[] }).unwrap();
        assert_eq!(text, query.replace("$name", "web"));
    }
    let unprintable = "a * ignoring () group_left () b";
    assert_eq!(restricted(unprintable), Err(QueryError::Unprintable));
    assert_eq!(Query::parse(unprintable, None).unwrap().template(), unprintable);
    for query in ["sum(", "rate(x)", "x[5m"] {
        assert!(matches!(Query::parse(query, None), Err(QueryError::Invalid(_))), "{query}");
    }
}

#[test]
fn size_and_nesting_are_bounded() {
    assert_eq!(restricted(&"a".repeat(1 << 20)), Err(QueryError::TooLong(1 << 20)));
    assert_eq!(restricted(&"(".repeat(10_000)), Err(QueryError::TooComplex));
    assert_eq!(restricted(&format!("a{}", r#"{b=~"c"}"#.repeat(20))), Err(QueryError::TooManyRegexes));
    // Expressions of each kind with nearly the maximum depth, on the stack of a test's thread.
    assert!(restricted(&format!("{}a{}", "(".repeat(390), ")".repeat(390))).is_ok());
    assert!(restricted(&format!("{}a", "-".repeat(390))).is_ok());
    assert!(restricted(&format!("a{}", "+a".repeat(390))).is_ok());
    assert!(restricted(&format!("a{}", "^a".repeat(390))).is_ok());
    assert!(restricted(&format!("a{}", " and a".repeat(390))).is_ok());
    assert!(restricted(&format!("a{}", "[1m:]".repeat(50))).is_err());
}

#[test]
fn regexes_are_passed_on_without_compiling_them() {
    // To compile one of these takes gigabytes, or is impossible.
    for regex in [r"\\w{1000}{1000}", r"(((\\pL{99}){99}){99}){99}", "a{b}", "("] {
        let query = format!(r#"up{{a=~"{regex}",b!~"{regex}"}}"#);
        let expected = format!(r#"up{{a=~"{regex}",b!~"{regex}",namespace="shop"}}"#);
        assert_eq!(restricted(&query), Ok(expected));
    }
    let query = r#"up{a="=~\"x\"",b=~"regex-01",b=~"regex-00"}"#;
    assert_eq!(
        restricted(query).as_deref(),
        Ok(r#"up{a="=~\"x\"",b=~"regex-00",b=~"regex-01",namespace="shop"}"#)
    );
}

#[test]
fn numbers_that_the_parser_cannot_hold_are_refused() {
    for query in [
        "y[106666666666666666666666666666666666666666666666666]",
        "y[1e300]",
        "y[1e+300]",
        "y offset 1e300",
        "y[9999999999y]",
        "y[0xffffffffffffffffff]",
        "a{b=\"\\\"\"}[1e300]",
        // When it is printed, this time has more digits than allowed.
        "a @ 111121122d",
    ] {
        assert!(restricted(query).is_err(), "{query}: {:?}", restricted(query));
    }
    for query in [
        "a > 1e9",
        "a @ 1609746000.123",
        "a[5m] offset 1d",
        "a{b=\"1e300\"}",
        "a{b=\"12345678901234567890\"} * 2.5e-3",
    ] {
        let refused = matches!(restricted(query), Err(QueryError::Number(_) | QueryError::Parser));
        assert!(!refused, "{query}: {:?}", restricted(query));
    }
}

#[test]
fn variables_are_replaced_within_strings() {
    let query = Query::parse(r#"a{pod=~"$pods",app="$name"}"#, Some(SHOP)).unwrap();
    let with = |pods: &[&str]| query.text(&Variables { namespace: "shop", name: "web", pods });
    assert_eq!(with(&["web-1", "web.2"]).unwrap(), r#"a{app="web",namespace="shop",pod=~"web-1|web\\.2"}"#);
    assert_eq!(with(&[]), Err(QueryError::NoPods));
    assert_eq!(with(&["a\"}"]), Err(QueryError::Variable("a\"}".to_owned())));
    let names: Vec<String> = (0..10_000).map(|index| format!("web-{index:0>60}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(matches!(with(&names), Err(QueryError::TextTooLong(_))));
    let plain = Query::parse("a", None).unwrap();
    assert_eq!(plain.text(&Variables { namespace: "shop", name: "web", pods: &[] }).unwrap(), "a");
    assert!(Query::parse("$pods", None).is_err());
}

#[test]
fn query_of_the_past_matches_all_pods_that_the_target_has_had() {
    let query = Query::parse(r#"a{pod=~"$pods",app="$name"}"#, Some(SHOP)).unwrap();
    let past = |name: &str| query.text_of_past("shop", name, PodNames::OfReplicaSets);
    let expected = r#"a{app="web.v2",namespace="shop",pod=~"web\\.v2-[a-z0-9]+-[a-z0-9]{5}"}"#;
    assert_eq!(past("web.v2").unwrap(), expected);
    assert_eq!(past("a\"}"), Err(QueryError::Variable("a\"}".to_owned())));
}

/// Generates expressions of every kind.
fn expression() -> impl Strategy<Value = String> {
    let matcher = prop::sample::select(vec![
        r#"pod="a""#,
        r#"pod!="a""#,
        r#"pod=~"$pods""#,
        r#"namespace="other""#,
        r#"namespace=~".*""#,
        r#"x='y"z'"#,
        r#"y="\\""#,
        "z=`\\`",
        r#""quoted label"="v""#,
    ]);
    let selector = ("[a-c]{1,2}(:r)?", prop::collection::vec(matcher, 0..3))
        .prop_map(|(name, matchers)| format!("{name}{{{}}}", matchers.join(",")));
    let leaf =
        prop_oneof![4 => selector.clone(), 1 => Just("1.5".to_owned()), 1 => Just("time()".to_owned())];
    leaf.prop_recursive(4, 24, 3, move |inner| {
        let selector = selector.clone();
        prop_oneof![
            (
                inner.clone(),
                prop::sample::select(vec!["+", "and", "unless on (pod)", "> bool", "^"]),
                inner.clone()
            )
                .prop_map(|(a, operator, b)| format!("({a}) {operator} ({b})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            inner.clone().prop_map(|a| format!("sum by (pod) ({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("topk(scalar({a}), {b})")),
            selector.clone().prop_map(|a| format!("rate({a}[5m] offset 1m)")),
            inner.clone().prop_map(|a| format!("max_over_time(({a})[5m:1m])")),
            inner.prop_map(|a| format!(r#"label_replace({a}, "x", "$1", "y", "\"(.*)")"#)),
        ]
    })
}

proptest! {
    #[test]
    fn restricted_query_has_the_label_in_every_selector(query in expression()) {
        if let Ok(text) = restricted(&query) {
            // A second restriction changes nothing, because each selector already has the label.
            prop_assert_eq!(restricted(&text), Ok(text.clone()));
            // The generator writes one opening brace per selector, so the number of opening braces is the number of
            // selectors.
            let selectors = query.matches('{').count();
            let labels = text.matches(r#"namespace="shop""#).count();
            prop_assert_eq!(selectors, labels, "{} of {}", text, query);
        }
    }

    #[test]
    fn any_text_is_refused_or_restricted(query in "[a-c{}()\\[\\]\"'`$=~!,+*/ \\\\0-9:@#\n-]{0,40}") {
        if let Ok(text) = restricted(&query) {
            prop_assert_eq!(restricted(&text), Ok(text));
        }
    }
}

/// Returns the matchers of each selector of each query, as Prometheus' own parser reads them. `None` for a refused
/// query.
fn prometheus(queries: &[String]) -> Vec<Option<Vec<Vec<String>>>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/exposition/build.sh");
    let built = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "tests/exposition/build.sh failed");
    let program = String::from_utf8(built.stdout).unwrap();
    let mut child = Command::new(program.trim())
        .arg("queries")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for query in queries {
                input.write_all(b"q").unwrap();
                input.write_all(&u32::try_from(query.len()).unwrap().to_be_bytes()).unwrap();
                input.write_all(query.as_bytes()).unwrap();
            }
        });
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let answers = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        assert!(child.wait().unwrap().success(), "the Go program failed");
        answers
    })
}

#[test]
#[ignore = "builds a Go program, see tests/exposition/build.sh"]
fn prometheus_finds_the_namespace_in_every_selector() {
    let mut runner = TestRunner::deterministic();
    let strategy = prop_oneof![
        4 => expression(),
        1 => "(a|topk\\(b, a\\)|a\\{[a-c=~!\"'`\\\\{},. \n#x]{0,20}\\})( or |[ +])(b|\"[a\\\\\"{}x41u]{0,8}\")",
    ];
    let mut queries = Vec::new();
    for _ in 0..20_000 {
        let query = strategy.new_tree(&mut runner).unwrap().current();
        if let Ok(text) = restricted(&query) {
            queries.push(text);
        }
    }
    let (mut accepted, mut selectors) = (0, 0);
    let answers = prometheus(&queries);
    assert_eq!(answers.len(), queries.len());
    for (query, answer) in queries.iter().zip(answers) {
        // Prometheus checks types that promql-parser does not. A refused query returns no data.
        for selector in answer.iter().flatten() {
            assert!(selector.iter().any(|matcher| matcher == r#"namespace="shop""#), "{query}: {selector:?}");
            selectors += 1;
        }
        accepted += usize::from(answer.is_some());
    }
    println!("{} queries, {accepted} accepted, {selectors} selectors", queries.len());
    assert!(accepted * 2 > queries.len() && selectors > accepted);
}

#[test]
fn number_that_a_string_hides_from_the_check_is_refused() {
    // The parser sorts the matchers. After a backtick in a string, other strings count as numbers.
    let query = r#"{"c",pod=~"{888888888888a",pod=~"!`b"}"#;
    assert!(matches!(Query::parse(query, Some(SHOP)), Err(QueryError::Number(_))));
}
