//! The `process_*` metrics of this process, as Prometheus' Go client names them. What the system does not tell is left
//! out.

use super::exposition::Family;
use crate::platform::process::Facts;

/// What the system tells at this moment.
pub(super) fn families() -> Vec<Family> {
    let facts = Facts::read();
    let metrics = [
        (
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            "counter",
            facts.cpu_seconds,
        ),
        ("process_max_fds", "Maximum number of open file descriptors.", "gauge", facts.max_files),
        ("process_open_fds", "Number of open file descriptors.", "gauge", facts.open_files),
        ("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", facts.resident_bytes),
        (
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            "gauge",
            facts.start_seconds,
        ),
        ("process_virtual_memory_bytes", "Virtual memory size in bytes.", "gauge", facts.virtual_bytes),
        (
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes.",
            "gauge",
            facts.max_virtual_bytes,
        ),
    ];
    let family = |(name, help, kind, value): (&str, _, _, Option<f64>)| {
        value.map(|value| Family::single(name, help, kind, value))
    };
    metrics.into_iter().filter_map(family).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::render;

    #[test]
    fn what_the_system_tells_is_shown_under_the_names_of_prometheus_go_client() {
        let text = render(families());
        let told = Facts::read().resident_bytes.is_some();
        assert_eq!(text.contains("# TYPE process_resident_memory_bytes gauge\n"), told, "{text}");
        assert_eq!(text.contains("# TYPE process_cpu_seconds_total counter\n"), told, "{text}");
    }
}
