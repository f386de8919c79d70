//! The `process_*` metrics of this process, named as in Prometheus' Go client. Values that the system does
//! not report are omitted.

use super::declarations;
use super::exposition::Family;
use cluster::platform::process::ProcessStatistics;

/// Reads the current values.
pub(super) fn families() -> Vec<Family> {
    let facts = ProcessStatistics::read();
    let metrics = [
        (&declarations::PROCESS_CPU, facts.cpu_seconds),
        (&declarations::PROCESS_MAX_FDS, facts.max_files),
        (&declarations::PROCESS_OPEN_FDS, facts.open_files),
        (&declarations::PROCESS_RESIDENT, facts.resident_bytes),
        (&declarations::PROCESS_START, facts.start_seconds),
        (&declarations::PROCESS_VIRTUAL, facts.virtual_bytes),
        (&declarations::PROCESS_VIRTUAL_MAX, facts.max_virtual_bytes),
    ];
    metrics
        .into_iter()
        .filter_map(|(metric, value)| value.map(|value| Family::single(metric, value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::render;
    use crate::telemetry::negotiation::Format;

    #[test]
    fn process_metrics_have_the_names_of_prometheus_go_client() {
        let text = render(families(), Format::Text);
        let reported = ProcessStatistics::read().resident_bytes.is_some();
        assert_eq!(text.contains("# TYPE process_resident_memory_bytes gauge\n"), reported, "{text}");
        assert_eq!(text.contains("# TYPE process_cpu_seconds_total counter\n"), reported, "{text}");
    }
}
