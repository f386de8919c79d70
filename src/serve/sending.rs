//! Bounds the time in which a client reads a response, because an unread response takes memory, and a large one blocks
//! other large responses.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Time limit for a client to read a response. The largest response about a single HPA has some megabytes.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// The unread responses of a connection. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(super) struct Sending(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    unread: Mutex<Unread>,
    begun: Notify,
}

#[derive(Debug, Default)]
struct Unread {
    count: usize,
    /// The time since which the connection has had an unread response. `None` without an unread response.
    since: Option<Instant>,
}

/// A body that counts as unread until the whole body was passed to the system.
pub(super) struct UnreadBody {
    body: Full<Bytes>,
    response: Option<Response>,
}

/// The part of a body that waits to be sent.
struct UnreadBytes {
    bytes: Bytes,
    _response: Response,
}

/// An unread response, until it is dropped.
struct Response(Sending);

impl Sending {
    /// Counts a response as unread.
    pub(super) fn begin(&self, body: Full<Bytes>) -> UnreadBody {
        let mut unread = self.0.unread.lock();
        unread.count += 1;
        if unread.since.is_none() {
            unread.since = Some(Instant::now());
            self.0.begun.notify_one();
        }
        drop(unread);
        UnreadBody { body, response: Some(Response(self.clone())) }
    }

    /// Waits until the connection has had an unread response for [`LIMIT`] without interruption.
    pub(super) async fn overdue(&self) {
        loop {
            let since = self.0.unread.lock().since;
            let Some(since) = since else {
                self.0.begun.notified().await;
                continue;
            };
            sleep_until(since + LIMIT).await;
            if self.0.unread.lock().since == Some(since) {
                return;
            }
        }
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        let mut unread = self.0.0.unread.lock();
        unread.count = unread.count.saturating_sub(1);
        if unread.count == 0 {
            unread.since = None;
        }
    }
}

impl AsRef<[u8]> for UnreadBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Body for UnreadBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let response = self.response.take();
        Pin::new(&mut self.body).poll_frame(context).map(|frame| {
            let hold = |bytes| match response {
                Some(response) => Bytes::from_owner(UnreadBytes { bytes, _response: response }),
                None => bytes,
            };
            frame.map(|frame| frame.map(|frame| frame.map_data(hold)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
