//! Renders reports as a Markdown table with a column for each, or as an SVG with a bar for each.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::measure::{Report, Spread};

/// A line of the table: the title, and the text in each column.
type Line = (String, Vec<String>);

/// Renders the table.
pub(crate) fn table(reports: &[Report]) -> String {
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
        // Writing to a string cannot fail.
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
    // The table omits kinds of requests that every report has less than once per thousand syncs.
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
                    // This report has no byte counts.
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
    // The table omits a line that has no value in any column.
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

const WIDTH: f64 = 760.0;
/// The left edge of the bars.
const LEFT: f64 = 250.0;
/// The width of the space for the values on the right of the bars.
const RIGHT: f64 = 90.0;
const BAR: f64 = 16.0;
/// The space above each figure.
const GAP: f64 = 22.0;
/// The bar colors of known labels.
const LABEL_COLORS: [(&str, &str); 4] = [
    ("built-in, default flags", "#8a8f98"),
    ("built-in, tuned", "#b9770e"),
    ("concertina", "#2471a3"),
    ("concertina, default flags", "#1e8449"),
];
/// The bar colors of other labels, in the order of the reports.
const OTHER_COLORS: [&str; 4] = ["#2471a3", "#b9770e", "#1e8449", "#8a8f98"];

/// A figure: the title, the unit, and the function that reads the value from a report.
type Figure = (&'static str, &'static str, fn(&Report) -> Option<f64>);

const FIGURES: [Figure; 8] = [
    ("Syncs on time", "%", |it| Some(it.on_time? * 100.0)),
    ("Lateness, 99 of 100", "s", |it| Some(it.lateness?.p99)),
    ("Requests per sync", "", |it| Some(it.requests_per_sync)),
    ("Bytes per sync, both ways", "kB", |it| Some((it.received_per_sync? + it.sent_per_sync?) / 1e3)),
    ("Controller: CPU per 1,000 syncs", "s", |it| Some(it.controller_cpu)),
    ("Server: CPU per 1,000 syncs", "s", |it| Some(it.server_cpu)),
    ("Controller: memory", "MB", |it| Some(it.resident / 1e6)),
    ("Metric change to scale write, 99 of 100", "s", |it| Some(it.reaction?.p99)),
];

/// Renders the SVG. Equal reports produce equal bytes.
pub(crate) fn chart(reports: &[Report]) -> String {
    let mut body = String::new();
    let mut y = 30.0;
    let color = |(report, other): (&Report, &&'static str)| {
        LABEL_COLORS.iter().find(|(label, _)| *label == report.label).map_or(*other, |(_, color)| color)
    };
    let colors: Vec<_> = reports.iter().zip(OTHER_COLORS.iter().cycle()).map(color).collect();
    for (report, color) in reports.iter().zip(&colors) {
        let Report { workload, label, .. } = report;
        let title =
            format!("{label}: {} HPAs × {} pods, {}", workload.all_hpas(), workload.pods, workload.title);
        // Writing to a string cannot fail.
        let _ = writeln!(body, r#"<rect x="16" y="{}" width="12" height="12" fill="{color}"/>"#, y - 11.0);
        let _ = writeln!(body, r#"<text x="36" y="{y}">{}</text>"#, escaped(&title));
        y += 20.0;
    }
    for (title, unit, figure) in FIGURES {
        let values: Vec<_> = reports.iter().map(figure).collect();
        let maximum = values.iter().flatten().copied().fold(0.0, f64::max);
        if maximum <= 0.0 {
            continue;
        }
        y += GAP;
        let _ = writeln!(body, r#"<text class="name" x="16" y="{}">{}</text>"#, y + 12.0, escaped(title));
        for (value, color) in values.iter().zip(&colors) {
            if let Some(value) = value {
                let length = value / maximum * (WIDTH - LEFT - RIGHT);
                let _ = writeln!(
                    body,
                    r#"<rect x="{LEFT}" y="{y}" width="{length:.1}" height="{}" fill="{color}"/>"#,
                    BAR - 2.0
                );
                let text = format!("{} {unit}", amount(*value));
                let x = LEFT + length + 6.0;
                let _ = writeln!(body, r#"<text x="{x:.1}" y="{}">{}</text>"#, y + 12.0, text.trim_end());
                y += BAR;
            }
        }
    }
    let height = y + 20.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>text {{ font: 13px sans-serif; fill: #222 }} .name {{ font-weight: 600 }} .ground {{ fill: #fff }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} .ground {{ fill: #16181c }} }}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n{body}</svg>\n"
    )
}

/// Formats a value with about three significant digits.
fn amount(value: f64) -> String {
    let decimals = match value {
        _ if value >= 100.0 => 0,
        _ if value >= 10.0 => 1,
        _ if value >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
