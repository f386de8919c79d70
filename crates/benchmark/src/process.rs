//! The resource usage of a process from /proc. Linux only.

use std::fs::read_to_string;

use crate::Failure;

/// Clock ticks per second in /proc/PID/stat, equal on every Linux target of Rust.
const TICKS: f64 = 100.0;

/// The resource usage of a process until now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// CPU seconds of all threads in user and kernel mode.
    pub(crate) cpu: f64,
    /// Current and peak resident bytes.
    pub(crate) resident: u64,
    pub(crate) peak: u64,
}

impl Usage {
    /// The usage of this process.
    pub(crate) fn own() -> Result<Self, Failure> {
        Self::read("self")
    }

    /// The usage of another process.
    pub(crate) fn of_process(pid: u32) -> Result<Self, Failure> {
        Self::read(&pid.to_string())
    }

    fn read(process: &str) -> Result<Self, Failure> {
        let stat = read_to_string(format!("/proc/{process}/stat"))?;
        // The process name may contain any character. After it, the 12th and 13th fields are utime and
        // stime.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        let status = read_to_string(format!("/proc/{process}/status"))?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            kilobytes
                .map(|kilobytes| kilobytes * 1024)
                .ok_or_else(|| format!("no {name} in /proc/{process}/status"))
        };
        Ok(Self { cpu: ticks / TICKS, resident: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
    }
}
