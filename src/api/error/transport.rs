//! Failures below HTTP, in the words of Go's net and crypto packages.

use std::error::Error;
use std::io;

use http::Uri;

use super::ApiError;
use crate::api::call::Call;
use crate::api::connect::{CredentialError, TunnelError};
use crate::api::gate::Refusal;

impl ApiError {
    /// From a failure of the client stack. `base` is the server's URL.
    pub(in crate::api) fn from_stack(
        call: &Call,
        base: &Uri,
        error: &(dyn Error + Send + Sync + 'static),
    ) -> Self {
        if let Some(refusal) = chain(error).find_map(|cause| cause.downcast_ref::<Refusal>()) {
            return Self::Refused(*refusal);
        }
        let (op, url) = (op(call), url(call, base));
        if let Some(CredentialError::Account(error)) =
            chain(error).find_map(|cause| cause.downcast_ref::<CredentialError>())
        {
            // The request was not sent. What the server said about the token must not pass for an answer to it.
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

    /// From a request that took too long.
    pub(in crate::api) fn timed_out(call: &Call, base: &Uri) -> Self {
        Self::Timeout { op: op(call), url: url(call, base) }
    }

    /// From an answer that broke off.
    pub(in crate::api) fn from_body(error: &(dyn Error + Send + Sync + 'static)) -> Self {
        Self::Body(body(error))
    }
}

/// `Get` of GET.
fn op(call: &Call) -> String {
    let mut op = call.method.as_str().to_ascii_lowercase();
    if let Some(first) = op.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    op
}

fn url(call: &Call, base: &Uri) -> String {
    format!("{}{}", base.to_string().trim_end_matches('/'), call.path)
}

fn chain<'a>(
    error: &'a (dyn Error + Send + Sync + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    fn source<'a>(cause: &&'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
        (*cause).source()
    }
    std::iter::successors(Some(error as &(dyn Error + 'static)), source)
}

/// The innermost I/O error; an io::Error may itself wrap another error, which `source` then passes over.
fn io_error<'a>(error: &'a (dyn Error + Send + Sync + 'static)) -> Option<&'a io::Error> {
    chain(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).last()
}

fn tls_error<'a>(error: &'a (dyn Error + Send + Sync + 'static)) -> Option<&'a rustls::Error> {
    chain(error).find_map(|cause| {
        cause.downcast_ref::<rustls::Error>().or_else(|| tls_within(cause.downcast_ref::<io::Error>()?))
    })
}

/// I/O errors wrap one another, and `source` passes over what they wrap.
fn tls_within(error: &io::Error) -> Option<&rustls::Error> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<rustls::Error>().or_else(|| tls_within(inner.downcast_ref::<io::Error>()?))
}

/// Whether a handshake ended because one side refused the other's certificate.
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

/// What went wrong while a connection to `to` was made.
pub(in crate::api) fn describe_connecting(error: &(dyn Error + Send + Sync + 'static), to: &Uri) -> String {
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
    body(error)
}

/// Go names the address that was tried; hyper-util keeps it to itself but for its Debug form.
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

fn body(error: &(dyn Error + Send + Sync + 'static)) -> String {
    if let Some(io) = io_error(error) {
        return match io.kind() {
            io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
            io::ErrorKind::BrokenPipe => "write: broken pipe".to_owned(),
            io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
            io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
            _ => io.to_string(),
        };
    }
    let hyper = chain(error).find_map(|cause| cause.downcast_ref::<hyper::Error>());
    match hyper {
        // The end of the connection in the middle of a message is what Go calls an unexpected EOF.
        Some(error) if error.is_incomplete_message() || error.is_closed() => "unexpected EOF".to_owned(),
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
                other => other.to_string(),
            };
            format!("tls: failed to verify certificate: x509: {why}")
        }
        other => format!("tls: {other}"),
    }
}
