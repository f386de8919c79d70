//! Process statistics from the operating system.

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
    /// Start of the process, in seconds since 1970.
    pub start_seconds: Option<f64>,
    /// Virtual memory, in bytes.
    pub virtual_bytes: Option<f64>,
    /// Maximum virtual memory, in bytes.
    pub max_virtual_bytes: Option<f64>,
}

impl ProcessStatistics {
    /// Reads the statistics.
    #[cfg(target_os = "linux")]
    pub fn read() -> Self {
        linux::statistics()
    }

    /// Reads the statistics. Only Linux is supported so far.
    #[cfg(not(target_os = "linux"))]
    pub fn read() -> Self {
        Self::default()
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use super::ProcessStatistics;

    /// `USER_HZ`: the unit of times in /proc, the same on every Linux.
    const TICKS_PER_SECOND: f64 = 100.0;

    pub(super) fn statistics() -> ProcessStatistics {
        let stat = Stat::read();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let (virtual_bytes, resident_bytes) = memory().unzip();
        ProcessStatistics {
            cpu_seconds: stat.as_ref().and_then(Stat::cpu_seconds),
            max_files: limit(&limits, "Max open files"),
            open_files: open_files(),
            resident_bytes,
            start_seconds: stat.as_ref().and_then(Stat::start_seconds),
            virtual_bytes,
            max_virtual_bytes: limit(&limits, "Max address space"),
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

        /// A field by its number in proc(5).
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

    /// Virtual and resident size in bytes.
    fn memory() -> Option<(f64, f64)> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let kibibytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()
        };
        Some((kibibytes("VmSize:")? * 1024.0, kibibytes("VmRSS:")? * 1024.0))
    }

    fn open_files() -> Option<f64> {
        // One entry is the open directory itself.
        let count = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
        Some(count as f64)
    }

    /// The soft limit. Unlimited is the maximum of Go's uint64, as in Go's Prometheus client.
    fn limit(limits: &str, name: &str) -> Option<f64> {
        let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let soft = rest.split_whitespace().next()?;
        if soft == "unlimited" { Some(u64::MAX as f64) } else { soft.parse().ok() }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn kernel_provides_statistics_of_this_process() {
            let facts = statistics();
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
}
