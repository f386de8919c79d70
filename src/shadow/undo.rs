//! The pods of a target without what a rescale may have done to them already: the watch of pods can be ahead of that of
//! HPAs.

use std::sync::Arc;

use autoscaling::pod::Pod;
use jiff::Timestamp;

use super::wire::Builtin;

/// The pods without what the other controller's rescale has brought or told to go. Pods are sorted by name; `known` are
/// those of the sync before, if that saw the same count.
pub(super) fn undo(pods: Vec<Arc<Pod>>, known: &[Arc<Pod>], builtin: Builtin) -> Vec<Arc<Pod>> {
    let before = |pod: &Pod| {
        known.binary_search_by(|known| known.name.cmp(&pod.name)).ok().and_then(|place| known.get(place))
    };
    if builtin.to < builtin.from {
        // Who goes because of it had not been told to.
        let as_it_was = |pod: Arc<Pod>| match before(&pod) {
            Some(known) if pod.terminating && !known.terminating => Arc::clone(known),
            _ => pod,
        };
        return pods.into_iter().map(as_it_was).collect();
    }
    let wanted = usize::try_from(builtin.from).unwrap_or(0);
    let at_work = pods.iter().filter(|pod| !pod.terminating);
    if at_work.clone().filter(|pod| before(pod).is_some()).count() >= wanted {
        // All that there should have been were there: whoever is new came of it.
        return pods.into_iter().filter(|pod| before(pod).is_some()).collect();
    }
    // Some came of the rescale before this one: the youngest came of this one.
    let too_many = at_work.clone().count().saturating_sub(wanted);
    let is_young = |pod: &Pod| pod.start_time.is_none_or(|started| started >= builtin.at);
    let may_be_new = |pod: &&Arc<Pod>| before(pod).is_none() && is_young(pod);
    let mut new: Vec<Arc<Pod>> = at_work.filter(may_be_new).map(Arc::clone).collect();
    new.sort_by(|one, other| youngest_last(one).cmp(&youngest_last(other)));
    let new = new.split_off(new.len().saturating_sub(too_many));
    pods.into_iter().filter(|pod| !new.iter().any(|new| new.name == pod.name)).collect()
}

/// Orders pods by when they began: who is not started yet came last, and of those started within one second who is not
/// ready or unready yet.
fn youngest_last(pod: &Pod) -> (bool, Option<Timestamp>, bool, &str) {
    (pod.start_time.is_none(), pod.start_time, pod.ready.is_none(), &pod.name)
}

#[cfg(test)]
mod tests {
    use autoscaling::pod::Phase;

    use super::*;

    fn pod(name: &str, started: Option<&str>) -> Arc<Pod> {
        let start_time = started.map(|time| format!("2030-01-01T00:{time}Z").parse().unwrap());
        Arc::new(Pod {
            name: name.into(),
            labels: Arc::default(),
            requests: Arc::default(),
            phase: Phase::Running,
            terminating: false,
            ready: None,
            start_time,
        })
    }

    fn rescale(from: i32, to: i32) -> Builtin {
        Builtin { at: "2030-01-01T00:00:06Z".parse().unwrap(), from, to }
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().map(|pod| &*pod.name).collect()
    }

    #[test]
    fn who_is_new_where_all_had_been_there_came_of_it() {
        let known = [pod("a", Some("00:01"))];
        let now = vec![pod("a", Some("00:01")), pod("b", Some("00:05"))];
        assert_eq!(names(&undo(now, &known, rescale(1, 2))), ["a"]);
    }

    #[test]
    fn of_two_rescales_in_a_row_only_the_youngest_pods_came_of_the_second() {
        let now = vec![pod("a", Some("00:01")), pod("b", None), pod("c", Some("00:05"))];
        assert_eq!(names(&undo(now.clone(), &[], rescale(2, 3))), ["a", "c"]);
        assert_eq!(names(&undo(now, &[pod("a", Some("00:01"))], rescale(2, 3))), ["a", "c"]);
        let within_a_second = vec![pod("a", Some("00:06")), pod("b", Some("00:07")), pod("c", Some("00:06"))];
        assert_eq!(names(&undo(within_a_second, &[], rescale(2, 3))), ["a", "c"]);
    }

    #[test]
    fn who_was_started_earlier_did_not_come_of_it_however_many_there_are() {
        let rollout = vec![pod("a", Some("00:01")), pod("b", Some("00:02")), pod("c", Some("00:05"))];
        assert_eq!(undo(rollout.clone(), &[], rescale(2, 3)), rollout);
    }

    #[test]
    fn who_goes_because_of_it_had_not_been_told_to() {
        let going = |pod: &Pod| Arc::new(Pod { terminating: true, ..pod.clone() });
        let known = [pod("a", Some("00:01")), pod("b", Some("00:02"))];
        let now = vec![Arc::clone(&known[0]), going(&known[1])];
        assert_eq!(undo(now, &known, rescale(2, 1)), known);
    }
}
