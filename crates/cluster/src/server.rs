//! The API server's version and clock.

use http::header::DATE;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::body;
use super::call::{Call, DEFAULT_LIMIT};
use super::client::Client;
use super::error::ApiError;
use clock::Clock;

/// Half a second. The `Date` header has whole seconds, rounded down, so the server's clock is on average this much
/// ahead of the header.
const HALF: SignedDuration = SignedDuration::from_millis(500);

/// The version and the clock of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Server {
    /// `gitVersion`, such as `v1.37.1`.
    pub version: String,
    /// `minor`, such as 37, without the suffix that some providers add. `None` if it is not a number.
    pub minor: Option<u32>,
    /// The time by which the server's clock is ahead of the local clock, to about one second. `None` without a `Date`
    /// header.
    pub ahead: Option<SignedDuration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    #[serde(default)]
    git_version: String,
    #[serde(default)]
    minor: String,
}

/// Requests `/version` and reads the clock of the server from the `Date` header of the response.
pub async fn read(client: &Client, clock: &dyn Clock) -> Result<Server, ApiError> {
    let answer = client.open(&Call::get(["version"])).await?;
    let now = clock.now();
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    let ahead = date.and_then(read_date).map(|date| date.duration_since(now) + HALF);
    let body = body::collect(answer.into_body(), DEFAULT_LIMIT).await?;
    let Version { git_version, minor } =
        serde_json::from_slice(&body).map_err(|error| ApiError::Decode(error.into()))?;
    let digits = minor.split(|character: char| !character.is_ascii_digit()).next().unwrap_or_default();
    Ok(Server { version: git_version, minor: digits.parse().ok(), ahead })
}

/// Parses a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn read_date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_header_is_parsed() {
        let date = read_date("Tue, 01 Jan 2030 00:00:07 GMT").unwrap();
        assert_eq!(date.to_string(), "2030-01-01T00:00:07Z");
        assert_eq!(read_date("soon"), None);
    }
}
