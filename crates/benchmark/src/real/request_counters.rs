//! The API server's request counters, from two scrapes of its metrics.

use std::collections::BTreeMap;

use super::control_plane::{Rest, convert_error};
use crate::Failure;
use crate::observations::{RequestCount, request_title};

/// The server's counters by verb and resource.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Counters(BTreeMap<(String, String), Kind>);

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Kind {
    count: f64,
    failed: f64,
    received: f64,
    sent: f64,
}

impl Counters {
    pub(super) async fn read(api: &Rest) -> Result<Self, Failure> {
        let answer = convert_error(api.send(http::Method::GET, "/metrics", &[], None).await)?;
        if answer.code != 200 {
            return Err(format!(
                "failed to read the metrics of the API server: {} {}",
                answer.code,
                answer.text.trim()
            )
            .into());
        }
        Ok(Self::parse(&answer.text))
    }

    fn parse(page: &str) -> Self {
        let mut counters = Self::default();
        for line in page.lines() {
            let Some((name, rest)) = line.split_once('{') else { continue };
            let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let label = |name: &str| label(labels, name);
            let kind = |verb| (verb, request_title(label("group"), label("resource"), label("subresource")));
            match name {
                "apiserver_request_total" => {
                    let kind = counters.0.entry(kind(verb(label("verb")))).or_default();
                    kind.count += value;
                    if !label("code").starts_with('2') {
                        kind.failed += value;
                    }
                }
                "apiserver_response_sizes_sum" => {
                    counters.0.entry(kind(verb(label("verb")))).or_default().sent += value;
                }
                "apiserver_request_body_size_bytes_sum" => {
                    // The metric has the verb of the request's attributes, and `resource` contains the
                    // subresource, if any.
                    let resource = label("resource");
                    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                    let title = request_title(label("group"), resource, subresource);
                    counters.0.entry((label("verb").to_lowercase(), title)).or_default().received += value;
                }
                _ => {}
            }
        }
        counters
    }

    /// Requests since the scrape `before`, which is `time` seconds older. The requests of the idle
    /// server are subtracted.
    pub(super) fn since(&self, before: &Self, idle: &Idle, time: f64) -> Vec<RequestCount> {
        let mut counted = Vec::new();
        for (kind, now) in &self.0 {
            let earlier = before.0.get(kind).copied().unwrap_or_default();
            let usual = idle.0.get(kind).copied().unwrap_or(0.0) * time;
            let count = whole(now.count - earlier.count - usual);
            if count == 0 {
                continue;
            }
            let (verb, resource) = kind.clone();
            counted.push(RequestCount {
                verb,
                resource,
                count,
                failed: whole(now.failed - earlier.failed),
                received: whole(now.received - earlier.received),
                sent: whole(now.sent - earlier.sent),
                ..RequestCount::default()
            });
        }
        counted
    }
}

/// Requests per second of the idle server to itself, by verb and resource.
#[derive(Debug, Clone, Default)]
pub(super) struct Idle(BTreeMap<(String, String), f64>);

impl Idle {
    pub(super) fn between(before: &Counters, after: &Counters, time: f64) -> Self {
        let rate = |(kind, now): (&(String, String), &Kind)| {
            let earlier = before.0.get(kind).map_or(0.0, |kind| kind.count);
            (kind.clone(), (now.count - earlier) / time)
        };
        Self(after.0.iter().map(rate).filter(|(_, rate)| *rate > 0.0).collect())
    }
}

fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let mut pairs = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
    pairs.find(|(key, _)| *key == name).map_or("", |(_, value)| value.trim_end_matches('"'))
}

/// Maps HTTP methods to the verbs that the embedded server counts.
fn verb(verb: &str) -> String {
    match verb {
        "PUT" => "update".to_owned(),
        "POST" => "create".to_owned(),
        other => other.to_lowercase(),
    }
}

/// Rounds to a non-negative integer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates at 0")]
fn whole(count: f64) -> u64 {
    count.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pages_give_the_requests_between_them_except_those_of_the_server() {
        let page = |status: u32, lease: u32| {
            Counters::parse(&format!(
                "# TYPE apiserver_request_total counter\n\
                 apiserver_request_total{{code=\"200\",group=\"autoscaling\",resource=\"horizontalpodautoscalers\",subresource=\"status\",verb=\"PUT\",version=\"v2\"}} {status}\n\
                 apiserver_request_total{{code=\"409\",group=\"autoscaling\",resource=\"horizontalpodautoscalers\",subresource=\"status\",verb=\"PUT\",version=\"v2\"}} 2\n\
                 apiserver_request_total{{code=\"200\",group=\"coordination.k8s.io\",resource=\"leases\",subresource=\"\",verb=\"PUT\",version=\"v1\"}} {lease}\n"
            ))
        };
        let (first, second, third) = (page(0, 0), page(0, 4), page(100, 8));
        let idle = Idle::between(&first, &second, 10.0);
        let counted = third.since(&second, &idle, 10.0);
        let [only] = counted.as_slice() else { panic!("{counted:?}") };
        assert_eq!(
            (only.verb.as_str(), only.resource.as_str(), only.count, only.failed),
            ("update", "horizontalpodautoscalers.autoscaling/status", 100, 0)
        );
    }
}
