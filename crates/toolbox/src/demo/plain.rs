//! The view without a terminal: one line per change, and every 5 seconds a line with the state of all HPAs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::observe::{HpaState, Snapshot};

/// The interval between lines with the state of all HPAs.
const STATE: Duration = Duration::from_secs(5);

/// The minimum interval between two lines about one event. The count of some events increases with every sync.
const REPEAT: Duration = Duration::from_secs(30);

/// The state that has been printed.
#[derive(Debug, Default)]
pub(super) struct Plain {
    replicas: BTreeMap<String, i64>,
    /// The printed count of each event and the time of the output, by the event's UID.
    events: BTreeMap<String, (i64, Duration)>,
    next_state: Duration,
}

impl Plain {
    /// Returns the lines for the changes in a snapshot.
    pub(super) fn lines(&mut self, snapshot: &Snapshot) -> Vec<String> {
        let time = format!("{:>4}s", snapshot.elapsed.as_secs());
        let mut lines = Vec::new();
        for hpa in &snapshot.hpas {
            let key = hpa.key();
            let before = self.replicas.insert(key.clone(), hpa.replicas);
            if let Some(before) = before.filter(|before| *before != hpa.replicas) {
                lines.push(format!("{time}  {key}  {before} -> {} replicas  {}", hpa.replicas, metrics(hpa)));
            }
        }
        self.replicas.retain(|key, _| snapshot.hpas.iter().any(|hpa| hpa.key() == *key));
        for event in &snapshot.events {
            let printed = self.events.get(&event.uid);
            let is_due = printed
                .is_none_or(|printed| event.count > printed.0 && snapshot.elapsed >= printed.1 + REPEAT);
            // The line with the replica counts above already reports rescales.
            if is_due && event.reason != "SuccessfulRescale" {
                self.events.insert(event.uid.clone(), (event.count, snapshot.elapsed));
                lines.push(format!("{time}  {}  {}  {}", event.hpa, event.reason, one_line(&event.message)));
            }
        }
        self.events.retain(|uid, _| snapshot.events.iter().any(|event| event.uid == *uid));
        if snapshot.elapsed >= self.next_state && !snapshot.hpas.is_empty() {
            self.next_state = snapshot.elapsed + STATE;
            let states: Vec<_> = snapshot.hpas.iter().map(state).collect();
            lines.push(format!("{time}  {}", states.join(" | ")));
        }
        lines
    }
}

fn state(hpa: &HpaState) -> String {
    format!("{} {}/{} ready  {}", hpa.name, hpa.ready, hpa.replicas, metrics(hpa)).trim_end().to_owned()
}

fn metrics(hpa: &HpaState) -> String {
    let each = hpa.metrics.iter().map(|metric| {
        format!("{} {} of {}", metric.name, metric.current.as_deref().unwrap_or("unknown"), metric.target)
    });
    each.collect::<Vec<_>>().join(", ")
}

fn one_line(message: &str) -> String {
    message.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::observe::{EventState, HpaState, MetricState, Snapshot};
    use super::Plain;

    fn snapshot(seconds: u64, replicas: i64) -> Snapshot {
        let metric = MetricState {
            name: "cpu".to_owned(),
            current: Some("90%".to_owned()),
            target: "60%".to_owned(),
            ratio: Some(1.5),
        };
        let hpa = HpaState {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            replicas,
            ready: 1,
            metrics: vec![metric],
            ..HpaState::default()
        };
        Snapshot { elapsed: Duration::from_secs(seconds), hpas: vec![hpa], ..Snapshot::default() }
    }

    #[test]
    fn plain_prints_changes_once_and_the_state_every_5_s() {
        let mut plain = Plain::default();
        assert_eq!(plain.lines(&snapshot(0, 2)), ["   0s  web 1/2 ready  cpu 90% of 60%"]);
        assert_eq!(plain.lines(&snapshot(1, 2)), Vec::<String>::new());
        assert_eq!(plain.lines(&snapshot(2, 4)), ["   2s  shop/web  2 -> 4 replicas  cpu 90% of 60%"]);
        assert_eq!(plain.lines(&snapshot(3, 4)), Vec::<String>::new());
        assert_eq!(plain.lines(&snapshot(5, 4)), ["   5s  web 1/4 ready  cpu 90% of 60%"]);
    }

    #[test]
    fn plain_repeats_an_event_when_it_is_ongoing() {
        let mut plain = Plain { next_state: Duration::MAX, ..Plain::default() };
        let mut lines = |seconds, reason: &str, count| {
            let event = EventState {
                uid: reason.to_owned(),
                count,
                hpa: "shop/web".to_owned(),
                reason: reason.to_owned(),
                message: "no\nmetrics".to_owned(),
                ..EventState::default()
            };
            plain.lines(&Snapshot { events: vec![event], ..snapshot(seconds, 2) })
        };
        let failed = "FailedGetResourceMetric";
        assert_eq!(lines(1, failed, 1), ["   1s  shop/web  FailedGetResourceMetric  no metrics"]);
        assert_eq!(lines(2, failed, 2), Vec::<String>::new());
        assert_eq!(lines(31, failed, 31).len(), 1);
        assert_eq!(lines(90, failed, 31), Vec::<String>::new(), "the event stopped");
        assert_eq!(
            lines(91, "SuccessfulRescale", 1),
            Vec::<String>::new(),
            "the line with the counts reports it"
        );
    }
}
