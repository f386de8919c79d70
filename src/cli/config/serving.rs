//! Resolves the flags of the secure port.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::reader::{Reader, WRONG_TYPE};
use crate::cli::flags::FlagError;
use crate::cli::values::Value;
use crate::serve::options::{
    Authentication, Authorization, CertificateFiles, FrontProxy, FrontProxyHeaders, NamedCertificate,
    OpenPaths, Serving,
};
use crate::serve::tls::options::{self, Supported, TlsOptions};

/// Resolves the flags of the sections Secure serving, Authentication and Authorization.
pub(super) fn serving(read: &Reader<'_>, warnings: &mut Vec<String>) -> Result<Serving, FlagError> {
    Ok(Serving {
        address: read.checked("bind-address", |value| match value {
            Value::Text(address) => address.parse().map_err(|_| "must be an IP address".to_owned()),
            _ => Err(WRONG_TYPE.to_owned()),
        })?,
        port: read.checked("secure-port", |value| match value {
            Value::Int(port) => {
                u16::try_from(*port).map_err(|_| "must be between 0 and 65535, 0 disables it".to_owned())
            }
            _ => Err(WRONG_TYPE.to_owned()),
        })?,
        advertised: read.checked("advertise-address", |value| match value {
            Value::Text(address) if address.is_empty() => Ok(None),
            Value::Text(address) => match address.parse::<IpAddr>() {
                Ok(address) if !address.is_unspecified() => Ok(Some(address)),
                _ => Err("must be an IP address that other replicas can reach".to_owned()),
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

/// Formats the value as pflag prints it.
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

/// Parses `--health-address`. The port has no authentication, so it must not be reachable from other hosts.
fn plain_address(address: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        address.parse().map_err(|_| "must be an IP address and a port, such as 127.0.0.1:8080".to_owned())?;
    if address.ip().to_canonical().is_loopback() {
        Ok(address)
    } else {
        Err("must be a loopback address, as it has no authentication; use --secure-port for other addresses"
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

/// Parses `certificate,key` or `certificate,key:name,*.name`; [`super::super::values`] has checked the
/// syntax.
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
            // 0 stands for a number out of range, because rustls supports no such group.
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
            .push(format!("--{flag}: ignored {}: not supported by rustls", supported.left_out.join(", ")));
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

    #[test]
    fn health_address_must_be_loopback() {
        assert!(plain_address("127.0.0.1:0").is_ok() && plain_address("[::1]:8080").is_ok());
        for outside in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80"] {
            assert!(
                plain_address(outside).unwrap_err().starts_with("must be a loopback address"),
                "{outside}"
            );
        }
    }

    #[test]
    fn sni_certificate_may_have_names() {
        let named = named_certificate("a.crt, a.key:Example.com,*.example.com").unwrap();
        assert_eq!(named.names, ["example.com", "*.example.com"]);
        assert_eq!(named.files.key, PathBuf::from("a.key"));
        assert!(named_certificate("a.crt,a.key").unwrap().names.is_empty());
    }
}
