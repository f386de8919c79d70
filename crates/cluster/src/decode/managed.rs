//! `metadata.managedFields`: the writers of an object's status and the times of their last writes.

use jiff::Timestamp;

use super::DecodeError;
use super::cursor::Cursor;
use super::text::Text;

/// Manager and time of every entry for the subresource `status`. The server updates the time, in whole
/// seconds, whenever a manager changes a value.
///
/// Skips entries without a time. Returns an empty list if the field is unreadable, because no property of the
/// HPA depends on it.
pub(super) fn status_writers(managed_fields: &[u8]) -> Vec<(String, Timestamp)> {
    read(managed_fields).unwrap_or_default()
}

fn read(managed_fields: &[u8]) -> Result<Vec<(String, Timestamp)>, DecodeError> {
    let mut writers = Vec::new();
    Cursor::new(managed_fields).elements(|entry| {
        let (mut manager, mut subresource, mut time) = (Text::default(), Text::default(), None);
        entry.fields(|key, value| {
            match key {
                b"manager" => manager = value.text()?,
                b"subresource" => subresource = value.text()?,
                b"time" => time = value.parse::<Option<Timestamp>>()?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        if let Some(time) = time.filter(|_| &*subresource == "status") {
            writers.push((manager.0.into_owned(), time));
        }
        Ok(())
    })?;
    Ok(writers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writers(json: &str) -> Vec<(String, String)> {
        status_writers(json.as_bytes()).into_iter().map(|(manager, at)| (manager, at.to_string())).collect()
    }

    #[test]
    fn only_status_writes_count() {
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
    fn unreadable_fields_give_no_writers() {
        for json in ["null", "[]", "{}", r#"[{"subresource":"status","time":"soon"}]"#] {
            assert_eq!(writers(json), [], "{json}");
        }
    }
}
