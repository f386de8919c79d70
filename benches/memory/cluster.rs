//! HPAs with 15 pods each, decoded and put into the stores as the watches do.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

use autoscaling::status::Status;
use concertina::api::decode;
use concertina::api::status::StatusTarget;
use concertina::api::watch::Sink;
use concertina::controller::PodIntake;
use concertina::store::{HpaRecord, Hpas, Pods};
use tokio::time::Instant;

use super::objects::{hpa, pod, status};
use super::{micros, peak_bytes, reset_peak, resident_bytes};

const PODS: usize = 15;
/// So many objects are made before they are read, so that making them is not counted.
const AT_ONCE: usize = 500;
/// How often what is timed is repeated; the least counts, as other work on the machine only adds.
const ROUNDS: usize = 7;

/// Fills the stores with the pods and the HPAs of a cluster of so many HPAs.
pub(super) fn measure(count: usize) -> Result<(), Box<dyn Error>> {
    let (pods, hpas) = (Arc::new(Pods::new()), Hpas::new());
    let mut sink = PodIntake::new(Arc::clone(&pods), None);
    let title = format!("{count} HPAs × {PODS} pods");
    // What making the objects takes is taken before.
    let sample: Vec<_> = (0..AT_ONCE).map(|number| pod(number, 0)).collect();
    let size = sample.iter().map(String::len).sum::<usize>() / sample.len();

    reset_peak()?;
    let before = resident_bytes()?;
    let mut spent = 0.0;
    sink.start();
    let mut numbers = (0..count).flat_map(|hpa| (0..PODS).map(move |pod| (hpa, pod)));
    loop {
        let page: Vec<_> = numbers.by_ref().take(AT_ONCE).map(|(hpa, number)| pod(hpa, number)).collect();
        if page.is_empty() {
            break;
        }
        let began = Instant::now();
        for object in &page {
            sink.apply(decode::pod(object.as_bytes())?);
        }
        spent += micros(began.elapsed());
    }
    let began = Instant::now();
    sink.done();
    spent += micros(began.elapsed());
    let after = resident_bytes()?;
    let each = after.saturating_sub(before) / (count * PODS);
    println!(
        "{title}: {each} B per pod of {size} B, peak {} B; {:.2} µs each",
        peak_bytes()?.saturating_sub(before) / (count * PODS),
        spent / (count * PODS) as f64
    );

    reset_peak()?;
    let before = resident_bytes()?;
    let mut spent = 0.0;
    hpas.begin(None);
    for number in 0..count {
        let object = hpa(number, 4_000_000 + number, &status(PODS));
        let began = Instant::now();
        hpas.apply(HpaRecord::from(decode::hpa(object.as_bytes())?));
        spent += micros(began.elapsed());
    }
    let began = Instant::now();
    let changes = hpas.finish(None);
    spent += micros(began.elapsed());
    drop(changes);
    println!(
        "{title}: {} B per HPA of {} B, peak {} B; {:.2} µs each",
        resident_bytes()?.saturating_sub(before) / count,
        hpa(0, 4_000_000, &status(PODS)).len(),
        peak_bytes()?.saturating_sub(before) / count,
        spent / count as f64
    );
    Ok(())
}

/// How long one object takes, again and again.
pub(super) fn time() -> Result<(), Box<dyn Error>> {
    let pods: Vec<_> = (0..AT_ONCE).map(|number| pod(number, 0)).collect();
    let hpas: Vec<_> = (0..AT_ONCE).map(|number| hpa(number, 4_000_000 + number, &status(PODS))).collect();
    let store = Arc::new(Pods::new());
    let mut sink = PodIntake::new(Arc::clone(&store), None);
    println!("pod decoded: {:.2} µs", least(&pods, |object| drop(black_box(decode::pod(object)))));
    println!(
        "pod decoded and stored: {:.2} µs",
        least(&pods, |object| {
            if let Ok(pod) = decode::pod(object) {
                sink.apply(pod);
            }
        })
    );
    println!("HPA decoded: {:.2} µs", least(&hpas, |object| drop(black_box(decode::hpa(object)))));
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
        let mut least = f64::INFINITY;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for record in &records {
                body(record, &record.status);
            }
            least = least.min(micros(began.elapsed()) / records.len() as f64);
        }
        least
    });
    Ok(())
}

/// The least time per object, in microseconds.
fn least(objects: &[String], mut work: impl FnMut(&[u8])) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for object in objects {
            work(object.as_bytes());
        }
        least = least.min(micros(began.elapsed()) / objects.len() as f64);
    }
    least
}
