//! The paths of a controller's pages, and their types. They do not depend on the server of the secure port.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::StatusCode;

use crate::record::Answer;

/// The path of the shadow report.
pub const PARITY: &str = "/parity";
/// The path of the histories that standbys copy.
pub const HISTORY: &str = "/history";
/// The audience of the tokens that standbys send for [`HISTORY`], so that no other server accepts them.
pub const HISTORY_AUDIENCE: &str = "concertina-history";
/// The content type of JSON pages.
pub const JSON: &str = "application/json";

/// A JSON page, built for each request from its query.
pub type JsonPage = Arc<dyn Fn(Option<&str>) -> Answer + Send + Sync>;

/// A page that may wait before it responds, built for each request from its query.
pub type HeldPage = Arc<dyn Fn(Option<&str>) -> BoxFuture<'static, Reply> + Send + Sync>;

/// The response of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: StatusCode,
    /// The content type.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// Creates the response of a JSON page.
    pub fn json(answer: Answer) -> Self {
        Self { status: answer.status, content_type: JSON, body: answer.json.into() }
    }
}
