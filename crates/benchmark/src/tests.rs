//! Computation of reports from the observations of the API server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use crate::hostile::longest_gap;
use crate::measure::{self, Report, Run};
use crate::observations::{HpaObservations, Observations, PendingReaction, RequestCount};
use crate::scrape::Usage;
use crate::workload::Workload;

const SECOND: i64 = 1_000_000;

/// An HPA with status writes at `seconds`.
fn hpa(seconds: &[i64]) -> HpaObservations {
    HpaObservations {
        statuses: seconds.iter().map(|second| second * SECOND).collect(),
        ..HpaObservations::default()
    }
}

/// The report of one measured minute from second 100, with a sync period of 15 s.
fn report(hpas: &[HpaObservations], change: impl FnOnce(&mut Observations)) -> Report {
    let names = (0..).map(|number| format!("shop/web-{number}"));
    let hpas: BTreeMap<_, _> = names.zip(hpas.iter().cloned()).collect();
    let mut observed =
        Observations { begin: 100 * SECOND, end: 160 * SECOND, hpas, ..Observations::default() };
    change(&mut observed);
    let run = Run {
        workload: &Workload::named("w1").unwrap(),
        label: String::new(),
        controller: String::new(),
        period: 15.0,
        started: 80 * SECOND,
        restarted: None,
        observed: &observed,
        cpu: 0.008,
        instructions: Some(2_000_000.0),
        resident: vec![30, 10, 20],
        last: Usage { cpu: 1.0, resident: 10, peak: 40 },
        own_syncs: None,
        own_on_time: None,
    };
    run.report("simulated")
}

#[test]
fn sync_is_due_one_period_after_the_previous_one() {
    let report = report(&[hpa(&[90, 105, 120, 140, 155])], |_| {});
    // Syncs are due at 105, 120, 135 and 155. The sync that is due at 170 is after the measured minute.
    assert_eq!(report.on_time, Some(0.75));
    let lateness = report.lateness.unwrap();
    assert_eq!((lateness.count, lateness.p50, lateness.max), (4, 0.0, 5.0));
    assert_eq!((report.syncs, report.done), (4.0, 1.0));
}

#[test]
fn missing_sync_is_late_unless_due_in_the_last_second() {
    let late = report(&[hpa(&[95, 110])], |_| {});
    assert_eq!((late.on_time, late.lateness.unwrap().max), (Some(0.5), 35.0));
    let judged = report(&[hpa(&[100, 115, 130, 145]), hpa(&[114, 129, 144, 159])], |_| {});
    assert_eq!(judged.lateness.unwrap().count, 3 + 1 + 3);
    assert_eq!(report(&[hpa(&[])], |_| {}).on_time, Some(0.0));
}

#[test]
fn server_delay_is_not_lateness() {
    let slow = HpaObservations { held_up: 2 * SECOND, ..hpa(&[92, 109, 126, 144]) };
    let lateness = report(&[slow], |_| {}).lateness.unwrap();
    assert_eq!((lateness.count, lateness.p50, lateness.max), (3, 0.0, 1.0));
}

#[test]
fn changed_hpas_do_not_count_for_lateness() {
    let special = HpaObservations { special: true, ..hpa(&[90]) };
    let report = report(&[hpa(&[90, 105, 120, 135, 150]), special], |_| {});
    assert_eq!((report.on_time, report.all_decided), (Some(1.0), Some(10.0)));
}

#[test]
fn requests_per_sync_include_all_clients() {
    let counted = |agent: &str, count| RequestCount {
        agent: agent.to_owned(),
        verb: "update".to_owned(),
        resource: "deployments.apps/scale".to_owned(),
        count,
        failed: 0,
        received: 100 * count,
        sent: 0,
    };
    let report = report(&[hpa(&[90, 105, 120, 135, 150])], |observed| {
        observed.requests = vec![counted("one", 6), counted("other", 2)];
        observed.seconds = vec![1, 3, 2, 2];
    });
    assert_eq!((report.requests_per_sync, report.requests.len()), (2.0, 1));
    assert_eq!((report.requests[0].received, report.burst), (200.0, 1.5));
    assert_eq!((report.controller_cpu, report.received_per_sync), (2.0, None));
    assert_eq!(report.instructions_per_sync, Some(500_000.0));
    assert_eq!((report.resident, report.resident_peak), (20.0, 40.0));
}

#[test]
fn missing_reactions_are_counted() {
    let awaited = |until: Option<i64>| PendingReaction {
        hpa: String::new(),
        since: 110 * SECOND,
        until: until.map(|second| second * SECOND),
    };
    let report = report(&[hpa(&[90])], |observed| {
        observed.reactions = vec![awaited(Some(112)), awaited(None), awaited(Some(111))];
    });
    let reaction = report.reaction.unwrap();
    assert_eq!((reaction.count, reaction.missing, reaction.p50, reaction.max), (2, 1, 1.0, 2.0));
    assert_eq!(report.creation, None);
}

#[test]
fn every_figure_of_several_runs_is_the_median() {
    let run = |count: u64, lateness: &[i64]| {
        report(&[hpa(&[90, 105, 120, 135, 150]), hpa(lateness)], |observed| {
            observed.requests = vec![RequestCount {
                agent: "one".to_owned(),
                verb: if count > 9 { "list" } else { "get" }.to_owned(),
                resource: "pods".to_owned(),
                count,
                failed: 0,
                received: 0,
                sent: 0,
            }];
        })
    };
    let all = [run(8, &[95, 111]), run(80, &[95, 113]), run(4, &[95, 112])];
    let median = measure::median_report(&all).unwrap();
    assert_eq!((median.runs, median.requests_per_sync), (3, all[0].requests_per_sync));
    assert_eq!(median.requests.len(), 2);
    assert_eq!((median.requests[0].verb.as_str(), median.requests[1].requests), ("get", 0.0));
    assert_eq!(median.on_time, all[2].on_time);
}

#[test]
fn time_without_renewal_includes_both_ends() {
    let gap = |renewals: &[i64]| {
        let renewals = renewals.iter().map(|second| second * SECOND).collect();
        longest_gap(&Observations {
            begin: 100 * SECOND,
            end: 110 * SECOND,
            renewals,
            ..Observations::default()
        })
    };
    assert_eq!([gap(&[]), gap(&[102, 104]), gap(&[107, 109]), gap(&[101, 106, 108])], [10.0, 6.0, 7.0, 5.0]);
}
