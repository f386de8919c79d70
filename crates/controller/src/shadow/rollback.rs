//! Reverts the effects of a rescale on the pods of its target, because the watch of pods can be ahead of the
//! watch of HPAs.

use std::sync::Arc;

use autoscaling::pod::Pod;
use jiff::Timestamp;

use super::wire::Builtin;

/// Returns the pods without those that the other controller's rescale created. Pods that it terminates are returned as
/// they were before. `previous`: the pods of the previous sync if it found the count before the rescale. Both lists are
/// sorted by name.
pub(super) fn undo(pods: Vec<Arc<Pod>>, previous: &[Arc<Pod>], builtin: Builtin) -> Vec<Arc<Pod>> {
    let before = |pod: &Pod| {
        previous
            .binary_search_by(|previous| previous.name.cmp(&pod.name))
            .ok()
            .and_then(|index| previous.get(index))
    };
    if builtin.to < builtin.from {
        // A pod that terminates because of the rescale was not terminating before.
        let as_it_was = |pod: Arc<Pod>| match before(&pod) {
            Some(previous) if pod.terminating && !previous.terminating => Arc::clone(previous),
            _ => pod,
        };
        return pods.into_iter().map(as_it_was).collect();
    }
    let previous_count = usize::try_from(builtin.from).unwrap_or(0);
    let running = pods.iter().filter(|pod| !pod.terminating);
    if running.clone().filter(|pod| before(pod).is_some()).count() >= previous_count {
        // The previous pods fill the previous count, so the rescale created every other pod.
        return pods.into_iter().filter(|pod| before(pod).is_some()).collect();
    }
    // Some of the new pods come from an earlier rescale. The youngest new pods come from this one.
    let too_many = running.clone().count().saturating_sub(previous_count);
    let is_young = |pod: &Pod| pod.start_time.is_none_or(|started| started >= builtin.at);
    let may_be_new = |pod: &&Arc<Pod>| before(pod).is_none() && is_young(pod);
    let mut new: Vec<Arc<Pod>> = running.filter(may_be_new).map(Arc::clone).collect();
    new.sort_by(|one, other| youngest_last(one).cmp(&youngest_last(other)));
    let new = new.split_off(new.len().saturating_sub(too_many));
    pods.into_iter().filter(|pod| !new.iter().any(|new| new.name == pod.name)).collect()
}

/// Orders pods by their start. Pods that have not started come last. Among pods started in the same second,
/// pods without a readiness condition come last.
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
    fn new_pods_belong_to_the_rescale_when_all_others_are_known() {
        let previous = [pod("a", Some("00:01"))];
        let now = vec![pod("a", Some("00:01")), pod("b", Some("00:05"))];
        assert_eq!(names(&undo(now, &previous, rescale(1, 2))), ["a"]);
    }

    #[test]
    fn only_the_youngest_pods_belong_to_the_second_of_two_rescales() {
        let now = vec![pod("a", Some("00:01")), pod("b", None), pod("c", Some("00:05"))];
        assert_eq!(names(&undo(now.clone(), &[], rescale(2, 3))), ["a", "c"]);
        assert_eq!(names(&undo(now, &[pod("a", Some("00:01"))], rescale(2, 3))), ["a", "c"]);
        let within_a_second = vec![pod("a", Some("00:06")), pod("b", Some("00:07")), pod("c", Some("00:06"))];
        assert_eq!(names(&undo(within_a_second, &[], rescale(2, 3))), ["a", "c"]);
    }

    #[test]
    fn pods_started_before_the_rescale_do_not_belong_to_it() {
        let rollout = vec![pod("a", Some("00:01")), pod("b", Some("00:02")), pod("c", Some("00:05"))];
        assert_eq!(undo(rollout.clone(), &[], rescale(2, 3)), rollout);
    }

    #[test]
    fn pods_terminated_by_the_rescale_were_not_terminating_before() {
        let terminating = |pod: &Pod| Arc::new(Pod { terminating: true, ..pod.clone() });
        let previous = [pod("a", Some("00:01")), pod("b", Some("00:02"))];
        let now = vec![Arc::clone(&previous[0]), terminating(&previous[1])];
        assert_eq!(undo(now, &previous, rescale(2, 1)), previous);
    }
}
