//! Differences between Prometheus and Thanos, Mimir and VictoriaMetrics.

use serde_json::{Value, json};

use super::*;

const SUM: &str = "{metric: a, prometheus: {server: main, query: 'sum(up)'}}";

fn answer(field: &str, value: &Value) -> PageResponse {
    let mut body = json!({"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "4"]}]}});
    body[field] = value.clone();
    PageResponse::json(200, &body)
}

async fn read(file: &str, address: &str, answer: PageResponse) -> (Result<Values, String>, Vec<String>) {
    let rig = Rig::new(file);
    rig.servers.serve(address, move |_| answer.clone());
    let read = rig.read(SUM, Form::Single, &[]).await;
    let paths = rig.servers.requests().into_iter().map(|request| request.path).collect();
    (read.map(|reading| reading.values).map_err(|failure| failure.error.to_string()), paths)
}

#[tokio::test(start_paused = true)]
async fn partial_answers_are_errors_unless_allowed() {
    let thanos = answer("warnings", &json!(["No StoreAPIs matched for this query"]));
    let victoria_metrics = answer("isPartial", &json!(true));
    for (answer, cause) in [
        (thanos, "No StoreAPIs matched for this query"),
        (victoria_metrics, "a part of the storage did not answer"),
    ] {
        let file = "prometheus: [{name: main, url: 'http://a:1'}]";
        let (values, _) = read(file, "a:1", answer.clone()).await;
        assert_eq!(values, Err(format!("the answer may be incomplete: {cause}")));
        let file = "prometheus: [{name: main, url: 'http://a:1', allowPartial: true}]";
        let (values, _) = read(file, "a:1", answer).await;
        assert_eq!(values, Ok(Values::Single(Some(4.0))));
    }
    // Notes about the query, as of Prometheus 3, do not make an answer incomplete.
    let file = "prometheus: [{name: main, url: 'http://a:1'}]";
    let (values, _) = read(file, "a:1", answer("infos", &json!(["metric might not be a counter"]))).await;
    assert_eq!(values, Ok(Values::Single(Some(4.0))));
}

#[tokio::test(start_paused = true)]
async fn path_of_the_url_precedes_that_of_the_api() {
    for (url, path) in [
        ("http://a:1", "/api/v1/query"),
        ("http://a:1/prometheus", "/prometheus/api/v1/query"),
        ("http://a:1/select/0/prometheus/", "/select/0/prometheus/api/v1/query"),
    ] {
        let file = format!("prometheus: [{{name: main, url: '{url}'}}]");
        let (values, paths) = read(&file, "a:1", answer("infos", &json!([]))).await;
        assert_eq!((values, paths), (Ok(Values::Single(Some(4.0))), vec![path.to_owned()]));
    }
    // Mimir refuses a query without a tenant.
    let refused = PageResponse { status: 401, ..PageResponse::page("no org id\n") };
    let (values, _) = read("prometheus: [{name: main, url: 'http://a:1/prometheus'}]", "a:1", refused).await;
    assert_eq!(values, Err("the server answers 401 Unauthorized".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn extension_of_metricsql_is_refused() {
    let rig = Rig::new("prometheus: [{name: main, url: 'http://a:1'}]");
    rig.servers.serve("a:1", |_| PageResponse::vector(&[]));
    for query in ["sum(rate(up))", "up default 0", "up{a=\"b\" or c=\"d\"}"] {
        let metric = format!("{{metric: a, prometheus: {{server: main, query: '{query}'}}}}");
        let failure = rig.read(&metric, Form::Single, &[]).await.unwrap_err();
        assert_eq!(failure.error.reason(), "InvalidQuery", "{query}: {failure}");
    }
    assert_eq!(rig.servers.requests(), []);
}
