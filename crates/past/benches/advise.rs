//! Time and memory of advice on HPAs, and the savings that it predicts and those of the judged part:
//! `cargo bench -p past --bench advise -- 300`. The past of each HPA is 14 days of a service on one of the series of
//! `CONCERTINA_SERIES`, or else on made loads, with other settings than the HPA before.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a bench may fail"
)]

#[path = "../../../tests/support/services.rs"]
mod services;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use past::advise::outcome::Choice;
use past::advise::rates::Rates;
use past::advise::search::{Search, Today, search};

use self::services::{DAY, Past, Service, loads, record};

const DAYS: usize = 14;

fn main() {
    let count = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(300);
    let loads = loads(DAYS * DAY, 16.0);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    let (start, processor) = (Instant::now(), processor_seconds());
    let generating = Mutex::new(0.0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let hpa = next.fetch_add(1, Ordering::Relaxed);
                    if hpa >= count {
                        break;
                    }
                    let made = Instant::now();
                    let (past, load) = (Past::of_many(hpa, DAYS), &loads[hpa % loads.len()]);
                    let service = Service::of_many(hpa);
                    let start = "2026-11-02T00:00:00Z".parse().expect("a time");
                    let recording = record(past, service, start, |minute| load[minute]);
                    let today =
                        Today { choice: choice(past), behavior: None, average_value: None, external: None };
                    *generating.lock().expect("a number") += made.elapsed().as_secs_f64();
                    let load = recording.load();
                    let found = load.map(|load| search(&today, &recording, &load).expect("a replay"));
                    results.lock().expect("results").insert(hpa, found);
                }
            });
        }
    });
    println!(
        "{count} HPAs: {:.0} s, {:.0} s of processors with {:.0} s to make the pasts, {} at most",
        start.elapsed().as_secs_f64(),
        processor_seconds() - processor,
        generating.into_inner().expect("a number"),
        status("VmHWM")
    );
    let results = results.into_inner().expect("results");
    for service in Service::ALL {
        let of_kind = results.iter().filter(|(hpa, _)| Service::of_many(**hpa) == service);
        let (mut saved, mut cost) = ([0.0, 0.0], [0.0, 0.0]);
        let (mut advised, mut near, mut worse, mut hpas) = (0, 0, 0, 0);
        let mut refusals = BTreeMap::<String, u32>::new();
        for (_, found) in of_kind {
            hpas += 1;
            match found {
                Ok(Search { outcome: Ok(proposal), .. }) => {
                    let (fit, judge) = (proposal.advised.fitted, proposal.advised.judged);
                    advised += 1;
                    let sum = if fit.saved() > 0.0 { &mut saved } else { &mut cost };
                    sum[0] += fit.saved();
                    sum[1] += judge.saved();
                    near += u32::from((fit.saved_share() - judge.saved_share()).abs() <= 0.1);
                    worse += u32::from(judge.advised.unserved_ppm > 1.02 * judge.today.unserved_ppm + 5.0);
                }
                Ok(Search { outcome: Err(refusal), .. }) | Err(refusal) => {
                    let text = format!("{refusal:?}");
                    let name = text.split([' ', '{']).next().unwrap_or_default().to_owned();
                    *refusals.entry(name).or_default() += 1;
                }
            }
        }
        println!(
            "{:<11} {hpas:>4} HPAs, {advised:>3} advised, pod-hours a week predicted and judged: saved {saved:.0?}, \
             for less shortage {cost:.0?}; {near} within 10 points, {worse} with more unserved load; refused \
             {refusals:?}",
            format!("{service:?}")
        );
    }
}

fn choice(past: Past) -> Choice {
    Choice {
        target: past.target,
        min_replicas: past.min,
        max_replicas: past.max,
        scale_down_window_seconds: 300,
        scale_up_rates: Rates::Kept,
        scale_down_rates: Rates::Kept,
    }
}

/// The processor time of this process in seconds.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = text.split(' ').filter_map(|field| field.parse().ok()).collect();
    // utime and stime in hundredths; the name and the state are no numbers.
    fields.get(11..13).map_or(0.0, |times| times.iter().sum::<f64>() / 100.0)
}

fn status(field: &str) -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.map(|line| line.trim_start_matches([':', ' ', '\t']).to_owned()).unwrap_or_default()
}
