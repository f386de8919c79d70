//! What another controller's work looks like in an HPA: a write of its status that is not ours, a rescale.

use autoscaling::status::Status;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::store::StatusWriter;

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

/// The newest write of an HPA's status by anybody but `ours` that `old` does not show yet.
pub fn status_write<'a>(
    ours: &str,
    old: &[StatusWriter],
    new: &'a [StatusWriter],
) -> Option<&'a StatusWriter> {
    let is_known = |writer: &StatusWriter| {
        old.iter().any(|known| known.manager == writer.manager && known.at >= writer.at)
    };
    new.iter().filter(|writer| *writer.manager != *ours && !is_known(writer)).max_by_key(|writer| writer.at)
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

    #[test]
    fn a_status_write_is_foreign_if_its_time_moved_and_its_manager_is_not_ours() {
        let (kcm, us) = ("kube-controller-manager", "concertina");
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)], Option<&'a str>);
        let cases: [Case<'_>; 6] = [
            ("nothing new", &[(kcm, "01:00")], &[(kcm, "01:00")], None),
            ("moved", &[(kcm, "01:00")], &[(kcm, "01:01")], Some(kcm)),
            ("first", &[(us, "01:00")], &[(us, "01:00"), (kcm, "01:01")], Some(kcm)),
            ("ours", &[(kcm, "01:00")], &[(kcm, "01:00"), (us, "01:01")], None),
            ("of two", &[], &[("a", "01:00"), ("b", "01:01")], Some("b")),
            ("an older view", &[(kcm, "01:01")], &[(kcm, "01:00")], None),
        ];
        for (what, old, new, expected) in cases {
            let (old, new) = (writers(old), writers(new));
            let found = status_write(us, &old, &new).map(|writer| &*writer.manager);
            assert_eq!(found, expected, "{what}");
        }
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
