//! `concertina handover`: hands HPAs over from the built-in controller to Concertina and back.
//!
//! `plan` selects a guard, and `check` tries the writes of the built-in controller as dry runs. `enable` and `disable`
//! change the label, and `status` lists the HPAs in scope. The commands read the API with the user's permissions, and
//! the state of each HPA from the leader's page `/handover`.

mod census;
mod change;
mod check;
pub mod options;
mod page;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::io::{ErrorKind, IsTerminal, Write};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::page::{Page, PageError, PageReader};
use self::status::Direction;
use crate::handover::options::Action;
use crate::handover::options::HandoverOptions;
use clock::SharedClock;
use cluster::client::{ClientError, ClientOptions, Clients};
use cluster::error::ApiError;
use cluster::kubeconfig::{self, KubeconfigError};
use coexist::handover::scope::ControllerName;
use engine::store::Key;
use terminal::address::{AddressError, connect};
use terminal::explain::{Style, Zone};
use terminal::options::cluster::at_kubectl_rate;
use terminal::options::{EncodeError, Output, Verdict};
use terminal::progress::Progress;

const API_VERSION: &str = "concertina/v1";

/// The reason why no answer is available. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The client for the cluster cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The address of `--from` cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Objects that every answer needs cannot be read.
    #[error("cannot read {what}: {error}")]
    Unreadable {
        /// The objects, such as `HPAs`.
        what: &'static str,
        /// The error of the server or the connection.
        error: Box<ApiError>,
    },
    /// The HPA does not exist.
    #[error("HPA {} not found in namespace {}: pass one of its HPAs{}", .key.name, .key.namespace, listed(.existing))]
    NotFound {
        /// The requested HPA.
        key: Key,
        /// The names of the HPAs in the namespace.
        existing: Vec<String>,
    },
    /// The user already impersonates another user.
    #[error(
        "check impersonates the built-in controller, but --as or the kubeconfig already impersonates {user}: use your \
         own credentials"
    )]
    Impersonates {
        /// The impersonated user.
        user: String,
    },
    /// The user may not impersonate the built-in controller.
    #[error("you may not impersonate {user}: ask a cluster administrator for the rule {rule} in a {role}")]
    MayNotImpersonate {
        /// The user of the built-in controller.
        user: String,
        /// The missing RBAC rule.
        rule: String,
        /// `ClusterRole`, or `Role in namespace ...`.
        role: String,
    },
    /// The leader runs with `--scope=all`, which ignores labels.
    #[error(
        "the leader runs with --scope=all, so labels have no effect: restart it with --scope=labelled, or hand over the \
         whole cluster as docs/concepts/takeover.md describes"
    )]
    ScopeIsAll,
    /// The name on the leader's page is not that of `--controller-name`.
    #[error(
        "the leader's name is {actual}, but --controller-name is {given}: pass --controller-name={actual}"
    )]
    OtherName {
        /// The name on the leader's page.
        actual: String,
        /// The name of `--controller-name`.
        given: String,
    },
    /// The object belongs to another instance.
    #[error(
        "{object} has the label {}={value} of another instance: remove that label first, with handover disable \
         --controller-name={value}",
        coexist::handover::scope::LABEL
    )]
    OtherInstance {
        /// The object, such as `namespace shop` or `HPA shop/web`.
        object: String,
        /// The value of the label.
        value: String,
    },
    /// The label cannot be changed.
    #[error(
        "failed to change the label of {object}: {error}; {done} objects were changed before: run the command again"
    )]
    Change {
        /// The object, such as `namespace shop` or `HPA shop/web`.
        object: String,
        /// The error of the server or the connection.
        error: Box<ApiError>,
        /// The number of changed objects.
        done: usize,
    },
    /// The answer cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The answer cannot be written.
    #[error("failed to write the answer: {0}")]
    Write(#[from] std::io::Error),
    /// The command was interrupted. It does not undo changes of labels.
    #[error("interrupted: labels that were changed stay; concertina handover status shows the state")]
    Interrupted,
}

fn listed(existing: &[String]) -> String {
    if existing.is_empty() { String::new() } else { format!(" ({})", existing.join(", ")) }
}

/// Returns client options at kubectl's rate. They permit writes, because the commands change labels.
pub fn client_options() -> ClientOptions {
    at_kubectl_rate(ClientOptions::default())
}

/// Runs a command with the user's kubeconfig, and prints its answer to standard output.
///
/// # Errors
/// Returns a [`HandoverError`] if no answer is available or the answer cannot be written.
pub async fn run(
    options: &HandoverOptions,
    clock: SharedClock,
    stop: CancellationToken,
) -> Result<Verdict, HandoverError> {
    let mut out = std::io::stdout();
    let colours = options.color.applies(out.is_terminal());
    let user = kubeconfig::load_for_user(&options.cluster)?;
    if let (Action::Check { .. }, Some(other)) = (&options.action, &user.config.auth_info.impersonate) {
        return Err(HandoverError::Impersonates { user: other.clone() });
    }
    let clients = terminal::options::cluster::clients(&user, client_options())?;
    let page = match &options.from {
        Some(address) => {
            let (clients, url) = connect(address).await?;
            PageReader::Address { client: clients.watch, url }
        }
        None => PageReader::leader(&clients, options.leader.as_ref()),
    };
    let session = Session { options, clients: &clients, page, clock, colours, out: &mut out };
    // A change prints what it waits for.
    let progress = match options.action {
        Action::Plan { .. } | Action::Check { .. } | Action::Status => Progress::on_terminal(),
        Action::Enable(_) | Action::Disable(_) => Progress::default(),
    };
    // Boxed, because the future is large.
    let running = progress.during("reading HPAs and the state of the leader", Box::pin(session.run()));
    match stop.run_until_cancelled(running).await.unwrap_or(Err(HandoverError::Interrupted)) {
        // The reader of the pipe has stopped reading, as `head` does.
        Err(HandoverError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Verdict::Good),
        answered => answered,
    }
}

/// One run of a command.
struct Session<'a> {
    options: &'a HandoverOptions,
    clients: &'a Clients,
    page: PageReader,
    clock: SharedClock,
    colours: bool,
    out: &'a mut (dyn Write + Send),
}

impl Session<'_> {
    async fn run(mut self) -> Result<Verdict, HandoverError> {
        match &self.options.action {
            Action::Plan { guard } => plan::run(&mut self, *guard).await,
            Action::Check { built_in_users } => check::run(&mut self, built_in_users).await,
            Action::Enable(change) => change::run(&mut self, change, Direction::Enable).await,
            Action::Disable(change) => change::run(&mut self, change, Direction::Disable).await,
            Action::Status => status::run(&mut self).await,
        }
    }

    /// Returns the name of the instance: the given name, the name on the leader's page, or the default. Fails if the
    /// given name differs from the name on the page.
    fn controller_name(&self, page: &Result<Page, PageError>) -> Result<ControllerName, HandoverError> {
        let actual = page.as_ref().ok().and_then(|page| ControllerName::new(&page.controller).ok());
        match (&self.options.controller_name, actual) {
            (Some(given), Some(actual)) if *given != actual => Err(HandoverError::OtherName {
                actual: actual.as_str().to_owned(),
                given: given.as_str().to_owned(),
            }),
            (Some(given), _) => Ok(given.clone()),
            (None, actual) => Ok(actual.unwrap_or_default()),
        }
    }

    fn style(&self) -> Style {
        Style { colours: self.colours, width: None }
    }

    fn zone(&self) -> Zone {
        Zone::local(self.options.utc)
    }

    /// Prints a part of the answer if the output format is text.
    fn say(&mut self, text: &str) -> Result<(), HandoverError> {
        if self.options.output == Output::Text {
            self.out.write_all(text.as_bytes())?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Prints the answer as a document, unless the output format is text.
    fn document(&mut self, document: &impl Serialize) -> Result<(), HandoverError> {
        let Some(text) = self.options.output.encode(document)? else { return Ok(()) };
        writeln!(self.out, "{}", text.trim_end())?;
        self.out.flush()?;
        Ok(())
    }
}

/// Returns the note about a leader's page that cannot be read.
fn unavailable(error: &PageError) -> String {
    format!("the leader's state is unavailable: {error}; the answer is from the API alone")
}
