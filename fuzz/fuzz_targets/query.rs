//! Queries of tenants, and responses of Prometheus. A restricted query has the namespace in every selector, and a
//! second restriction does not change the query. Variables change a query only within strings. The values of a response
//! are finite.

#![no_main]

mod cost;
mod plant;

use libfuzzer_sys::fuzz_target;
use promql::{Answer, Query, QueryError, Tenant, Variables};

const TENANT: Tenant<'static> = Tenant { label: "namespace", namespace: "shop" };
const MATCHER: &str = "namespace=\"shop\"";

fuzz_target!(|input: &[u8]| cost::bounded(|| {
    if let Ok(Answer::Vector(samples)) = Answer::parse(input, 10, false) {
        assert!(samples.len() <= 10 && samples.iter().all(|sample| sample.value.is_finite()));
        if let Ok(pods) = Answer::Vector(samples.clone()).by_pod() {
            assert_eq!(pods.len(), samples.len());
        }
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(query) = Query::parse(text, Some(TENANT)) else { return };
    let printed = query.template();
    let mut unlabelled = selectors(printed).into_iter().filter(|selector| !selector.contains(MATCHER));
    let planted = plant::planted("query") && printed.matches(MATCHER).count() > 2;
    assert_eq!(if planted { Some("planted") } else { unlabelled.next() }, None, "{printed}");
    match Query::parse(printed, Some(TENANT)) {
        // The added matchers may exceed the limits.
        Err(QueryError::TooLong(_) | QueryError::TooComplex) => {}
        again => assert_eq!(again.as_ref().map(Query::template), Ok(printed)),
    }
    let pods = ["web-1", "web.2"];
    if let Ok(text) = query.text(&Variables { namespace: "shop", name: "web", pods: &pods }) {
        assert_eq!(selectors(&text).len(), selectors(printed).len(), "{text}");
    }
}));

/// Returns the texts between braces outside strings. Every restricted selector has braces.
fn selectors(printed: &str) -> Vec<&str> {
    let (mut quoted, mut escaped, mut start, mut all) = (false, false, None, Vec::new());
    for (at, byte) in printed.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => start = Some(at),
            b'}' if !quoted => {
                let start = start.take().unwrap_or_else(|| panic!("{printed}"));
                all.push(&printed[start..at]);
            }
            _ => {}
        }
    }
    assert!(!quoted && start.is_none(), "{printed}");
    all
}
