//! A flag of the controller as a clap argument. The syntax follows pflag:
//!
//! - `_` in a name is equivalent to `-`.
//! - A boolean takes a value only after `=`: `--flag`, `--flag=false`.
//! - The last value of a scalar flag takes effect. The values of a list flag accumulate.
//! - A value may start with a dash.

use std::fmt;

use clap::{Arg, ArgMatches};

use super::config::Draft;
use super::values::{Type, last_text};
use super::{FlagError, Reason};

/// The headings of the help text, in their order.
pub const HEADINGS: [&str; 6] = [AUTOSCALING, CLUSTER, METRICS, ELECTION, SERVING, OPERATION];
/// The heading of flags that affect scaling decisions.
pub const AUTOSCALING: &str = "Autoscaling";
/// The heading of flags for the connection to the API server.
pub const CLUSTER: &str = "Cluster";
/// The heading of flags for requests to the metrics APIs.
pub const METRICS: &str = "Metrics APIs";
/// The heading of flags for leader election.
pub const ELECTION: &str = "Leader election";
/// The heading of flags for the HTTPS server and its access control.
pub const SERVING: &str = "Secure serving";
/// The heading of flags for logs, records and the version.
pub const OPERATION: &str = "Operation";

/// A flag of the controller: the syntax, the help text, and the place of the value in the configuration.
pub struct Flag {
    /// The name, without the leading dashes.
    pub name: &'static str,
    /// The placeholder for a value in help texts.
    pub placeholder: &'static str,
    /// The default in pflag's output format. Empty for the zero value.
    pub default: &'static str,
    /// The effect of the flag in Concertina.
    pub purpose: Purpose,
    pub(crate) arg: Arg,
    pub(crate) apply: Box<Apply>,
}

/// Sets the value of a flag in the draft, if the command line contains the flag.
pub(crate) type Apply = dyn Fn(&mut Draft, &ArgMatches) -> Result<(), FlagError> + Send + Sync;

/// The effect of a flag in Concertina.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// The flag has an effect.
    Effective {
        /// The heading under which help lists the flag.
        heading: &'static str,
        /// The help text of the flag.
        usage: &'static str,
    },
    /// The flag has no effect. It is accepted so that a copied command line starts.
    Ignored {
        /// The reason, which continues the text `--flag has no effect: `.
        reason: &'static str,
    },
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Flag").field(&self.name).finish()
    }
}

impl Flag {
    /// Creates a flag. If the command line contains the flag, `set` puts its value into the draft.
    pub(crate) fn new<T: Clone + Send + Sync + 'static>(
        name: &'static str,
        of: Type<T>,
        default: &'static str,
        set: impl Fn(&mut Draft, T) -> Result<(), Reason> + Send + Sync + 'static,
    ) -> Self {
        let (placeholder, arg) = (of.placeholder, of.arg(name));
        let apply = move |draft: &mut Draft, matches: &ArgMatches| {
            let Some(value) = of.read(matches, name) else { return Ok(()) };
            draft.config.serving.given.push((name.to_owned(), of.printed(&value, matches, name)));
            set(draft, value).map_err(|reason| FlagError::invalid(name, last_text(matches, name), reason))
        };
        Self {
            name,
            placeholder,
            default,
            purpose: Purpose::Ignored { reason: "" },
            arg,
            apply: Box::new(apply),
        }
    }

    /// Creates a flag without effect. A value other than the default causes a warning.
    pub(crate) fn ignored<T: Clone + Default + PartialEq + Send + Sync + 'static>(
        name: &'static str,
        of: Type<T>,
        default: &'static str,
        reason: &'static str,
    ) -> Self {
        let normal = of.parse_default(default);
        let flag = Self::new(name, of, default, move |draft, value| {
            if normal.as_ref() != Ok(&value) {
                draft.without_effect.entry(reason).or_default().push(name);
            }
            Ok(())
        });
        Self { purpose: Purpose::Ignored { reason }, arg: flag.arg.clone().hide(true), ..flag }
    }

    /// Creates a flag that Kubernetes has removed. Every value causes a warning.
    pub(crate) fn removed<T: Clone + Send + Sync + 'static>(
        name: &'static str,
        of: Type<T>,
        reason: &'static str,
    ) -> Self {
        let flag = Self::new(name, of, "", move |draft, _| {
            draft.without_effect.entry(reason).or_default().push(name);
            Ok(())
        });
        Self { purpose: Purpose::Ignored { reason }, arg: flag.arg.clone().hide(true), ..flag }
    }

    /// Sets the heading and the help text, and marks the flag as effective.
    pub(crate) fn help(self, heading: &'static str, usage: &'static str) -> Self {
        let default = match self.default {
            "" | "false" => String::new(),
            default => format!(" [default: {default}]"),
        };
        let arg = self.arg.help(format!("{usage}{default}")).help_heading(heading);
        Self { purpose: Purpose::Effective { heading, usage }, arg, ..self }
    }

    /// Sets the one-letter shorthand.
    pub(crate) fn short(self, letter: char) -> Self {
        Self { arg: self.arg.short(letter), ..self }
    }

    /// Returns the flag as in help texts, such as `-v, --v`.
    pub fn printed(&self) -> String {
        match self.arg.get_short() {
            Some(letter) => format!("-{letter}, --{}", self.name),
            None => format!("--{}", self.name),
        }
    }

    /// Returns the help text. Empty for a flag without effect.
    pub fn usage(&self) -> &'static str {
        match self.purpose {
            Purpose::Effective { usage, .. } => usage,
            Purpose::Ignored { .. } => "",
        }
    }
}

/// Creates a flag. `check` validates the value, and `place` returns its place in the draft.
pub(crate) fn flag<T: Clone + Send + Sync + 'static, V>(
    name: &'static str,
    of: Type<T>,
    default: &'static str,
    check: impl Fn(T) -> Result<V, Reason> + Send + Sync + 'static,
    place: impl Fn(&mut Draft) -> &mut V + Send + Sync + 'static,
) -> Flag {
    Flag::new(name, of, default, move |draft, value| {
        *place(draft) = check(value)?;
        Ok(())
    })
}
