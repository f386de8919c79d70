//! What is served, where, with which certificate, and to whom.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::reader::{Reader, WRONG_TYPE};
use crate::cli::flags::FlagError;
use crate::cli::values::Value;
use crate::serve::tls::options::{self, Supported, TlsOptions};

/// The flags of the sections Secure serving, Authentication and Authorization.
#[derive(Debug, Clone, PartialEq)]
pub struct Serving {
    /// `--bind-address`.
    pub address: IpAddr,
    /// `--secure-port`; 0: nothing is served there.
    pub port: u16,
    /// `--advertise-address`: where other replicas reach this one; none: that is found out.
    pub advertised: Option<IpAddr>,
    /// `--permit-port-sharing`.
    pub share_port: bool,
    /// `--health-address`, a loopback address: health, metrics and decisions without TLS, to whoever asks.
    pub plain: Option<SocketAddr>,
    /// The certificate that is shown unless one of `sni` fits; none: one of our own making.
    pub certificate: Option<CertificateFiles>,
    /// `--cert-dir`: where the certificate is, if it is there and no files are named.
    pub certificate_dir: Option<PathBuf>,
    /// `--tls-sni-cert-key`: certificates by the name that the client asks for.
    pub sni: Vec<NamedCertificate>,
    /// `--tls-min-version`, `--tls-cipher-suites`, `--tls-curve-preferences`.
    pub tls: TlsOptions,
    /// Who somebody is.
    pub authentication: Authentication,
    /// What somebody may see.
    pub authorization: Authorization,
    /// Every flag that was given, with its value, for `/flagz`.
    pub given: Vec<(String, String)>,
}

/// A certificate with the chain below it, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// `--tls-cert-file`: PEM, the server's certificate first.
    pub certificate: PathBuf,
    /// `--tls-private-key-file`: PEM.
    pub key: PathBuf,
}

/// A certificate for clients that ask for certain names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCertificate {
    /// The files.
    pub files: CertificateFiles,
    /// Names, of which a first label may be `*`; empty: those in the certificate.
    pub names: Vec<String>,
}

/// How it is found out who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// `--authentication-kubeconfig`: with whose rights; none: the controller's.
    pub kubeconfig: Option<PathBuf>,
    /// `--authentication-skip-lookup`: do not read the cluster's certificate authorities.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`: that they cannot be read is no warning.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`.
    pub token_ttl: Duration,
    /// `--client-ca-file`; none: from the cluster.
    pub client_ca: Option<PathBuf>,
    /// `--requestheader-client-ca-file` and what belongs to it; none: from the cluster.
    pub front_proxy: Option<FrontProxy>,
}

/// Proxies that authenticate for us and say in headers who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontProxy {
    /// `--requestheader-client-ca-file`: who signs their certificates.
    pub ca: PathBuf,
    /// How they tell.
    pub headers: FrontProxyHeaders,
}

/// Which proxies are believed, and which headers they set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FrontProxyHeaders {
    /// `--requestheader-allowed-names`: common names of proxies; empty: any that the authority has signed.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`, in lower case.
    pub user: Vec<String>,
    /// `--requestheader-uid-headers`, in lower case.
    pub uid: Vec<String>,
    /// `--requestheader-group-headers`, in lower case.
    pub group: Vec<String>,
    /// `--requestheader-extra-headers-prefix`, in lower case.
    pub extra_prefix: Vec<String>,
}

/// How it is found out what somebody may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// `--authorization-kubeconfig`: with whose rights; none: the controller's.
    pub kubeconfig: Option<PathBuf>,
    /// `--authorization-webhook-cache-authorized-ttl`.
    pub allowed_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`.
    pub denied_ttl: Duration,
    /// `--authorization-always-allow-paths`.
    pub open_paths: OpenPaths,
}

/// Paths that are answered to everybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPaths(Vec<String>);

impl Default for OpenPaths {
    fn default() -> Self {
        Self(["healthz", "readyz", "livez"].map(str::to_owned).into())
    }
}

impl OpenPaths {
    /// Reads the flag: whole paths, or the beginning of paths followed by `*`; a leading `/` may be left out.
    pub fn parse(paths: &[String]) -> Result<Self, String> {
        let trimmed = paths.iter().map(|path| path.strip_prefix('/').unwrap_or(path).to_owned());
        let paths: Vec<String> = trimmed.collect();
        match paths.iter().find(|path| path.strip_suffix('*').unwrap_or(path).contains('*')) {
            Some(path) => Err(format!("only trailing * allowed in {path:?}")),
            None => Ok(Self(paths)),
        }
    }

    /// Whether this path is answered to everybody.
    pub fn contain(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.0.iter().any(|open| match open.strip_suffix('*') {
            Some(beginning) => path.starts_with(beginning),
            None => open == path,
        })
    }
}

/// The files in `--cert-dir` have the names that kube-controller-manager gives them.
pub const CERTIFICATE_NAME: &str = "kube-controller-manager";

impl Default for Serving {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: 10257,
            advertised: None,
            share_port: false,
            plain: None,
            certificate: None,
            certificate_dir: None,
            sni: Vec::new(),
            tls: TlsOptions::default(),
            authentication: Authentication {
                kubeconfig: None,
                skip_lookup: false,
                tolerate_lookup_failure: false,
                token_ttl: Duration::from_secs(10),
                client_ca: None,
                front_proxy: None,
            },
            authorization: Authorization {
                kubeconfig: None,
                allowed_ttl: Duration::from_secs(10),
                denied_ttl: Duration::from_secs(10),
                open_paths: OpenPaths::default(),
            },
            given: Vec::new(),
        }
    }
}

impl Serving {
    /// What the flags ask for.
    pub(super) fn read(read: &Reader<'_>, warnings: &mut Vec<String>) -> Result<Self, FlagError> {
        Ok(Self {
            address: read.checked("bind-address", |value| match value {
                Value::Text(address) => address.parse().map_err(|_| "must be an IP address".to_owned()),
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            port: read.checked("secure-port", |value| match value {
                Value::Int(port) => {
                    u16::try_from(*port).map_err(|_| "must be between 0 and 65535, 0 turns it off".to_owned())
                }
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            advertised: read.checked("advertise-address", |value| match value {
                Value::Text(address) if address.is_empty() => Ok(None),
                Value::Text(address) => match address.parse::<IpAddr>() {
                    Ok(address) if !address.is_unspecified() => Ok(Some(address)),
                    _ => Err("must be an IP address that others can reach".to_owned()),
                },
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            share_port: switch(read, "permit-port-sharing")?,
            plain: read.checked("health-address", |value| match value {
                Value::Text(address) if address.is_empty() => Ok(None),
                Value::Text(address) => plain_address(address).map(Some),
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            certificate: certificate(read)?,
            certificate_dir: read.text("cert-dir").map(PathBuf::from),
            sni: read.checked("tls-sni-cert-key", |value| match value {
                Value::List(items) => items.iter().map(|item| named_certificate(item)).collect(),
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            tls: tls(read, warnings)?,
            authentication: authentication(read)?,
            authorization: Authorization {
                kubeconfig: read.text("authorization-kubeconfig").map(PathBuf::from),
                allowed_ttl: read.duration("authorization-webhook-cache-authorized-ttl")?,
                denied_ttl: read.duration("authorization-webhook-cache-unauthorized-ttl")?,
                open_paths: read.checked("authorization-always-allow-paths", |value| match value {
                    Value::List(paths) => OpenPaths::parse(paths),
                    _ => Err(WRONG_TYPE.to_owned()),
                })?,
            },
            given: read.raw.names().map(|name| (name.to_owned(), printed(read, name))).collect(),
        })
    }
}

/// A value as pflag prints it.
fn printed(read: &Reader<'_>, name: &str) -> String {
    match read.raw.value(name) {
        Some(Value::List(items)) => format!("[{}]", items.join(",")),
        Some(Value::Bool(on)) => on.to_string(),
        _ => read.raw.text(name).to_owned(),
    }
}

fn switch(read: &Reader<'_>, name: &'static str) -> Result<bool, FlagError> {
    read.checked(name, |value| Ok(*value == Value::Bool(true)))
}

/// Nobody is asked who he is there, so it must not be reached from outside.
fn plain_address(address: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        address.parse().map_err(|_| "must be an IP address and a port, such as 127.0.0.1:8080".to_owned())?;
    if address.ip().to_canonical().is_loopback() {
        Ok(address)
    } else {
        Err("must be a loopback address, as nobody is asked who he is there; --secure-port is for the rest"
            .to_owned())
    }
}

fn certificate(read: &Reader<'_>) -> Result<Option<CertificateFiles>, FlagError> {
    match (read.text("tls-cert-file"), read.text("tls-private-key-file")) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Ok(Some(CertificateFiles { certificate: certificate.into(), key: key.into() }))
        }
        (Some(_), None) => Err(read.invalid("tls-cert-file", "needs --tls-private-key-file".to_owned())),
        (None, Some(_)) => Err(read.invalid("tls-private-key-file", "needs --tls-cert-file".to_owned())),
    }
}

/// `certificate,key` or `certificate,key:name,*.name`; its form has been checked.
fn named_certificate(text: &str) -> Result<NamedCertificate, String> {
    let (files, names) = text.rsplit_once(':').unwrap_or((text, ""));
    let (certificate, key) =
        files.split_once(',').ok_or("expected comma separated certificate and key file paths")?;
    let names = names.split(',').map(|name| name.trim().to_ascii_lowercase());
    Ok(NamedCertificate {
        files: CertificateFiles { certificate: certificate.trim().into(), key: key.trim().into() },
        names: names.filter(|name| !name.is_empty()).collect(),
    })
}

fn tls(read: &Reader<'_>, warnings: &mut Vec<String>) -> Result<TlsOptions, FlagError> {
    let (only_tls13, warning) = read.checked("tls-min-version", |value| match value {
        Value::Text(version) => options::minimum(version),
        _ => Err(WRONG_TYPE.to_owned()),
    })?;
    warnings.extend(warning);
    let suites = read.checked("tls-cipher-suites", |value| match value {
        Value::List(names) => options::suites(names),
        _ => Err(WRONG_TYPE.to_owned()),
    })?;
    let groups = read.checked("tls-curve-preferences", |value| match value {
        Value::Text(numbers) => {
            let numbers = numbers.split(',').filter(|number| !number.is_empty());
            // What no registry can hold is no curve of rustls either.
            let numbers: Vec<u16> = numbers.map(|number| number.trim().parse().unwrap_or(0)).collect();
            options::groups(&numbers)
        }
        _ => Err(WRONG_TYPE.to_owned()),
    })?;
    Ok(TlsOptions {
        only_tls13,
        suites: kept("tls-cipher-suites", suites, warnings),
        groups: kept("tls-curve-preferences", groups, warnings),
    })
}

fn kept<T>(flag: &str, supported: Supported<T>, warnings: &mut Vec<String>) -> Vec<T> {
    if !supported.left_out.is_empty() {
        warnings
            .push(format!("--{flag}: {} left out: rustls has no such thing", supported.left_out.join(", ")));
    }
    supported.kept
}

fn authentication(read: &Reader<'_>) -> Result<Authentication, FlagError> {
    let lower = |name: &'static str| {
        read.checked(name, |value| match value {
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(|item| item.trim().to_ascii_lowercase()).collect();
                if items.iter().any(String::is_empty) {
                    Err("empty header \"\"".to_owned())
                } else {
                    Ok(items)
                }
            }
            _ => Err(WRONG_TYPE.to_owned()),
        })
    };
    let headers = FrontProxyHeaders {
        allowed_names: read.checked("requestheader-allowed-names", |value| match value {
            Value::List(names) => Ok(names.clone()),
            _ => Err(WRONG_TYPE.to_owned()),
        })?,
        user: lower("requestheader-username-headers")?,
        uid: lower("requestheader-uid-headers")?,
        group: lower("requestheader-group-headers")?,
        extra_prefix: lower("requestheader-extra-headers-prefix")?,
    };
    Ok(Authentication {
        kubeconfig: read.text("authentication-kubeconfig").map(PathBuf::from),
        skip_lookup: switch(read, "authentication-skip-lookup")?,
        tolerate_lookup_failure: switch(read, "authentication-tolerate-lookup-failure")?,
        token_ttl: read.duration("authentication-token-webhook-cache-ttl")?,
        client_ca: read.text("client-ca-file").map(PathBuf::from),
        front_proxy: read
            .text("requestheader-client-ca-file")
            .map(|ca| FrontProxy { ca: PathBuf::from(ca), headers }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(paths: &[&str]) -> Result<OpenPaths, String> {
        OpenPaths::parse(&paths.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn open_paths_are_whole_ones_or_beginnings() {
        let paths = open(&["/healthz", "metrics", "/readyz/*", "/"]).unwrap();
        for path in ["/healthz", "/metrics", "/readyz/", "/readyz/ping", "/"] {
            assert!(paths.contain(path), "{path}");
        }
        for path in ["/healthz/", "/healthz/ping", "/readyz", "/metric", "/livez"] {
            assert!(!paths.contain(path), "{path}");
        }
        assert_eq!(open(&["/a*b"]).unwrap_err(), "only trailing * allowed in \"a*b\"");
        assert!(open(&["/*"]).unwrap().contain("/anything"));
    }

    #[test]
    fn without_the_flag_health_is_open_and_nothing_else() {
        let paths = OpenPaths::default();
        assert!(paths.contain("/livez") && !paths.contain("/metrics") && !paths.contain("/livez/ping"));
    }

    #[test]
    fn only_loopback_addresses_are_served_without_a_check() {
        assert!(plain_address("127.0.0.1:0").is_ok() && plain_address("[::1]:8080").is_ok());
        for outside in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80"] {
            assert!(
                plain_address(outside).unwrap_err().starts_with("must be a loopback address"),
                "{outside}"
            );
        }
    }

    #[test]
    fn a_certificate_may_come_with_names() {
        let named = named_certificate("a.crt, a.key:Example.com,*.example.com").unwrap();
        assert_eq!(named.names, ["example.com", "*.example.com"]);
        assert_eq!(named.files.key, PathBuf::from("a.key"));
        assert!(named_certificate("a.crt,a.key").unwrap().names.is_empty());
    }
}
