//! Renders reports as an SVG: one bar per report for each figure.

use std::fmt::Write as _;

use crate::measure::Report;

const WIDTH: f64 = 760.0;
/// Left edge of the bars, and width of the space for their values on the right.
const LEFT: f64 = 250.0;
const RIGHT: f64 = 90.0;
const BAR: f64 = 16.0;
const GAP: f64 = 22.0;
/// Bar colors: fixed for known labels, and in the order of the reports for others.
const LABEL_COLORS: [(&str, &str); 4] = [
    ("built-in, default flags", "#8a8f98"),
    ("built-in, tuned", "#b9770e"),
    ("concertina", "#2471a3"),
    ("concertina, default flags", "#1e8449"),
];
const OTHER_COLORS: [&str; 4] = ["#2471a3", "#b9770e", "#1e8449", "#8a8f98"];

/// A figure: title, unit, and the function that reads its value from a report.
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
pub(crate) fn render(reports: &[Report]) -> String {
    let mut body = String::new();
    let mut y = 30.0;
    let colors: Vec<_> =
        reports.iter().zip(OTHER_COLORS.iter().cycle()).map(|(it, other)| color(it, other)).collect();
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

fn color(report: &Report, other: &'static str) -> &'static str {
    LABEL_COLORS.iter().find(|(label, _)| *label == report.label).map_or(other, |(_, color)| color)
}

/// Formats with three significant digits.
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
