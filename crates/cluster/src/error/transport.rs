//! The errors of failures below HTTP, with the texts of Go's net and crypto packages.

use std::error::Error;
use std::io;

use http::Uri;

use super::ApiError;
use super::connecting::{CredentialError, TunnelError};
use crate::call::Call;
use crate::gate::Refusal;

impl ApiError {
    /// Creates the error for a failure of the client's service. `base` is the server's URL.
    pub(crate) fn from_stack(call: &Call, base: &Uri, error: &(dyn Error + Send + Sync + 'static)) -> Self {
        if let Some(refusal) = chain(error).find_map(|cause| cause.downcast_ref::<Refusal>()) {
            return Self::Refused(*refusal);
        }
        let (op, url) = (op(call), url(call, base));
        if let Some(CredentialError::Account(error)) =
            chain(error).find_map(|cause| cause.downcast_ref::<CredentialError>())
        {
            // `call` was not sent. The response to the token request must not be reported as a response to `call`.
            return match &*error.error {
                error @ (Self::Certificate { .. } | Self::Connect { .. }) => error.clone(),
                _ => Self::Connect { op, url, message: error.to_string() },
            };
        }
        let connect = chain(error).any(|cause| {
            cause
                .downcast_ref::<hyper_util::client::legacy::Error>()
                .is_some_and(hyper_util::client::legacy::Error::is_connect)
        });
        let message = describe(error, base, connect);
        if tls_error(error).is_some_and(is_about_certificates) {
            return Self::Certificate { op, url, message };
        }
        if connect { Self::Connect { op, url, message } } else { Self::Transport { op, url, message } }
    }

    /// Creates the error for a request that exceeded its time limit.
    pub(crate) fn timed_out(call: &Call, base: &Uri) -> Self {
        Self::Timeout { op: op(call), url: url(call, base) }
    }

    /// Creates the error for a response that ended early.
    pub(crate) fn from_body(error: &(dyn Error + Send + Sync + 'static)) -> Self {
        // Go reports a connection that ends in the middle of a message as an unexpected EOF.
        Self::Body(describe_broken(error, "unexpected EOF"))
    }
}

/// Returns whether the connection was closed or reset before the response. client-go then retries a GET. False for a
/// refused connection and for an invalid response.
pub(crate) fn is_broken(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let not_sent = |cause: &(dyn Error + 'static)| cause.is::<Refusal>() || cause.is::<CredentialError>();
    if chain(error).any(not_sent) {
        return false;
    }
    if let Some(io) = io_error(error) {
        return matches!(
            io.kind(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
        );
    }
    chain(error)
        .filter_map(|cause| cause.downcast_ref::<hyper::Error>())
        .any(|error| error.is_incomplete_message() || error.is_closed() || error.is_canceled())
}

/// Returns Go's name for the method, such as `Get` for GET.
fn op(call: &Call) -> String {
    let mut op = call.method.as_str().to_ascii_lowercase();
    if let Some(first) = op.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    op
}

/// Returns the URL without `fieldManager`, which upstream does not set.
fn url(call: &Call, base: &Uri) -> String {
    let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
    let mut url = format!("{}{path}", base.to_string().trim_end_matches('/'));
    let parameters = query.split('&').filter(|one| !one.is_empty() && !one.starts_with("fieldManager="));
    for (index, parameter) in parameters.enumerate() {
        url.push(if index == 0 { '?' } else { '&' });
        url.push_str(parameter);
    }
    url
}

fn chain<'a>(
    error: &'a (dyn Error + Send + Sync + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    fn source<'a>(cause: &&'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
        (*cause).source()
    }
    std::iter::successors(Some(error as &(dyn Error + 'static)), source)
}

/// Returns the innermost I/O error in the chain of sources.
fn io_error<'a>(error: &'a (dyn Error + Send + Sync + 'static)) -> Option<&'a io::Error> {
    chain(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).last()
}

fn tls_error<'a>(error: &'a (dyn Error + Send + Sync + 'static)) -> Option<&'a rustls::Error> {
    chain(error).find_map(|cause| {
        cause.downcast_ref::<rustls::Error>().or_else(|| tls_within(cause.downcast_ref::<io::Error>()?))
    })
}

/// Returns the TLS error within an `io::Error`, at any depth. `io::Error::source` skips the wrapped error.
fn tls_within(error: &io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<rustls::Error>().or_else(|| tls_within(inner.downcast_ref::<io::Error>()?))
}

/// Returns whether a handshake failed because a certificate is missing or was refused by the client or the server.
fn is_about_certificates(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => true,
        rustls::Error::AlertReceived(alert) => matches!(
            alert,
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::CertificateRequired
                | Alert::UnknownCA
                | Alert::AccessDenied
        ),
        _ => false,
    }
}

/// Describes the cause of a failed connection to `to`.
pub(crate) fn describe_connecting(error: &(dyn Error + Send + Sync + 'static), to: &Uri) -> String {
    describe(error, to, true)
}

fn describe(error: &(dyn Error + Send + Sync + 'static), base: &Uri, connect: bool) -> String {
    if let Some(tunnel) = chain(error).find_map(|cause| cause.downcast_ref::<TunnelError>()) {
        return tunnel.to_string();
    }
    if let Some(tls) = tls_error(error) {
        return describe_tls(tls);
    }
    if chain(error).any(|cause| cause.to_string() == "dns error") {
        return format!("dial tcp: lookup {}: no such host", base.host().unwrap_or_default());
    }
    if let (true, Some(io)) = (connect, io_error(error)) {
        return format!("dial tcp {}: {}", address(error, base), describe_dial(io));
    }
    // Go reports a connection that ends before the response as an EOF.
    describe_broken(error, "EOF")
}

/// Returns the dialed address, as Go prints it. hyper-util exposes the address only in its `Debug` output.
fn address(error: &(dyn Error + Send + Sync + 'static), base: &Uri) -> String {
    let tried = chain(error).find_map(|cause| {
        let debug = format!("{cause:?}");
        let from = debug.strip_prefix("ConnectError(\"tcp connect error\", ")?;
        from.split(", ").next()?.parse::<std::net::SocketAddr>().ok()
    });
    tried.map_or_else(
        || {
            let port =
                base.port_u16().unwrap_or_else(|| if base.scheme_str() == Some("http") { 80 } else { 443 });
            format!("{}:{port}", base.host().unwrap_or_default())
        },
        |address| address.to_string(),
    )
}

fn describe_dial(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        _ => error.to_string(),
    }
}

/// Describes the cause of a failure on an open connection. `end` is the text for a closed connection.
fn describe_broken(error: &(dyn Error + Send + Sync + 'static), end: &str) -> String {
    if let Some(io) = io_error(error) {
        return match io.kind() {
            io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
            io::ErrorKind::BrokenPipe => "write: broken pipe".to_owned(),
            io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
            io::ErrorKind::UnexpectedEof => end.to_owned(),
            _ => io.to_string(),
        };
    }
    let hyper = chain(error).find_map(|cause| cause.downcast_ref::<hyper::Error>());
    match hyper {
        Some(error) if error.is_incomplete_message() || error.is_closed() => end.to_owned(),
        Some(error) if error.is_canceled() => "http: server closed idle connection".to_owned(),
        Some(error) => error.to_string(),
        None => chain(error).last().map(ToString::to_string).unwrap_or_default(),
    }
}

fn describe_tls(error: &rustls::Error) -> String {
    use rustls::CertificateError as C;

    match error {
        rustls::Error::InvalidCertificate(why) => {
            let why = match why {
                C::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
                C::Expired | C::ExpiredContext { .. } | C::NotValidYet | C::NotValidYetContext { .. } => {
                    "certificate has expired or is not yet valid".to_owned()
                }
                // The type of the cause is that of a private dependency of rustls. Its text is the name of a variant.
                C::Other(cause) if cause.0.to_string() == "CaUsedAsEndEntity" => {
                    "the server presents the certificate of an authority (CA:TRUE); it needs one that the authority \
                     signed for servers"
                        .to_owned()
                }
                other => other.to_string(),
            };
            format!("tls: failed to verify certificate: x509: {why}")
        }
        other => format!("tls: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn server_with_the_certificate_of_an_authority_is_explained() {
        let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let outcome = verifier.verify_server_cert(certificate.der(), &[], &name, &[], UnixTime::now());
        let text = describe_tls(&outcome.unwrap_err());
        assert!(text.starts_with("tls: failed to verify certificate: x509: the server presents"), "{text}");
    }
}
