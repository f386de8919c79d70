//! `concertina policy` and `sources`: validates scaling policies, and converts objects of other autoscalers to
//! policies.
//!
//! `check` reports each field without effect, by the rules of the controller, and shows the HPAs that the policies
//! match. `import` prints ScalingPolicies. The crate [`policies`] has the rules of both.

mod check;
mod import;
mod read;
#[cfg(test)]
mod tests;

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

use policies::import::TooManyNotes;
use tokio_util::sync::CancellationToken;

use crate::options::PolicyOptions;
use clock::SharedClock;
use cluster::client::{ClientError, Clients};
use cluster::error::ApiError;
use cluster::kubeconfig::{self, KubeconfigError};

/// The namespace of objects without a namespace, if neither a flag nor the kubeconfig sets one.
const DEFAULT_NAMESPACE: &str = "default";

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every field has an effect, or is imported.
    Good,
    /// At least one field has no effect, or is not imported.
    Attention,
}

impl Verdict {
    /// Returns the exit code, 0 or 3.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Attention => 3,
        }
    }
}

/// The reason why no answer is available. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    File {
        /// The path, or `-`.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The file is too long.
    #[error("{} has more than {} MiB: pass fewer objects at once", path.display(), limit >> 20)]
    TooLarge {
        /// The path, or `-`.
        path: PathBuf,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The file is not UTF-8 text.
    #[error("{} is not text in UTF-8", path.display())]
    NotText {
        /// The path, or `-`.
        path: PathBuf,
    },
    /// The file is neither YAML nor JSON.
    #[error("{}: document {document}: {problem}", path.display())]
    Form {
        /// The path, or `-`.
        path: PathBuf,
        /// The document with the problem, counted from 1.
        document: usize,
        /// The problem, with its line.
        problem: String,
    },
    /// The files have too many objects.
    #[error("the files have more than {limit} objects: pass fewer objects at once")]
    TooManyObjects {
        /// The maximum number.
        limit: usize,
    },
    /// The objects need too many notes.
    #[error(transparent)]
    Import(#[from] TooManyNotes),
    /// The files have no object of a supported kind.
    #[error("{files} has no {what}")]
    Nothing {
        /// The files.
        files: String,
        /// The supported kinds.
        what: &'static str,
    },
    /// The kubeconfig cannot be used.
    #[error("{0}; --offline validates without a cluster")]
    Kubeconfig(#[from] KubeconfigError),
    /// The client for the cluster cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The HPAs cannot be read.
    #[error("cannot read {what}: {error}; --offline validates without a cluster")]
    Unreadable {
        /// The objects.
        what: &'static str,
        /// The error of the server or the connection.
        error: Box<ApiError>,
    },
    /// The answer cannot be encoded.
    #[error("failed to encode the answer as {form}: {error}")]
    Encoding {
        /// `JSON` or `YAML`.
        form: &'static str,
        /// The cause.
        error: String,
    },
    /// The file of sources cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Sources {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The answer cannot be written.
    #[error("failed to write the answer: {0}")]
    Write(#[from] std::io::Error),
    /// The command was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Runs a command. Prints its answer to standard output, and notes of an import to standard error.
///
/// # Errors
/// Returns a [`PolicyError`] if no answer is available or the answer cannot be written.
pub async fn run(
    options: &PolicyOptions,
    clock: SharedClock,
    stop: CancellationToken,
) -> Result<Verdict, PolicyError> {
    let mut out = std::io::stdout();
    let answer = match options {
        PolicyOptions::Import { files } => {
            read::objects(files).and_then(|read| import::run(files, &read, &mut out, &mut std::io::stderr()))
        }
        PolicyOptions::ImportSources { files, sources } => read::objects(files).and_then(|read| {
            import::run_with_sources(files, &read, sources.as_deref(), &mut out, &mut std::io::stderr())
        }),
        PolicyOptions::Check(options) => {
            let colours = options.color.applies(out.is_terminal());
            let read = read::objects(&options.files)?;
            let (clients, namespace) = if options.offline {
                (None, options.cluster.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()))
            } else {
                let user = kubeconfig::load_for_user(&options.cluster)?;
                let clients = crate::options::cluster::clients(&user, crate::options::cluster::reads_only())?;
                (Some(clients), user.namespace)
            };
            let check =
                check::run(options, &namespace, &read, clients.as_ref(), clock.now(), colours, &mut out);
            // Boxed, because the future is large.
            stop.run_until_cancelled(Box::pin(check)).await.unwrap_or(Err(PolicyError::Interrupted))
        }
    };
    match answer {
        // The reader of the pipe has stopped reading, as `head` does.
        Err(PolicyError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Verdict::Good),
        answer => answer,
    }
}

/// Like [`run`], but with existing clients, and other outputs.
///
/// # Errors
/// Returns a [`PolicyError`] if no answer is available or the answer cannot be written.
pub async fn run_with(
    options: &PolicyOptions,
    clients: Option<&Clients>,
    clock: SharedClock,
    out: &mut (dyn Write + Send),
    notes: &mut (dyn Write + Send),
) -> Result<Verdict, PolicyError> {
    match options {
        PolicyOptions::Import { files } => import::run(files, &read::objects(files)?, out, notes),
        PolicyOptions::ImportSources { files, sources } => {
            import::run_with_sources(files, &read::objects(files)?, sources.as_deref(), out, notes)
        }
        PolicyOptions::Check(options) => {
            let read = read::objects(&options.files)?;
            let clients = clients.filter(|_| !options.offline);
            let namespace = options.cluster.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
            check::run(options, namespace, &read, clients, clock.now(), false, out).await
        }
    }
}

/// The files of a command, for errors.
fn names(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    crate::words::listed(&names.iter().map(String::as_str).collect::<Vec<_>>(), 5)
}
