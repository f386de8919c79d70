//! The error of the process.

use crate::serve::ServeError;
use cluster::client::ClientError;
use cluster::kubeconfig::KubeconfigError;
use controller::election;
use controller::tasks::TaskFailure;

/// The error that kept the controller from starting or made it stop. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The kubeconfig or the in-cluster configuration is missing or invalid.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The client for the configured cluster could not be built.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server's certificate or the client's certificate was rejected.
    #[error(
        "failed to connect to {server}: {message}; check certificate-authority, client-certificate and tls-server-name \
         of the kubeconfig"
    )]
    Certificate {
        /// The API server.
        server: String,
        /// The cause, in the words of Go's client.
        message: String,
    },
    /// The file of metric sources is unusable.
    #[error("--metric-sources: {0}")]
    Sources(#[from] sources::FileError),
    /// The ports could not be served as configured.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A unique identity for the Lease could not be built.
    #[error(transparent)]
    Identity(#[from] election::IdentityError),
    /// The Lease is lost, and another replica may be the leader.
    #[error("lost leadership: {0}")]
    LeaseLost(election::LostReason),
    /// The candidate exited although nothing stopped it, so the Lease is not renewed.
    #[error("lost leadership: the candidate exited: {0}")]
    CandidateExited(String),
    /// The thread of the election could not start.
    #[error("failed to start the election thread: {0}; raise the thread limit")]
    ElectionThread(#[source] std::io::Error),
    /// The thread of the webhook could not start.
    #[error("failed to start the webhook thread: {0}; raise the thread limit")]
    WebhookThread(#[source] std::io::Error),
    /// The guard refuses the writes of this process.
    #[error(
        "cannot use --handover-guard={guard}: this process runs as {user}, one of --built-in-users, so the guard \
         also refuses its writes; run the pods as a separate ServiceAccount, as in the manifests"
    )]
    BuiltInUser {
        /// The user of this process.
        user: String,
        /// `--handover-guard`.
        guard: &'static str,
    },
    /// The Lease was not released, so the next leader must wait until it expires.
    #[error("failed to release Lease {0}; the next leader must wait until the Lease expires")]
    LeaseNotReleased(String),
    /// A task that the controller depends on has failed. The controller then shut down gracefully.
    #[error(transparent)]
    Task(#[from] TaskFailure),
}
