//! What differs between operating systems: the only folder with code for one of them.
//!
//! Everything here exists on every system; where a system has no such thing, the answer is that there is none.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;

pub(crate) mod process;

/// Requests from outside to end: SIGTERM and SIGINT; on Windows Ctrl-C, Ctrl-Break and a console that is closed.
#[derive(Debug)]
pub(crate) struct StopRequests {
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
    /// Begins to listen; from now on a request no longer ends the process by itself.
    #[cfg(unix)]
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Begins to listen; from now on a request no longer ends the process by itself.
    #[cfg(windows)]
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close};
        Ok(Self { interrupt: ctrl_c()?, stop: ctrl_break()?, close: ctrl_close()? })
    }

    /// Waits for the next one.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for the next one.
    #[cfg(windows)]
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.stop.recv() => {}
            _ = self.close.recv() => {}
        }
    }
}

/// Ends connections on which sent bytes stay unconfirmed for this time. Only Linux can; elsewhere keepalive has to do.
pub(crate) fn limit_unconfirmed_bytes(connector: &mut HttpConnector, time: Duration) {
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(time));
    #[cfg(not(target_os = "linux"))]
    let _ = (connector, time);
}

/// Where kubectl looks for `.kube`: `HOME`. On Windows the first of `HOME`, `HOMEDRIVE` with `HOMEPATH` and
/// `USERPROFILE` that holds a `.kube\config`, else the first that is set, as client-go's `homedir` has it.
pub(crate) fn home(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
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

/// The name of this machine; of a pod, unless it uses the host's network, the name of the pod.
pub(crate) fn host_name() -> Option<String> {
    let known = if cfg!(target_os = "linux") {
        std::fs::read_to_string("/proc/sys/kernel/hostname").ok()
    } else {
        None
    };
    let variable = || ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|name| std::env::var(name).ok());
    let name = known.or_else(variable)?.trim().to_lowercase();
    (!name.is_empty()).then_some(name)
}

/// Makes a directory that only this user can enter.
#[cfg(all(unix, feature = "tools"))]
pub(crate) fn create_private_directory(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// Makes a directory. Its parent, the temporary directory, is this user's own.
#[cfg(all(windows, feature = "tools"))]
pub(crate) fn create_private_directory(path: &std::path::Path) -> io::Result<()> {
    std::fs::create_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn home_is_what_the_variable_says() {
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
