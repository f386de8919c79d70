//! Compares one row of a table with the core. The test `conformance` of the root package also uses this module.

use std::collections::BTreeMap;
use std::path::Path;

use autoscaling::quantity::{Format, Quantity};
use autoscaling::selector::{LabelSelector, Selector, go_print};
use autoscaling::settings::Version;
use serde_json::{Value, json};

/// The compared property, upstream's value, and the core's value.
pub(crate) type Comparison = (&'static str, Value, Value);

/// The version of a table, from the name of a folder above it. Without such a name, the default version.
pub(crate) fn version_of(table: &Path) -> Version {
    let mut folders = table.ancestors().filter_map(|folder| folder.file_name()?.to_str());
    folders.find_map(Version::named).unwrap_or_default()
}

/// Compares a row of `quantities`.
pub(crate) fn quantity(row: &Value, _: Version) -> Vec<Comparison> {
    let parsed = row["text"].as_str().unwrap().parse::<Quantity>();
    let mut compared = vec![outcome("canonical", row, &parsed)];
    let Ok(parsed) = parsed else { return compared };
    if row["sign"] != 0 {
        let format = match parsed.format() {
            Format::DecimalSi => "DecimalSI",
            Format::BinarySi => "BinarySI",
            Format::DecimalExponent => "DecimalExponent",
        };
        compared.push(("format", row["format"].clone(), json!(format)));
    }
    compared.push(("sign", row["sign"].clone(), json!(i64::try_from(parsed.nanos().signum()).unwrap())));
    for (what, got) in [("milli", parsed.milli_value()), ("value", parsed.value())] {
        if row[what].is_number() {
            compared.push((what, row[what].clone(), json!(got)));
        }
    }
    // The floats may differ by one unit in the last place, as the description of the table states.
    let (float, got) = (row["float"].as_f64().unwrap(), parsed.as_f64());
    if ![float, float.next_up(), float.next_down()].contains(&got) {
        compared.push(("float", json!(float), json!(got)));
    }
    compared
}

/// Compares a row of `selectors`.
pub(crate) fn selector(row: &Value, version: Version) -> Vec<Comparison> {
    let text = row["text"].as_str().unwrap();
    let parsed = Selector::parse(text);
    let scale = json!({ "canonical": row["scaleCanonical"], "error": row["scaleError"] });
    let mut compared = vec![
        outcome("text", row, &parsed),
        outcome("text through the Scale", &scale, &Selector::parse_scale(text, version)),
    ];
    if let Ok(parsed) = parsed {
        for case in row["matches"].as_array().into_iter().flatten() {
            let labels: BTreeMap<String, String> = serde_json::from_value(case["labels"].clone()).unwrap();
            compared.push(("match", case["match"].clone(), json!(parsed.matches(&labels))));
        }
    }
    compared
}

/// Compares a row of `label-selectors`.
pub(crate) fn label_selector(row: &Value, _: Version) -> Vec<Comparison> {
    let selector: Option<LabelSelector> = serde_json::from_value(row["labelSelector"].clone()).unwrap();
    let converted = Selector::from_label_selector(selector.as_ref());
    let mut compared = vec![
        ("printed", row["printed"].clone(), json!(go_print(selector.as_ref()))),
        outcome("converted", row, &converted),
    ];
    if let Ok(converted) = converted {
        compared.push(("selects nothing", row["selectsNothing"].clone(), json!(converted.selects_nothing())));
    }
    compared
}

/// Compares the text of a value, or the text of its error.
fn outcome<T: ToString, E: ToString>(what: &'static str, row: &Value, got: &Result<T, E>) -> Comparison {
    let expected = json!({ "canonical": row["canonical"], "error": row["error"] });
    let got = match got {
        Ok(value) => json!({ "canonical": value.to_string(), "error": null }),
        Err(error) => json!({ "canonical": null, "error": error.to_string() }),
    };
    (what, expected, got)
}
