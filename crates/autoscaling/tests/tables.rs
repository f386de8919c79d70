//! Plays the tables of `tests/conformance/tables` that the core answers for: every row, no difference.
//!
//! `CONCERTINA_CONFORMANCE` may name another folder in place of `tests/conformance`; a folder named so may be
//! without `tables`, ours may not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may panic; helpers of a test file are not seen as tests"
)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Read;
use std::path::PathBuf;

use autoscaling::quantity::{Format, Quantity};
use autoscaling::selector::{LabelSelector, Selector, SelectorError, go_print};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// How many differences of a table are printed.
const SHOWN: usize = 10;

/// The rows of one table; none if the folder that the environment names has no tables.
fn rows<Row: DeserializeOwned>(table: &str) -> Option<Vec<Row>> {
    let named = std::env::var_os("CONCERTINA_CONFORMANCE").map(PathBuf::from);
    let replaced = named.is_some();
    let ours = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let folder = named.unwrap_or_else(ours).join("tables");
    if replaced && !folder.is_dir() {
        println!("{table}: no rows, {} does not exist", folder.display());
        return None;
    }
    let path = folder.join(format!("{table}.jsonl.gz"));
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = String::new();
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut lines).unwrap();
    let rows: Vec<Row> = lines
        .lines()
        .map(|line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}: {line}", path.display()))
        })
        .collect();
    assert!(!rows.is_empty(), "{} is empty", path.display());
    Some(rows)
}

/// Collects what differs, one line for each.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn expect<T: PartialEq + Debug + ?Sized>(&mut self, row: &str, what: &str, expected: &T, got: &T) {
        if expected != got {
            self.0.push(format!(
                "{row}\n  {what}: expected {expected:?}\n  {:1$} got      {got:?}",
                "",
                what.len()
            ));
        }
    }

    fn report(self, table: &str, rows: usize) -> (usize, usize) {
        for difference in self.0.iter().take(SHOWN) {
            eprintln!("{table}: {difference}");
        }
        println!("{table}: {rows} rows, {} differences", self.0.len());
        (rows, self.0.len())
    }
}

fn text_of<T: ToString>(result: &Result<T, SelectorError>) -> Result<String, String> {
    result.as_ref().map(T::to_string).map_err(SelectorError::to_string)
}

fn expected(text: Option<String>, error: Option<String>) -> Result<String, String> {
    error.map_or_else(|| Ok(text.expect("a row has a text or an error")), Err)
}

#[derive(Deserialize)]
struct QuantityRow {
    text: String,
    error: Option<String>,
    canonical: Option<String>,
    format: Option<String>,
    milli: Option<i64>,
    value: Option<i64>,
    float: Option<f64>,
    sign: Option<i128>,
}

fn quantities() -> Option<(usize, usize)> {
    let rows: Vec<QuantityRow> = rows("quantities")?;
    let mut differences = Differences::default();
    for row in &rows {
        let name = format!("{:?}", row.text);
        let parsed = row.text.parse::<Quantity>();
        let expected = expected(row.canonical.clone(), row.error.clone());
        let got = parsed.as_ref().map(Quantity::to_string).map_err(ToString::to_string);
        differences.expect(&name, "canonical", &expected, &got);
        let Ok(parsed) = parsed else { continue };
        if row.sign != Some(0) {
            let format = match parsed.format() {
                Format::DecimalSi => "DecimalSI",
                Format::BinarySi => "BinarySI",
                Format::DecimalExponent => "DecimalExponent",
            };
            differences.expect(&name, "format", row.format.as_deref().unwrap(), format);
        }
        differences.expect(&name, "sign", &row.sign, &Some(parsed.nanos().signum()));
        if row.milli.is_some() {
            differences.expect(&name, "milli", &row.milli, &Some(parsed.milli_value()));
        }
        if row.value.is_some() {
            differences.expect(&name, "value", &row.value, &Some(parsed.value()));
        }
        let (float, got) = (row.float.unwrap(), parsed.as_f64());
        if ![float, float.next_up(), float.next_down()].contains(&got) {
            differences.expect(&name, "float", &float, &got);
        }
    }
    Some(differences.report("quantities", rows.len()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectorRow {
    text: String,
    error: Option<String>,
    canonical: Option<String>,
    #[serde(default)]
    matches: Vec<Match>,
    scale_error: Option<String>,
    scale_canonical: Option<String>,
}

#[derive(Deserialize)]
struct Match {
    labels: BTreeMap<String, String>,
    #[serde(rename = "match")]
    matches: bool,
}

fn selectors() -> Option<(usize, usize)> {
    let rows: Vec<SelectorRow> = rows("selectors")?;
    let mut differences = Differences::default();
    for row in &rows {
        let name = format!("{:?}", row.text);
        let parsed = Selector::parse(&row.text);
        differences.expect(
            &name,
            "text",
            &expected(row.canonical.clone(), row.error.clone()),
            &text_of(&parsed),
        );
        let scale = expected(row.scale_canonical.clone(), row.scale_error.clone());
        differences.expect(&name, "scale", &scale, &text_of(&Selector::parse_scale(&row.text)));
        let Ok(parsed) = parsed else { continue };
        for Match { labels, matches } in &row.matches {
            differences.expect(&name, &format!("matches {labels:?}"), matches, &parsed.matches(labels));
        }
    }
    Some(differences.report("selectors", rows.len()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LabelSelectorRow {
    label_selector: Option<LabelSelector>,
    printed: String,
    error: Option<String>,
    canonical: Option<String>,
    selects_nothing: Option<bool>,
}

fn label_selectors() -> Option<(usize, usize)> {
    let rows: Vec<LabelSelectorRow> = rows("label-selectors")?;
    let mut differences = Differences::default();
    for row in &rows {
        let selector = row.label_selector.as_ref();
        differences.expect(&row.printed, "printed", &row.printed, &go_print(selector));
        let converted = Selector::from_label_selector(selector);
        let canonical = expected(row.canonical.clone(), row.error.clone());
        differences.expect(&row.printed, "converted", &canonical, &text_of(&converted));
        if let Ok(converted) = converted {
            let nothing = row.selects_nothing.unwrap();
            differences.expect(&row.printed, "selects nothing", &nothing, &converted.selects_nothing());
        }
    }
    Some(differences.report("label-selectors", rows.len()))
}

#[test]
fn every_quantity_reads_and_prints_as_in_the_reference() {
    assert_eq!(quantities().map_or(0, |(_, differences)| differences), 0);
}

#[test]
fn every_selector_reads_prints_and_matches_as_in_the_reference() {
    assert_eq!(selectors().map_or(0, |(_, differences)| differences), 0);
}

#[test]
fn every_label_selector_converts_and_prints_as_in_the_reference() {
    assert_eq!(label_selectors().map_or(0, |(_, differences)| differences), 0);
}
