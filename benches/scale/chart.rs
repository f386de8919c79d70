//! Reports as an SVG: for each figure a bar per report.

use std::fmt::Write as _;

use crate::measure::Report;

const WIDTH: f64 = 760.0;
/// Where bars begin, and how much room they leave for their figure on the right.
const LEFT: f64 = 250.0;
const RIGHT: f64 = 90.0;
const BAR: f64 = 16.0;
const GAP: f64 = 22.0;
/// Fills of bars: of who is known by its label the same in every picture, of others in the order of the reports.
const OF_LABEL: [(&str, &str); 4] = [
    ("built-in, default flags", "#8a8f98"),
    ("built-in, tuned", "#b9770e"),
    ("concertina", "#2471a3"),
    ("concertina, default flags", "#1e8449"),
];
const OF_OTHERS: [&str; 4] = ["#2471a3", "#b9770e", "#1e8449", "#8a8f98"];

/// What is drawn: its title, its unit, and how it is taken from a report.
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

/// The picture; the same reports give the same bytes.
pub(crate) fn render(reports: &[Report]) -> String {
    let mut body = String::new();
    let mut y = 30.0;
    let inks: Vec<_> =
        reports.iter().zip(OF_OTHERS.iter().cycle()).map(|(it, other)| ink(it, other)).collect();
    for (report, ink) in reports.iter().zip(&inks) {
        let Report { workload, label, .. } = report;
        let title =
            format!("{label}: {} HPAs × {} pods, {}", workload.all_hpas(), workload.pods, workload.title);
        // Writing to a string cannot fail.
        let _ = writeln!(body, r#"<rect x="16" y="{}" width="12" height="12" fill="{ink}"/>"#, y - 11.0);
        let _ = writeln!(body, r#"<text x="36" y="{y}">{}</text>"#, escaped(&title));
        y += 20.0;
    }
    for (title, unit, figure) in FIGURES {
        let values: Vec<_> = reports.iter().map(figure).collect();
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        if most <= 0.0 {
            continue;
        }
        y += GAP;
        let _ = writeln!(body, r#"<text class="name" x="16" y="{}">{}</text>"#, y + 12.0, escaped(title));
        for (value, ink) in values.iter().zip(&inks) {
            if let Some(value) = value {
                let length = value / most * (WIDTH - LEFT - RIGHT);
                let _ = writeln!(
                    body,
                    r#"<rect x="{LEFT}" y="{y}" width="{length:.1}" height="{}" fill="{ink}"/>"#,
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

fn ink(report: &Report, other: &'static str) -> &'static str {
    OF_LABEL.iter().find(|(label, _)| *label == report.label).map_or(other, |(_, ink)| ink)
}

/// With three figures that count.
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
