//! PromQL queries of tenants, and answers to instant and range queries.
//!
//! - [`Query`] restricts every selector of a query to a namespace, and replaces `$pods` and other variables.
//! - [`Answer`] reads the response of Prometheus, Thanos, Mimir and VictoriaMetrics to an instant query, and matches
//!   a vector to pods. [`RangeAnswer`] reads the response to a range query.
//!
//! The crate has no I/O and no clock.
//!
//! # Example
//!
//! ```
//! use promql::{Answer, Query, Tenant, Variables};
//!
//! let tenant = Tenant { label: "namespace", namespace: "shop" };
//! let query = Query::parse(r#"sum(rate(http_requests_total{pod=~"$pods"}[30s])) by (pod)"#, Some(tenant))?;
//! let text = query.text(&Variables { namespace: "shop", name: "web", pods: &["web-1", "web-2"] })?;
//! assert_eq!(
//!     text,
//!     r#"sum by (pod) (rate(http_requests_total{namespace="shop",pod=~"web-1|web-2"}[30s]))"#
//! );
//!
//! let response = br#"{"status": "success", "data": {"resultType": "vector", "result": [
//!     {"metric": {"pod": "web-1"}, "value": [1700000000, "2.5"]}
//! ]}}"#;
//! assert_eq!(Answer::parse(response, 1_000, false)?.by_pod()?["web-1"], 2.5);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod error;
mod lexical;
mod query;
mod rates;
mod regexes;
mod series;

pub use crate::answer::{Answer, RangeAnswer, Sample};
pub use crate::error::AnswerError;
pub use crate::query::{PodNames, Query, QueryError, Tenant, Variables};
