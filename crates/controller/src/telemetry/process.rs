//! The `process_*` metrics of this process, named as in Prometheus' Go client. Values that the system does
//! not report are omitted.

use super::declarations::Families;
use super::metrics::{NO_LABELS, set};
use cluster::platform::ProcessStatistics;

/// Updates the metrics to the current values.
pub(super) fn update(families: &Families) {
    let facts = ProcessStatistics::read();
    if let Some(seconds) = facts.cpu_seconds {
        set(&families.process_cpu.with_label_values(&NO_LABELS), seconds);
    }
    for (gauges, value) in [
        (&families.process_max_fds, facts.max_files),
        (&families.process_open_fds, facts.open_files),
        (&families.process_resident, facts.resident_bytes),
        (&families.process_start, facts.start_seconds),
        (&families.process_virtual, facts.virtual_bytes),
        (&families.process_virtual_max, facts.max_virtual_bytes),
    ] {
        if let Some(value) = value {
            gauges.with_label_values(&NO_LABELS).set(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn process_metrics_have_the_names_of_prometheus_go_client() {
        let text = Metrics::new().render();
        let reported = ProcessStatistics::read().resident_bytes.is_some();
        assert_eq!(text.contains("# TYPE process_resident_memory_bytes gauge\n"), reported, "{text}");
        assert_eq!(text.contains("# TYPE process_cpu_seconds_total counter\n"), reported, "{text}");
    }
}
