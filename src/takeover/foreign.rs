//! What another controller's work looks like in an HPA: a write of its status that is not ours, a rescale.

use autoscaling::status::Status;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::store::{HpaRecord, StatusWriter, is_older};

/// A rescale that the status of an HPA shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignRescale {
    /// When, by the clock of whoever did it; whole seconds.
    pub at: Timestamp,
    /// The count before.
    pub from: i32,
    /// The count that was written.
    pub to: i32,
}

/// The rescale that was made between two states of an HPA's status, the last one if there were more.
///
/// A controller writes `lastScaleTime` with a rescale, and with it the count that it had read and the count that it
/// wrote. If a later write was seen in place of that one, the count before is the one that the older status named.
pub fn rescale(old: &Status, new: &Status) -> Option<ForeignRescale> {
    let at = new.last_scale_time.filter(|at| old.last_scale_time.is_none_or(|before| before < *at))?;
    let to = new.desired_replicas;
    let counts = [new.current_replicas, old.desired_replicas, old.current_replicas];
    let from = counts.into_iter().find(|from| *from != to)?;
    Some(ForeignRescale { at, from, to })
}

/// What shows who wrote the status of an HPA.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// `metadata.resourceVersion`.
    pub version: &'a str,
    /// Who wrote the status, by managedFields.
    pub writers: &'a [StatusWriter],
    /// The status itself.
    pub status: &'a Status,
}

impl<'a> View<'a> {
    /// An HPA as it is known.
    pub fn of(hpa: &'a HpaRecord) -> Self {
        Self { version: &hpa.resource_version, writers: &hpa.status_writers, status: &hpa.status }
    }
}

/// The newest write of an HPA's status by anybody but `ours` between two views of it.
///
/// managedFields alone are no sign: whoever may update an HPA may write there what they like, but not into the status. So
/// only an entry that moved together with the status counts, in whichever direction its time moved. A view that is
/// older than what is known, from a server that lags behind, tells nothing.
pub fn status_write<'a>(ours: &str, old: View<'_>, new: View<'a>) -> Option<&'a StatusWriter> {
    if new.status == old.status || is_older(new.version, old.version) {
        return None;
    }
    first_status_write(ours, new).filter(|writer| !old.writers.contains(writer))
}

/// The newest write of the status of an HPA that was not known before, by anybody but `ours`; none if it has no status.
pub fn first_status_write<'a>(ours: &str, new: View<'a>) -> Option<&'a StatusWriter> {
    let foreign = new.writers.iter().filter(|writer| *writer.manager != *ours);
    foreign.max_by_key(|writer| writer.at).filter(|_| *new.status != Status::default())
}

/// When an object was created, by the server's clock. What its managedFields show from before is of another object: who
/// restores an HPA from a backup may restore them too.
pub fn created(metadata: &RawValue) -> Option<Timestamp> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        creation_timestamp: Option<Timestamp>,
    }
    serde_json::from_str::<Metadata>(metadata.get()).ok()?.creation_timestamp
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(current: i32, desired: i32, scaled: Option<&str>) -> Status {
        Status {
            current_replicas: current,
            desired_replicas: desired,
            last_scale_time: scaled.map(at),
            ..Status::default()
        }
    }

    fn at(time: &str) -> Timestamp {
        format!("2026-01-01T00:{time}Z").parse().unwrap()
    }

    fn writers(all: &[(&str, &str)]) -> Vec<StatusWriter> {
        all.iter().map(|(manager, time)| StatusWriter { manager: (*manager).into(), at: at(time) }).collect()
    }

    #[test]
    fn a_rescale_is_seen_by_its_time() {
        let found = |from, to, time: &str| Some(ForeignRescale { at: at(time), from, to });
        let cases = [
            ("the first", status(2, 2, None), status(2, 4, Some("01:00")), found(2, 4, "01:00")),
            ("down", status(4, 4, Some("01:00")), status(4, 3, Some("02:00")), found(4, 3, "02:00")),
            ("none", status(4, 4, Some("01:00")), status(4, 4, Some("01:00")), None),
            ("only counts", status(2, 2, Some("01:00")), status(4, 4, Some("01:00")), None),
            ("a later write", status(2, 2, None), status(4, 4, Some("01:00")), found(2, 4, "01:00")),
            ("to where it was", status(4, 4, None), status(4, 4, Some("01:00")), None),
            ("a clock gone back", status(4, 4, Some("02:00")), status(4, 5, Some("01:00")), None),
        ];
        for (what, old, new, expected) in cases {
            assert_eq!(rescale(&old, &new), expected, "{what}");
        }
    }

    /// Managers, versions and counts of two views, and who is taken for a writer between them.
    type Case<'a> = (
        &'a str,
        (&'a str, &'a [(&'a str, &'a str)], i32),
        (&'a str, &'a [(&'a str, &'a str)], i32),
        Option<&'a str>,
    );

    #[test]
    fn a_status_write_is_foreign_if_status_and_entry_moved_and_its_manager_is_not_ours() {
        let (kcm, us) = ("kube-controller-manager", "concertina");
        let cases: [Case<'_>; 8] = [
            ("nothing new", ("1", &[(kcm, "01:00")], 2), ("2", &[(kcm, "01:00")], 2), None),
            ("moved", ("1", &[(kcm, "01:00")], 2), ("2", &[(kcm, "01:01")], 3), Some(kcm)),
            ("first", ("1", &[(us, "01:00")], 2), ("2", &[(us, "01:00"), (kcm, "01:01")], 3), Some(kcm)),
            ("ours", ("1", &[(kcm, "01:00")], 2), ("2", &[(kcm, "01:00"), (us, "01:01")], 3), None),
            ("of two", ("1", &[], 2), ("2", &[("a", "01:00"), ("b", "01:01")], 3), Some("b")),
            ("an older view", ("2", &[(kcm, "01:01")], 3), ("1", &[(kcm, "01:00")], 2), None),
            ("an entry alone is forged", ("1", &[], 2), ("2", &[(kcm, "59:59")], 2), None),
            ("after a forged one", ("1", &[(kcm, "59:59")], 2), ("2", &[(kcm, "01:00")], 3), Some(kcm)),
        ];
        for (what, old, new, expected) in cases {
            let (old_writers, new_writers) = (writers(old.1), writers(new.1));
            let (old_status, new_status) = (status(old.2, 0, None), status(new.2, 0, None));
            let old = View { version: old.0, writers: &old_writers, status: &old_status };
            let new = View { version: new.0, writers: &new_writers, status: &new_status };
            let found = status_write(us, old, new).map(|writer| &*writer.manager);
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn an_hpa_without_a_status_was_written_by_nobody() {
        let writers = writers(&[("kube-controller-manager", "01:00")]);
        let found = |status: &Status| {
            let view = View { version: "1", writers: &writers, status };
            first_status_write("concertina", view).is_some()
        };
        assert!(!found(&Status::default()));
        assert!(found(&status(2, 2, None)));
    }

    #[test]
    fn an_object_tells_when_it_was_created() {
        let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
        let json = r#"{"name":"web","creationTimestamp":"2026-01-01T00:01:00Z"}"#;
        assert_eq!(created(&raw(json)), Some(at("01:00")));
        assert_eq!(created(&raw(r#"{"creationTimestamp":null}"#)), None);
        assert_eq!(created(&raw("null")), None);
    }
}
