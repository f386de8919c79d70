//! The page with a chart for each HPA: one self-contained HTML file without a script.

use std::fmt::Write as _;

use super::recording::{Load, index};
use super::report::Report;
use super::search::FITTED;
use super::search::Search;
use terminal::words::{hash, html};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;\
    color:#1d2733;background:#fff}pre{overflow-x:auto;background:#f4f6f8;padding:1rem;font-size:12px}\
    h2{font-size:1.05rem;margin:2rem 0 0}p{margin:.2rem 0}svg{width:100%;height:auto}path{fill:none;stroke-width:1.5}\
    .days{stroke:#eef1f4}.split{stroke:#8a94a0;stroke-dasharray:3 3}.today{stroke:#8a94a0}.advised{stroke:#0b6bcb}\
    .load{fill:#dfe7ef}.short{fill:#c62828}text{font-size:11px;fill:#5a6672}b{margin-right:.3rem}\
    b.load{color:#b9cbdc}b.today{color:#8a94a0}b.advised{color:#0b6bcb}b.short{color:#c62828}";
/// The size of a chart.
const SIZE: (f64, f64) = (900.0, 130.0);
/// The most points of a line.
const POINTS: usize = 450;

/// A chart of one HPA, drawn when its replay ends so that no counts are kept.
pub(crate) fn chart(load: &Load, target: i32, search: &Search) -> String {
    let minutes = search.today.len().max(1);
    let step = minutes.div_ceil(POINTS).max(1);
    let highest = |values: &dyn Fn(usize) -> f64| -> Vec<f64> {
        let bucket = |from: usize| (from..(from + step).min(minutes)).map(values).fold(0.0, f64::max);
        (0..minutes).step_by(step).map(bucket).collect()
    };
    let count = |counts: &[i32], minute: usize| counts.get(minute).copied().map_or(0.0, f64::from);
    let needed = 100.0 * load.capacity / f64::from(target.max(1));
    let loads = highest(&|minute| load.series.loads.get(minute).copied().flatten().unwrap_or(0.0) * needed);
    let today = highest(&|minute| count(&search.today, minute));
    let advised = highest(&|minute| count(&search.advised, minute));
    let short = highest(&|minute| search.unserved.get(minute).copied().unwrap_or_default());
    let top = loads.iter().chain(&today).chain(&advised).copied().fold(1.0, f64::max);
    let (width, height) = SIZE;
    let base = height - 14.0;
    let x = |at: usize| at as f64 / loads.len().max(1) as f64 * width;
    let y = |value: f64| base - value / top * (base - 14.0);
    let of_minute = |minute: usize| minute as f64 / minutes as f64 * width;
    let split = of_minute(load.minute_of(FITTED));
    let start = load.series.start;
    let midnight = usize::try_from((-start.as_second().div_euclid(60)).rem_euclid(1440)).unwrap_or_default();
    let mut days = String::new();
    for day in (midnight..minutes).step_by(1440) {
        let _ = write!(days, "M{:.0} 14V{base:.0}", of_minute(day));
    }
    let date = |minute| load.series.time(minute).strftime("%Y-%m-%d");
    let line = |values: &[f64]| {
        let mut path = String::new();
        for (at, value) in values.iter().enumerate() {
            let command = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.0} {:.0}", x(at), y(*value));
        }
        path
    };
    let area = format!("{}L{width:.0} {base:.0}L0 {base:.0}Z", line(&loads));
    let mut marks = String::new();
    for (at, _) in short.iter().enumerate().filter(|(_, lost)| **lost > 0.0) {
        let _ = write!(marks, "M{:.0} 0h2v6h-2z", x(at));
    }
    let advised = if search.advised.is_empty() { String::new() } else { line(&advised) };
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\"><path class=\"days\" d=\"{days}\"/>\
         <path class=\"load\" d=\"{area}\"/><path class=\"split\" d=\"M{split:.0} 0V{base:.0}\"/>\
         <path class=\"today\" d=\"{}\"/><path class=\"advised\" d=\"{advised}\"/>\
         <path class=\"short\" d=\"{marks}\"/><text x=\"4\" y=\"11\">{} pods</text>\
         <text x=\"{:.0}\" y=\"11\">judged</text><text x=\"0\" y=\"{height}\">{}</text>\
         <text x=\"{width}\" y=\"{height}\" text-anchor=\"end\">{}</text></svg>",
        line(&today),
        index(top),
        split + 4.0,
        date(0),
        date(minutes)
    )
}

/// The page. `charts` has a chart per HPA, keyed by namespace and name.
pub(crate) fn page(report: &Report, charts: &super::Charts) -> String {
    let mut sections = String::new();
    for row in &report.hpas {
        let Some(chart) = charts.get(&(row.namespace.clone(), row.name.clone())) else { continue };
        let what = match (&row.why, &row.advice) {
            (Some(why), _) => why.clone(),
            (None, Some(advice)) => advice.sentences(row),
            (None, None) => continue,
        };
        let _ = write!(sections, "<h2>{}</h2>\n<p>{}</p>\n{chart}\n", html(&row.title()), html(&what));
    }
    let policy =
        format!("default-src 'none'; style-src '{}'; base-uri 'none'; form-action 'none'", hash(STYLE));
    let text = report.text();
    let text: Vec<_> = text.lines().map(html).collect();
    let text = text.join("\n");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Advice for HPAs</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>Advice for HPAs</h1>\n\
         <pre>{text}</pre>\n<p><b class=\"load\">■</b>pods that the load needs at today's target \
         <b class=\"today\">■</b>pods with today's settings <b class=\"advised\">■</b>pods with the advised ones \
         <b class=\"short\">■</b>load that is lost today</p>\n{sections}</body>\n</html>\n"
    )
}
