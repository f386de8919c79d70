//! HPAs with 15 pods each, decoded and stored as the watches do.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

use autoscaling::status::Status;
use cluster::decode;
use cluster::status::StatusTarget;
use cluster::watch::Sink;
use controller::reconcile::PodIntake;
use controller::store::{HpaRecord, Hpas, Pods};
use tokio::time::Instant;

use super::objects::{hpa, pod, status};
use super::{micros, peak_bytes, reset_peak, resident_bytes};

const PODS: usize = 15;
/// The number of objects that are created in advance, so that the measurement excludes their creation.
const AT_ONCE: usize = 500;
/// The number of repetitions of a timing. The minimum counts, because other work on the machine only
/// adds time.
const ROUNDS: usize = 7;

/// Fills the stores with the pods and HPAs of a cluster with `count` HPAs.
pub(super) fn measure(count: usize) -> Result<(), Box<dyn Error>> {
    let (pods, hpas) = (Arc::new(Pods::new()), Hpas::new());
    let mut sink = PodIntake::new(Arc::clone(&pods), None);
    let title = format!("{count} HPAs × {PODS} pods");
    // Allocate the memory for creating objects before the measurement.
    let sample: Vec<_> = (0..AT_ONCE).map(|number| pod(number, 0)).collect();
    let size = sample.iter().map(String::len).sum::<usize>() / sample.len();

    reset_peak()?;
    let before = resident_bytes()?;
    let mut elapsed_micros = 0.0;
    sink.start();
    let mut numbers = (0..count).flat_map(|hpa| (0..PODS).map(move |pod| (hpa, pod)));
    loop {
        let page: Vec<_> = numbers.by_ref().take(AT_ONCE).map(|(hpa, number)| pod(hpa, number)).collect();
        if page.is_empty() {
            break;
        }
        let started = Instant::now();
        for object in &page {
            sink.apply(decode::pod(object.as_bytes())?);
        }
        elapsed_micros += micros(started.elapsed());
    }
    let started = Instant::now();
    sink.done();
    elapsed_micros += micros(started.elapsed());
    let after = resident_bytes()?;
    let each = after.saturating_sub(before) / (count * PODS);
    println!(
        "{title}: {each} B per pod of {size} B, peak {} B; {:.2} µs each",
        peak_bytes()?.saturating_sub(before) / (count * PODS),
        elapsed_micros / (count * PODS) as f64
    );

    reset_peak()?;
    let before = resident_bytes()?;
    let mut elapsed_micros = 0.0;
    hpas.begin(None);
    for number in 0..count {
        let object = hpa(number, 4_000_000 + number, &status(PODS));
        let started = Instant::now();
        hpas.apply(HpaRecord::from(decode::hpa(object.as_bytes())?));
        elapsed_micros += micros(started.elapsed());
    }
    let started = Instant::now();
    let changes = hpas.finish(None);
    elapsed_micros += micros(started.elapsed());
    drop(changes);
    println!(
        "{title}: {} B per HPA of {} B, peak {} B; {:.2} µs each",
        resident_bytes()?.saturating_sub(before) / count,
        hpa(0, 4_000_000, &status(PODS)).len(),
        peak_bytes()?.saturating_sub(before) / count,
        elapsed_micros / count as f64
    );
    Ok(())
}

/// The time per object, measured repeatedly.
pub(super) fn time() -> Result<(), Box<dyn Error>> {
    let pods: Vec<_> = (0..AT_ONCE).map(|number| pod(number, 0)).collect();
    let hpas: Vec<_> = (0..AT_ONCE).map(|number| hpa(number, 4_000_000 + number, &status(PODS))).collect();
    let store = Arc::new(Pods::new());
    let mut sink = PodIntake::new(Arc::clone(&store), None);
    println!("pod decoded: {:.2} µs", minimum(&pods, |object| drop(black_box(decode::pod(object)))));
    println!(
        "pod decoded and stored: {:.2} µs",
        minimum(&pods, |object| {
            if let Ok(pod) = decode::pod(object) {
                sink.apply(pod);
            }
        })
    );
    println!("HPA decoded: {:.2} µs", minimum(&hpas, |object| drop(black_box(decode::hpa(object)))));
    let records: Vec<_> = hpas
        .iter()
        .map(|object| decode::hpa(object.as_bytes()).map(HpaRecord::from))
        .collect::<Result<_, _>>()?;
    let body = |record: &HpaRecord, status: &Status| {
        let target = StatusTarget {
            namespace: &record.key.namespace,
            name: &record.key.name,
            metadata: &record.metadata,
            spec: &record.spec_raw,
        };
        drop(black_box(target.body(status)));
    };
    println!("status body written: {:.2} µs", {
        let mut minimum = f64::INFINITY;
        for _ in 0..ROUNDS {
            let started = Instant::now();
            for record in &records {
                body(record, &record.status);
            }
            minimum = minimum.min(micros(started.elapsed()) / records.len() as f64);
        }
        minimum
    });
    Ok(())
}

/// The minimum time per object, in microseconds.
fn minimum(objects: &[String], mut work: impl FnMut(&[u8])) -> f64 {
    let mut minimum = f64::INFINITY;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for object in objects {
            work(object.as_bytes());
        }
        minimum = minimum.min(micros(started.elapsed()) / objects.len() as f64);
    }
    minimum
}
