//! What a process has used, as /proc tells it. Linux only.

use std::fs::read_to_string;

use crate::Failure;

/// Clock ticks of /proc/PID/stat in a second: the same on every Linux that Rust is built for.
const TICKS: f64 = 100.0;

/// What a process has used until now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// Seconds, of all threads, in user and kernel mode.
    pub(crate) cpu: f64,
    /// Resident bytes, now and at most.
    pub(crate) resident: u64,
    pub(crate) peak: u64,
}

impl Usage {
    /// Of this process.
    pub(crate) fn own() -> Result<Self, Failure> {
        Self::read("self")
    }

    /// Of another one.
    pub(crate) fn of(pid: u32) -> Result<Self, Failure> {
        Self::read(&pid.to_string())
    }

    fn read(process: &str) -> Result<Self, Failure> {
        let stat = read_to_string(format!("/proc/{process}/stat"))?;
        // The name before may hold anything; behind it the 12th and 13th fields are utime and stime.
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
