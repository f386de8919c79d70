//! The report as one self-contained HTML page without scripts.

use std::fmt::Write;

use super::summary::{self, Answer, Summary};
use coexist::shadow::wire::{Change, Counts};
use terminal::explain::Zone;
use terminal::words::{hash, html};

const STYLE: &str = include_str!("page.css");
/// Maximum number of changes to list per section.
const MOST: usize = 500;

/// Renders the report as a page. Equal summaries give equal bytes.
pub fn render(summary: &Summary, zone: &Zone) -> String {
    let policy =
        format!("default-src 'none'; style-src '{}'; base-uri 'none'; form-action 'none'", hash(STYLE));
    let class = match summary.verdict {
        Answer::Same => "same",
        Answer::Different => "different",
        Answer::Nothing => "nothing",
    };
    let sentence = html(&summary.sentence);
    let (header, tiles) = (header(summary, zone), tiles(summary));
    let (differences, doubts) = (differences(summary, zone), doubts(summary, zone));
    let (table, flags) = (table(summary), flags(summary));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"concertina parity\">\n\
         <title>Parity: {sentence}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1 class=\"{class}\">{sentence}</h1>\n{header}</header>\n<main>\n\
         {tiles}{differences}{doubts}{table}{flags}</main>\n</body>\n</html>\n"
    )
}

fn header(summary: &Summary, zone: &Zone) -> String {
    let scope =
        summary.namespace.as_ref().map(|name| format!(", namespace {}", html(name))).unwrap_or_default();
    let mut text = format!(
        "<p>{} to {}{scope}. Compared by Concertina {} in a dry run.</p>\n",
        zone.full(summary.from),
        zone.full(summary.until),
        html(&summary.controller.version),
    );
    if summary.is_younger {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "<p>The dry run is younger than the requested time span: it has been running for {}.</p>",
            summary.span()
        );
    }
    if summary.is_by_hours {
        text.push_str("<p>There were more changes than are kept: counts cover whole hours.</p>\n");
    }
    text
}

fn tiles(summary: &Summary) -> String {
    let Counts { same, unknown, .. } = summary.counts;
    let tile = |name: &str, value: String, class: &str| {
        format!("<div><dt>{name}</dt><dd class=\"{class}\">{value}</dd></div>")
    };
    let differences = summary.counts.differences();
    let tiles = [
        tile("the same", same.to_string(), if same > 0 { "good" } else { "" }),
        tile("different", differences.to_string(), if differences > 0 { "bad" } else { "" }),
        tile("not judged", unknown.to_string(), ""),
        tile("compared for", summary.span().to_string(), ""),
        tile("HPAs", summary.hpas.to_string(), ""),
    ];
    format!("<dl class=\"tiles\">{}</dl>\n", tiles.concat())
}

fn differences(summary: &Summary, zone: &Zone) -> String {
    if summary.counts.differences() == 0 {
        return String::new();
    }
    let mut text = "<section>\n<h2>Differences</h2>\n<ol class=\"changes\">\n".to_owned();
    for change in summary.differences.iter().take(MOST) {
        text.push_str(&item(change, summary, zone));
    }
    text.push_str("</ol>\n");
    let all = usize::try_from(summary.counts.differences()).unwrap_or(usize::MAX);
    let rest = all.saturating_sub(summary.differences.len().min(MOST));
    if rest > 0 {
        let _ = writeln!(text, "<p class=\"note\">and {rest} more</p>");
    }
    text.push_str("</section>\n");
    text
}

fn item(change: &Change, summary: &Summary, zone: &Zone) -> String {
    let [builtin, ours] = summary::counts(change);
    let nothing = || "changed nothing".to_owned();
    let reasons: Vec<_> = summary::builtin_reasons(change)
        .iter()
        .map(|reason| format!("<small>{}</small>", html(reason)))
        .collect();
    let sentence = change.ours.as_ref().map_or("", |ours| ours.sentence.as_str());
    format!(
        "<li><h3>{}/{} <small>{}</small></h3>\n<p class=\"what\">{} <time datetime=\"{}\">{}</time></p>\n\
         <dl><dt>built-in</dt><dd><b>{}</b> {}</dd><dt>dry run</dt><dd><b>{}</b> <small>{}</small></dd></dl></li>\n",
        html(&change.namespace),
        html(&change.name),
        if change.result.is_difference() { "" } else { change.doubt.map_or("", |doubt| doubt.as_str()) },
        super::what(change.result),
        change.at,
        zone.time(change.at, summary.until),
        html(&builtin.unwrap_or_else(nothing)),
        reasons.join(" "),
        html(&ours.unwrap_or_else(nothing)),
        html(sentence),
    )
}

fn doubts(summary: &Summary, zone: &Zone) -> String {
    if summary.counts.unknown == 0 {
        return String::new();
    }
    let mut text = "<section>\n<h2>Not judged</h2>\n<ul>\n".to_owned();
    for (doubt, count) in &summary.doubts {
        let _ = writeln!(text, "<li>{count} × {}</li>", doubt.as_str());
    }
    text.push_str("</ul>\n");
    if !summary.not_judged.is_empty() {
        text.push_str("<details><summary>All of them</summary>\n<ol class=\"changes\">\n");
        for change in summary.not_judged.iter().take(MOST) {
            text.push_str(&item(change, summary, zone));
        }
        text.push_str("</ol></details>\n");
    }
    text.push_str("</section>\n");
    text
}

fn table(summary: &Summary) -> String {
    if summary.namespaces.is_empty() {
        return String::new();
    }
    let mut text = "<section>\n<h2>By namespace and HPA</h2>\n<div class=\"wide\"><table>\n<thead><tr><th scope=\"col\">\
                    Namespace</th><th scope=\"col\">HPA</th><th scope=\"col\" class=\"n\">Same</th>\
                    <th scope=\"col\" class=\"n\">Different</th><th scope=\"col\" class=\"n\">Not judged</th></tr></thead>\n"
        .to_owned();
    let cells = |counts: &Counts| {
        let differences = counts.differences();
        let class = if differences > 0 { "n bad" } else { "n" };
        let cell = |class: &str, count: u64| {
            let count = if count == 0 { "–".to_owned() } else { count.to_string() };
            format!("<td class=\"{class}\">{count}</td>")
        };
        [cell("n", counts.same), cell(class, differences), cell("n", counts.unknown)].concat()
    };
    for namespace in &summary.namespaces {
        let name = html(&namespace.name);
        let _ = writeln!(
            text,
            "<tbody>\n<tr class=\"sum\"><th scope=\"rowgroup\">{name}</th><td></td>{}</tr>",
            cells(&namespace.counts)
        );
        for hpa in &namespace.hpas {
            let name = if hpa.name.is_empty() { "(others)".into() } else { html(&hpa.name) };
            let _ = writeln!(text, "<tr><td></td><th scope=\"row\">{name}</th>{}</tr>", cells(&hpa.counts));
        }
        text.push_str("</tbody>\n");
    }
    text.push_str("</table></div>\n</section>\n");
    text
}

fn flags(summary: &Summary) -> String {
    let mut text =
        "<footer>\n<p>The dry run decides with these flags; the built-in controller must run with the same \
                    flags:</p>\n<ul>\n"
            .to_owned();
    for (name, value) in super::flags(&summary.controller) {
        let _ = writeln!(text, "<li><code>--horizontal-pod-autoscaler-{name}={}</code></li>", html(&value));
    }
    text.push_str("</ul>\n</footer>\n");
    text
}
