//! Chooses a proxy by the rules of client-go, which uses Go's `golang.org/x/net/http/httpproxy`.
//!
//! A `proxy-url` in the kubeconfig takes precedence. Otherwise the environment decides: `HTTPS_PROXY` for a
//! server at `https://`, `HTTP_PROXY` for a server at `http://`. Upper case takes precedence over lower case.
//! A server on this machine or in `NO_PROXY` gets no proxy.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use ipnet::IpNet;
use percent_encoding::percent_decode_str;

/// An unusable proxy. `Display` is one line with advice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// The value is not a URL. The error omits it because it may contain a password.
    #[error("{origin} is not the URL of a proxy: use one such as http://proxy.example.com:3128")]
    NotAUrl {
        /// The source of the value.
        origin: String,
    },
    /// The scheme is not supported.
    #[error(
        "{origin}: proxies of the kind {scheme}:// are not supported: use http://, https:// or socks5://"
    )]
    Scheme {
        /// The source of the value.
        origin: String,
        /// The scheme of the URL.
        scheme: String,
    },
}

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// HTTP, over TCP or TLS.
    Http,
    /// SOCKS 5. The proxy resolves names.
    Socks5,
}

/// A proxy in front of the server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) kind: Kind,
    /// Scheme (`http` or `https`), host and port to dial.
    pub(super) address: Uri,
    /// User and password.
    login: Option<(String, String)>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("kind", &self.kind)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// Parses the URL of a proxy. `origin` names its source in errors.
    pub(super) fn parse(url: &str, origin: &str) -> Result<Self, ProxyError> {
        let wrong = || ProxyError::NotAUrl { origin: origin.to_owned() };
        let uri = url.parse::<Uri>().map_err(|_| wrong())?;
        let (kind, scheme, port) = match uri.scheme_str().ok_or_else(wrong)? {
            "http" => (Kind::Http, "http", 80),
            "https" => (Kind::Http, "https", 443),
            "socks5" | "socks5h" => (Kind::Socks5, "http", 1080),
            scheme => {
                return Err(ProxyError::Scheme { origin: origin.to_owned(), scheme: scheme.to_owned() });
            }
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let port = uri.port_u16().unwrap_or(port);
        let login =
            uri.authority().and_then(|authority| authority.as_str().rsplit_once('@')).map(|(login, _)| {
                let decode = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                (decode(user), decode(password))
            });
        let address = format!("{scheme}://{host}:{port}/").parse().map_err(|_| wrong())?;
        Ok(Self { kind, address, login })
    }

    /// The environment's proxy for `server`.
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

    /// `host:port` of the proxy.
    pub(super) fn authority(&self) -> &str {
        self.address.authority().map_or("", |authority| authority.as_str())
    }

    /// User and password.
    pub(super) fn login(&self) -> Option<(&str, &str)> {
        self.login.as_ref().map(|(user, password)| (user.as_str(), password.as_str()))
    }

    /// The `Proxy-Authorization` header, if the URL has a user.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        self.login().map(|(user, password)| basic(user, password))
    }
}

/// A header value for basic authentication.
pub(super) fn basic(user: &str, password: &str) -> HeaderValue {
    let text = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    // Base64 is always a valid header value.
    let mut value = HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// Host (in lower case, without brackets) and port of a server.
fn host_and_port(server: &Uri) -> (String, u16) {
    let host = server.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let default = if server.scheme_str() == Some("http") { 80 } else { 443 };
    (host.to_ascii_lowercase(), server.port_u16().unwrap_or(default))
}

/// Whether the server is exempt from the environment's proxy: it is on this machine, or `NO_PROXY` lists it.
/// Invalid entries are ignored.
fn is_exempt(server: &Uri, no_proxy: &str) -> bool {
    let (host, port) = host_and_port(server);
    let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    // Go compares `localhost` case-sensitively.
    if server.host() == Some("localhost") || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    no_proxy.split(',').any(|entry| matches_entry(entry.trim(), &host, port, address))
}

/// Whether one entry of `NO_PROXY` matches a host. Entries are `*`, a network such as `10.0.0.0/8`, or an
/// address or a domain with an optional port. `example.com` matches itself and its subdomains. `.example.com`
/// and `*.example.com` match only subdomains.
fn matches_entry(entry: &str, host: &str, port: u16, address: Option<IpAddr>) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(network) = entry.parse::<IpNet>() {
        return address.is_some_and(|address| contains(&network, address));
    }
    let (name, only_port) = split_port(entry);
    if only_port.is_some_and(|only| only != port.to_string()) {
        return false;
    }
    if let Ok(listed) = name.parse::<IpAddr>() {
        return address == Some(listed.to_canonical());
    }
    if name.is_empty() || address.is_some() {
        return false;
    }
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(&name);
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
    }
}

/// Whether an address is in a network. A network of mapped addresses (`::ffff:10.0.0.0/104`) contains IPv4
/// addresses.
fn contains(network: &IpNet, address: IpAddr) -> bool {
    match (network, address) {
        (IpNet::V6(network), IpAddr::V4(address)) => {
            network.addr().to_ipv4_mapped().is_some() && network.contains(&address.to_ipv6_mapped())
        }
        _ => network.contains(&address),
    }
}

/// Splits `host:port` and `[address]:port`. A value with more colons is an address without a port. An empty
/// port matches any port.
fn split_port(entry: &str) -> (&str, Option<&str>) {
    match entry.rsplit_once(':') {
        Some((name, port)) if name.starts_with('[') || !name.contains(':') => {
            let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
            (name, Some(port).filter(|port| !port.is_empty()))
        }
        _ => (entry, None),
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
        let cases = [("https_proxy", "http://low:1"), ("HTTPS_PROXY", "http://up:1")];
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
        for server in
            ["https://localhost.example.com", "https://10.0.0.1", "https://[::2]", "https://LOCALHOST"]
        {
            assert!(!exempt(server, ""), "{server}");
        }
    }

    /// The table of Go's httpproxy: https://pkg.go.dev/golang.org/x/net/http/httpproxy#Config
    #[test]
    fn no_proxy_matches_domains_addresses_and_networks_with_ports() {
        let cases = [
            ("https://foo.com", "foo.com", true),
            ("https://bar.foo.com", "foo.com", true),
            ("https://FOO.com", "Foo.COM", true),
            ("https://barfoo.com", "foo.com", false),
            ("https://foo.com", ".foo.com", false),
            ("https://bar.foo.com", ".foo.com", true),
            ("https://foo.com", "*.foo.com", false),
            ("https://bar.foo.com", "*.foo.com", true),
            ("https://foo.com.evil.org", "foo.com", false),
            ("https://foo.com", " a.com , foo.com ", true),
            ("https://foo.com", "foo.com:443", true),
            ("https://foo.com:6443", "foo.com:443", false),
            ("http://foo.com", "foo.com:80", true),
            ("https://foo.com:6443", "foo.com:6443", true),
            ("https://bar.foo.com:6443", ".foo.com:6443", true),
            ("https://foo.com", "foo.com:", true),
            ("https://10.1.2.3:6443", "10.1.2.3", true),
            ("https://10.1.2.3:6443", "10.1.2.3:6443", true),
            ("https://10.1.2.3:6443", "10.1.2.3:443", false),
            ("https://10.1.2.3", "10.0.0.0/8", true),
            ("https://11.1.2.3", "10.0.0.0/8", false),
            ("https://api.10.0.0.1", "10.0.0.0/8", false),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://[fd00::1]:6443", "fd00::1", true),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "[fd00::1]:443", false),
            ("https://[::ffff:10.0.0.1]", "10.0.0.0/8", true),
            ("https://10.0.0.1", "::ffff:10.0.0.0/104", true),
            ("https://10.1.2.3", ".3", false),
            ("https://anything", "*", true),
            ("https://10.1.2.3", "a,*", true),
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
        assert_eq!(parse("socks5://proxy").unwrap().kind, Kind::Socks5);
        assert_eq!(address("socks5h://proxy"), "http://proxy:1080/");
        let with_login = parse("http://me:p%40ss%3A@proxy:3128").unwrap();
        assert_eq!(with_login.login(), Some(("me", "p@ss:")));
        assert_eq!(with_login.authorization().unwrap(), "Basic bWU6cEBzczo=");
        assert_eq!(with_login.authority(), "proxy:3128");
        assert!(!format!("{with_login:?}").contains("p@ss"));
        assert_eq!(parse("http://proxy:3128").unwrap().authorization(), None);
    }

    #[test]
    fn invalid_proxy_is_rejected_by_name_without_its_password() {
        let error = |url| Proxy::parse(url, "HTTPS_PROXY").unwrap_err().to_string();
        assert_eq!(
            error("ftp://me:s3cret@proxy"),
            "HTTPS_PROXY: proxies of the kind ftp:// are not supported: use http://, https:// or socks5://"
        );
        for url in ["http://", "proxy", "http://a b", "/etc", "http://me:s3cret^@proxy"] {
            assert!(
                error(url).starts_with("HTTPS_PROXY is not the URL of a proxy: "),
                "{url}: {}",
                error(url)
            );
        }
    }
}
