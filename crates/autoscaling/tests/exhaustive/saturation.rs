//! Conversions of numbers. Every conversion from a float or a wide integer to a narrower integer saturates, and the
//! arithmetic of a decision does not wrap for any load. In a bounded domain, upstream's float64 arithmetic deviates
//! from integer arithmetic only as far as the other proofs tolerate:
//!
//! - A percentage of a count differs by one pod, in the direction of the change, and only if the exact result is an
//!   integer: 143,084 of 40,202,000 cases. For example, 100 pods grow by 10 % to 111, because 100 × 1.1 is
//!   110.00000000000001.
//! - A ratio times a count is one too high, and only if the exact result is an integer: 2,207 of 10,010,000 cases.
//! - A tolerance in whole percent is exact at both edges, except for 18, 36, 41 to 43, 57 to 59, 61, 69 to 71, 82 to 86
//!   and 94 to 99 %.
//! - A load above 2⁵³ milli-units is itself rounded, and the count then differs by at most one.

use autoscaling::quantity::{Format, Quantity};
use autoscaling::spec::ValueTarget;

use crate::number::{
    ceil_to_count, ceil_to_milli, length_to_i64, saturate_to_i32, saturate_to_i64, truncate_to_count,
};
use crate::workload::{
    WHOLE, Workload, external_metric, external_value, for_each_in_parallel, pod_values, pods_metric, running,
};

/// Rounds a float towards zero, and up, without floating-point arithmetic. Values beyond ±2^100 are replaced by ±2^100.
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
        // The bits of positive floats have the same order as their values.
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
    // The upper 16 bits cover every sign, every exponent and the first 7 bits of the mantissa. In a build with debug
    // assertions, the lower 16 bits are 0, 1 and all ones.
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

/// Zero, the powers of two below 2^`most` and the limits of an i128, with their neighbors.
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
        assert_eq!(saturate_to_i64(value), clamp_to_i64(value), "{value}");
        assert_eq!(saturate_to_i32(value), clamp_to_i32(value), "{value}");
        if let Ok(length) = usize::try_from(value) {
            assert_eq!(length_to_i64(length), clamp_to_i64(value), "{value}");
        }
    }
    for value in -0x2_0000..=0x2_0000_i128 {
        assert_eq!(i128::from(saturate_to_i64(value)), value);
        assert_eq!(i128::from(saturate_to_i32(value)), value);
    }
}

/// Amounts in milli-units around the powers of two within 64 bits.
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

/// `value / target`, rounded up. If the target is 0, an infinity is represented by ±2^100, and NaN by 0.
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
            // Integers above 2^53 are rounded to the nearest float.
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
fn averages_of_samples_of_any_size_are_exact() {
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
                let average = i128::midpoint(i128::from(first), i128::from(second));
                let exact = clamp_to_i32(exact_ceil(2 * average, target.into()));
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

/// The counts that a policy of `value` percent allows from `start`, up and down, computed like the core.
fn in_floats(start: i32, value: i32) -> (i32, i32) {
    let factor = f64::from(value) / 100.0;
    (ceil_to_count(f64::from(start) * (1.0 + factor)), truncate_to_count(f64::from(start) * (1.0 - factor)))
}

#[test]
fn percentage_is_off_by_at_most_one_pod_and_only_if_it_is_whole() {
    let starts: Vec<i32> = (-100..=if WHOLE { 20_000 } else { 300 }).collect();
    let cases = for_each_in_parallel(&starts, |&start| {
        let mut off = 0;
        for value in 1..=1000 {
            let (up, down) = in_floats(start, value);
            let (above, below) = (start * (100 + value), start * (100 - value));
            let exact_up = above.div_euclid(100) + i32::from(above % 100 != 0);
            let exact_down = below / 100;
            assert!(up == exact_up || (above % 100 == 0 && up == exact_up + 1), "{start} + {value} %: {up}");
            if start >= 0 && value <= 100 {
                let lower = below % 100 == 0 && down == exact_down - 1;
                assert!(down == exact_down || lower, "{start} - {value} %: {down}");
            }
            off += u64::from(up != exact_up) + u64::from(down != exact_down);
        }
        off
    });
    println!("{cases} of {} percentages are off by one", starts.len() * 2000);
    assert_eq!(in_floats(10, 10).0, 11);
    assert_eq!(in_floats(100, 10).0, 111, "100 x 1.1 is 110.00000000000001");
}

#[test]
fn ratio_times_count_is_off_by_at_most_one_and_only_if_it_is_whole() {
    let most = if WHOLE { 1000 } else { 100 };
    let targets: Vec<i32> = (1..=most).collect();
    let cases = for_each_in_parallel(&targets, |&target| {
        let mut off = 0;
        for value in 0..=most {
            for count in [1, 2, 3, 5, 7, 10, 30, 49, 100, 999] {
                let got = ceil_to_count(f64::from(value) / f64::from(target) * f64::from(count));
                let product = value * count;
                let exact = product.div_euclid(target) + i32::from(product % target != 0);
                let over = product % target == 0 && got == exact + 1;
                assert!(got == exact || over, "{value} / {target} x {count}: {got}");
                off += u64::from(got != exact);
            }
        }
        off
    });
    println!("{cases} ratios are off by one");
}

#[test]
fn tolerance_in_whole_percent_is_exact_at_its_edges() {
    // Compares `ratio <= 1 + tolerance` in float64 with integer arithmetic, for every ratio of small integers.
    let mut off = Vec::new();
    for percent in 0..=100_i32 {
        let tolerance = f64::from(percent) / 100.0;
        let (lowest, highest) = (1.0 - tolerance, 1.0 + tolerance);
        for target in 1..=if WHOLE { 1000 } else { 200 } {
            for value in 0..=2 * target {
                let ratio = f64::from(value) / f64::from(target);
                let exact =
                    (value * 100 <= target * (100 + percent), value * 100 >= target * (100 - percent));
                if (ratio <= highest, ratio >= lowest) != exact {
                    off.push(percent);
                }
            }
        }
    }
    off.dedup();
    // All other tolerances, including the default of 10 %, are exact at both edges.
    let inexact =
        [18, 36, 41, 42, 43, 57, 58, 59, 61, 69, 70, 71, 82, 83, 84, 85, 86, 94, 95, 96, 97, 98, 99];
    assert_eq!(off, inexact, "tolerances in percent with an inexact edge in float64");
}
