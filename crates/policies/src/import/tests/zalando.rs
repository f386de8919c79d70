use super::{imported, one};

fn schedules(kind: &str, schedules: &str) -> String {
    format!(
        "{{apiVersion: zalando.org/v1, kind: {kind}, metadata: {{name: sale, namespace: shop}}, \
         spec: {{scalingWindowDurationMinutes: 0, schedules: [{schedules}]}}}}"
    )
}

fn hpa(namespace: &str, kind: &str, target: &str, further: &str) -> String {
    format!(
        "{{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {{name: web, namespace: {namespace}}}, spec: {{maxReplicas: 50, \
         metrics: [{{type: Object, object: {{describedObject: {{apiVersion: zalando.org/v1, kind: {kind}, name: sale}}, \
         metric: {{name: sale}}, target: {{{target}}}}}}}{further}]}}}}"
    )
}

const AVERAGE: &str = "type: AverageValue, averageValue: '10'";
const LABEL: &str = "HorizontalPodAutoscaler shop/web: metadata.labels: next step: add the label concertina.dev/imported-from=web";
const KEEP: &str = "HorizontalPodAutoscaler shop/web: spec.metrics[0]: next step: keep the metric, because an HPA without metrics scales by \
                    cpu, or replace it";

/// Imports one schedule with an HPA whose `averageValue` is 10. Returns the spec, and the notes about the schedule.
fn converted(schedule: &str) -> (String, Vec<String>) {
    let kind = "ScalingSchedule";
    let (mut specs, notes) = imported(&[&schedules(kind, schedule), &hpa("shop", kind, AVERAGE, "")]);
    let of_schedule = notes.into_iter().filter(|note| note != LABEL && note != KEEP);
    (
        specs.pop().unwrap_or_default(),
        of_schedule.map(|note| note.replace("ScalingSchedule shop/sale: ", "")).collect(),
    )
}

#[test]
fn schedule_becomes_a_floor_of_the_hpa() {
    for (schedule, expected) in [
        (
            "{type: OneTime, date: '2021-10-02T08:08:08+02:00', durationMinutes: 30, value: 100}",
            r#""from":"2021-10-02T06:08:08Z","minReplicas":10,"name":"sale-0","to":"2021-10-02T06:38:08Z""#,
        ),
        (
            "{type: OneTime, date: '2021-10-02T08:00:00Z', endDate: '2021-10-02T10:00:00Z', durationMinutes: 30, value: 101}",
            r#""from":"2021-10-02T08:00:00Z","minReplicas":11,"name":"sale-0","to":"2021-10-02T10:00:00Z""#,
        ),
        (
            "{type: Repeating, durationMinutes: 10, value: 120, period: {startTime: '15:45', timezone: Europe/Berlin, days: [Mon, Wed, Fri]}}",
            r#""end":"55 15 * * Mon,Wed,Fri","minReplicas":12,"name":"sale-0","start":"45 15 * * Mon,Wed,Fri","timeZone":"Europe/Berlin""#,
        ),
        (
            "{type: Repeating, value: 1, period: {startTime: '08:00', endTime: '19:30', timezone: UTC, days: [Sat, Sun, Mon, Tue, Wed, Thu, Fri]}}",
            r#""end":"30 19 * * *","minReplicas":1,"name":"sale-0","start":"0 8 * * *","timeZone":"UTC""#,
        ),
        (
            "{type: Repeating, durationMinutes: 60, value: 20, period: {startTime: '23:00', endTime: '', timezone: UTC, days: [Sat]}}",
            r#""end":"0 0 * * Sun","minReplicas":2,"name":"sale-0","start":"0 23 * * Sat","timeZone":"UTC""#,
        ),
    ] {
        assert_eq!(
            converted(schedule),
            (format!(r#"{{"schedules":[{{{expected}}}]}}"#), Vec::new()),
            "{schedule}"
        );
    }
}

#[test]
fn differences_of_a_schedule_are_noted() {
    let (spec, notes) = converted(
        "{type: Repeating, durationMinutes: 120, value: 20, period: {startTime: '23:00', days: [Fri, Sat]}}",
    );
    assert_eq!(
        spec,
        r#"{"schedules":[{"end":"0 0 * * Sun,Sat","minReplicas":2,"name":"sale-0","start":"0 23 * * Fri,Sat","timeZone":"Europe/Berlin"}]}"#
    );
    assert_eq!(
        notes,
        [
            "spec.schedules[0]: imported with a difference: the adapter ends it at midnight, and so does the schedule",
            "spec.schedules[0].period.timezone: imported with a difference: Europe/Berlin is assumed, the default of the adapter",
        ]
    );
    let one_time = "{type: OneTime, date: '2021-10-02T08:00:00Z', durationMinutes: 30, value: 100}";
    for (window, expected) in
        [("", "ten minutes by default"), ("scalingWindowDurationMinutes: 5, ", "over this time")]
    {
        let document =
            schedules("ScalingSchedule", one_time).replace("scalingWindowDurationMinutes: 0, ", window);
        let notes = imported(&[&document, &hpa("shop", "ScalingSchedule", AVERAGE, "")]).1;
        assert!(
            notes[0].contains("spec.scalingWindowDurationMinutes: imported with a difference"),
            "{notes:?}"
        );
        assert!(notes[0].contains(expected), "{notes:?}");
    }
}

#[test]
fn invalid_schedule_is_not_imported() {
    for (schedule, expected) in [
        (
            "{type: OneTime, durationMinutes: 30, value: 1}",
            "spec.schedules[0].date: not imported: is missing",
        ),
        (
            "{type: OneTime, date: today, durationMinutes: 30, value: 1}",
            "spec.schedules[0].date: not imported: must be a time such as 2026-12-01T08:00:00Z, not \"today\"",
        ),
        (
            "{type: OneTime, date: '2021-10-02T08:00:00Z', value: 1}",
            "spec.schedules[0]: not imported: it has neither a duration nor a later endDate",
        ),
        (
            "{type: Daily, value: 1}",
            "spec.schedules[0].type: not imported: must be OneTime or Repeating, not \"Daily\"",
        ),
        ("{value: 1}", "spec.schedules[0].type: not imported: is missing"),
        ("{type: OneTime}", "spec.schedules[0].value: not imported: is missing"),
        (
            "{type: OneTime, value: -5}",
            "spec.schedules[0].value: not imported: must be a whole number of at least 0, not -5",
        ),
        (
            "{type: OneTime, value: 5, durationMinutes: x}",
            "spec.schedules[0].durationMinutes: not imported: must be a number of minutes, not \"x\"",
        ),
        (
            "{type: Repeating, value: 1, durationMinutes: 5, period: {startTime: '8:00', days: [Mon]}}",
            "spec.schedules[0].period.startTime: not imported: must be a time such as 08:30, not \"8:00\"",
        ),
        (
            "{type: Repeating, value: 1, durationMinutes: 5, period: {startTime: '24:00', days: [Mon]}}",
            "spec.schedules[0].period.startTime: not imported: must be a time such as 08:30, not \"24:00\"",
        ),
        (
            "{type: Repeating, value: 1, durationMinutes: 5, period: {days: [Mon]}}",
            "spec.schedules[0].period.startTime: not imported: is missing",
        ),
        (
            "{type: Repeating, value: 1, durationMinutes: 5, period: {startTime: '08:00', days: [Monday]}}",
            "spec.schedules[0].period.days[0]: not imported: must be Sun, Mon, Tue, Wed, Thu, Fri or Sat, not \"Monday\"",
        ),
        (
            "{type: Repeating, value: 1, durationMinutes: 5, period: {startTime: '08:00', days: []}}",
            "spec.schedules[0].period.days: not imported: is missing",
        ),
        (
            "{type: Repeating, value: 1, period: {startTime: '08:00', endTime: '07:00', days: [Mon]}}",
            "spec.schedules[0]: not imported: it has neither a duration nor a later endTime",
        ),
        (
            "{type: Repeating, value: 1, durationMinutes: 1440, period: {startTime: '00:00', timezone: UTC, days: [Sun, Mon, Tue, Wed, Thu, Fri, Sat]}}",
            "spec.schedules[0]: not imported: end: is equal to start; for a schedule without an end use from and to",
        ),
    ] {
        assert_eq!(converted(schedule), (String::new(), vec![expected.to_owned()]), "{schedule}");
    }
}

#[test]
fn value_is_a_count_only_with_the_average_of_an_hpa() {
    let schedule = schedules(
        "ScalingSchedule",
        "{type: OneTime, date: '2021-10-02T08:00:00Z', durationMinutes: 30, value: 100}",
    );
    let unused = "ScalingSchedule shop/sale: not imported: no HPA of the input refers to it; its value is a count only with the \
                  averageValue of an HPA";
    assert_eq!(one(&schedule), (String::new(), vec![unused.to_owned()]));
    let title = "HorizontalPodAutoscaler shop/web: spec.metrics[0].object";
    for (target, expected) in [
        (
            "type: Value, value: 10",
            ".target: not imported: without averageValue, the value of a schedule does not determine a number of pods",
        ),
        (
            "type: AverageValue, averageValue: 0",
            ".target.averageValue: not imported: must be a quantity above 0, not 0",
        ),
        (
            "type: AverageValue, averageValue: ten",
            ".target.averageValue: not imported: must be a quantity above 0, not \"ten\"",
        ),
    ] {
        let (specs, notes) = imported(&[&schedule, &hpa("shop", "ScalingSchedule", target, "")]);
        assert_eq!((specs.len(), &*notes[0]), (0, &*format!("{title}{expected}")));
    }
    // HPAs of other namespaces can refer to a ClusterScalingSchedule, but not to a ScalingSchedule.
    let (specs, notes) = imported(&[&schedule, &hpa("other", "ScalingSchedule", AVERAGE, "")]);
    assert_eq!(specs.len(), 0);
    assert!(
        notes[0].ends_with("describedObject: not imported: the input does not contain this schedule"),
        "{notes:?}"
    );
    let cluster = schedule.replace("kind: ScalingSchedule", "kind: ClusterScalingSchedule");
    let other = hpa("other", "ClusterScalingSchedule", "type: AverageValue, averageValue: 500m", "");
    let (specs, notes) = imported(&[&other, &cluster, &hpa("shop", "ClusterScalingSchedule", AVERAGE, "")]);
    assert!(specs[0].contains(r#""minReplicas":200,"#), "{specs:?}");
    assert!(specs[1].contains(r#""minReplicas":10,"#), "{specs:?}");
    assert_eq!(notes.len(), 4, "{notes:?}");
}

#[test]
fn metric_is_removed_if_others_remain() {
    let schedule = schedules(
        "ScalingSchedule",
        "{type: OneTime, date: '2021-10-02T08:00:00Z', durationMinutes: 30, value: 100}",
    );
    let further = ", {type: Resource, resource: {name: cpu}}";
    let notes = imported(&[&schedule, &hpa("shop", "ScalingSchedule", AVERAGE, further)]).1;
    assert_eq!(
        notes,
        [
            LABEL,
            "HorizontalPodAutoscaler shop/web: spec.metrics[0]: next step: remove the metric after the policy applies"
        ]
    );
}

#[test]
fn schedules_beyond_the_limit_are_noted() {
    let entry = "{type: OneTime, date: '2021-10-02T08:00:00Z', durationMinutes: 30, value: 100}";
    let many = |count: usize| schedules("ScalingSchedule", &vec![entry; count].join(", "));
    let hpa = hpa("shop", "ScalingSchedule", AVERAGE, "");
    assert_eq!(imported(&[&many(100), &hpa]).0.len(), 1);
    let (specs, notes) = imported(&[&many(101), &hpa]);
    assert_eq!(specs.len(), 0);
    assert_eq!(
        notes,
        [
            "ScalingSchedule shop/sale: spec.schedules: not imported: it has 101 entries, a policy has at most 100"
        ]
    );
}
