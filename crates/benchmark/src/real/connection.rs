//! Connections to the API server with HTTP/1.1 or HTTP/2, for requests with handcrafted bodies.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Uri, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::Failure;
use crate::scrape::trusting;

/// The HTTP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http {
    /// One connection for each request in flight.
    One,
    /// One connection for all requests.
    Two,
}

/// The address of the server and the credentials for it.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// `127.0.0.1:PORT`.
    pub(super) address: String,
    pub(super) token: String,
}

/// Sends one request at a time.
pub(super) enum Connection {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Server {
    /// Opens `count` senders for parallel requests.
    pub(super) async fn connect(&self, http: Http, count: usize) -> Result<Vec<Connection>, Failure> {
        let mut connections = Vec::new();
        for _ in 0..count {
            if let Some(Connection::Two(sender)) = connections.first() {
                let sender = sender.clone();
                connections.push(Connection::Two(sender));
                continue;
            }
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let mut config = trusting()?.with_no_client_auth();
            config.alpn_protocols = match http {
                Http::One => Vec::new(),
                Http::Two => vec![b"h2".to_vec()],
            };
            let name = ServerName::try_from("localhost")?;
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
            let stream = TokioIo::new(stream);
            connections.push(match http {
                Http::One => {
                    let (sender, connection) = http1::handshake(stream).await?;
                    tokio::spawn(connection);
                    Connection::One(sender)
                }
                Http::Two => {
                    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                    tokio::spawn(connection);
                    Connection::Two(sender)
                }
            });
        }
        Ok(connections)
    }

    /// Builds a request. The request and response bodies have the same media type.
    pub(super) fn request(
        &self,
        http: Http,
        method: Method,
        path: &str,
        media: &str,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let request = Request::builder()
            .method(method)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(ACCEPT, media)
            .header(CONTENT_TYPE, media);
        let request = match http {
            Http::One => request.uri(path).header(HOST, &self.address),
            Http::Two => {
                let uri = Uri::builder().scheme("https").authority(&*self.address).path_and_query(path);
                request.uri(uri.build()?).version(Version::HTTP_2)
            }
        };
        Ok(request.body(Full::new(body.into()))?)
    }
}

impl Connection {
    /// Sends a request. Returns the body of a successful response.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Bytes, Failure> {
        let response = match self {
            Self::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Two(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(body)
    }
}
