//! `concertina check`: whether a cluster is ready for Concertina, and whether each installation works.
//!
//! | module | contents |
//! |---|---|
//! | [`options`] | the command line |
//! | [`readings`] | what is read from the cluster, as values |
//! | `reader` | the requests |
//! | [`rules`] | the items that follow from the readings; pure |
//! | [`report`] | the items as text and as a document |
//!
//! All requests go to the API server with the user's credentials, and none changes the cluster. Only the state of a
//! leader is read from its pod, which must be proven to be a controller ([`terminal::forward`]).

pub mod options;
mod reader;
pub mod readings;
pub mod report;
pub mod rules;
#[cfg(test)]
mod tests;

use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::options::CheckOptions;
use self::reader::Reader;
use self::report::{Document, Item, Section};
use ::cluster::client::{ClientError, ClientOptions, Clients};
use ::cluster::error::ApiError;
use ::cluster::kubeconfig::{self, KubeconfigError};
use clock::SharedClock;
use terminal::explain::Style;
use terminal::options::leader::NAMESPACES;
use terminal::options::{EncodeError, Output, Verdict, cluster};

/// The time limit of a request.
const REQUEST: Duration = Duration::from_secs(10);

/// The reason why no answer is available. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The client for the cluster cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server does not answer.
    #[error("cannot read the version of the API server {server}: {error}; see kubectl version")]
    Unreachable {
        /// The URL of the API server.
        server: String,
        /// The error of the server or the connection.
        error: Box<ApiError>,
    },
    /// The answer cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The answer cannot be written.
    #[error("failed to write the answer: {0}")]
    Write(#[from] std::io::Error),
    /// The command was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Returns client options at kubectl's rate, which refuse every write.
pub fn client_options() -> ClientOptions {
    ClientOptions { request_timeout: REQUEST, ..cluster::at_kubectl_rate(cluster::reads_only()) }
}

/// Checks the user's cluster, and prints each section as soon as it is known.
///
/// # Errors
/// Returns a [`CheckError`] if no answer is available or the answer cannot be written.
pub async fn run(
    options: &CheckOptions,
    clock: SharedClock,
    stop: CancellationToken,
) -> Result<Verdict, CheckError> {
    let mut out = std::io::stdout();
    let style = Style { colours: options.color.applies(out.is_terminal()), width: None };
    let user = kubeconfig::load_for_user(&options.cluster)?;
    let clients = cluster::clients(&user, client_options())?;
    let server = user.config.cluster_url.to_string();
    let answering = answer(options, &clients, server, clock, style, &mut out);
    // Boxed, because the future is large.
    match stop.run_until_cancelled(Box::pin(answering)).await.unwrap_or(Err(CheckError::Interrupted)) {
        // The reader of the pipe has stopped reading, as `head` does.
        Err(CheckError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Verdict::Good),
        answered => answered,
    }
}

/// Checks a cluster. `server` is the URL of its API server.
async fn answer(
    options: &CheckOptions,
    clients: &Clients,
    server: String,
    clock: SharedClock,
    style: Style,
    out: &mut (dyn Write + Send),
) -> Result<Verdict, CheckError> {
    let reader = Reader { clients, leader: options.leader.as_ref() };
    let mut printed = Printed { output: options.output, style, out, sections: Vec::new() };
    let surroundings = reader.surroundings(&*clock).await.map_err(|error| {
        let error = Box::new(error);
        CheckError::Unreachable { server: server.clone(), error }
    })?;
    printed.add("cluster", rules::surroundings(&surroundings))?;
    // Lease times are compared with the clock of the API server, because this clock may be wrong.
    let now = clock.now() + surroundings.server.ahead.unwrap_or_default();
    let namespace = options.cluster.namespace.as_deref();
    if options.pre {
        let namespace = namespace.unwrap_or(NAMESPACES[0]);
        let requirements = reader.requirements(namespace).await;
        printed.add("installation", rules::requirements(&requirements, &surroundings, now))?;
    } else {
        let found = reader.deployments(namespace).await;
        if let Some(item) = rules::found(&found) {
            printed.add("installations", vec![item])?;
        }
        for deployment in found.unwrap_or_default() {
            let installation = Box::pin(reader.installation(deployment)).await;
            let about = format!("{}/{}", installation.namespace, installation.name);
            printed.add(&about, rules::installation(&installation, &surroundings, now))?;
        }
    }
    printed.end(options.pre)
}

/// The printed part of the answer.
struct Printed<'a> {
    output: Output,
    style: Style,
    out: &'a mut (dyn Write + Send),
    sections: Vec<Section>,
}

impl Printed<'_> {
    fn add(&mut self, about: &str, items: Vec<Item>) -> Result<(), CheckError> {
        let section = Section { about: about.to_owned(), items };
        if self.output == Output::Text {
            self.out.write_all(section.text(self.style).as_bytes())?;
            self.out.flush()?;
        }
        self.sections.push(section);
        Ok(())
    }

    fn end(self, pre: bool) -> Result<Verdict, CheckError> {
        let passed = report::passed(&self.sections);
        let document = Document {
            api_version: "concertina/v1",
            kind: "CheckReport",
            version: rules::VERSION,
            pre,
            sections: &self.sections,
            passed,
        };
        let text = self.output.encode(&document)?.unwrap_or_else(|| report::summary(&self.sections));
        writeln!(self.out, "{}", text.trim_end())?;
        self.out.flush()?;
        Ok(Verdict::good_if(passed))
    }
}
