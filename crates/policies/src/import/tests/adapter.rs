use super::imported;

const RULES: &str = r#"
rules:
- seriesQuery: '{__name__=~"^container_cpu_.*",container!="POD",namespace!="",pod!=""}'
  resources:
    overrides: {namespace: {resource: namespace}, pod: {resource: pod}}
  name: {matches: "^container_(.*)_seconds_total$"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>,container!="POD"}[2m])) by (<<.GroupBy>>)'
- seriesQuery: 'http_requests_total{kubernetes_namespace!="",kubernetes_pod_name!=""}'
  resources: {template: "kubernetes_<<.Resource>>", overrides: {kubernetes_pod_name: {resource: pods}}}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)'
- seriesQuery: '{namespace!="",__name__=~"^open_.*",__name__!~"^container_.*"}'
  seriesFilters: [{isNot: ".*_total$"}]
  resources: {template: "<<.Resource>>"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: '{__name__="queue_depth",topic!=""}'
  resources: {namespaced: false, overrides: {ns: {resource: namespace}}}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>,state="ready"})'
- seriesQuery: '{__name__=~"^kafka_.*"}'
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>})'
"#;

fn hpa(metrics: &str) -> String {
    format!(
        "{{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {{name: web, namespace: shop}}, \
         spec: {{maxReplicas: 9, scaleTargetRef: {{kind: Deployment, name: web}}, metrics: [{metrics}]}}}}"
    )
}

fn metric(kind: &str, name: &str, more: &str) -> String {
    format!("{{type: {kind}, {}: {{metric: {{name: {name}}}{more}}}}}", kind.to_lowercase())
}

/// The metrics of the only policy with their queries, and the notes about the HPA.
fn queries(rules: &str, metrics: &[String]) -> (Vec<String>, Vec<String>) {
    let (policies, notes) = imported(&[rules, &hpa(&metrics.join(","))]);
    let queries = policies.iter().flat_map(|spec| {
        let spec: serde_json::Value = serde_json::from_str(spec).unwrap();
        let metrics = spec["metrics"].as_array().unwrap().clone();
        metrics.into_iter().map(|entry| {
            assert_eq!(entry["prometheus"]["server"], "main");
            // A controller that enforces a namespace label accepts the query.
            let tenant = promql::Tenant { label: "namespace", namespace: "shop" };
            promql::Query::parse(entry["prometheus"]["query"].as_str().unwrap(), Some(tenant)).unwrap();
            format!(
                "{}: {}",
                entry["metric"].as_str().unwrap(),
                entry["prometheus"]["query"].as_str().unwrap()
            )
        })
    });
    let is_of_hpa = |note: &&String| note.starts_with("HorizontalPodAutoscaler shop/web: ");
    let of_hpa = |note: &String| note["HorizontalPodAutoscaler shop/web: ".len()..].to_owned();
    (queries.collect(), notes.iter().filter(is_of_hpa).map(of_hpa).collect())
}

#[test]
fn query_of_each_kind_of_metric_follows_its_rule() {
    for (used, expected) in [
        (
            metric("Pods", "cpu_usage", ""),
            r#"cpu_usage: sum(rate(container_cpu_usage_seconds_total{namespace="$namespace",pod=~"$pods",container!="POD"}[2m])) by (pod)"#,
        ),
        (
            metric("Pods", "http_requests_per_second", ""),
            r#"http_requests_per_second: label_replace(sum(rate(http_requests_total{kubernetes_namespace="$namespace",kubernetes_pod_name=~"$pods"}[1m])) by (kubernetes_pod_name), "pod", "$1", "kubernetes_pod_name", "(.*)")"#,
        ),
        (
            metric("Object", "open_orders", ", describedObject: {kind: Service, name: api, apiVersion: v1}"),
            r#"open_orders: sum(open_orders{namespace="$namespace",service="api"}) by (service)"#,
        ),
        (
            "{type: External, external: {metric: {name: queue_depth, selector: {matchLabels: {topic: 'a\"b'}, \
             matchExpressions: [{key: zone, operator: In, values: [a.1, b]}, {key: dead, operator: DoesNotExist}, \
             {key: kind, operator: NotIn, values: [x]}, {key: live, operator: Exists}]}}}}"
                .to_owned(),
            r#"queue_depth: sum(max(queue_depth{topic="a\"b",zone=~"a\\.1|b",dead="",kind!~"x",live!="",state="ready"}))"#,
        ),
        (metric("External", "queue_depth", ""), r#"queue_depth: sum(max(queue_depth{state="ready"}))"#),
        (metric("External", "kafka_lag", ""), r#"kafka_lag: sum(max(kafka_lag{ns="$namespace"}))"#),
    ] {
        let (queries, notes) = queries(RULES, &[used]);
        assert_eq!(queries, [expected]);
        assert_eq!(notes, ["metadata.labels: next step: add the label concertina.dev/imported-from=web"]);
    }
}

#[test]
fn metric_without_a_usable_rule_is_noted() {
    for (rules, used, expected) in [
        (RULES, metric("Pods", "orders_total", ""), "no rule of the input provides orders_total"),
        (
            RULES,
            metric("Pods", "open_orders_total", ""),
            "rules[2].seriesFilters excludes the series open_orders_total of the metric",
        ),
        (
            "rules: [{seriesQuery: '{__name__=~\"^a_.*\"}', name: {as: b}, metricsQuery: 'a'}]",
            metric("Pods", "b", ""),
            "rules[0] may provide the metric, but from a series with any name: write the query yourself",
        ),
        (
            "rules: [{seriesQuery: a, metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}))', \
             resources: {template: <<.Resource>>}}]",
            metric("Pods", "a", ""),
            "metricsQuery of rules[0] gives no valid query: the query is invalid: expected type matrix in call to function \
             'rate', got vector: write the query yourself",
        ),
        (RULES, metric("External", "open_orders", ""), "no rule of the input provides open_orders"),
        (
            RULES,
            metric("Object", "cpu_usage", ", describedObject: {kind: Ingress, name: a}"),
            "the rule has no label for ingress: write the query yourself",
        ),
        (
            "rules: [{seriesQuery: a, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.Groups>>)', \
             resources: {template: <<.Resource>>}}]",
            metric("Pods", "a", ""),
            "the metricsQuery of the rule uses <<.Groups>>: write the query yourself",
        ),
        (
            "rules: [{seriesQuery: a, metricsQuery: 'a', resources: {template: '<<.Group>>_<<.Resource>>'}}]",
            metric("Pods", "a", ""),
            "resources.template of the rule is \"<<.Group>>_<<.Resource>>\", and only <<.Resource>> is known: write the \
             query yourself",
        ),
        (
            "rules: [{seriesQuery: '{a!=\"\"}', metricsQuery: 'a', name: {matches: '^a.(.*)$'}, \
             resources: {template: <<.Resource>>}}]",
            metric("Pods", "b", ""),
            "rules[0] may provide the metric, but from a series with any name: write the query yourself",
        ),
        (
            "rules: [{seriesQuery: a, metricsQuery: 'a{x=\"$pods\"}', resources: {template: <<.Resource>>}}]",
            metric("Pods", "a", ""),
            "the query contains $pods, which is a placeholder in policies: write the query yourself",
        ),
    ] {
        let (queries, notes) = queries(rules, &[used]);
        assert_eq!(queries, Vec::<String>::new());
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].ends_with(&format!(": not imported: {expected}")), "{notes:?}");
    }
    let selector = "{type: External, external: {metric: {name: queue_depth, selector: {matchExpressions: \
                    [{key: a, operator: Near}]}}}}";
    let (_, notes) = queries(RULES, &[selector.to_owned()]);
    let expected = "spec.metrics[0].external.metric.selector.matchExpressions[0]: not imported: no selector of \
                    Prometheus has this meaning";
    assert_eq!(notes, [expected]);
}

#[test]
fn series_of_several_rules_are_tried_the_last_one_first() {
    let rule = |matches: &str| {
        format!(
            "{{seriesQuery: '{{__name__=~\".+\"}}', name: {{matches: '{matches}'}}, resources: {{template: <<.Resource>>}}, \
             metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'}}"
        )
    };
    let rules = format!("rules: [{}, {}]", rule("^(.*)_total$"), rule("^(.*)_sum$"));
    let (queries, notes) = queries(&rules, &[metric("Pods", "orders", "")]);
    let query = |series: &str| format!(r#"sum({series}{{namespace="$namespace",pod=~"$pods"}}) by (pod)"#);
    assert_eq!(queries, [format!("orders: {} or on (pod) {}", query("orders_sum"), query("orders_total"))]);
    assert!(
        notes[0]
            .ends_with("the query tries the series orders_sum, orders_total: remove those that do not exist"),
        "{notes:?}"
    );
}

#[test]
fn configuration_is_read_from_a_config_map_and_its_problems_are_noted() {
    let rules = "rules: [{seriesQuery: a, metricQuery: b}, {seriesQuery: a, metricsQuery: b, name: {matches: '('}}, \
                 {seriesQuery: a, metricsQuery: b, name: {matches: '(a)(b)'}}, \
                 {seriesQuery: a, metricsQuery: b, seriesFilters: [{is: '['}]}]\nresourceRules: {cpu: {}}\n";
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "adapter", "namespace": "monitoring"},
        "data": {"other": "text: [", "config.yaml": rules},
    });
    let (policies, notes) = imported(&[&object.to_string()]);
    assert_eq!(policies, Vec::<String>::new());
    let title = "ConfigMap monitoring/adapter: config.yaml: ";
    let expected = [
        "rules[0].metricsQuery: not imported: is missing",
        "rules[1].name.matches: not imported: must be a regular expression, not \"(\"",
        "rules[2].name.as: not imported: is missing",
        "rules[3].seriesFilters[0].is: not imported: must be a regular expression, not \"[\"",
        "resourceRules: stays in effect: metrics.k8s.io still serves cpu and memory: keep these rules, or use metrics-server",
    ];
    assert_eq!(notes, expected.map(|note| format!("{title}{note}")));
    let (_, notes) = imported(&[RULES]);
    let expected = "configuration of prometheus-adapter: next step: name the Prometheus of --prometheus-url as \"main\" in \
                    the file of --metric-sources, which concertina sources import prints";
    assert_eq!(notes, [expected]);
    // A ConfigMap without a configuration is ignored.
    let other =
        r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b: 1"}}"#;
    assert_eq!(imported(&[other]), (Vec::new(), Vec::new()));
}

/// Imports rules, a Deployment with `arguments` and an HPA. Returns the source file, the notes about the Deployment,
/// and the number of fields that could not be filled.
fn sources(arguments: &str, used: &str) -> (String, Vec<String>, usize) {
    let deployment = format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: adapter, namespace: monitoring}}, \
         spec: {{template: {{spec: {{containers: [{{name: a, args: {arguments}}}]}}}}}}}}"
    );
    let objects: Vec<super::Object> = [RULES, &hpa(used), &deployment]
        .map(|text| super::Object { location: "a".into(), value: serde_saphyr::from_str(text).unwrap() })
        .into();
    let super::Import { sources, notes, .. } = super::import(&objects).unwrap();
    let sources = sources.unwrap();
    let notes = notes.iter().map(ToString::to_string).filter_map(|note| {
        Some(
            note.split_once("Deployment monitoring/adapter: spec.template.spec.containers[0].")?.1.to_owned(),
        )
    });
    (serde_json::to_string(&sources).unwrap(), notes.collect(), sources.open.len())
}

#[test]
fn server_is_that_of_the_adapter() {
    let pods = metric("Pods", "cpu_usage", "");
    let (file, notes, open) = sources("[--config=/a, --prometheus-url=http://prometheus:9090/a/]", &pods);
    let expected = r#"{"prometheus":[{"name":"main","url":"http://prometheus:9090/a/","enforceNamespaceLabel":"namespace"}]}"#;
    assert_eq!((file.as_str(), notes, open), (expected, Vec::new(), 0));
    let arguments = "[--prometheus-url, 'https://thanos', --prometheus-auth-incluster, --prometheus-ca-file=/ca.crt, \
                     --prometheus-auth-config=/config, --prometheus-token-file=/token]";
    let (file, notes, _) = sources(arguments, &pods);
    let expected = r#"{"prometheus":[{"name":"main","url":"https://thanos","caFile":"/ca.crt","bearerTokenFile":"/token","enforceNamespaceLabel":"namespace"}]}"#;
    assert_eq!(file, expected);
    let mount = "next step: mount the file into the pods of Concertina";
    let credentials =
        "args[4]: not imported: a server has an authority and a token, and no other credentials";
    assert_eq!(notes, [format!("args[3]: {mount}"), credentials.to_owned(), format!("args[5]: {mount}")]);
    let (file, _, _) = sources("[--prometheus-url=https://thanos, --prometheus-auth-incluster=true]", &pods);
    assert!(
        file.contains(r#""bearerTokenFile":"/var/run/secrets/kubernetes.io/serviceaccount/token""#),
        "{file}"
    );
}

#[test]
fn server_is_restricted_only_if_all_queries_have_the_same_label() {
    let url = "[--prometheus-url=http://prometheus:9090]";
    let two = [metric("Pods", "cpu_usage", ""), metric("Pods", "http_requests_per_second", "")].join(", ");
    for used in [two, metric("External", "queue_depth", "")] {
        let (file, _, open) = sources(url, &used);
        assert_eq!(file, r#"{"prometheus":[{"name":"main","url":"http://prometheus:9090"}]}"#);
        assert_eq!(open, 1);
    }
    let (file, _, _) = sources(url, &metric("External", "kafka_lag", ""));
    assert!(file.contains(r#""enforceNamespaceLabel":"ns""#), "{file}");
    // Without `--prometheus-url`, the object is not a Deployment of an adapter, so the URL is unknown.
    let (file, notes, open) = sources("[--config=/a]", &metric("Pods", "cpu_usage", ""));
    assert_eq!(file, r#"{"prometheus":[{"name":"main","enforceNamespaceLabel":"namespace"}]}"#);
    assert_eq!((notes, open), (Vec::new(), 1));
}

#[test]
fn two_metrics_of_one_name_have_one_query() {
    let object = |name: &str| {
        metric("Object", "open_orders", &format!(", describedObject: {{kind: Service, name: {name}}}"))
    };
    let (first, notes) = queries(RULES, &[object("api"), object("api")]);
    assert_eq!((first.len(), notes.len()), (1, 1));
    let (first, notes) = queries(RULES, &[object("api"), object("web")]);
    assert_eq!(first.len(), 1);
    assert!(notes[0].contains("a policy has one query per metric name"), "{notes:?}");
}

#[test]
fn series_of_a_rule_are_one_selector() {
    let used = metric("Pods", "a", "");
    for series in ["rate(a[5m])", "a or b", "a > 0", "a[5m]", "sum(a)", "a{b=", "a offset 5m"] {
        let rules = format!(
            "rules: [{{seriesQuery: {series:?}, metricsQuery: 'sum(<<.Series>>)', resources: {{template: <<.Resource>>}}}}]"
        );
        let (policies, notes) = imported(&[&rules, &hpa(&used)]);
        assert_eq!(policies, Vec::<String>::new(), "{series}");
        let expected = "configuration of prometheus-adapter: rules[0].seriesQuery: not imported: must be one selector of series, such as";
        assert!(notes[0].starts_with(expected), "{notes:?}");
        assert!(notes[1].ends_with("not imported: no usable rule of the input provides a"), "{notes:?}");
    }
}

#[test]
fn series_of_an_equal_matcher_is_known() {
    let rules = "rules: [{seriesQuery: '{__name__=\"a_total\",pod!=\"\"}', name: {as: per_second}, \
                 metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)', resources: {template: <<.Resource>>}}]";
    let (queries, _) = queries(rules, &[metric("Pods", "per_second", "")]);
    assert_eq!(queries, [r#"per_second: sum(a_total{namespace="$namespace",pod=~"$pods"}) by (pod)"#]);
}

#[test]
fn branches_of_several_rules_have_one_value() {
    let rule = |pod: &str, series: &str, query: &str| {
        format!(
            "{{seriesQuery: {series}, name: {{as: busy}}, metricsQuery: '{query}', resources: {{overrides: \
             {{namespace: {{resource: namespace}}, {pod}: {{resource: pod}}, {pod}_svc: {{resource: service}}}}}}}}"
        )
    };
    let template = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)";
    let rules = format!(
        "rules: [{}, {}]",
        rule("pod", "a", &format!("{template} or vector(0)")),
        rule("pod_name", "b", template)
    );
    let (of_pods, _) = queries(&rules, &[metric("Pods", "busy", "")]);
    let renamed = r#"label_replace(sum(b{namespace="$namespace",pod_name=~"$pods"}) by (pod_name), "pod", "$1", "pod_name", "(.*)")"#;
    let other = r#"(sum(a{namespace="$namespace",pod=~"$pods"}) by (pod) or vector(0))"#;
    assert_eq!(of_pods, [format!("busy: {renamed} or on (pod) {other}")]);
    let object = metric("Object", "busy", ", describedObject: {kind: Service, name: api, apiVersion: v1}");
    let (of_object, _) = queries(&rules, &[object]);
    let first = r#"sum(b{namespace="$namespace",pod_name_svc="api"}) by (pod_name_svc)"#;
    assert!(of_object[0].starts_with(&format!("busy: {first} or on () (")), "{of_object:?}");
}

#[test]
fn values_of_the_chart_lead_to_the_rendered_configuration() {
    let values = "rules: {default: false, custom: [{seriesQuery: a, metricsQuery: a}]}";
    let indented = format!("prometheus-adapter: {{{values}}}");
    for (values, path) in [(values, "rules"), (&indented, "prometheus-adapter.rules")] {
        let (policies, notes) = imported(&[values, &hpa(&metric("Pods", "a", ""))]);
        assert_eq!(policies, Vec::<String>::new());
        let expected = format!(
            "values of the chart of prometheus-adapter: {path}: not imported: these are values of a chart: pass the ConfigMap that \
             the chart renders, from helm template or kubectl get configmap"
        );
        assert_eq!(notes[0], expected);
        assert!(notes[1].ends_with("not imported: no usable rule of the input provides a"), "{notes:?}");
    }
}

#[test]
fn external_metric_may_be_grouped_by_nothing() {
    let rules = "externalRules: [{seriesQuery: lag, resources: {namespaced: false}, \
                 metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'}]";
    let (queries, _) = queries(rules, &[metric("External", "lag", "")]);
    assert_eq!(queries, ["lag: sum(sum(lag{}) by ())"]);
}
