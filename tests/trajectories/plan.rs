//! The HPAs of a seed: their behaviors, and their loads as functions of the time.

use serde_json::{Value, json};

use crate::rng::Rng;
use crate::world::{cpu_utilization, external, ingress, pods_average};

/// The number of HPAs of a seed.
pub(crate) const APPS: usize = 16;
const MAXIMUM: i64 = 12;

/// The CPU request of each pod, in millicores. [`cpu`] has half of it as its target.
pub(crate) const REQUEST: i64 = 1000;

/// A workload and its HPA.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) name: String,
    /// The spec of the HPA without its target.
    pub(crate) spec: Value,
    pub(crate) load: Load,
    /// The time from the creation of a pod to its readiness, in milliseconds.
    pub(crate) startup: i64,
    /// The interval in which the metrics of the workload change, in milliseconds.
    pub(crate) interval: i64,
    /// The age of the metrics when they appear, in milliseconds.
    pub(crate) delay: i64,
    /// Without pods, the count in the status follows the count in the spec at once.
    pub(crate) has_pods: bool,
}

impl App {
    /// The replicas that the load needs at the start.
    pub(crate) fn initial(&self) -> i64 {
        (self.load.at(0) + 999) / 1000
    }
}

/// The load on a workload, in thousandths of the load that one replica serves at its target. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// Each level with its start, in order.
    Steps(Vec<(i64, i64)>),
    Ramp {
        from: i64,
        to: i64,
        start: i64,
        length: i64,
    },
    /// A triangle wave.
    Wave {
        low: i64,
        high: i64,
        half_period: i64,
    },
}

impl Load {
    pub(crate) fn at(&self, time: i64) -> i64 {
        let time = time.max(0);
        match self {
            Self::Steps(steps) => {
                let current = steps.iter().rev().find(|(start, _)| *start <= time);
                current.map_or(0, |(_, level)| *level)
            }
            Self::Ramp { from, to, start, length } => {
                from + (to - from) * (time - start).clamp(0, *length) / length
            }
            Self::Wave { low, high, half_period } => {
                let phase = time % (2 * half_period);
                low + (high - low) * phase.min(2 * half_period - phase) / half_period
            }
        }
    }
}

pub(crate) fn generate(seed: u64) -> Vec<App> {
    let mut dice = Rng::for_purpose(seed, 7);
    (0..APPS).map(|index| app(&mut dice, format!("app-{index}"))).collect()
}

fn app(dice: &mut Rng, name: String) -> App {
    let mut metrics = vec![metric(dice, &name)];
    if dice.percent(20) {
        metrics.push(metric(dice, &name));
    }
    let mut spec = json!({"minReplicas": 1, "maxReplicas": MAXIMUM, "metrics": metrics});
    let behavior = match dice.below(10) {
        0 => Value::Null,
        1 => json!({"scaleUp": rules(dice)}),
        2 => json!({"scaleDown": rules(dice)}),
        _ => json!({"scaleUp": rules(dice), "scaleDown": rules(dice)}),
    };
    if !behavior.is_null() {
        spec["behavior"] = behavior;
    }
    App {
        name,
        spec,
        load: load(dice),
        startup: dice.pick(&[200, 1000, 3000, 6000]),
        interval: dice.pick(&[500, 1000, 2000, 4000]),
        delay: dice.pick(&[0, 0, 500, 1500]),
        has_pods: true,
    }
}

fn metric(dice: &mut Rng, app: &str) -> Value {
    let name = metric_name(app);
    match dice.below(5) {
        0 | 1 => cpu_utilization(50),
        2 => pods_average(&name, "1"),
        3 => ingress(&name, "Value", "1"),
        _ => external(&name, "AverageValue", "1"),
    }
}

/// The name of the custom and external metrics of a workload.
pub(crate) fn metric_name(app: &str) -> String {
    format!("load-{app}")
}

/// Rules whose windows and periods are a few sync periods long.
fn rules(dice: &mut Rng) -> Value {
    let policies: Vec<_> = (0..dice.between(1, 3))
        .map(|_| {
            let (kind, value) = if dice.percent(60) {
                ("Pods", dice.between(1, 3))
            } else {
                ("Percent", dice.pick(&[10, 25, 50, 100]))
            };
            json!({"type": kind, "value": value, "periodSeconds": dice.pick(&[1, 1, 2, 3, 5, 8])})
        })
        .collect();
    json!({
        "stabilizationWindowSeconds": dice.pick(&[0, 0, 0, 2, 4, 8]),
        "selectPolicy": dice.pick(&["Max", "Max", "Max", "Max", "Min", "Min", "Min", "Disabled"]),
        "policies": policies,
    })
}

fn load(dice: &mut Rng) -> Load {
    let mut level = || dice.between(10, 100).cast_signed() * 100;
    let (from, to) = (level(), level());
    match dice.below(4) {
        0 => Load::Ramp { from, to, start: 5000, length: dice.between(10, 80).cast_signed() * 1000 },
        1 => Load::Wave {
            low: 1000,
            high: from.max(4000),
            half_period: dice.between(8, 25).cast_signed() * 1000,
        },
        _ => {
            let mut steps = vec![(0, from)];
            let mut time = 0;
            for _ in 0..10 {
                time += dice.between(6, 25).cast_signed() * 1000;
                steps.push((time, dice.between(10, 100).cast_signed() * 100));
            }
            Load::Steps(steps)
        }
    }
}

/// One workload that must grow from 1 to 100 replicas, and one that must shrink from 10 to 2, both at the same time.
/// The API server sets the other rules of their behaviors.
pub(crate) fn ramps(start: i64) -> Vec<App> {
    let ramp = |name: &str, from: i64, to: i64, behavior: Value| App {
        name: name.to_owned(),
        spec: json!({
            "minReplicas": 1, "maxReplicas": 100, "behavior": behavior,
            "metrics": [external(&metric_name(name), "AverageValue", "1")],
        }),
        load: Load::Steps(vec![(0, from * 1000), (start, to * 1000)]),
        startup: 0,
        interval: 1000,
        delay: 0,
        has_pods: false,
    };
    let down = json!({"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 2, "periodSeconds": 30}]});
    vec![
        ramp("up", 1, 100, json!({"scaleDown": {"stabilizationWindowSeconds": 300}})),
        ramp("down", 10, 2, json!({"scaleDown": down})),
    ]
}
