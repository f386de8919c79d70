use serde_json::Value;

use super::super::sample;
use super::*;

#[test]
fn csv_has_a_row_per_sample_with_the_documented_columns() {
    let csv = csv(&sample::day());
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 5761);
    assert_eq!(lines[0], format!("{},metric:cpu (%)", COLUMNS.join(",")));
    assert!(lines[1].starts_with(",shop,web,2030-01-07T00:00:00Z,0,"), "{}", lines[1]);
    let rescales = csv.lines().filter(|line| line.contains("goes from")).count();
    assert_eq!(rescales, 70);
}

#[test]
fn csv_quotes_fields_with_special_characters() {
    assert_eq!(
        ["plain", "a,b", "say \"hi\"", "two\nlines"].map(field),
        ["plain", "\"a,b\"", "\"say \"\"hi\"\"\"", "\"two\nlines\""]
    );
}

#[test]
fn yaml_has_the_values_of_json() {
    let comparison = sample::outage();
    // JSON is also YAML. serde_json would round the last digit of some numbers.
    let [from_yaml, from_json] = [yaml(&comparison), json(&comparison)].map(|text| {
        // The run of a day has more nodes than the default limit permits.
        let mut options = serde_saphyr::Options::default();
        options.budget = None;
        serde_saphyr::from_str_with_options::<Value>(&text, options).unwrap()
    });
    assert_eq!(from_yaml["runs"][0]["start"], from_json["runs"][0]["start"]);
    assert_eq!(from_yaml["runs"][0]["hpas"][0]["decisions"], from_json["runs"][0]["hpas"][0]["decisions"]);
}

#[test]
fn json_has_all_values_under_stable_names() {
    let comparison = sample::outage();
    let value: Value = serde_json::from_str(&json(&comparison)).unwrap();
    let run = &value["runs"][0];
    let hpa = &run["hpas"][0];
    assert_eq!((&value["version"], &run["start"]), (&Value::from(1), &Value::from("2030-01-07T00:00:00Z")));
    assert_eq!(hpa["samples"].as_array().unwrap().len(), comparison.runs[0].hpas[0].samples.len());
    assert_eq!(
        hpa["metrics"][0]["values"].as_array().unwrap().len(),
        hpa["samples"].as_array().unwrap().len()
    );
    assert_eq!(hpa["decisions"][0]["explanation"]["metrics"][0]["valid"]["subject"]["name"], "cpu");
    assert_eq!(run["happenings"][0]["fromSeconds"], 39_600);
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        names(&hpa["scores"]),
        "aboveTargetSeconds directionChanges longestReactionSeconds peak podHours rescales unserved unservedFraction"
    );
    assert_eq!(
        names(&hpa["samples"][0]),
        "capacity demand max min proposal queued rateAllows ready running seconds stabilized wanted withheld"
    );
}
