//! The `process_*` metrics of this process, as Prometheus' Go client names them. Linux only; absent elsewhere.

#[cfg(not(target_os = "linux"))]
pub(super) fn families() -> Vec<super::exposition::Family> {
    Vec::new()
}

#[cfg(target_os = "linux")]
pub(super) use linux::families;

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use crate::telemetry::exposition::Family;

    /// `USER_HZ`: the unit of times in /proc, the same on every Linux.
    const TICKS_PER_SECOND: f64 = 100.0;

    /// What the kernel tells at this moment; what it does not tell is left out.
    pub(in crate::telemetry) fn families() -> Vec<Family> {
        let stat = Stat::read();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let cpu = stat.as_ref().and_then(Stat::cpu_seconds);
        let started = stat.as_ref().and_then(Stat::start_seconds);
        let (virtual_bytes, resident_bytes) = memory().unzip();
        let metrics = [
            ("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", "counter", cpu),
            (
                "process_max_fds",
                "Maximum number of open file descriptors.",
                "gauge",
                limit(&limits, "Max open files"),
            ),
            ("process_open_fds", "Number of open file descriptors.", "gauge", open_files()),
            ("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", resident_bytes),
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                "gauge",
                started,
            ),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", "gauge", virtual_bytes),
            (
                "process_virtual_memory_max_bytes",
                "Maximum amount of virtual memory available in bytes.",
                "gauge",
                limit(&limits, "Max address space"),
            ),
        ];
        let family = |(name, help, kind, value): (&str, _, _, Option<f64>)| {
            value.map(|value| Family::single(name, help, kind, value))
        };
        metrics.into_iter().filter_map(family).collect()
    }

    /// The fields of `/proc/self/stat` after the command name, which may hold spaces and parentheses.
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
        // One of them is the directory that is being read.
        let count = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
        Some(count as f64)
    }

    /// The soft limit; unlimited is the largest number that Go's client knows.
    fn limit(limits: &str, name: &str) -> Option<f64> {
        let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let soft = rest.split_whitespace().next()?;
        if soft == "unlimited" { Some(u64::MAX as f64) } else { soft.parse().ok() }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::telemetry::exposition::render;

        #[test]
        fn the_kernel_tells_of_this_process() {
            let text = render(families());
            let value = |name: &str| -> f64 {
                let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                line.trim().parse().unwrap()
            };
            assert!(value("process_resident_memory_bytes ") > 1e5);
            assert!(value("process_virtual_memory_bytes ") >= value("process_resident_memory_bytes "));
            assert!(value("process_open_fds ") >= 3.0);
            assert!(value("process_start_time_seconds ") > 1.6e9);
            assert!(value("process_cpu_seconds_total ") >= 0.0);
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
