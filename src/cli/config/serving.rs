//! Checks of the flags of the secure port.

#![allow(clippy::needless_pass_by_value, reason = "a check consumes the value of its flag")]

use std::net::{IpAddr, SocketAddr};

use rustls::{CipherSuite, NamedGroup};

use crate::cli::error::Reason;
use crate::serve::options::OpenPaths;
use crate::serve::tls::options::{self, Supported};

pub(in crate::cli) fn port(port: i64) -> Result<u16, Reason> {
    u16::try_from(port).map_err(|_| Reason::MustBe("between 0 and 65535; 0 disables the port"))
}

pub(in crate::cli) fn port_above_zero(port: i64) -> Result<u16, Reason> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0);
    port.ok_or(Reason::MustBe("between 1 and 65535"))
}

pub(in crate::cli) fn advertised(address: String) -> Result<Option<IpAddr>, Reason> {
    match address.parse::<IpAddr>() {
        _ if address.is_empty() => Ok(None),
        Ok(address) if !address.is_unspecified() => Ok(Some(address)),
        _ => Err(Reason::MustBe("an IP address that other replicas can reach")),
    }
}

/// The port has no authentication, so it must not be reachable from other hosts.
pub(in crate::cli) fn health_address(address: String) -> Result<Option<SocketAddr>, Reason> {
    match address.parse::<SocketAddr>() {
        _ if address.is_empty() => Ok(None),
        Ok(address) if address.ip().to_canonical().is_loopback() => Ok(Some(address)),
        Ok(_) => Err(Reason::MustBe(
            "a loopback address, because the port has no authentication; use --secure-port for other addresses",
        )),
        Err(_) => Err(Reason::MustBe("an IP address and a port, such as 127.0.0.1:8080")),
    }
}

pub(in crate::cli) fn minimum_tls(version: String) -> Result<(bool, Option<String>), Reason> {
    let allowed = "VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13";
    options::minimum(&version).ok_or(Reason::MustBe(allowed))
}

pub(in crate::cli) fn cipher_suites(names: Vec<String>) -> Result<Supported<CipherSuite>, Reason> {
    Ok(options::suites(&names)?)
}

pub(in crate::cli) fn curves(numbers: Vec<i64>) -> Result<Supported<NamedGroup>, Reason> {
    // 0 stands for a number out of range, because rustls supports no group 0.
    let numbers: Vec<u16> = numbers.into_iter().map(|number| number.try_into().unwrap_or(0)).collect();
    Ok(options::groups(&numbers)?)
}

pub(in crate::cli) fn open_paths(paths: Vec<String>) -> Result<OpenPaths, Reason> {
    Ok(OpenPaths::parse(&paths)?)
}

/// Checks names of headers, and returns them in lower case.
pub(in crate::cli) fn header_names(names: Vec<String>) -> Result<Vec<String>, Reason> {
    let names: Vec<_> = names.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    if names.iter().any(String::is_empty) { Err(Reason::EmptyHeader) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_address_must_be_loopback() {
        assert!(
            health_address("127.0.0.1:0".to_owned()).is_ok()
                && health_address("[::1]:8080".to_owned()).is_ok()
        );
        for outside in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80"] {
            assert!(
                health_address(outside.to_owned())
                    .unwrap_err()
                    .to_string()
                    .starts_with("must be a loopback address"),
                "{outside}"
            );
        }
    }
}
