//! The configuration of the HTTPS server.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::tls::TlsOptions;

/// The flags of the sections Secure serving, Authentication and Authorization.
#[derive(Debug, Clone, PartialEq)]
pub struct Serving {
    /// `--bind-address`.
    pub address: IpAddr,
    /// `--secure-port`. 0 disables the port.
    pub port: u16,
    /// `--permit-port-sharing`.
    pub share_port: bool,
    /// `--health-address`: a loopback address that serves health, metrics and decisions without TLS and authentication.
    pub plain: Option<SocketAddr>,
    /// `--tls-cert-file` and `--tls-private-key-file`: the certificate for clients that request no name of `sni`. With
    /// `None`, the certificate in `certificate_dir` or a generated certificate is used.
    pub certificate: Option<CertificateFiles>,
    /// `--cert-dir`: the directory of the certificate if `certificate` is `None` and the files exist.
    pub certificate_dir: Option<PathBuf>,
    /// `--tls-sni-cert-key`: certificates by the name that the client requests (SNI).
    pub sni: Vec<NamedCertificate>,
    /// `--tls-min-version`, `--tls-cipher-suites`, `--tls-curve-preferences`.
    pub tls: TlsOptions,
    /// The configuration of authentication.
    pub authentication: Authentication,
    /// The configuration of authorization.
    pub authorization: Authorization,
    /// Every flag on the command line with its value, for `/flagz`.
    pub given: Vec<(String, String)>,
}

/// The files of a certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate chain in PEM, with the server's certificate first.
    pub certificate: PathBuf,
    /// The private key in PEM.
    pub key: PathBuf,
}

/// A certificate for clients that request one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCertificate {
    /// The files of the certificate.
    pub files: CertificateFiles,
    /// The names, with `*` allowed as the first label. If empty, the names in the certificate apply.
    pub names: Vec<String>,
}

impl NamedCertificate {
    /// Parses `certificate,key` or `certificate,key:name,*.name`.
    ///
    /// # Errors
    /// Returns the reason why the text has neither form.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const NO_FILES: &str = "expected comma separated certificate and key file paths";
        let (files, names) = text.split_once(':').map_or((text, None), |(files, names)| (files, Some(names)));
        if names.is_some_and(|names| names.trim().is_empty()) {
            return Err("empty names list is not allowed");
        }
        let [certificate, key] = files.split(',').map(str::trim).collect::<Vec<_>>()[..] else {
            return Err(NO_FILES);
        };
        if certificate.is_empty() || key.is_empty() {
            return Err(NO_FILES);
        }
        let names = names.map(|names| names.split(',').map(|name| name.trim().to_owned()).collect());
        Ok(Self {
            files: CertificateFiles { certificate: certificate.into(), key: key.into() },
            names: names.unwrap_or_default(),
        })
    }
}

impl fmt::Display for NamedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.files.certificate.display(), self.files.key.display())?;
        if self.names.is_empty() { Ok(()) } else { write!(f, ":{}", self.names.join(",")) }
    }
}

/// The configuration of authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// `--authentication-kubeconfig`: the credentials for token reviews. `None` means those of the controller.
    pub kubeconfig: Option<PathBuf>,
    /// `--authentication-skip-lookup`: whether the authorities of the cluster are not read.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`: whether a failed read of the authorities causes no warning.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`.
    pub token_ttl: Duration,
    /// `--client-ca-file`. `None` means the authorities of the cluster.
    pub client_ca: Option<PathBuf>,
    /// `--requestheader-client-ca-file` and the related flags. `None` means the front proxies of the cluster.
    pub front_proxy: Option<FrontProxy>,
}

/// Front proxies, which authenticate users and name them in headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontProxy {
    /// `--requestheader-client-ca-file`: the authority of the proxies' certificates.
    pub ca: PathBuf,
    /// The trusted proxies and the headers that they set.
    pub headers: FrontProxyHeaders,
}

/// The names of the trusted front proxies, and the headers that they set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FrontProxyHeaders {
    /// `--requestheader-allowed-names`: the common names of trusted proxies. If empty, every certificate of the
    /// authority is trusted.
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

/// The configuration of authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// `--authorization-kubeconfig`: the credentials for access reviews. `None` means those of the controller.
    pub kubeconfig: Option<PathBuf>,
    /// `--authorization-webhook-cache-authorized-ttl`.
    pub allowed_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`.
    pub denied_ttl: Duration,
    /// `--authorization-always-allow-paths`.
    pub open_paths: OpenPaths,
}

/// Paths that are served without authentication and authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPaths(Vec<String>);

/// The error for a path with a `*` before its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("only trailing * allowed in {0:?}")]
pub struct OpenPathsError(String);

impl Default for OpenPaths {
    fn default() -> Self {
        Self(["healthz", "readyz", "livez"].map(str::to_owned).into())
    }
}

impl OpenPaths {
    /// Parses `--authorization-always-allow-paths`. Each item is a whole path, or a prefix followed by `*`. A leading
    /// `/` may be omitted.
    ///
    /// # Errors
    /// Returns an error if a `*` occurs before the end of a path.
    pub fn parse(paths: &[String]) -> Result<Self, OpenPathsError> {
        let trimmed = paths.iter().map(|path| path.strip_prefix('/').unwrap_or(path).to_owned());
        let paths: Vec<String> = trimmed.collect();
        match paths.iter().find(|path| path.strip_suffix('*').unwrap_or(path).contains('*')) {
            Some(path) => Err(OpenPathsError(path.clone())),
            None => Ok(Self(paths)),
        }
    }

    /// Returns whether `path` is served without authentication and authorization.
    pub fn contain(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.0.iter().any(|open| match open.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => open == path,
        })
    }
}

/// The base name of the files in `--cert-dir`, the same as in kube-controller-manager.
pub const CERTIFICATE_NAME: &str = "kube-controller-manager";

impl Default for Serving {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: 10257,
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn open(paths: &[&str]) -> Result<OpenPaths, OpenPathsError> {
        OpenPaths::parse(&paths.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn open_paths_are_whole_paths_or_prefixes() {
        let paths = open(&["/healthz", "metrics", "/readyz/*", "/"]).unwrap();
        for path in ["/healthz", "/metrics", "/readyz/", "/readyz/ping", "/"] {
            assert!(paths.contain(path), "{path}");
        }
        for path in ["/healthz/", "/healthz/ping", "/readyz", "/metric", "/livez"] {
            assert!(!paths.contain(path), "{path}");
        }
        assert_eq!(open(&["/a*b"]).unwrap_err().to_string(), "only trailing * allowed in \"a*b\"");
        assert!(open(&["/*"]).unwrap().contain("/anything"));
    }

    #[test]
    fn default_open_paths_are_the_health_paths() {
        let paths = OpenPaths::default();
        assert!(paths.contain("/livez") && !paths.contain("/metrics") && !paths.contain("/livez/ping"));
    }

    #[test]
    fn sni_certificate_may_have_names() {
        let named = NamedCertificate::parse("a.crt, a.key:Example.com,*.example.com").unwrap();
        assert_eq!(named.names, ["Example.com", "*.example.com"]);
        assert_eq!(named.to_string(), "a.crt,a.key:Example.com,*.example.com");
        assert_eq!(named.files.key, Path::new("a.key"));
        assert!(NamedCertificate::parse("a.crt,a.key").unwrap().names.is_empty());
        assert_eq!(NamedCertificate::parse("a.crt,a.key:"), Err("empty names list is not allowed"));
    }
}
