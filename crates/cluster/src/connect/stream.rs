//! Adapts byte streams to hyper-util's client.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// A byte stream. Its only connection property is whether a proxy reads the requests.
#[derive(Debug)]
pub(super) struct Stream<IO> {
    io: IO,
    to_proxy: bool,
}

impl<IO> Stream<IO> {
    /// Creates a stream to the server, direct or tunnelled.
    pub(super) fn to_server(io: IO) -> Self {
        Self { io, to_proxy: false }
    }

    /// Creates a stream to a proxy that forwards requests. Each request must contain the server's URL.
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
