//! The measured controllers: the built-in controller and Concertina, with default and with tuned flags, each with the
//! identity that it has in a cluster.

use std::fmt;
use std::str::FromStr;

use super::control_plane::{ControlPlane, convert_error};
use crate::Failure;
use crate::controller::{CommandLine, concertina};

/// Rate limits that never delay requests.
const UNLIMITED: [&str; 2] = ["--kube-api-qps=10000", "--kube-api-burst=10000"];
const WORKERS: &str = "--concurrent-horizontal-pod-autoscaler-syncs=100";
/// The account of the built-in controller. Every cluster has its role.
const BUILT_IN_ACCOUNT: (&str, &str) = ("kube-system", "horizontal-pod-autoscaler");
/// An account with exactly the roles that `concertina rbac` prints.
const OWN_ACCOUNT: (&str, &str) = ("kube-system", "concertina");

/// A controller with its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MeasuredController {
    BuiltInDefault,
    BuiltInTuned,
    OursDefault,
    Ours,
}

impl FromStr for MeasuredController {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "built-in-default" => Self::BuiltInDefault,
            "built-in-tuned" => Self::BuiltInTuned,
            "ours-default" => Self::OursDefault,
            "ours" => Self::Ours,
            _ => return Err("must be built-in-default, built-in-tuned, ours-default or ours".to_owned()),
        })
    }
}

impl fmt::Display for MeasuredController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BuiltInDefault => "built-in, default flags",
            Self::BuiltInTuned => "built-in, tuned",
            Self::OursDefault => "concertina, default flags",
            Self::Ours => "concertina",
        })
    }
}

impl MeasuredController {
    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursDefault)
    }

    /// The contestant's command line. `flags` are added for Concertina only.
    pub(super) fn command_line(self, flags: &[String]) -> CommandLine {
        let words = |words: &[&str]| words.iter().copied().map(str::to_owned).collect::<Vec<_>>();
        match self {
            Self::BuiltInDefault => CommandLine::built_in_for_real(Vec::new()),
            Self::BuiltInTuned => {
                CommandLine::built_in_for_real([words(&UNLIMITED), words(&[WORKERS])].concat())
            }
            Self::OursDefault => CommandLine::own(flags.to_vec()),
            Self::Ours => CommandLine::own([words(&UNLIMITED), flags.to_vec()].concat()),
        }
    }

    /// The contestant's kubeconfig. With `built_in_role`, Concertina has only the role that every
    /// cluster has.
    pub(super) async fn kubeconfig(
        self,
        plane: &ControlPlane,
        built_in_role: bool,
    ) -> Result<std::path::PathBuf, Failure> {
        if !self.is_ours() {
            return convert_error(plane.manager_kubeconfig());
        }
        let (namespace, name) = if built_in_role { BUILT_IN_ACCOUNT } else { OWN_ACCOUNT };
        convert_error(plane.service_account(namespace, name).await)
    }
}

/// Grants Concertina's account the roles that `concertina rbac` prints for `flags`.
pub(super) async fn grant(plane: &ControlPlane, flags: &[String]) -> Result<(), Failure> {
    let (namespace, name) = OWN_ACCOUNT;
    let output = std::process::Command::new(concertina())
        .args([
            "rbac",
            "--service-account",
            &format!("{namespace}/{name}"),
            "--takeover=off",
            "--leader-elect=false",
        ])
        .args(flags)
        .output()?;
    if !output.status.success() {
        return Err(format!("concertina rbac failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    convert_error(plane.admin.create_all(&String::from_utf8_lossy(&output.stdout)).await).map(drop)
}
