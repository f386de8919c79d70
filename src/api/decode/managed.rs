//! `metadata.managedFields`: who wrote the status of an object, and when last.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Manager and time of every entry for the subresource `status`. The server moves the time whenever a manager changes a
/// value, to whole seconds.
///
/// An entry without a time is left out, and a list that cannot be read has none: nothing about an HPA itself depends
/// on this.
pub(super) fn status_writers(managed_fields: &RawValue) -> Vec<(String, Timestamp)> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Entry {
        manager: String,
        subresource: String,
        time: Option<Timestamp>,
    }
    let entries: Option<Vec<Entry>> = serde_json::from_str(managed_fields.get()).unwrap_or_default();
    let status = entries.unwrap_or_default().into_iter().filter(|entry| entry.subresource == "status");
    status.filter_map(|entry| Some((entry.manager, entry.time?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writers(json: &str) -> Vec<(String, String)> {
        let raw = RawValue::from_string(json.to_owned()).unwrap();
        status_writers(&raw).into_iter().map(|(manager, at)| (manager, at.to_string())).collect()
    }

    #[test]
    fn only_writes_of_the_status_count() {
        let json = r#"[
            {"manager":"kubectl","operation":"Update","time":"2026-01-02T03:04:05Z","fieldsV1":{"f:spec":{}}},
            {"manager":"kube-controller-manager","operation":"Update","apiVersion":"autoscaling/v2",
             "time":"2026-01-02T03:04:06Z","fieldsV1":{"f:status":{}},"subresource":"status"},
            {"manager":"timeless","subresource":"status"}]"#;
        assert_eq!(
            writers(json),
            [("kube-controller-manager".to_owned(), "2026-01-02T03:04:06Z".to_owned())]
        );
    }

    #[test]
    fn what_cannot_be_read_names_nobody() {
        for json in ["null", "[]", "{}", r#"[{"subresource":"status","time":"soon"}]"#] {
            assert_eq!(writers(json), [], "{json}");
        }
    }
}
