//! The `process_*` metrics of this process, as Prometheus' Go client names them. What the system does not tell is left
//! out.

use super::declarations;
use super::exposition::Family;
use crate::platform::process::Facts;

/// What the system tells at this moment.
pub(super) fn families() -> Vec<Family> {
    let facts = Facts::read();
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
    fn what_the_system_tells_is_shown_under_the_names_of_prometheus_go_client() {
        let text = render(families(), Format::Text);
        let told = Facts::read().resident_bytes.is_some();
        assert_eq!(text.contains("# TYPE process_resident_memory_bytes gauge\n"), told, "{text}");
        assert_eq!(text.contains("# TYPE process_cpu_seconds_total counter\n"), told, "{text}");
    }
}
