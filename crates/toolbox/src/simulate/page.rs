//! The report: one self-contained HTML page. Its content security policy allows only its own style and
//! script, by their hashes, and no network access.

mod data;
mod parts;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

pub(super) use self::data::Data;
pub(super) use self::parts::panels;
use super::figure::{self, HATCHES};
use super::run::{Comparison, HpaRun, Run};
use super::table;
use crate::explain::escape::html;

/// The maximum number of charts on a page. More charts make browsers slow and pages confusing. Further HPAs
/// show only their scores.
const CHARTS: usize = 12;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Renders the report of a comparison. The same comparison gives the same bytes.
pub fn render(comparison: &Comparison) -> String {
    let style = format!("{}{}{STYLE}", figure::variables(), figure::STYLE);
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(&style),
        hash(SCRIPT)
    );
    let groups = table::variants(comparison);
    let (shown, left_out) = groups.split_at(charted(&groups));
    let title = html(comparison.runs.first().map_or("Simulation", |run| run.title.as_str()));
    let header = parts::header(comparison, &groups);
    let scores = parts::scores(&groups, shown.len());
    let mut sections = String::new();
    let mut data = Data::default();
    for (index, group) in shown.iter().enumerate() {
        sections.push_str(&parts::section(index, group, &mut data));
    }
    let notice = parts::notice(shown, left_out, data.left_out());
    let notes = parts::notes(comparison);
    let data = data.json();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"concertina simulate\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n\
         <svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\">{HATCHES}</svg>\n\
         {header}<main>\n{scores}{sections}{notice}{notes}</main>\n\
         <div id=\"tip\" hidden></div>\n<div id=\"say\" role=\"status\"></div>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// The number of HPAs with charts: the first HPAs that fit with all their variants, at least one.
fn charted(groups: &[Vec<(&Run, &HpaRun)>]) -> usize {
    let mut charts = 0;
    let fits = |group: &&Vec<(&Run, &HpaRun)>| {
        charts += group.len();
        charts <= CHARTS
    };
    groups.iter().take_while(fits).count().max(1).min(groups.len())
}

/// The hash of a style or script as a CSP source.
pub(crate) fn hash(source: &str) -> String {
    format!("sha256-{}", STANDARD.encode(digest(&SHA256, source.as_bytes())))
}
