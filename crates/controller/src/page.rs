//! The pages of a controller. The types separate the content of a page from the secure port that serves it.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::StatusCode;

use crate::record::Answer;

/// The path of the shadow report.
pub const PARITY: &str = "/parity";
/// The path of the histories that standbys copy.
pub const HISTORY: &str = "/history";
/// The audience of the tokens that standbys send for [`HISTORY`]. No other server accepts these tokens.
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
    /// Creates a JSON response.
    pub fn json(answer: Answer) -> Self {
        Self { status: answer.status, content_type: JSON, body: answer.json.into() }
    }
}
