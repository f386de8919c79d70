//! Compares the table of `docs/internals/bounds.md` with the limits.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use limits::{HEAP, TIME, answer, hpa, object, page, policy, quantity, query, schedule, selector};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/bounds.md");

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn count(number: usize) -> String {
    let digits = number.to_string();
    let (thousands, rest) = digits.split_at(digits.len().saturating_sub(3));
    match thousands {
        "" => rest.to_owned(),
        _ => format!("{},{rest}", count(thousands.parse().unwrap())),
    }
}

/// The first three columns of the table: the kind of the text, its bytes, and its other limits.
fn rows() -> [[String; 3]; 10] {
    let schedules = format!("{} months in a search", schedule::MONTHS);
    [
        (
            "policy",
            policy::BYTES,
            [
                format!("{} nodes", count(policy::NODES)),
                format!("{} levels", policy::DEPTH),
                format!("{} entries of a list", policy::ENTRIES),
                format!("{} labels of a metric", policy::LABELS),
            ]
            .join(", "),
        ),
        ("schedules", schedule::BYTES, schedules),
        (
            "query",
            query::BYTES,
            [
                format!("{} operators", query::OPERATORS),
                format!("{} regular expressions", query::REGEXES),
                format!("{} as sent", size(query::SENT)),
            ]
            .join(", "),
        ),
        (
            "answer",
            answer::BYTES,
            [format!("{} series", count(answer::SERIES)), format!("{} labels", count(answer::LABELS))]
                .join(", "),
        ),
        (
            "page",
            page::BYTES,
            [
                format!("{} metrics", page::METRICS),
                format!("{} series of a metric", count(page::SERIES)),
                format!("{} labels of a series", page::LABELS),
                format!("{} of a line", size(page::LINE)),
                format!("{} lines", count(page::LINES)),
                format!("{} comparisons", count(page::COMPARISONS)),
            ]
            .join(", "),
        ),
        ("selector", selector::BYTES, String::new()),
        ("quantity", quantity::BYTES, String::new()),
        ("labels", object::BYTES, format!("{} decoded parts", count(object::PARTS))),
        (
            "policy object",
            object::BYTES,
            format!("{} without its selectors, of a selector, and of the status", size(policy::BYTES)),
        ),
        ("spec of an HPA", hpa::BYTES, format!("{} metrics", count(hpa::METRICS))),
    ]
    .map(|(kind, bytes, others)| [kind.to_owned(), size(bytes), others])
}

#[test]
fn table_of_texts_states_the_limits() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let table = page.split("## Texts of tenants").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let written: Vec<_> = table.lines().filter(|line| line.starts_with("| ")).skip(1).map(cells).collect();
    let stated: Vec<_> = written.iter().map(|cells| cells.get(1..4).unwrap()).collect();
    assert_eq!(stated, rows().iter().map(|row| &row[..]).collect::<Vec<_>>());
    for cells in &written {
        let figures: Vec<f64> = cells
            .iter()
            .skip(4)
            .filter_map(|cell| cell.split(' ').next()?.replace(',', "").parse().ok())
            .collect();
        let [heap, time] = figures[..] else { panic!("{cells:?}") };
        assert!(heap * 1024.0 <= HEAP as f64 && time <= TIME.as_secs_f64() * 1e3, "{cells:?}");
    }
}
