//! `metadata.managedFields`: who wrote the status of an object, and when last.

use jiff::Timestamp;

use super::DecodeError;
use super::cursor::Cursor;
use super::text::Text;

/// Manager and time of every entry for the subresource `status`. The server moves the time whenever a manager changes a
/// value, to whole seconds.
///
/// An entry without a time is left out, and a list that cannot be read has none: nothing about an HPA itself depends
/// on this.
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
