//! A port of a pod as a byte stream over the kubelet's protocol `v4.channel.k8s.io`, which consists of binary
//! messages on a WebSocket.
//!
//! The first byte of a message is its channel. Channel 0 carries the port's bytes in both directions, and
//! channel 1 carries error texts. The kubelet's first message on each channel contains the port as two bytes,
//! little endian.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use futures::{Sink, Stream};
use http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL};
use http::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use ring::rand::SecureRandom;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// The protocol, which the kubelets of all supported versions serve.
pub(super) const PROTOCOL: &str = "v4.channel.k8s.io";

/// The channel that carries the port's bytes.
const DATA: u8 = 0;
/// The channel that carries error texts.
const ERRORS: u8 = 1;
/// Maximum size of a received message, in bytes. Kubelets send 32 KiB at a time.
const LARGEST_MESSAGE: usize = 1 << 20;
/// Maximum payload of a sent message, in bytes.
const PIECE: usize = 16 << 10;
/// The suffix that RFC 6455 appends to the key before hashing.
const APPENDIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The key of a WebSocket handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key(pub(super) String);

impl Key {
    pub(super) fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        let filled = ring::rand::SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| io::Error::other("the system's random number generator failed"))?;
        Ok(Self(STANDARD.encode(bytes)))
    }

    pub(super) fn accepted(&self) -> String {
        let text = format!("{}{APPENDIX}", self.0);
        let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        STANDARD.encode(hash)
    }

    /// Checks that a response accepts the handshake and [`PROTOCOL`].
    pub(super) fn check<B>(&self, answer: &Response<B>) -> Result<(), String> {
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(format!(
                "the server responded with {} instead of a WebSocket upgrade",
                answer.status()
            ));
        }
        if header(SEC_WEBSOCKET_ACCEPT) != Some(self.accepted().as_str()) {
            return Err("the server's WebSocket handshake is invalid".to_owned());
        }
        match header(SEC_WEBSOCKET_PROTOCOL) {
            Some(PROTOCOL) => Ok(()),
            other => Err(format!("the server chose {}, expected {PROTOCOL}", other.unwrap_or("no protocol"))),
        }
    }
}

/// A port of a pod.
#[derive(Debug)]
pub(super) struct PortStream<S> {
    socket: WebSocketStream<S>,
    port: u16,
    /// Whether the kubelet has sent the port on each channel.
    started: [bool; 2],
    /// The received bytes that the caller has not read yet.
    unread: Bytes,
}

impl PortStream<TokioIo<hyper::upgrade::Upgraded>> {
    /// Creates the stream on a connection after a successful handshake.
    pub(super) async fn over(upgraded: hyper::upgrade::Upgraded, port: u16) -> Self {
        Self::new(TokioIo::new(upgraded), port).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> PortStream<S> {
    pub(super) async fn new(io: S, port: u16) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(32 << 10)
            // Messages are sent immediately, because a request that awaits its response must not stay in a
            // buffer.
            .write_buffer_size(0)
            .max_message_size(Some(LARGEST_MESSAGE))
            .max_frame_size(Some(LARGEST_MESSAGE));
        let socket = WebSocketStream::from_raw_socket(io, Role::Client, Some(config)).await;
        Self { socket, port, started: [false; 2], unread: Bytes::new() }
    }

    /// Returns the error that the kubelet sent before it closed the connection.
    fn reason(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        while let Poll::Ready(Some(Ok(message))) = Pin::new(&mut self.socket).poll_next(cx) {
            if let Message::Binary(message) = message
                && let Err(error) = self.take(message)
            {
                return Some(error);
            }
        }
        None
    }

    /// Processes one message, and stores bytes of the port in `unread`.
    fn take(&mut self, mut message: Bytes) -> io::Result<()> {
        let wrong = |text: String| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        if message.is_empty() {
            return Ok(());
        }
        let channel = message.get_u8();
        let Some(started) = self.started.get_mut(usize::from(channel)) else {
            return wrong(format!("the kubelet sent data on channel {channel}, which was not requested"));
        };
        if !*started {
            let Ok(port) = <[u8; 2]>::try_from(&message[..]) else {
                return wrong("the kubelet did not send the port first".to_owned());
            };
            let port = u16::from_le_bytes(port);
            if port != self.port {
                return wrong(format!("the kubelet forwards port {port} instead of {}", self.port));
            }
            *started = true;
            return Ok(());
        }
        match channel {
            DATA => self.unread = message,
            ERRORS if message.is_empty() => {}
            _ => return Err(io::Error::other(String::from_utf8_lossy(&message).into_owned())),
        }
        Ok(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PortStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(message))) => self.take(message)?,
                // The socket answers pings.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Text(_) | Message::Frame(_))) => {}
                None | Some(Ok(Message::Close(_))) => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(into_io(error))),
            }
        }
        let fits = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread.split_to(fits));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PortStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let piece = bytes.get(..PIECE).unwrap_or(bytes);
        if piece.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut socket = Pin::new(&mut self.socket);
        let sent = ready!(socket.as_mut().poll_ready(cx)).and_then(|()| {
            let message: Vec<u8> = std::iter::once(DATA).chain(piece.iter().copied()).collect();
            socket.start_send(Message::binary(message))
        });
        Poll::Ready(match sent {
            Ok(()) => Ok(piece.len()),
            Err(error) => Err(self.reason(cx).unwrap_or_else(|| into_io(error))),
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.socket).poll_flush(cx)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(self.reason(cx).unwrap_or_else(|| into_io(error)))),
        }
    }

    /// Closes both directions, because the protocol has no half-close.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.socket).poll_close(cx)) {
            Ok(()) | Err(Error::ConnectionClosed | Error::AlreadyClosed) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(into_io(error))),
        }
    }
}

fn into_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use futures::{SinkExt, StreamExt};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    /// Creates the port, and the kubelet's side of the connection.
    async fn pair() -> (PortStream<DuplexStream>, WebSocketStream<DuplexStream>) {
        let (near, far) = tokio::io::duplex(1 << 20);
        let kubelet = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
        (PortStream::new(near, 10257).await, kubelet)
    }

    async fn send(kubelet: &mut WebSocketStream<DuplexStream>, messages: &[&[u8]]) {
        for message in messages {
            kubelet.send(Message::binary(message.to_vec())).await.unwrap();
        }
    }

    const START: [&[u8]; 2] = [&[0, 0x11, 0x28], &[1, 0x11, 0x28]];

    #[tokio::test]
    async fn channel_0_carries_bytes_in_both_directions() {
        let (mut port, mut kubelet) = pair().await;
        send(&mut kubelet, &START).await;
        send(&mut kubelet, &[b"\0hel", b"\0", b"\0lo"]).await;
        let mut read = [0; 5];
        port.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
        let long = vec![7; PIECE + 1];
        port.write_all(&long).await.unwrap();
        for expected in [PIECE + 1, 2] {
            let message = kubelet.next().await.unwrap().unwrap().into_data();
            assert_eq!((message.len(), message[0]), (expected, DATA));
        }
    }

    #[tokio::test]
    async fn error_in_the_pod_is_the_error_of_the_stream() {
        let (mut port, mut kubelet) = pair().await;
        send(&mut kubelet, &START).await;
        send(&mut kubelet, &[b"\x01connection refused"]).await;
        let error = port.read_u8().await.unwrap_err().to_string();
        assert_eq!(error, "connection refused");
    }

    #[tokio::test]
    async fn error_in_the_pod_is_the_error_of_a_late_write() {
        let (mut port, mut kubelet) = pair().await;
        send(&mut kubelet, &START).await;
        send(&mut kubelet, &[b"\x01connection refused"]).await;
        kubelet.close(None).await.unwrap();
        drop(kubelet);
        let error = port.write_all(b"hello").await.unwrap_err().to_string();
        assert_eq!(error, "connection refused");
    }

    #[tokio::test]
    async fn stream_of_another_port_or_channel_is_an_error() {
        for (message, expected) in [
            (&[0, 0, 1][..], "forwards port 256 instead of 10257"),
            (&[0, 1, 2, 3], "did not send the port"),
            (&[2, 0x11, 0x28], "channel 2"),
        ] {
            let (mut port, mut kubelet) = pair().await;
            send(&mut kubelet, &[message]).await;
            let error = port.read_u8().await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn stream_and_kubelet_see_each_others_close() {
        let (mut port, mut kubelet) = pair().await;
        send(&mut kubelet, &START).await;
        kubelet.close(None).await.unwrap();
        let mut unread = Vec::new();
        port.read_to_end(&mut unread).await.unwrap();
        assert!(unread.is_empty());

        let (mut port, mut kubelet) = pair().await;
        port.shutdown().await.unwrap();
        assert!(kubelet.next().await.unwrap().unwrap().is_close());
    }

    #[test]
    fn response_must_prove_that_it_supports_the_protocol() {
        // The example is from RFC 6455, section 1.3.
        let key = Key("dGhlIHNhbXBsZSBub25jZQ==".to_owned());
        assert_eq!(key.accepted(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let answer = |status: u16, accept: &str, protocol: Option<&str>| {
            let mut answer = Response::builder().status(status).header(SEC_WEBSOCKET_ACCEPT, accept);
            if let Some(protocol) = protocol {
                answer = answer.header(SEC_WEBSOCKET_PROTOCOL, protocol);
            }
            key.check(&answer.body(()).unwrap())
        };
        let right = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        assert_eq!(answer(101, right, Some(PROTOCOL)), Ok(()));
        assert!(answer(200, right, Some(PROTOCOL)).unwrap_err().contains("200"));
        assert!(answer(101, "other", Some(PROTOCOL)).is_err());
        assert!(answer(101, right, None).unwrap_err().contains("no protocol"));
    }
}
