use super::super::PendingWrite;
use super::*;

fn lost() -> WriteOutcome {
    WriteOutcome::Unknown("connection reset".to_owned())
}

/// A run with at most one pod per minute, at 5 replicas, after a sync at second 85.
fn settled_at_five() -> Run {
    let mut run = Run::new(spec(Some(one_per_minute())), 5);
    run.done(5, at(85));
    run
}

/// The run of [`settled_at_five`] after a sync at second 100 that wrote 6 replicas and received no response.
fn without_an_answer() -> Run {
    let mut run = settled_at_five();
    run.sync(9, lost(), at(100));
    assert_eq!(run.history.unsettled, Some(PendingWrite { at: at(100), from: 5, to: 6 }));
    run
}

#[test]
fn lost_answer_is_reported_like_a_failure() {
    let (mut lost, mut failed) = (settled_at_five(), settled_at_five());
    let mut lost = lost.sync(9, super::reconcile::lost(), at(100));
    let failed = failed.sync(9, WriteOutcome::Failed("connection reset".to_owned()), at(100));
    assert!(lost.changes.unsettled.take().is_some());
    assert_eq!(lost, failed);
}

#[test]
fn lost_write_that_succeeded_counts_from_its_write() {
    let mut run = without_an_answer();
    run.replicas = 6;
    run.done(9, at(115));
    assert_eq!(run.replicas, 6, "a pod was added 15 s ago");
    assert_eq!(run.history.scale_ups, [ScaleEvent::new(at(100), 1)]);
    assert_eq!(run.history.unsettled, None);
    run.done(9, at(160));
    assert_eq!(run.replicas, 7);
}

#[test]
fn lost_write_that_failed_is_forgotten() {
    let mut run = without_an_answer();
    run.done(9, at(115));
    assert_eq!(run.replicas, 6);
    assert_eq!(run.history.scale_ups, [ScaleEvent::new(at(115), 1)]);
    assert_eq!(run.history.unsettled, None);
}

#[test]
fn overwritten_lost_write_counts_only_against_its_direction() {
    let mut run = without_an_answer();
    run.replicas = 8;
    run.done(9, at(115));
    assert_eq!(run.replicas, 8);
    assert_eq!(run.history.scale_ups.len(), 1);
    run.done(1, at(130));
    assert_eq!(run.replicas, 7, "one pod fewer: the uncertain scale-up does not allow a second one");
}

#[test]
fn lost_write_stays_unsettled_until_the_scale_is_read() {
    let mut run = without_an_answer();
    let open = run.history.clone();
    run.sync_with(Err("no answer".to_owned()), 9, WriteOutcome::Done, at(115));
    assert_eq!(run.history, open);
    run.sync(9, lost(), at(130));
    assert_eq!(run.history.unsettled, Some(PendingWrite { at: at(130), from: 5, to: 6 }));
}

#[test]
fn lost_write_is_not_stored_without_behavior() {
    let mut run = Run::new(spec(None), 5);
    run.sync(9, lost(), at(100));
    assert_eq!(run.history.unsettled, None);
    let mut removed = without_an_answer();
    (removed.spec, removed.replicas) = (spec(None), 6);
    removed.done(9, at(115));
    assert_eq!((removed.history.unsettled, removed.history.scale_ups.len()), (None, 0));
}

/// A run inherited from another process at second 95. The status has five replicas and a last rescale at second 50.
fn taken_over() -> Run {
    let mut run = settled_at_five();
    run.history.scale_ups.push(ScaleEvent::new(at(50), 1));
    run.status.last_scale_time = Some(at(50));
    run.history.inherited = Some(at(95));
    run
}

#[test]
fn consistent_inherited_history_is_adopted_unchanged() {
    let mut run = taken_over();
    let conclusion = run.done(5, at(100));
    assert!(conclusion.changes.found.is_some_and(|found| found.owned && found.scale_event.is_none()));
    assert_eq!(run.history.scale_ups, [ScaleEvent::new(at(50), 1)]);
    assert_eq!((run.history.unknown_up, run.history.inherited), (None, None));
    assert_eq!(run.done(5, at(115)).changes.found, None);
}

#[test]
fn stored_rescales_newer_than_the_status_explain_a_count() {
    for (ups, downs, count) in [(2, 0, 7), (0, 2, 3), (3, 1, 7)] {
        let mut run = taken_over();
        let event = |change| (change > 0).then(|| ScaleEvent::new(at(70), change));
        run.history.scale_ups.extend(event(ups));
        run.history.scale_downs.extend(event(downs));
        run.replicas = count;
        run.done(count, at(100));
        assert_eq!((run.history.unknown_up, run.history.unknown_down), (None, None), "{count}");
    }
}

#[test]
fn unexplained_count_may_be_a_rescale_in_either_direction() {
    let mut run = taken_over();
    run.replicas = 6;
    run.done(9, at(100));
    assert_eq!(run.replicas, 6, "another client added a pod just now");
    assert_eq!(run.history.scale_ups, [ScaleEvent::new(at(50), 1)]);
    assert_eq!((run.history.unknown_up, run.history.unknown_down), (Some(at(100)), Some(at(100))));
    run.done(1, at(115));
    assert_eq!(run.replicas, 6, "a user may have added two pods, and the last process removed one");
}

#[test]
fn inherited_rescale_is_no_later_than_the_last_possible_request() {
    let mut run = taken_over();
    run.replicas = 8;
    run.done(8, at(1000));
    assert_eq!((run.history.unknown_up, run.history.unknown_down), (Some(at(125)), Some(at(125))));
    run.done(7, at(1015));
    assert_eq!(run.replicas, 7);
}

#[test]
fn failed_write_leaves_the_previous_count_in_the_status() {
    let mut run = taken_over();
    (run.history.inherited, run.replicas) = (None, 8);
    run.sync(9, WriteOutcome::Failed("denied".to_owned()), at(115));
    assert_eq!((run.status.current_replicas, run.status.desired_replicas), (8, 5));
    run.history.inherited = Some(at(118));
    run.done(8, at(120));
    assert_eq!((run.history.unknown_up, run.history.unknown_down), (None, None));
}

#[test]
fn sync_without_a_count_leaves_the_current_count_in_the_status() {
    let mut run = Run::new(spec(Some(one_per_minute())), 5);
    let without_selector = Scale::new(5, 5, "", Version::default()).unwrap();
    run.sync_with(Ok(without_selector), 9, WriteOutcome::Done, at(100));
    assert_eq!((run.status.current_replicas, run.status.desired_replicas), (5, 0));
    run.history.inherited = Some(at(105));
    run.done(9, at(115));
    assert_eq!((run.replicas, run.history.unknown_up), (6, None));
}

#[test]
fn foreign_change_is_no_rescale_without_an_inherited_history() {
    let mut run = taken_over();
    run.history.inherited = None;
    (run.replicas, run.status.last_scale_time) = (6, Some(at(90)));
    run.done(9, at(111));
    assert_eq!(run.replicas, 7);
}

#[test]
fn rescale_known_only_from_the_status_has_unknown_size() {
    let mut run = taken_over();
    run.status.last_scale_time = Some(at(90));
    let conclusion = run.done(9, at(120));
    assert_eq!(run.replicas, 5);
    let end = "1970-01-01T00:01:30.999999999Z".parse().unwrap();
    assert_eq!((run.history.unknown_up, run.history.unknown_down), (Some(end), Some(end)));
    assert_eq!(
        conclusion.explanation.sentence(at(120)),
        "stays at 5: wanted asks for 9, but the scale-up policies allow 5 (a rescale of unknown size 30 s ago counts as \
         the full allowance), for another 31 s"
    );
    run.done(1, at(121));
    assert_eq!(run.replicas, 5);
    run.done(9, at(150));
    assert_eq!(run.replicas, 5);
    run.done(9, at(151));
    assert_eq!(run.replicas, 6);
}

#[test]
fn rescale_in_the_second_of_the_status_is_the_one_in_the_status() {
    let mut run = taken_over();
    run.history.scale_ups = vec![ScaleEvent::new("1970-01-01T00:00:50.7Z".parse().unwrap(), 1)];
    run.done(5, at(100));
    assert_eq!(run.history.unknown_up, None);
}

#[test]
fn stored_rescale_explains_a_count_that_the_status_lacks() {
    let mut run = taken_over();
    run.history.scale_ups.push(ScaleEvent::new(at(95), 3));
    run.replicas = 8;
    let found = run.done(8, at(100)).changes.found.unwrap();
    assert!(found.scale_event.is_none() && found.unknown.is_none(), "{found:?}");

    // The status may already contain the new count.
    let mut run = taken_over();
    run.history.scale_ups.push(ScaleEvent::new(at(95), 3));
    (run.replicas, run.status.desired_replicas) = (8, 8);
    let found = run.done(8, at(100)).changes.found.unwrap();
    assert!(found.scale_event.is_none() && found.unknown.is_none(), "{found:?}");

    // A count that differs from the status and from the stored rescales implies a rescale of unknown size.
    let mut run = taken_over();
    run.history.scale_ups.push(ScaleEvent::new(at(95), 3));
    run.replicas = 7;
    let found = run.done(7, at(100)).changes.found.unwrap();
    assert_eq!((found.scale_event, found.unknown), (None, Some(at(100))));
}

#[test]
fn empty_status_explains_and_contradicts_nothing() {
    let mut run = Run::new(spec(Some(one_per_minute())), 5);
    run.history.inherited = Some(at(95));
    run.done(9, at(100));
    assert_eq!(run.replicas, 6);
    assert_eq!((run.history.scale_ups.len(), run.history.unknown_up), (1, None));
}

#[test]
fn status_of_syncs_without_a_count_contradicts_nothing() {
    let mut run = Run::new(spec(Some(one_per_minute())), 5);
    run.history.inherited = Some(at(95));
    run.sync_with(Err("no answer".to_owned()), 9, WriteOutcome::Done, at(100));
    assert!(!run.status.conditions.is_empty());
    run.done(9, at(115));
    assert_eq!((run.replicas, run.history.unknown_up), (6, None));
}

#[test]
fn inherited_history_has_no_effect_without_behavior() {
    let mut run = taken_over();
    run.spec = spec(None);
    (run.status.last_scale_time, run.replicas) = (Some(at(90)), 6);
    run.done(12, at(100));
    assert_eq!(run.replicas, 12);
    assert_eq!((run.history.unknown_up, run.history.inherited), (None, None));
}

#[test]
fn concurrently_added_unsettled_write_stays_unsettled() {
    let mut run = without_an_answer();
    let conclusion = run.clone().done(9, at(115));
    let other = PendingWrite { at: at(110), from: 5, to: 7 };
    run.history.unsettled = Some(other);
    run.history.commit(&conclusion.changes);
    assert_eq!(run.history.unsettled, Some(other));
}
