//! Every conversion from a float or a wide integer to a narrower one saturates, and no load makes the
//! arithmetic of a decision wrap.

use autoscaling::quantity::{Format, Quantity};
use autoscaling::spec::ValueTarget;

use crate::number::{
    ceil_to_count, ceil_to_milli, length_to_i64, saturate_to_i32, saturate_to_milli, truncate_to_count,
};
use crate::workload::{
    WHOLE, Workload, external_metric, external_value, for_each_in_parallel, pod_values, pods_metric, running,
};

/// Rounds a float towards zero and up, from its bits, without floating-point arithmetic. Beyond 2^100 in
/// either direction the exact value does not matter.
fn rounded(value: f64) -> (i128, i128) {
    let bits = value.to_bits();
    let stored = i128::from(bits & ((1 << 52) - 1));
    let exponent = i64::try_from(bits >> 52 & 0x7ff).unwrap();
    if exponent == 0x7ff && stored != 0 {
        return (0, 0); // NaN
    }
    let (mantissa, power) = if exponent == 0 { (stored, -1074) } else { (stored | 1 << 52, exponent - 1075) };
    let (whole, fraction) = match power {
        48.. => (1 << 100, false),
        0..48 => (mantissa << power, false),
        -60..0 => (mantissa >> -power, mantissa & ((1 << -power) - 1) != 0),
        _ => (0, mantissa != 0),
    };
    if bits >> 63 == 0 { (whole, whole + i128::from(fraction)) } else { (-whole, -whole) }
}

fn clamp_to_i32(value: i128) -> i32 {
    i32::try_from(value.clamp(i128::from(i32::MIN), i128::from(i32::MAX))).unwrap()
}

fn clamp_to_i64(value: i128) -> i64 {
    i64::try_from(value.clamp(i128::from(i64::MIN), i128::from(i64::MAX))).unwrap()
}

fn check(value: f64) {
    let (truncated, ceiled) = rounded(value);
    assert_eq!(ceil_to_count(value), clamp_to_i32(ceiled), "{value:e}");
    assert_eq!(truncate_to_count(value), clamp_to_i32(truncated), "{value:e}");
    assert_eq!(ceil_to_milli(value), clamp_to_i64(ceiled), "{value:e}");
}

#[test]
fn float_saturates_around_every_power_of_two_and_every_limit() {
    let mut cases = 0;
    let mut around = |value: f64| {
        // Floats of one sign are ordered like their bits.
        let bits = value.to_bits();
        for near in bits.saturating_sub(64)..=bits.saturating_add(64) {
            check(f64::from_bits(near));
            check(-f64::from_bits(near));
            cases += 2;
        }
    };
    for exponent in 0..=0x7ff_u64 {
        around(f64::from_bits(exponent << 52)); // every power of two, zero, infinity, and NaN beyond it
    }
    for power in 0..64 {
        for offset in [-1.5, -1.0, -0.5, 0.5, 1.0, 1.5] {
            around(2_f64.powi(power) + offset);
        }
    }
    around(f64::from_bits(u64::MAX >> 1)); // the last NaN
    for whole in -70_000..=70_000 {
        for fraction in [0.0, 0.25, 0.5, 0.999_999] {
            check(f64::from(whole) + fraction);
            cases += 1;
        }
    }
    println!("{cases} floats");
}

#[test]
fn every_single_precision_float_saturates() {
    // A small build tries every upper half: every sign, exponent and upper mantissa. The lower halves are 0,
    // 1 and all ones.
    let uppers: Vec<u32> = (0..=0xffff).collect();
    let lowers: Vec<u32> = if WHOLE { (0..=0xffff).collect() } else { vec![0, 1, 0xffff] };
    let cases = for_each_in_parallel(&uppers, |upper| {
        for lower in &lowers {
            check(f64::from(f32::from_bits(upper << 16 | lower)));
        }
        lowers.len() as u64
    });
    println!("{cases} floats");
}

/// Zero, every power of two and every limit, with their neighbors.
fn wide_edges(most: u32) -> Vec<i128> {
    let mut edges: Vec<i128> = (-5..=5).collect();
    for power in 0..most {
        for offset in -3..=3 {
            edges.extend([(1 << power) + offset, -(1 << power) + offset]);
        }
    }
    edges.extend([i128::MAX, i128::MAX - 1, i128::MIN, i128::MIN + 1]);
    edges.sort_unstable();
    edges.dedup();
    edges
}

#[test]
fn wide_integer_saturates_around_every_power_of_two_and_every_limit() {
    for value in wide_edges(127) {
        assert_eq!(saturate_to_milli(value), clamp_to_i64(value), "{value}");
        assert_eq!(saturate_to_i32(value), clamp_to_i32(value), "{value}");
        if let Ok(length) = usize::try_from(value) {
            assert_eq!(length_to_i64(length), clamp_to_i64(value), "{value}");
        }
    }
    for value in -0x2_0000..=0x2_0000_i128 {
        assert_eq!(i128::from(saturate_to_milli(value)), value);
        assert_eq!(i128::from(saturate_to_i32(value)), value);
    }
}

/// Milli-units around every power of two, within 64 bits.
fn milli_edges() -> Vec<i64> {
    let bits = if WHOLE { 63 } else { 24 };
    let mut edges: Vec<i64> =
        wide_edges(bits).into_iter().filter_map(|edge| i64::try_from(edge).ok()).collect();
    edges.extend([i64::MAX, i64::MAX - 1, i64::MIN, i64::MIN + 1, i64::MAX / 1000, i64::MAX / 1000 + 1]);
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn milli(value: i64) -> Quantity {
    Quantity::from_milli(value, Format::DecimalSi)
}

/// The smallest integer not below `value / target`; beyond all counts if the target is zero.
fn exact_ceil(value: i128, target: i128) -> i128 {
    if target == 0 {
        return value.signum() << 100; // infinite, or NaN for 0 / 0
    }
    let (value, target) = if target < 0 { (-value, -target) } else { (value, target) };
    value.div_euclid(target) + i128::from(value.rem_euclid(target) != 0)
}

#[test]
fn total_of_any_size_yields_the_exact_count_and_never_wraps() {
    let edges = milli_edges();
    let cases = for_each_in_parallel(&edges, |&target| {
        let workload =
            Workload::new(external_metric(ValueTarget::AverageValue(milli(target))), 1, i32::MAX, 3);
        let mut previous = None;
        for &value in &edges {
            let got = workload.proposal(external_value(value)).unwrap();
            let expected = clamp_to_i32(exact_ceil(value.into(), target.into()));
            // Beyond 2^53 the load itself is rounded to a float, by less than one part in 2^53.
            let slack = u32::from(value.unsigned_abs().max(target.unsigned_abs()) >= 1 << 53);
            assert!(got.abs_diff(expected) <= slack, "{value} / {target}: {got}, not {expected}");
            if target > 0 {
                assert!(previous <= Some(got), "{value} / {target}: fewer than for a smaller load");
                previous = Some(got);
            }
        }
        edges.len() as u64
    });
    println!("{cases} totals");
}

#[test]
fn ratio_of_any_size_never_wraps_and_never_falls_with_the_load() {
    let edges = milli_edges();
    let cases = for_each_in_parallel(&edges, |&target| {
        let mut cases = 0;
        for current in [1, 2, 3] {
            let pods = (0..current).map(|pod| running(&format!("web-{pod}"), "cpu", 1000)).collect();
            let metric = external_metric(ValueTarget::Value(milli(target)));
            let workload = Workload::new(metric, 1, i32::MAX, current).with_pods(pods);
            let mut previous = None;
            for &value in &edges {
                cases += 1;
                let got = workload.proposal(external_value(value)).unwrap();
                let exact = exact_ceil(i128::from(value) * i128::from(current), target.into());
                let near = i128::from(got) == i128::from(current) || {
                    let off = i128::from(got) - i128::from(clamp_to_i32(exact));
                    (-1..=1).contains(&off)
                };
                assert!(near, "{value} / {target} of {current}: {got}, not {exact}");
                if target > 0 {
                    assert!(
                        previous <= Some(got),
                        "{value} / {target} of {current}: fewer than for a smaller load"
                    );
                    previous = Some(got);
                }
            }
        }
        cases
    });
    println!("{cases} ratios");
}

#[test]
fn sums_of_samples_of_any_size_saturate() {
    let edges = milli_edges();
    let names = ["web-0".into(), "web-1".into()];
    let cases = for_each_in_parallel(&edges, |&first| {
        let mut cases = 0;
        for target in [1, 1000, 1 << 31, i64::MAX] {
            let pods = vec![running("web-0", "cpu", 1), running("web-1", "cpu", 1)];
            let workload = Workload::new(pods_metric(target), 1, i32::MAX, 2).with_pods(pods);
            let mut previous = None;
            for &second in &edges {
                cases += 1;
                let values = [first, second];
                let got = workload.proposal(pod_values(names.iter().cloned().zip(values))).unwrap();
                let average = clamp_to_i64(i128::from(first) + i128::from(second)) / 2;
                let exact = clamp_to_i32(exact_ceil(2 * i128::from(average), target.into()));
                assert!(got == 2 || got.abs_diff(exact) <= 1, "({first} + {second}) / 2 of {target}: {got}");
                assert!(
                    previous <= Some(got),
                    "({first} + {second}) / 2 of {target}: fewer than for a smaller load"
                );
                previous = Some(got);
            }
        }
        cases
    });
    println!("{cases} sums");
}
