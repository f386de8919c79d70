//! Tests of valid and invalid answers of servers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use promql::{Answer, AnswerError};

fn parse(body: &str) -> Result<Answer, AnswerError> {
    Answer::parse(body.as_bytes(), 2, false)
}

fn vector(result: &str) -> String {
    format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}"#)
}

fn pod(name: &str, value: &str) -> String {
    format!(r#"{{"metric":{{"pod":"{name}"}},"value":[1700000000.123,"{value}"]}}"#)
}

#[test]
fn vector_is_matched_to_pods() {
    let answer = parse(&vector(&format!("{},{}", pod("web-1", "1e+06"), pod("web-2", "0")))).unwrap();
    let pods: Vec<_> = answer.by_pod().unwrap().into_iter().collect();
    assert_eq!(pods, [("web-1".to_owned(), 1e6), ("web-2".to_owned(), 0.0)]);
}

#[test]
fn empty_vector_is_neither_zero_nor_an_error() {
    let answer = parse(&vector("")).unwrap();
    assert_eq!(answer.single(), Ok(None));
    assert!(answer.by_pod().unwrap().is_empty());
}

#[test]
fn one_number_comes_from_a_scalar_or_one_series() {
    let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1700000000,"2.5"]}}"#;
    assert_eq!(parse(scalar).unwrap().single(), Ok(Some(2.5)));
    assert_eq!(parse(&vector(&pod("web-1", "3"))).unwrap().single(), Ok(Some(3.0)));
    let two = vector(&format!("{},{}", pod("web-1", "1"), pod("web-2", "2")));
    assert_eq!(parse(&two).unwrap().single(), Err(AnswerError::SeveralSeries(2)));
}

#[test]
fn answers_without_a_number_are_errors_with_a_reason() {
    let text = |body: &str| match parse(body).and_then(Answer::by_pod) {
        Ok(pods) => panic!("{pods:?}"),
        Err(error) => error.to_string(),
    };
    let histogram = r#"{"metric":{"pod":"a"},"histogram":[1,{"count":"1","sum":"1","buckets":[]}]}"#;
    let three = [pod("a", "1"), pod("b", "1"), pod("c", "1")].join(",");
    for (body, expected) in [
        (vector(&pod("a", "NaN")), r#"the query returns NaN for {pod="a"}: it must return finite numbers"#),
        (vector(&pod("a", "+Inf")), r#"the query returns inf for {pod="a"}: it must return finite numbers"#),
        (vector(&pod("", "1")), "the series {} has no label pod: aggregate by (pod)"),
        (
            vector(&format!("{},{}", pod("a", "1"), pod("a", "2"))),
            "several series have the pod a: aggregate by (pod)",
        ),
        (
            vector(histogram),
            "the query returns a native histogram: apply histogram_quantile or another function to it",
        ),
        (vector(&three), "the query returns more than 2 series: aggregate them"),
        (vector(&pod("a", "many")), r#"the answer is not one of Prometheus' query API: "many" is not a number"#),
        (
            r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#.into(),
            "the query returns a matrix: it must return an instant vector or a scalar",
        ),
        (
            r#"{"status":"error","errorType":"bad_data","error":"parse error: unexpected \n end"}"#.into(),
            "the server refused the query: bad_data: parse error: unexpected   end",
        ),
        (
            r#"{"status":"success","warnings":["store 2 is down"],"data":{"resultType":"vector","result":[]}}"#
                .into(),
            "the answer may be incomplete: store 2 is down",
        ),
        (
            r#"{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}"#.into(),
            "the answer may be incomplete: a part of the storage did not answer",
        ),
        (
            r#"{"status":"success"}"#.into(),
            "the answer is not one of Prometheus' query API: data is missing",
        ),
    ] {
        assert_eq!(text(&body), expected);
    }
    assert!(text("<html>").starts_with("the answer is not one of Prometheus' query API: expected value"));
    let endless = format!(r#"{{"status":"error","error":"{}"}}"#, "é".repeat(10_000));
    assert!(text(&endless).len() < 400);
}

#[test]
fn series_and_labels_are_counted_before_the_end_of_the_answer() {
    // The rest of this list is not one of series, so a decoder of the whole list would report it.
    let endless = format!("{},{},{},7", pod("a", "1"), pod("b", "1"), pod("c", "1"));
    assert_eq!(parse(&vector(&endless)), Err(AnswerError::TooManySeries(2)));
    let labels: Vec<String> = (0..100_001).map(|index| format!(r#""l{index}":"""#)).collect();
    let wide =
        |labels: &[String]| vector(&format!(r#"{{"metric":{{{}}},"value":[1,"1"]}}"#, labels.join(",")));
    assert_eq!(parse(&wide(&labels)), Err(AnswerError::TooManyLabels(100_000)));
    assert!(parse(&wide(&labels[..100_000])).is_ok());
    let warnings =
        format!(r#"{{"status":"success","warnings":["first"{}],"data":null}}"#, r#","""#.repeat(100_000));
    assert_eq!(parse(&warnings), Err(AnswerError::Partial("first".to_owned())));
}

#[test]
fn order_of_the_fields_of_an_answer_is_free() {
    let answer = r#"{"data":{"result":[{"value":[1,"2"],"x":[],"metric":{"pod":"a"}}],"resultType":"vector"},"status":"success"}"#;
    assert_eq!(parse(answer).unwrap().single(), Ok(Some(2.0)));
}

#[test]
fn partial_answers_are_accepted_where_allowed() {
    let body =
        vector(&pod("a", "1")).replacen('{', r#"{"warnings":["store 2 is down"],"isPartial":true,"#, 1);
    assert_eq!(Answer::parse(body.as_bytes(), 2, true).unwrap().single(), Ok(Some(1.0)));
    // Information about the query is not a warning.
    let body = vector(&pod("a", "1")).replacen('{', r#"{"infos":["metric might not be a counter"],"#, 1);
    assert!(parse(&body).is_ok());
}
