use super::super::Unsettled;
use super::*;

fn lost() -> WriteOutcome {
    WriteOutcome::Unknown("connection reset".to_owned())
}

/// One pod per minute, standing at 5, with a first sync behind it.
fn settled_at_five() -> Run {
    let mut run = Run::new(spec(Some(one_per_minute())), 5);
    run.done(5, at(85));
    run
}

/// The same after a sync that wanted 9, wrote 6 and got no answer.
fn without_an_answer() -> Run {
    let mut run = settled_at_five();
    run.sync(9, lost(), at(100));
    assert_eq!(run.history.unsettled, Some(Unsettled { at: at(100), from: 5, to: 6 }));
    run
}

#[test]
fn a_lost_answer_is_told_like_a_failure() {
    let (mut lost, mut failed) = (settled_at_five(), settled_at_five());
    let mut lost = lost.sync(9, super::reconcile::lost(), at(100));
    let failed = failed.sync(9, WriteOutcome::Failed("connection reset".to_owned()), at(100));
    assert!(lost.changes.unsettled.take().is_some());
    assert_eq!(lost, failed);
}

#[test]
fn a_lost_write_that_was_done_counts_from_when_it_was_written() {
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
fn a_lost_write_that_was_not_done_is_forgotten() {
    let mut run = without_an_answer();
    run.done(9, at(115));
    assert_eq!(run.replicas, 6);
    assert_eq!(run.history.scale_ups, [ScaleEvent::new(at(115), 1)]);
    assert_eq!(run.history.unsettled, None);
}

#[test]
fn a_lost_write_that_somebody_wrote_over_counts_against_its_direction_alone() {
    let mut run = without_an_answer();
    run.replicas = 8;
    run.done(9, at(115));
    assert_eq!(run.replicas, 8);
    assert_eq!(run.history.scale_ups.len(), 1);
    run.done(1, at(130));
    assert_eq!(run.replicas, 7, "one down, not two as if a pod had come in this minute");
}

#[test]
fn a_lost_write_stays_open_until_the_scale_is_read() {
    let mut run = without_an_answer();
    let open = run.history.clone();
    run.sync_with(Err("no answer".to_owned()), 9, WriteOutcome::Done, at(115));
    assert_eq!(run.history, open);
    run.sync(9, lost(), at(130));
    assert_eq!(run.history.unsettled, Some(Unsettled { at: at(130), from: 5, to: 6 }));
}

#[test]
fn without_behavior_nothing_of_a_lost_write_is_remembered() {
    let mut run = Run::new(spec(None), 5);
    run.sync(9, lost(), at(100));
    assert_eq!(run.history.unsettled, None);
    let mut removed = without_an_answer();
    (removed.spec, removed.replicas) = (spec(None), 6);
    removed.done(9, at(115));
    assert_eq!((removed.history.unsettled, removed.history.scale_ups.len()), (None, 0));
}

/// A run whose controller went away after the status told of five replicas, scaled last at second 50.
fn taken_over() -> Run {
    let mut run = settled_at_five();
    run.history.scale_ups.push(ScaleEvent::new(at(50), 1));
    run.status.last_scale_time = Some(at(50));
    run.history.inherited = Some(at(95));
    run
}

#[test]
fn a_history_taken_over_that_nothing_contradicts_is_just_taken() {
    let mut run = taken_over();
    let conclusion = run.done(5, at(100));
    assert!(conclusion.changes.found.is_some_and(|found| found.owned && found.scale_event.is_none()));
    assert_eq!(run.history.scale_ups, [ScaleEvent::new(at(50), 1)]);
    assert_eq!((run.history.unknown_up, run.history.inherited), (None, None));
    assert_eq!(run.done(5, at(115)).changes.found, None);
}

#[test]
fn rescales_that_are_remembered_and_not_told_explain_a_count() {
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
fn a_count_that_the_last_process_did_not_tell_may_be_its_rescale_in_either_direction() {
    let mut run = taken_over();
    run.replicas = 6;
    run.done(9, at(100));
    assert_eq!(run.replicas, 6, "somebody added a pod just now");
    assert_eq!(run.history.scale_ups, [ScaleEvent::new(at(50), 1)]);
    assert_eq!((run.history.unknown_up, run.history.unknown_down), (Some(at(100)), Some(at(100))));
    run.done(1, at(115));
    assert_eq!(run.replicas, 6, "a person may have added two, and the last process taken one away");
}

#[test]
fn it_is_no_younger_than_the_last_request_of_that_process_may_be_however_late_the_scale_is_read() {
    let mut run = taken_over();
    run.replicas = 8;
    run.done(8, at(1000));
    assert_eq!((run.history.unknown_up, run.history.unknown_down), (Some(at(125)), Some(at(125))));
    run.done(7, at(1015));
    assert_eq!(run.replicas, 7);
}

#[test]
fn of_a_target_that_could_not_be_written_the_status_tells_the_count_that_it_had() {
    let mut run = taken_over();
    (run.history.inherited, run.replicas) = (None, 8);
    run.sync(9, WriteOutcome::Failed("denied".to_owned()), at(115));
    assert_eq!((run.status.current_replicas, run.status.desired_replicas), (8, 5));
    run.history.inherited = Some(at(118));
    run.done(8, at(120));
    assert_eq!((run.history.unknown_up, run.history.unknown_down), (None, None));
}

#[test]
fn of_a_sync_that_came_to_no_count_too() {
    let mut run = Run::new(spec(Some(one_per_minute())), 5);
    let without_selector = Scale::new(5, 5, "").unwrap();
    run.sync_with(Ok(without_selector), 9, WriteOutcome::Done, at(100));
    assert_eq!((run.status.current_replicas, run.status.desired_replicas), (5, 0));
    run.history.inherited = Some(at(105));
    run.done(9, at(115));
    assert_eq!((run.replicas, run.history.unknown_up), (6, None));
}

#[test]
fn without_an_inheritance_a_count_that_somebody_changed_is_no_rescale() {
    let mut run = taken_over();
    run.history.inherited = None;
    (run.replicas, run.status.last_scale_time) = (6, Some(at(90)));
    run.done(9, at(111));
    assert_eq!(run.replicas, 7);
}

#[test]
fn a_rescale_that_only_the_status_tells_is_of_unknown_size() {
    let mut run = taken_over();
    run.status.last_scale_time = Some(at(90));
    let conclusion = run.done(9, at(120));
    assert_eq!(run.replicas, 5);
    let end = "1970-01-01T00:01:30.999999999Z".parse().unwrap();
    assert_eq!((run.history.unknown_up, run.history.unknown_down), (Some(end), Some(end)));
    assert_eq!(
        conclusion.explanation.sentence(at(120)),
        "stays at 5: wanted asks for 9, but the scale-up policies allow 5 (a rescale 30 s ago counts as all that they \
         allow, since its size is not known), for another 31 s"
    );
    run.done(1, at(121));
    assert_eq!(run.replicas, 5);
    run.done(9, at(150));
    assert_eq!(run.replicas, 5);
    run.done(9, at(151));
    assert_eq!(run.replicas, 6);
}

#[test]
fn a_rescale_in_the_second_that_the_status_tells_is_the_one_it_tells() {
    let mut run = taken_over();
    run.history.scale_ups = vec![ScaleEvent::new("1970-01-01T00:00:50.7Z".parse().unwrap(), 1)];
    run.done(5, at(100));
    assert_eq!(run.history.unknown_up, None);
}

#[test]
fn a_remembered_rescale_explains_a_count_that_the_status_does_not_tell() {
    let mut run = taken_over();
    run.history.scale_ups.push(ScaleEvent::new(at(95), 3));
    run.replicas = 8;
    let found = run.done(8, at(100)).changes.found.unwrap();
    assert!(found.scale_event.is_none() && found.unknown.is_none(), "{found:?}");

    // A later status may have told the count already.
    let mut run = taken_over();
    run.history.scale_ups.push(ScaleEvent::new(at(95), 3));
    (run.replicas, run.status.desired_replicas) = (8, 8);
    let found = run.done(8, at(100)).changes.found.unwrap();
    assert!(found.scale_event.is_none() && found.unknown.is_none(), "{found:?}");

    // What neither explains may be anything.
    let mut run = taken_over();
    run.history.scale_ups.push(ScaleEvent::new(at(95), 3));
    run.replicas = 7;
    let found = run.done(7, at(100)).changes.found.unwrap();
    assert_eq!((found.scale_event, found.unknown), (None, Some(at(100))));
}

#[test]
fn a_status_that_was_never_written_explains_nothing_and_contradicts_nothing() {
    let mut run = Run::new(spec(Some(one_per_minute())), 5);
    run.history.inherited = Some(at(95));
    run.done(9, at(100));
    assert_eq!(run.replicas, 6);
    assert_eq!((run.history.scale_ups.len(), run.history.unknown_up), (1, None));
}

#[test]
fn nor_does_the_status_of_syncs_that_came_to_no_count() {
    let mut run = Run::new(spec(Some(one_per_minute())), 5);
    run.history.inherited = Some(at(95));
    run.sync_with(Err("no answer".to_owned()), 9, WriteOutcome::Done, at(100));
    assert!(!run.status.conditions.is_empty());
    run.done(9, at(115));
    assert_eq!((run.replicas, run.history.unknown_up), (6, None));
}

#[test]
fn without_behavior_a_history_taken_over_holds_nothing_back() {
    let mut run = taken_over();
    run.spec = spec(None);
    (run.status.last_scale_time, run.replicas) = (Some(at(90)), 6);
    run.done(12, at(100));
    assert_eq!(run.replicas, 12);
    assert_eq!((run.history.unknown_up, run.history.inherited), (None, None));
}

#[test]
fn what_another_writer_left_open_meanwhile_stays_open() {
    let mut run = without_an_answer();
    let conclusion = run.clone().done(9, at(115));
    let other = Unsettled { at: at(110), from: 5, to: 7 };
    run.history.unsettled = Some(other);
    run.history.commit(&conclusion.changes);
    assert_eq!(run.history.unsettled, Some(other));
}
