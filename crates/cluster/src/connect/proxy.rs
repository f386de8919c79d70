//! Chooses a proxy like client-go, but with hyper-util's rules for `NO_PROXY`, and connects through the proxy.
//!
//! A `proxy-url` in the kubeconfig takes precedence. Otherwise the proxy is that of `HTTPS_PROXY` for a server at
//! `https://`, and of `HTTP_PROXY` for a server at `http://`. An upper-case variable takes precedence over its
//! lower-case form. The environment's proxy is not used for a server on this machine or in `NO_PROXY`.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

use crate::error::{TunnelError, describe_connecting};

/// A value is not the URL of a supported proxy. The error text omits the value, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{origin} is not the URL of a proxy: use http://, https:// or socks5://, such as http://proxy.example.com:3128"
)]
pub struct ProxyError {
    /// The source of the value, such as `proxy-url` or `HTTPS_PROXY`.
    origin: String,
}

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// HTTP over TCP or TLS.
    Http,
    /// SOCKS 5. The proxy resolves the name of the server.
    Socks5,
}

/// A proxy through which the client reaches the API server.
#[derive(Debug, Clone)]
pub(super) struct Proxy {
    pub(super) kind: Kind,
    /// The scheme (`http` or `https`), the host and the port to dial.
    pub(super) address: Uri,
    /// The URL with user and password, which `Debug` omits.
    intercept: Intercept,
}

impl Proxy {
    /// Parses the URL of a proxy. `origin` names the source of the URL in errors.
    pub(super) fn parse(url: &str, origin: &str) -> Result<Self, ProxyError> {
        Self::try_parse(url).ok_or_else(|| ProxyError { origin: origin.to_owned() })
    }

    fn try_parse(url: &str) -> Option<Self> {
        let any_server = Uri::from_static("https://server/");
        let intercept =
            Matcher::builder().all(url).build().intercept(&any_server).filter(|_| url.contains("://"))?;
        let (kind, scheme, port) = match intercept.uri().scheme_str()? {
            "http" => (Kind::Http, "http", 80),
            "https" => (Kind::Http, "https", 443),
            "socks5" | "socks5h" => (Kind::Socks5, "http", 1080),
            _ => return None,
        };
        let host = intercept.uri().host().filter(|host| !host.is_empty())?;
        let port = intercept.uri().port_u16().unwrap_or(port);
        let address = format!("{scheme}://{host}:{port}/").parse().ok()?;
        Some(Self { kind, address, intercept })
    }

    /// Returns the environment's proxy for `server`. `variable` reads an environment variable.
    pub(super) fn from_environment(
        server: &Uri,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ProxyError> {
        let any = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| Some((name, variable(name).filter(|value| !value.is_empty())?)))
        };
        let named = match server.scheme_str() {
            Some("https") => any(["HTTPS_PROXY", "https_proxy"]),
            Some("http") => any(["HTTP_PROXY", "http_proxy"]),
            _ => None,
        };
        let Some((name, url)) = named else { return Ok(None) };
        let exceptions = any(["NO_PROXY", "no_proxy"]).map(|(_, value)| value).unwrap_or_default();
        if is_exempt(server, &exceptions) {
            return Ok(None);
        }
        // `proxy:3128` means `http://proxy:3128`.
        let url = if url.contains("://") { url } else { format!("http://{url}") };
        Self::parse(&url, name).map(Some)
    }

    /// Returns `host:port` of the proxy.
    pub(super) fn authority(&self) -> &str {
        self.address.authority().map_or("", |authority| authority.as_str())
    }

    /// Returns user and password of the proxy, if its URL has a user.
    pub(super) fn login(&self) -> Option<(&str, &str)> {
        self.intercept.raw_auth()
    }

    /// Returns the `Proxy-Authorization` header, if the URL of an HTTP proxy has a user.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.intercept.basic_auth()
    }
}

/// Returns whether the server is exempt from the environment's proxy, because it is on this machine or listed in
/// `NO_PROXY`.
fn is_exempt(server: &Uri, no_proxy: &str) -> bool {
    // hyper-util exempts no loopback address, and supports `.example.com` but not `*.example.com`.
    let exceptions = format!("localhost,127.0.0.0/8,::1,{}", no_proxy.replace("*.", "."));
    Matcher::builder().all("http://proxy").no(exceptions).build().intercept(server).is_none()
}

/// Returns a service that connects to a server through a proxy. `dial` connects to the proxy. `limit` is the time limit
/// for establishing a connection, including the proxy's response.
pub(super) fn through<C>(
    proxy: Proxy,
    dial: C,
    limit: Duration,
) -> BoxCloneSyncService<Uri, Stream<C::Response>, TunnelError>
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Future: Send + 'static,
{
    BoxCloneSyncService::new(tower::service_fn(move |server: Uri| {
        let (proxy, dial) = (proxy.clone(), dial.clone());
        async move {
            let hung = || TunnelError(format!("proxyconnect tcp: {}: i/o timeout", proxy.authority()));
            let connected = tokio::time::timeout(limit, connect(&proxy, dial, &server)).await;
            connected.unwrap_or_else(|_| Err(hung()))
        }
    }))
}

async fn connect<C>(proxy: &Proxy, dial: C, server: &Uri) -> Result<Stream<C::Response>, TunnelError>
where
    C: Service<Uri, Error = BoxError>,
    C::Response: Read + Write + Unpin + Send + 'static,
{
    let address = proxy.address.clone();
    let stream = dial.oneshot(address.clone()).await.map_err(|error| {
        TunnelError(format!("proxyconnect tcp: {}", describe_connecting(error.as_ref(), &address)))
    })?;
    let failed = |error: &(dyn Error + 'static)| {
        let cause = std::iter::successors(Some(error), |error| (*error).source()).last();
        let cause = cause.map_or_else(String::new, ToString::to_string);
        TunnelError(format!("proxyconnect tcp: {}: {cause}", proxy.authority()))
    };
    let mut dialled = Some(stream);
    let dialled = tower::service_fn(move |_: Uri| {
        std::future::ready(dialled.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    match (proxy.kind, server.scheme_str()) {
        (Kind::Socks5, scheme) => {
            let default = if scheme == Some("http") { 80 } else { 443 };
            let (host, port) = (server.host().unwrap_or_default(), server.port_u16().unwrap_or(default));
            let server = format!("http://{host}:{port}/").parse::<Uri>().map_err(|error| failed(&error))?;
            let mut socks = SocksV5::new(address, dialled);
            if let Some((user, password)) = proxy.login() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            socks.oneshot(server).await.map(Stream::to_server).map_err(|error| failed(&error))
        }
        (Kind::Http, Some("http")) => {
            dialled.oneshot(address).await.map(Stream::to_proxy).map_err(|error| failed(&error))
        }
        (Kind::Http, _) => {
            let mut tunnel = Tunnel::new(address, dialled);
            if let Some(authorization) = proxy.authorization() {
                tunnel = tunnel.with_auth(authorization.clone());
            }
            tunnel.oneshot(server.clone()).await.map(Stream::to_server).map_err(|error| failed(&error))
        }
    }
}

/// A byte stream for hyper-util's client, to a server or to a proxy that reads the requests.
#[derive(Debug)]
pub(super) struct Stream<IO> {
    io: IO,
    to_proxy: bool,
}

impl<IO> Stream<IO> {
    /// Creates a stream to the server, directly or through a tunnel.
    pub(super) fn to_server(io: IO) -> Self {
        Self { io, to_proxy: false }
    }

    /// Creates a stream to a proxy that reads and forwards requests. hyper-util then puts the server's URL into each
    /// request.
    pub(super) fn to_proxy(io: IO) -> Self {
        Self { io, to_proxy: true }
    }
}

impl<IO> Connection for Stream<IO> {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.to_proxy)
    }
}

impl<IO: Read + Unpin> Read for Stream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<IO: Write + Unpin> Write for Stream<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exempt(server: &str, no_proxy: &str) -> bool {
        is_exempt(&server.parse().unwrap(), no_proxy)
    }

    fn chosen(server: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            variables
                .iter()
                .find(|(variable_name, _)| *variable_name == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Proxy::from_environment(&server.parse().unwrap(), variable)
            .unwrap()
            .map(|proxy| proxy.address.to_string())
    }

    #[test]
    fn server_scheme_selects_the_variable_and_upper_case_wins() {
        let both = [("HTTPS_PROXY", "http://secure:3128"), ("HTTP_PROXY", "http://plain:3128")];
        assert_eq!(chosen("https://api:6443", &both).as_deref(), Some("http://secure:3128/"));
        assert_eq!(chosen("http://api:8080", &both).as_deref(), Some("http://plain:3128/"));
        assert_eq!(chosen("http://api:8080", &both[..1]), None);
        let cases = [("https_proxy", "low:1"), ("HTTPS_PROXY", "http://up:1")];
        assert_eq!(chosen("https://api", &cases).as_deref(), Some("http://up:1/"));
        assert_eq!(chosen("https://api", &cases[..1]).as_deref(), Some("http://low:1/"));
        let empty = [("HTTPS_PROXY", ""), ("https_proxy", "http://low:1")];
        assert_eq!(chosen("https://api", &empty).as_deref(), Some("http://low:1/"));
        let exempt = [("HTTPS_PROXY", "http://up:1"), ("no_proxy", "api"), ("NO_PROXY", "other")];
        assert_eq!(chosen("https://api", &exempt).as_deref(), Some("http://up:1/"));
        assert_eq!(chosen("https://api", &exempt[..2]), None);
    }

    #[test]
    fn server_on_this_machine_is_exempt() {
        for server in ["https://localhost:6443", "https://127.0.0.1", "https://127.9.9.9", "https://[::1]:1"]
        {
            assert!(exempt(server, ""), "{server}");
        }
        for server in ["https://localhost.example.com", "https://10.0.0.1", "https://[::2]"] {
            assert!(!exempt(server, ""), "{server}");
        }
    }

    #[test]
    fn no_proxy_matches_domains_addresses_and_networks() {
        let cases = [
            ("https://foo.com", "foo.com", true),
            ("https://bar.foo.com", "foo.com", true),
            ("https://FOO.com", "Foo.COM", true),
            ("https://barfoo.com", "foo.com", false),
            ("https://foo.com", ".foo.com", true),
            ("https://bar.foo.com:6443", ".foo.com", true),
            ("https://bar.foo.com", "*.foo.com", true),
            ("https://foo.com.evil.org", "foo.com", false),
            ("https://foo.com", " a.com , foo.com ", true),
            ("https://10.1.2.3:6443", "10.1.2.3", true),
            ("https://10.1.2.3", "10.0.0.0/8", true),
            ("https://11.1.2.3", "10.0.0.0/8", false),
            ("https://api.10.0.0.1", "10.0.0.0/8", false),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://[fd00::1]:6443", "fd00::1", true),
            ("https://10.1.2.3", ".3", false),
            ("https://anything", "*", true),
            ("https://foo.com", "", false),
            ("https://foo.com", ",,:443, ", false),
        ];
        for (server, no_proxy, expected) in cases {
            assert_eq!(exempt(server, no_proxy), expected, "{server} {no_proxy:?}");
        }
    }

    #[test]
    fn proxy_has_kind_address_and_login() {
        let parse = |url| Proxy::parse(url, "proxy-url");
        let address = |url| parse(url).unwrap().address.to_string();
        assert_eq!(address("http://proxy"), "http://proxy:80/");
        assert_eq!(address("https://proxy"), "https://proxy:443/");
        assert_eq!(address("http://proxy:3128/path"), "http://proxy:3128/");
        assert_eq!(address("socks5h://proxy"), "http://proxy:1080/");
        let socks = parse("socks5://me:p%40ss@proxy").unwrap();
        assert_eq!((socks.kind, socks.login()), (Kind::Socks5, Some(("me", "p@ss"))));
        let with_login = parse("http://me:p%40ss%3A@proxy:3128").unwrap();
        assert_eq!(with_login.authorization().unwrap(), "Basic bWU6cEBzczo=");
        assert_eq!(with_login.authority(), "proxy:3128");
        for secret in ["p@ss", "p%40ss", "bWU6"] {
            assert!(!format!("{socks:?} {with_login:?}").contains(secret));
        }
        assert_eq!(parse("http://proxy:3128").unwrap().authorization(), None);
    }

    #[test]
    fn invalid_proxy_is_rejected_by_name_without_its_password() {
        for url in [
            "http://",
            "proxy",
            "http://a b",
            "/etc",
            "http://me:s3cret^@proxy",
            "ftp://me:s3cret@proxy",
            "socks4://me:s3cret@proxy",
        ] {
            let error = Proxy::parse(url, "HTTPS_PROXY").unwrap_err().to_string();
            assert!(error.starts_with("HTTPS_PROXY is not the URL of a proxy: "), "{url}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
