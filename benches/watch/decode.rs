//! The cursor and serde_json on the same pods, in memory.

use std::hint::black_box;

use cluster::decode::{self, Text};

use super::slim::Pod;
use super::{Failure, cpu_seconds, median, objects};

/// Decodes `count` pods `passes` times in each round with each decoder, and prints the medians.
pub(super) fn compare(count: usize, passes: usize, rounds: usize) -> Result<(), Failure> {
    let pods: Vec<_> = (0..count).map(|number| objects::pod(number / 10, number % 10)).collect();
    let mut results = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let decoders: [fn(&[u8]) -> bool; 3] = [
            |pod| black_box(decode::pod(pod)).is_ok(),
            |pod| black_box(serde_json::from_slice::<Pod<Text<'_>>>(pod)).is_ok(),
            |pod| black_box(serde_json::from_slice::<Pod<String>>(pod)).is_ok(),
        ];
        for (decoder, results) in decoders.into_iter().zip(&mut results) {
            let started = cpu_seconds()?;
            for _ in 0..passes {
                if !pods.iter().all(|pod| decoder(pod.as_bytes())) {
                    return Err("a pod cannot be decoded".into());
                }
            }
            results.push((cpu_seconds()? - started) * 1e6 / (passes * count) as f64);
        }
    }
    let size = pods.iter().map(String::len).sum::<usize>() / count;
    println!("CPU µs to decode a pod of {size} B; (ratio to the cursor)");
    let [cursor, ..] = &results;
    for (name, result) in ["cursor", "serde_json, borrowed", "serde_json, owned"].into_iter().zip(&results) {
        let ratios = result.iter().zip(cursor).map(|(figure, cursor)| figure / cursor);
        println!("{name:22} | {:9.2} ({:5.2})", median(result.iter().copied()), median(ratios));
    }
    Ok(())
}
