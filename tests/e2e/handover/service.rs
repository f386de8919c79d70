//! The Service in front of the webhook: forwards each connection of the API server to one of the replicas.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::outcome::Outcome;

pub(crate) struct Service {
    pub(crate) port: u16,
    endpoints: Arc<Mutex<Vec<u16>>>,
    task: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start() -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let endpoints = Arc::<Mutex<Vec<u16>>>::default();
        let ports = Arc::clone(&endpoints);
        let task = tokio::spawn(async move {
            let mut turn = 0_usize;
            while let Ok((mut client, _)) = listener.accept().await {
                turn += 1;
                let mut ports = ports.lock().clone();
                let first = turn.checked_rem(ports.len()).unwrap_or(0);
                ports.rotate_left(first);
                tokio::spawn(async move {
                    for port in ports {
                        if let Ok(mut replica) = TcpStream::connect(("127.0.0.1", port)).await {
                            // The end of a connection is no failure.
                            let _ = copy_bidirectional(&mut client, &mut replica).await;
                            return;
                        }
                    }
                });
            }
        });
        Ok(Self { port, endpoints, task })
    }

    /// Sets the ports of the ready replicas. Open connections stay.
    pub(crate) fn set(&self, ports: &[u16]) {
        *self.endpoints.lock() = ports.to_vec();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}
