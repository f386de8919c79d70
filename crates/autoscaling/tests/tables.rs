//! Compares the quantities and selectors in the tables of `tests/conformance/tables` with the core, and checks
//! properties of random quantities and selectors.
//!
//! `CONCERTINA_CONFORMANCE` selects a folder other than `tests/conformance`, with or without `tables`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "tables/rows.rs"]
mod rows;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use autoscaling::quantity::{Format, Quantity};
use autoscaling::selector::Selector;
use autoscaling::settings::Version;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::{collection, option};
use serde_json::Value;

use rows::Comparison;

/// Maximum number of printed differences per table.
const SHOWN: usize = 10;

#[test]
fn every_quantity_parses_and_prints_as_in_upstream() {
    check("quantities", rows::quantity);
}

#[test]
fn every_selector_parses_prints_and_matches_as_in_upstream() {
    check("selectors", rows::selector);
}

#[test]
fn every_label_selector_converts_and_prints_as_in_upstream() {
    check("label-selectors", rows::label_selector);
}

fn check(table: &str, row_check: fn(&Value, Version) -> Vec<Comparison>) {
    let named = std::env::var_os("CONCERTINA_CONFORMANCE").map(PathBuf::from);
    let replaced = named.is_some();
    let ours = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let folder = named.unwrap_or_else(ours);
    let of_versions = Version::ALL.map(|version| folder.join(version.name()).join("tables"));
    let files = of_versions.into_iter().chain([folder.join("tables")]);
    let files: Vec<_> =
        files.map(|folder| folder.join(format!("{table}.jsonl.gz"))).filter(|file| file.is_file()).collect();
    assert!(replaced || !files.is_empty(), "no table {table} in {}", folder.display());
    let (mut rows, mut differences) = (0, Vec::new());
    for path in files {
        let version = rows::version_of(&path);
        let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut text = String::new();
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
        assert!(!text.is_empty(), "{} is empty", path.display());
        for line in text.lines() {
            rows += 1;
            let row: Value = serde_json::from_str(line).unwrap();
            for (what, expected, got) in row_check(&row, version) {
                if expected != got {
                    differences.push(format!("{what}: expected {expected}, got {got}\n  in {line}"));
                }
            }
        }
    }
    for difference in differences.iter().take(SHOWN) {
        println!("{table}: {difference}");
    }
    assert!(differences.is_empty(), "{table}: {rows} rows, {} differences", differences.len());
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi), Just(Format::DecimalExponent)]
}

/// Quantities up to 2⁶³ − 1 units, the bound of binary quantities.
fn quantities() -> impl Strategy<Value = Quantity> {
    let bound = i128::from(i64::MAX) * 1_000_000_000;
    let rounded = (-bound..=bound, 0_u32..27)
        .prop_map(|(nanos, zeros)| nanos / 10_i128.pow(zeros) * 10_i128.pow(zeros));
    let whole = (any::<i64>(), 0_u32..60)
        .prop_map(|(units, shift)| i128::from((units >> shift << shift).max(-i64::MAX)) * 1_000_000_000);
    (prop_oneof![rounded, whole], formats()).prop_map(|(nanos, format)| Quantity::from_nanos(nanos, format))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_quantity_parses_as_the_same_amount(quantity in quantities()) {
        let printed = quantity.to_string();
        let read: Quantity = printed.parse().unwrap();
        prop_assert_eq!(read, quantity, "{}", printed);
        // A binary amount that is not a multiple of 1024 is printed without a binary suffix, and then parses as
        // decimal.
        if quantity.format() != Format::BinarySi {
            prop_assert_eq!(read.to_string(), printed);
        }
    }

    #[test]
    fn values_keep_the_order_of_the_amounts(a in quantities(), b in quantities()) {
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        prop_assert!(low.milli_value() <= high.milli_value());
        prop_assert!(low.value() <= high.value());
        prop_assert!(low.as_f64() <= high.as_f64());
    }

    #[test]
    fn any_text_is_a_quantity_or_an_error(text in "\\PC*", near in "[+-]?[0-9.]{0,60}[eEinumkKMGTP]{0,2}[+-]?[0-9]{0,25}") {
        let _ = text.parse::<Quantity>();
        if let Ok(quantity) = near.parse::<Quantity>() {
            let _ = (quantity.milli_value(), quantity.value(), quantity.as_f64(), quantity.to_string());
        }
    }

    #[test]
    fn printed_selector_parses_as_itself(text in selectors()) {
        if let Ok(selector) = Selector::parse(&text) {
            let printed = selector.to_string();
            prop_assert_eq!(Selector::parse(&printed).unwrap().to_string(), printed);
        }
        if let Ok(selector) = Selector::parse_scale(&text, Version::V1_38) {
            let printed = selector.to_string();
            prop_assert_eq!(Selector::parse_scale(&printed, Version::V1_38).unwrap(), selector);
        }
    }

    #[test]
    fn scale_selector_matches_the_same_labels_as_its_text(
        // One requirement per label, because the structured form keeps only the last of several values for a label.
        parts in (option::of(requirements("a")), option::of(requirements("b")), option::of(requirements("c"))),
        labels in collection::btree_map("[abc]", "(x|y|1|10)?", 0..4),
    ) {
        let labels: BTreeMap<String, String> = labels;
        let text = [parts.0, parts.1, parts.2].into_iter().flatten().collect::<Vec<_>>().join(",");
        if let (Ok(direct), Ok(scale)) = (Selector::parse(&text), Selector::parse_scale(&text, Version::V1_38)) {
            prop_assert_eq!(direct.matches(&labels), scale.matches(&labels), "{}", text);
        }
    }

    #[test]
    fn any_text_is_a_selector_or_an_error(text in "\\PC*", near in "[abin!=<>(), \\x00é-]{0,40}") {
        let _ = (Selector::parse(&text), Selector::parse(&near), Selector::parse_scale(&near, Version::V1_38));
    }
}

fn selectors() -> impl Strategy<Value = String> {
    let any_key = prop_oneof![requirements("a"), requirements("b"), requirements("c")];
    collection::vec(any_key, 0..4).prop_map(|requirements| requirements.join(","))
}

fn requirements(key: &'static str) -> impl Strategy<Value = String> {
    let value = "(x|y|1|10)?";
    let values = collection::vec(value, 1..4).prop_map(|values| values.join(","));
    prop_oneof![
        (select(&["=", "==", "!=", "<", ">"][..]), value)
            .prop_map(move |(operator, value)| format!("{key}{operator}{value}")),
        (select(&["in", "notin"][..]), values)
            .prop_map(move |(operator, values)| format!("{key} {operator} ({values})")),
        "!?".prop_map(move |not| format!("{not}{key}")),
    ]
}
