//! The HTTP server of the page: HTTP/1.1 on a loopback address, GET only, bounded in connections, headers and
//! responses.

use std::convert::Infallible;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clock::Jitter;
use cluster::client::Client;
use cluster::watch::{Hpas, Informer, WatchOptions, watch};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::controller::Inspect;
use crate::pages::{Body, Pages, refusal};
use crate::row::Decisions;
use crate::store::Store;
use crate::whatif::{Simulations, WhatIf};
use crate::{Explain, Unavailable};

/// Maximum number of connections. A browser opens at most six.
const MAX_CONNECTIONS: usize = 64;
/// Maximum size of a request's headers, in bytes.
const MAX_HEADERS: usize = 16 << 10;
/// Time limit for the headers of a request, and for an idle connection.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// The pause after a failed accept. While the process has no free file descriptors, an immediate retry would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// The pause between two reads of the record.
const INTERVAL: Duration = Duration::from_secs(15);
/// The pause after a failed read of the record.
const AFTER_FAILURE: Duration = Duration::from_mins(1);
/// Maximum number of consecutive failed reads after which rows keep their decisions.
const MAX_FAILURES: u32 = 2;

/// The traits that the caller implements for a console.
#[derive(Debug, Clone)]
pub struct Providers {
    /// Explains an HPA.
    pub explain: Arc<dyn Explain>,
    /// Reads the state of the controller.
    pub inspect: Arc<dyn Inspect>,
    /// Simulates an HPA with other fields.
    pub what_if: Arc<dyn WhatIf>,
    /// Reads the last decisions of the controller.
    pub record: Arc<dyn Record>,
}

/// The console of one cluster.
#[derive(Debug, Clone)]
pub struct Console {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    access: Access,
    pages: Pages,
    simulations: Simulations,
}

impl Console {
    /// Creates the console of a cluster. The returned future fills `store` from a watch and reads the record, until the
    /// future is dropped. `watching` is a client without a token bucket. `namespace` limits the watch.
    pub fn new(
        access: Access,
        store: &Store,
        watching: Client,
        namespace: Option<&str>,
        providers: Providers,
    ) -> (Self, BoxFuture<'static, ()>) {
        let options = WatchOptions {
            namespace: namespace.map(Into::into),
            // The wait is short, because a user waits for the rows.
            longest_wait: Duration::from_secs(3),
            jitter: Jitter::seeded(0),
            ..WatchOptions::default()
        };
        let (handle, watch) = watch::<Hpas, _>(watching, options, store.clone());
        let Providers { explain, inspect, what_if, record } = providers;
        let pages = Pages::new(store.clone(), Informer::new([handle]), explain, inspect);
        let following = follow(store.clone(), record);
        let work = async move {
            futures::join!(watch, following);
        };
        let shared = Shared { access, pages, simulations: Simulations::new(what_if) };
        (Self { shared: Arc::new(shared) }, work.boxed())
    }

    /// Serves the page until `stop`, and then closes all connections at once.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, client)) => {
                    // A connection above the limit is closed at once. Browsers retry.
                    let Ok(permit) = Arc::clone(&free).try_acquire_owned() else { continue };
                    let connection = self.clone().connection(stream, client);
                    let stop = stop.clone();
                    tasks.spawn(async move {
                        stop.run_until_cancelled(connection).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a console connection");
                    stop.run_until_cancelled(sleep(ACCEPT_PAUSE)).await;
                }
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    async fn connection(self, stream: TcpStream, client: SocketAddr) {
        let service = service_fn(move |request| {
            let console = self.clone();
            async move { Ok::<_, Infallible>(console.respond(request).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WITHIN)
            .max_buf_size(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            tracing::debug!(%client, %error, "console connection closed");
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        let Shared { access, pages, simulations } = &*self.shared;
        match access.check(request.method(), path, request.headers()) {
            Ok(rest) => match Simulations::subject(rest, pages.store()) {
                Some(subject) => {
                    simulations.respond(subject, request.uri().query().unwrap_or_default()).await
                }
                None => pages.respond(rest).await,
            },
            Err(refused) => refusal(refused.status(), refused.text()),
        }
    }
}

/// Reads the last decisions of a controller's record, for the rows of all HPAs.
pub trait Record: Debug + Send + Sync + 'static {
    /// Returns the last decision of each HPA, or the reason why the record cannot be read. Returns `None` if no record
    /// can ever be read.
    fn last_decisions(&self) -> BoxFuture<'static, Result<Option<Decisions>, Unavailable>>;
}

/// Reads the record at intervals, and only while a page is open. After several consecutive failures, rows show only the
/// status of the HPA until a read succeeds. Returns if no record can ever be read.
async fn follow(store: Store, record: Arc<dyn Record>) {
    let mut failures = 0;
    loop {
        store.watched().await;
        match record.last_decisions().await {
            Ok(None) => return,
            Ok(Some(decisions)) => {
                failures = 0;
                store.decided(decisions);
                sleep(INTERVAL).await;
            }
            Err(reason) => {
                tracing::debug!(%reason, "failed to read the record of the controller");
                failures += 1;
                if failures > MAX_FAILURES {
                    store.decided(Decisions::default());
                }
                sleep(AFTER_FAILURE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
