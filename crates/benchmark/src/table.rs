//! Renders reports as one table with a column for each.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::measure::{Report, Spread};

/// A line of the table: its title, and its text in each column.
type Line = (String, Vec<String>);

/// The table as Markdown.
pub(crate) fn render(reports: &[Report]) -> String {
    let mut lines = lines(reports);
    lines.insert(0, (String::new(), reports.iter().map(|report| report.label.clone()).collect()));
    let width =
        |texts: &mut dyn Iterator<Item = &String>| texts.map(|text| text.chars().count()).max().unwrap_or(0);
    let first = width(&mut lines.iter().map(|(title, _)| title));
    let widths: Vec<_> = (0..reports.len())
        .map(|column| width(&mut lines.iter().filter_map(|(_, texts)| texts.get(column))))
        .collect();
    let mut out = String::new();
    for (index, (title, texts)) in lines.iter().enumerate() {
        // Writing to a string cannot fail, here and below.
        let _ = write!(out, "| {title:first$} |");
        for (text, width) in texts.iter().zip(&widths) {
            let _ = write!(out, " {text:>width$} |");
        }
        out.push('\n');
        if index == 0 {
            let _ = write!(out, "|{}|", "-".repeat(first + 2));
            for width in &widths {
                let _ = write!(out, "{}:|", "-".repeat(width + 1));
            }
            out.push('\n');
        }
    }
    out
}

fn lines(reports: &[Report]) -> Vec<Line> {
    let line = |title: &str, text: &dyn Fn(&Report) -> String| -> Line {
        (title.to_owned(), reports.iter().map(text).collect())
    };
    let mut lines = vec![
        line("workload", &|it| format!("{} {}", it.workload.name, it.workload.title)),
        line("HPAs × pods, namespaces", &|it| {
            format!("{} × {}, {}", it.workload.all_hpas(), it.workload.pods, it.workload.namespaces)
        }),
        line("server", &|it| it.server.clone()),
        line("period, measured", &|it| format!("{} s, {:.0} s", it.period, it.measured)),
        line("runs", &|it| it.runs.to_string()),
        line("syncs", &|it| format!("{:.0}", it.syncs)),
        line("syncs of those due", &|it| percent(it.done)),
        line("syncs on time (≤ 1 s late)", &|it| it.on_time.map_or_else(none, percent)),
        line("syncs on time, reported by the controller", &|it| it.own_on_time.map_or_else(none, percent)),
        line("lateness p50 / p99 / max", &|it| spread(it.lateness.as_ref())),
        line("requests per sync", &|it| format!("{:.3}", it.requests_per_sync)),
    ];
    // The table omits kinds of requests that no report has more than once per thousand syncs.
    let kinds: BTreeSet<(&str, &str)> = reports
        .iter()
        .flat_map(|report| &report.requests)
        .filter(|kind| kind.requests >= 0.001)
        .map(|kind| (kind.verb.as_str(), kind.resource.as_str()))
        .collect();
    for (verb, resource) in kinds {
        lines.push(line(&format!("– {verb} {resource}"), &|it| {
            let same = it.requests.iter().find(|kind| kind.verb == verb && kind.resource == resource);
            same.map_or_else(none, |kind| {
                let bytes =
                    if kind.requests > 0.0 { (kind.received + kind.sent) / kind.requests } else { 0.0 };
                match bytes {
                    // Bytes were not counted.
                    0.0 => format!("{:.3}", kind.requests),
                    bytes => format!("{:.3} of {:.1} kB", kind.requests, bytes / 1e3),
                }
            })
        }));
    }
    lines.extend([
        line("bytes per sync to / from the server", &|it| {
            let bytes = |it: Option<f64>| it.map_or_else(none, |bytes| format!("{bytes:.0}"));
            format!("{} / {}", bytes(it.received_per_sync), bytes(it.sent_per_sync))
        }),
        line("controller: CPU s per 1,000 syncs", &|it| format!("{:.3}", it.controller_cpu)),
        line("controller: instructions per sync", &|it| {
            it.instructions_per_sync.map_or_else(none, |count| format!("{:.0} k", count / 1e3))
        }),
        line("server: CPU s per 1,000 syncs", &|it| format!("{:.3}", it.server_cpu)),
        line("etcd: CPU s per 1,000 syncs", &|it| it.etcd_cpu.map_or_else(none, |cpu| format!("{cpu:.3}"))),
        line("metrics server and bench: CPU s per 1,000 syncs", &|it| {
            it.beside_cpu.map_or_else(none, |cpu| format!("{cpu:.3}"))
        }),
        line("controller: resident, peak", &|it| megabytes(&[it.resident, it.resident_peak])),
        line("server: resident", &|it| megabytes(&[it.server_resident])),
        line("metric change → scale write p50 / p99 / max", &|it| spread(it.reaction.as_ref())),
        line("create → first decision p50 / p99 / max", &|it| spread(it.creation.as_ref())),
        line("spec change → decision p50 / p99 / max", &|it| spread(it.spec_change.as_ref())),
        line("start → all decided", &|it| it.all_decided.map_or_else(none, seconds)),
        line("restart → all decided", &|it| it.all_decided_again.map_or_else(none, seconds)),
        line("busiest second / mean", &|it| format!("{:.2}", it.burst)),
    ]);
    // Lines without a value in any column are omitted.
    lines.retain(|(_, texts)| texts.iter().any(|text| *text != none()));
    lines
}

fn none() -> String {
    "–".to_owned()
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn megabytes(bytes: &[f64]) -> String {
    let texts: Vec<_> = bytes.iter().map(|bytes| format!("{:.1} MB", bytes / 1e6)).collect();
    texts.join(", ")
}

fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

fn spread(spread: Option<&Spread>) -> String {
    spread.map_or_else(none, |it| {
        let text = [it.p50, it.p99, it.max].map(seconds).join(" / ");
        if it.missing > 0 { format!("{text}, {} missing", it.missing) } else { text }
    })
}
