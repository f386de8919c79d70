//! `concertina policy` and `sources`: validates scaling policies, and converts objects of other autoscalers to policies
//! and sources.
//!
//! `check` reports each field without effect, and shows the HPAs that the policies match. `import` prints
//! ScalingPolicies. `sources check` validates the file of metric sources. The rules of both commands are in the crate [`policies`].

mod check;
mod document;
mod import;
pub mod options;
mod sources;
#[cfg(test)]
mod tests;
mod world;

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

use policies::import::TooManyNotes;
use tokio_util::sync::CancellationToken;

use self::import::FileObject;
use crate::policy::options::CheckOptions;
use crate::policy::options::PolicyOptions;
use ::cluster::client::{ClientError, Clients};
use ::cluster::error::ApiError;
use ::cluster::kubeconfig::{self, KubeconfigError};
use clock::SharedClock;
use terminal::ending::on_another_thread;
use terminal::options::Verdict;
use terminal::options::{EncodeError, cluster};

/// The namespace of objects without a namespace, if neither a flag nor the kubeconfig sets one.
const DEFAULT_NAMESPACE: &str = "default";

/// The reason why no answer is available. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    File {
        /// The path, or `-`.
        path: PathBuf,
        /// The error of the operating system.
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
        /// The maximum number of objects.
        limit: usize,
    },
    /// The import of the objects needs more notes than allowed.
    #[error(transparent)]
    Import(#[from] TooManyNotes),
    /// The files have no object of a supported kind.
    #[error("{files} has no {what}")]
    Nothing {
        /// The names of the files, as a list in words.
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
        /// The objects, such as `HPAs`.
        what: &'static str,
        /// The error of the server or the connection.
        error: Box<ApiError>,
    },
    /// The answer cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The file of sources cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Sources {
        /// The path of `--sources`.
        path: PathBuf,
        /// The error of the operating system.
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
    let (mut out, mut notes) = (std::io::stdout(), std::io::stderr());
    let is_terminal = out.is_terminal();
    let answer = answer(options, connect, clock, is_terminal, &mut out, &mut notes);
    // Boxed, because the future is large.
    match stop.run_until_cancelled(Box::pin(answer)).await.unwrap_or(Err(PolicyError::Interrupted)) {
        // The reader of the pipe has stopped reading, as `head` does.
        Err(PolicyError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Verdict::Good),
        answered => answered,
    }
}

/// Connects to the user's cluster, unless the check is offline. Also returns the namespace of objects without a
/// namespace.
fn connect(options: &CheckOptions) -> Result<(Option<Clients>, String), PolicyError> {
    if options.offline {
        let namespace = options.cluster.namespace.clone();
        return Ok((None, namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())));
    }
    let user = kubeconfig::load_for_user(&options.cluster)?;
    Ok((Some(cluster::clients(&user, cluster::reads_only())?), user.namespace))
}

/// Runs a command with the given outputs. `connect` supplies the clients of a check and the namespace of objects
/// without a namespace.
async fn answer(
    options: &PolicyOptions,
    connect: impl FnOnce(&CheckOptions) -> Result<(Option<Clients>, String), PolicyError>,
    clock: SharedClock,
    is_terminal: bool,
    out: &mut (dyn Write + Send),
    notes: &mut (dyn Write + Send),
) -> Result<Verdict, PolicyError> {
    match options {
        PolicyOptions::Import { files } => {
            import::run(files, &objects(files).await?, clock.now(), out, notes)
        }
        PolicyOptions::ImportSources { files, sources } => {
            let read = objects(files).await?;
            import::run_with_sources(files, &read, sources.as_deref(), clock.now(), out, notes)
        }
        PolicyOptions::CheckSources { files } => sources::run(files, out),
        PolicyOptions::Check(options) => {
            let read = objects(&options.files).await?;
            let has_policy = read.iter().any(|read| document::has_policy(&read.object.value));
            let offline = options.offline || !has_policy;
            let (clients, namespace) = connect(&CheckOptions { offline, ..CheckOptions::clone(options) })?;
            let colours = options.color.applies(is_terminal);
            check::run(options, &namespace, &read, clients.as_ref(), clock.now(), colours, out).await
        }
    }
}

/// Reads the objects of files.
async fn objects(files: &[PathBuf]) -> Result<Vec<FileObject>, PolicyError> {
    let files = files.to_vec();
    on_another_thread(move || import::objects(&files)).await
}

/// Lists the files of a command, for error texts.
fn names(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    terminal::words::listed(&names.iter().map(String::as_str).collect::<Vec<_>>(), 5)
}
