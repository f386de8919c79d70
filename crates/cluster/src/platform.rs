//! The differences between operating systems. In this crate, only this module contains code for a specific operating
//! system.
//!
//! Every function exists on all systems, and returns an empty result on systems without the feature.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;

/// Receives termination requests: SIGTERM and SIGINT, or on Windows Ctrl-C, Ctrl-Break and a closed console.
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
    /// Starts listening. From then on, a termination request no longer terminates the process.
    #[cfg(unix)]
    pub fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Starts listening. From then on, a termination request no longer terminates the process.
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

/// Makes connections close if sent bytes stay unacknowledged for `time`. Only Linux supports the limit. On other
/// systems, only keepalive detects a lost connection.
pub fn limit_unconfirmed_bytes(connector: &mut HttpConnector, time: Duration) {
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(time));
    #[cfg(not(target_os = "linux"))]
    let _ = (connector, time);
}

/// Returns the home directory, which contains `.kube`. Except on Windows, it is the value of `HOME`. As in client-go's
/// `homedir`, the candidates on Windows are `HOME`, `HOMEDRIVE` with `HOMEPATH`, and `USERPROFILE`. The result is the
/// first candidate that contains `.kube\config`, or else the first that is set.
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

/// Returns the hostname in lower case. In a pod without `hostNetwork`, the hostname is the name of the pod.
pub fn host_name() -> Option<String> {
    let from_kernel =
        if cfg!(target_os = "linux") { fs::read_to_string("/proc/sys/kernel/hostname").ok() } else { None };
    let variable = || ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|name| std::env::var(name).ok());
    let name = from_kernel.or_else(variable)?.trim().to_lowercase();
    (!name.is_empty()).then_some(name)
}

/// Creates a directory that only the current user can enter.
#[cfg(unix)]
pub fn create_private_directory(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Creates a directory. Its parent, the temporary directory, belongs to the current user.
#[cfg(windows)]
pub fn create_private_directory(path: &std::path::Path) -> io::Result<()> {
    fs::create_dir(path)
}

/// `USER_HZ`, the unit of times in /proc, which is the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A snapshot of the statistics of this process. `None` for a value that the system does not provide.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct ProcessStatistics {
    /// User and system CPU time, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Maximum number of open files.
    pub max_files: Option<f64>,
    /// Number of open files.
    pub open_files: Option<f64>,
    /// Resident memory, in bytes.
    pub resident_bytes: Option<f64>,
    /// Start of the process, in seconds since the Unix epoch.
    pub start_seconds: Option<f64>,
    /// Virtual memory, in bytes.
    pub virtual_bytes: Option<f64>,
    /// Maximum virtual memory, in bytes.
    pub max_virtual_bytes: Option<f64>,
}

impl ProcessStatistics {
    /// Reads the statistics. All values are `None` on systems other than Linux.
    pub fn read() -> Self {
        if !cfg!(target_os = "linux") {
            return Self::default();
        }
        let stat = Stat::read();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let (virtual_bytes, resident_bytes) = memory().unzip();
        Self {
            cpu_seconds: stat.as_ref().and_then(Stat::cpu_seconds),
            max_files: limit(&limits, "Max open files"),
            open_files: open_files(),
            resident_bytes,
            start_seconds: stat.as_ref().and_then(Stat::start_seconds),
            virtual_bytes,
            max_virtual_bytes: limit(&limits, "Max address space"),
        }
    }
}

/// The fields of `/proc/self/stat` after the command name, which may contain spaces and parentheses.
struct Stat(Vec<String>);

impl Stat {
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        let (_, fields) = text.rsplit_once(')')?;
        Some(Self(fields.split_whitespace().map(str::to_owned).collect()))
    }

    /// Returns a field by its number in proc(5).
    fn ticks(&self, number: usize) -> Option<f64> {
        self.0.get(number.checked_sub(3)?)?.parse().ok()
    }

    fn cpu_seconds(&self) -> Option<f64> {
        Some((self.ticks(14)? + self.ticks(15)?) / TICKS_PER_SECOND)
    }

    fn start_seconds(&self) -> Option<f64> {
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        Some(boot + self.ticks(22)? / TICKS_PER_SECOND)
    }
}

/// Returns the virtual and the resident size, in bytes.
fn memory() -> Option<(f64, f64)> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()
    };
    Some((kibibytes("VmSize:")? * 1024.0, kibibytes("VmRSS:")? * 1024.0))
}

fn open_files() -> Option<f64> {
    // One entry is the file descriptor of the directory itself.
    let count = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    Some(count as f64)
}

/// Returns a soft limit. As in Go's Prometheus client, `unlimited` is the maximum of a 64-bit unsigned integer.
fn limit(limits: &str, name: &str) -> Option<f64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let soft = rest.split_whitespace().next()?;
    if soft == "unlimited" { Some(u64::MAX as f64) } else { soft.parse().ok() }
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

    #[cfg(target_os = "linux")]
    #[test]
    fn kernel_provides_statistics_of_this_process() {
        let facts = ProcessStatistics::read();
        assert!(facts.resident_bytes.unwrap() > 1e5);
        assert!(facts.virtual_bytes.unwrap() >= facts.resident_bytes.unwrap());
        assert!(facts.open_files.unwrap() >= 3.0);
        assert!(facts.start_seconds.unwrap() > 1.6e9);
        assert!(facts.cpu_seconds.unwrap() >= 0.0);
    }

    #[test]
    fn limits_are_read_by_name() {
        let limits = "Max open files            1024                 4096                 files\n\
                      Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(limit(limits, "Max address space"), Some(18_446_744_073_709_551_616.0));
        assert_eq!(limit(limits, "Max locked memory"), None);
    }
}
