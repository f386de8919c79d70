//! Decides which requests the server accepts.
//!
//! A web page of another origin can send requests to a loopback address, and can resolve its own hostname to that
//! address. The server refuses such requests: they have another host, another origin, or no token.

use http::header::{CONTENT_LENGTH, HOST, HeaderName, ORIGIN, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode};
use ring::digest::{SHA256, digest};

/// The address of the page: loopback hosts with a port, and a token.
#[derive(Clone)]
pub struct Access {
    hosts: [String; 2],
    token: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// The reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The method is not GET.
    Method,
    /// The request has a body.
    Body,
    /// The host is not the address of the server.
    Host,
    /// The request comes from a page of another origin.
    Origin,
    /// The path does not start with the token.
    Token,
}

impl Refusal {
    /// Returns the status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin | Self::Token => StatusCode::FORBIDDEN,
        }
    }

    /// Returns the text of the response.
    pub fn text(self) -> &'static str {
        match self {
            Self::Method => "only GET is allowed\n",
            Self::Body => "a request must not have a body\n",
            Self::Host => {
                "the Host header is not the address of this server: use the address that it printed\n"
            }
            Self::Origin => "the request comes from a page of another origin\n",
            Self::Token => "the token is missing or wrong: use the whole address that the server printed\n",
        }
    }
}

impl Access {
    /// Creates the address of a server on `port`. The token is `random` in hexadecimal digits.
    pub fn new(port: u16, random: [u8; 16]) -> Self {
        let token = format!("{:032x}", u128::from_be_bytes(random));
        Self { hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")], token }
    }

    /// Returns the URL of the page.
    pub fn url(&self) -> String {
        let [host, _] = &self.hosts;
        format!("http://{host}/{}/", self.token)
    }

    /// Checks a request. Returns its path after the token.
    ///
    /// # Errors
    /// Returns the reason why the request is refused.
    pub fn check<'a>(&self, method: &Method, path: &'a str, headers: &HeaderMap) -> Result<&'a str, Refusal> {
        let host = single(headers, &HOST).ok_or(Refusal::Host)?;
        if !self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host)) {
            return Err(Refusal::Host);
        }
        if headers.contains_key(ORIGIN) {
            let origin = single(headers, &ORIGIN).and_then(|origin| origin.strip_prefix("http://"));
            if !origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host)) {
                return Err(Refusal::Origin);
            }
        }
        if method != Method::GET {
            return Err(Refusal::Method);
        }
        let is_empty = headers.get_all(CONTENT_LENGTH).into_iter().all(|length| length == "0");
        if !is_empty || headers.contains_key(TRANSFER_ENCODING) {
            return Err(Refusal::Body);
        }
        let rest = path.strip_prefix('/').unwrap_or(path);
        let (token, rest) = rest.split_once('/').ok_or(Refusal::Token)?;
        // The duration of a comparison of digests does not reveal how many characters of the token are correct.
        let hash = |text: &str| digest(&SHA256, text.as_bytes());
        if hash(token).as_ref() != hash(&self.token).as_ref() {
            return Err(Refusal::Token);
        }
        Ok(rest)
    }
}

/// Returns the value of a header that occurs exactly once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;

    use super::*;

    const TOKEN: &str = "07070707070707070707070707070707";

    fn check(method: &str, path: &str, headers: &[(&'static str, &'static str)]) -> Result<String, Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let access = Access::new(8080, [7; 16]);
        let path = path.replace("TOKEN", TOKEN);
        access.check(&method.parse().unwrap(), &path, &map).map(str::to_owned)
    }

    const HERE: (&str, &str) = ("host", "127.0.0.1:8080");

    #[test]
    fn request_of_the_page_is_accepted() {
        assert_eq!(Access::new(8080, [7; 16]).url(), format!("http://127.0.0.1:8080/{TOKEN}/"));
        assert_eq!(check("GET", "/TOKEN/", &[HERE]), Ok(String::new()));
        assert_eq!(check("GET", "/TOKEN/stream", &[HERE]), Ok("stream".to_owned()));
        let own = [HERE, ("origin", "http://127.0.0.1:8080"), ("content-length", "0")];
        assert_eq!(check("GET", "/TOKEN/a/b", &own), Ok("a/b".to_owned()));
        assert_eq!(check("GET", "/TOKEN/", &[("host", "LOCALHOST:8080")]), Ok(String::new()));
    }

    #[test]
    fn foreign_host_is_refused() {
        for headers in [
            &[][..],
            &[("host", "evil.example:8080")],
            &[("host", "127.0.0.1")],
            &[("host", "127.0.0.1:8081")],
            &[("host", "127.0.0.1:8080.evil.example")],
            &[HERE, ("host", "evil.example")],
        ] {
            assert_eq!(check("GET", "/TOKEN/", headers), Err(Refusal::Host), "{headers:?}");
        }
    }

    #[test]
    fn foreign_origin_is_refused() {
        for origin in ["http://evil.example", "null", "https://127.0.0.1:8080", "http://localhost:8080", ""] {
            assert_eq!(
                check("GET", "/TOKEN/", &[HERE, ("origin", origin)]),
                Err(Refusal::Origin),
                "{origin}"
            );
        }
    }

    #[test]
    fn wrong_token_is_refused() {
        for path in ["/", "/TOKEN", "/0/", "//TOKEN/", "/stream", "/TOKEN0/", "/%30/"] {
            assert_eq!(check("GET", path, &[HERE]), Err(Refusal::Token), "{path}");
        }
    }

    #[test]
    fn other_methods_and_bodies_are_refused() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"] {
            assert_eq!(check(method, "/TOKEN/", &[HERE]), Err(Refusal::Method), "{method}");
        }
        assert_eq!(check("GET", "/TOKEN/", &[HERE, ("content-length", "1")]), Err(Refusal::Body));
        assert_eq!(check("GET", "/TOKEN/", &[HERE, ("transfer-encoding", "chunked")]), Err(Refusal::Body));
    }

    #[test]
    fn debug_output_hides_the_token() {
        assert!(!format!("{:?}", Access::new(1, [7; 16])).contains(TOKEN));
    }
}
