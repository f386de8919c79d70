//! Differences between operating systems. In this crate, only this module contains code for a specific operating
//! system.
//!
//! Every function exists on all systems. The result is empty if a system lacks the feature.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;

pub mod process;

/// Termination requests: SIGTERM and SIGINT. On Windows Ctrl-C, Ctrl-Break and a closed console.
#[derive(Debug)]
pub struct StopRequests {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(windows)]
    interrupt: tokio::signal::windows::CtrlC,
    #[cfg(windows)]
    stop: tokio::signal::windows::CtrlBreak,
    #[cfg(windows)]
    close: tokio::signal::windows::CtrlClose,
}

impl StopRequests {
    /// Starts listening. From then on, a termination request no longer ends the process.
    #[cfg(unix)]
    pub fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Starts listening. From then on, a termination request no longer ends the process.
    #[cfg(windows)]
    pub fn listen() -> io::Result<Self> {
        use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close};
        Ok(Self { interrupt: ctrl_c()?, stop: ctrl_break()?, close: ctrl_close()? })
    }

    /// Waits for the next request.
    #[cfg(unix)]
    pub async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for the next request.
    #[cfg(windows)]
    pub async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.stop.recv() => {}
            _ = self.close.recv() => {}
        }
    }
}

/// Closes connections with sent bytes that stay unacknowledged for `time`. Only Linux supports the limit. On
/// other systems, keepalive must suffice.
pub fn limit_unconfirmed_bytes(connector: &mut HttpConnector, time: Duration) {
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(time));
    #[cfg(not(target_os = "linux"))]
    let _ = (connector, time);
}

/// The folder that contains `.kube`: `HOME`. On Windows the first of `HOME`, `HOMEDRIVE` with `HOMEPATH` and
/// `USERPROFILE` that contains `.kube\config`, otherwise the first that is set, as in client-go's `homedir`.
pub fn home(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    if !cfg!(windows) {
        return variable("HOME").map(PathBuf::from);
    }
    let drive = variable("HOMEDRIVE").zip(variable("HOMEPATH")).map(|(drive, path)| drive + &path);
    let candidates: Vec<PathBuf> =
        [variable("HOME"), drive, variable("USERPROFILE")].into_iter().flatten().map(PathBuf::from).collect();
    let with_config = candidates.iter().find(|path| path.join(".kube").join("config").exists());
    with_config.or_else(|| candidates.first()).cloned()
}

/// The hostname. In a pod without `hostNetwork`, the hostname is the name of the pod.
pub fn host_name() -> Option<String> {
    let from_kernel = if cfg!(target_os = "linux") {
        std::fs::read_to_string("/proc/sys/kernel/hostname").ok()
    } else {
        None
    };
    let variable = || ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|name| std::env::var(name).ok());
    let name = from_kernel.or_else(variable)?.trim().to_lowercase();
    (!name.is_empty()).then_some(name)
}

/// Creates a directory that only the current user can enter.
#[cfg(unix)]
pub fn create_private_directory(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// Creates a directory. Its parent, the temporary directory, belongs to the current user.
#[cfg(windows)]
pub fn create_private_directory(path: &std::path::Path) -> io::Result<()> {
    std::fs::create_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn home_is_the_value_of_the_variable() {
        assert_eq!(
            home(|name| (name == "HOME").then(|| "/home/me".to_owned())),
            Some(PathBuf::from("/home/me"))
        );
        assert_eq!(home(|_| Some(String::new())), None);
        assert_eq!(home(|_| None), None);
    }

    #[cfg(windows)]
    #[test]
    fn home_is_the_first_folder_that_is_set() {
        let variable = |name: &str| match name {
            "HOMEDRIVE" => Some("Q:".to_owned()),
            "HOMEPATH" => Some("\\me".to_owned()),
            "USERPROFILE" => Some("Q:\\other".to_owned()),
            _ => None,
        };
        assert_eq!(home(variable), Some(PathBuf::from("Q:\\me")));
    }
}
