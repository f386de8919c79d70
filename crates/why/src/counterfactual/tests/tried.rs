//! Tries the changes and the holds of drawn HPAs: at each printed value the count changes, and not before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::history::Recommendation;
use autoscaling::query::{Answer, CustomValue};
use autoscaling::{Evaluation, Hpa, Overlap, Scale, plan};
use jiff::SignedDuration;
use policies::history::PolicyHistory;
use policies::merge::{Policy, Source as PolicySource};
use policies::resolve::resolve;
use policies::spec::{Level, parse};
use policies::{Earlier, TargetState, ready_pods};
use serde_json::Value;

use super::*;
use crate::scene::ago;

/// More are drawn with `CONCERTINA_COUNTERFACTUALS`.
const DRAWN: u64 = 700;
/// The request of each pod, in milli-cores.
const REQUEST: i64 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Utilization,
    ContainerUtilization,
    Average,
    Pods,
    ObjectValue,
    ObjectAverage,
    ExternalValue,
    ExternalAverage,
}

const KINDS: [Kind; 8] = [
    Kind::Utilization,
    Kind::ContainerUtilization,
    Kind::Average,
    Kind::Pods,
    Kind::ObjectValue,
    Kind::ObjectAverage,
    Kind::ExternalValue,
    Kind::ExternalAverage,
];

/// The inputs of a decision. Each metric has one number: the value, or the sample of each pod, in milli-units.
#[derive(Debug, Clone)]
struct Drawn {
    current: i32,
    status: i32,
    min: i32,
    max: i32,
    /// The kind of each metric, and whether it fails.
    metrics: Vec<(Kind, bool)>,
    values: Vec<i64>,
    pods: usize,
    missing: usize,
    unready: usize,
    behavior: Option<Value>,
    recommended: Vec<(i64, i32)>,
    added: Vec<(i64, i32)>,
    policy: &'static str,
}

fn metric(kind: Kind, index: usize) -> Value {
    let name = format!("m{index}");
    let described = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"});
    let utilization = json!({"type": "Utilization", "averageUtilization": 80});
    let average = json!({"type": "AverageValue", "averageValue": "400m"});
    let value = json!({"type": "Value", "value": "7"});
    let object = |target| json!({"type": "Object", "object": {"describedObject": described, "metric": {"name": name}, "target": target}});
    match kind {
        Kind::Utilization => json!({"type": "Resource", "resource": {"name": "cpu", "target": utilization}}),
        Kind::ContainerUtilization => {
            json!({"type": "ContainerResource",
                "containerResource": {"name": "cpu", "container": "app", "target": utilization}})
        }
        Kind::Average => json!({"type": "Resource", "resource": {"name": "cpu", "target": average}}),
        Kind::Pods => pods_metric(&name, "400m"),
        Kind::ObjectValue => object(value),
        Kind::ObjectAverage => object(average),
        Kind::ExternalValue => external_metric(&name, &value),
        Kind::ExternalAverage => external_metric(&name, &average),
    }
}

fn custom(object: &str, milli: i64) -> CustomValue {
    CustomValue {
        object: object.into(),
        timestamp: Some(ago(10)),
        window_seconds: None,
        value: format!("{milli}m").parse().unwrap(),
    }
}

impl Drawn {
    /// Decides with other values. `passed` is the number of seconds by which the history is older.
    fn situation(&self, values: &[i64], passed: i64) -> Situation {
        let situation = self.without_policy(values, passed);
        if self.policy.is_empty() { situation } else { under(situation, self.policy) }
    }

    fn without_policy(&self, values: &[i64], passed: i64) -> Situation {
        let mut scene = Scene::cpu(self.pods, 0);
        scene.scale = Ok((self.current, self.status));
        scene.spec["minReplicas"] = json!(self.min);
        scene.spec["maxReplicas"] = json!(self.max);
        if let Some(behavior) = &self.behavior {
            scene.spec["behavior"] = behavior.clone();
        }
        if self.current == 0 {
            scene.status["conditions"] = json!([{"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero",
                "message": "", "lastTransitionTime": "2026-07-01T11:00:00Z"}]);
        }
        for number in 0..self.unready {
            scene.pods[number] = starting(&format!("web-{}", number + 1));
        }
        let with_sample = &scene.pods[..self.pods - self.missing];
        let metrics = self.metrics.iter().enumerate();
        scene.spec["metrics"] = metrics.map(|(index, (kind, _))| metric(*kind, index)).collect();
        let answers = self.metrics.iter().zip(values).map(|((kind, fails), milli)| {
            let answer = match kind {
                Kind::Utilization | Kind::ContainerUtilization | Kind::Average => usages(with_sample, *milli),
                Kind::Pods => {
                    Answer::Custom(with_sample.iter().map(|pod| custom(&pod.name, *milli)).collect())
                }
                Kind::ObjectValue | Kind::ObjectAverage => Answer::Custom([custom("main", *milli)].into()),
                Kind::ExternalValue | Kind::ExternalAverage => external(&format!("{milli}m")),
            };
            Some(if *fails {
                Err(crate::scene::query_error("the server does not answer"))
            } else {
                Ok(answer)
            })
        });
        scene.answers = answers.collect();
        let older = |entries: &[(i64, i32)]| -> Vec<(i64, i32)> {
            entries.iter().map(|(age, number)| (age + passed, *number)).collect()
        };
        let (recommended, added) = (older(&self.recommended), older(&self.added));
        scene.recommended(&recommended).added(&added).situation()
    }

    /// Decides with the current values at another time, after a sync each 15 s. `current` is the count then.
    fn count_at(&self, at: Timestamp, current: i32) -> Option<i32> {
        let drawn = Self { current, ..self.clone() };
        let mut situation = Situation { at, ..drawn.without_policy(&self.values, 0) };
        if let Some(proposal) = self.situation(&self.values, 0).explanation.proposal {
            let syncs = std::iter::successors(Some(crate::scene::now()), |sync| {
                sync.checked_add(SignedDuration::from_secs(15)).ok()
            });
            let syncs = syncs.take_while(|sync| *sync < at);
            let recommended = syncs.map(|at| Recommendation { at, replicas: proposal.max(0) });
            situation.past.history.recommendations.extend(recommended);
        }
        under(situation, self.policy).decided().count()
    }

    fn count(&self, values: &[i64], passed: i64) -> i32 {
        self.situation(values, passed).decided().count().unwrap_or(self.current)
    }

    /// The same without effects of the past.
    fn settled(&self) -> Self {
        Self { recommended: vec![(1_000_000, self.current)], added: Vec::new(), ..self.clone() }
    }
}

/// Decides by the rules of a policy, as a controller does.
fn under(mut situation: Situation, text: &str) -> Situation {
    let parsed = Arc::new(parse(text, Level::Annotation));
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let source = PolicySource { level: Level::Annotation, name: "".into(), created: None, parsed };
    let rules = resolve(&Arc::new(Policy::merge(vec![source])), situation.at);
    situation.settings = policies::bounds::settings(&rules.policy.spec, &situation.settings);
    let record = Arc::clone(situation.hpa.as_ref().unwrap());
    let (spec, schedules) = rules.bounds.spec(&record.spec);
    let hpa =
        Hpa { namespace: "shop", name: "web", generation: Some(1), spec: &spec, status: &record.status };
    let explanation = &situation.explanation;
    let scale =
        Scale::new(explanation.current, explanation.status_replicas, "app=web", situation.settings.version);
    let plan = plan(&hpa, Ok(scale.unwrap()), |_| Overlap::None, &situation.settings);
    let mut evaluation = Evaluation::new(&hpa, &plan, &situation.settings);
    for index in 0..evaluation.metrics() {
        let answer = situation.metrics.get(index).and_then(Option::as_ref);
        evaluation.evaluate(index, answer, &situation.pods, situation.at);
    }
    let metrics = PolicyHistory::default();
    let earlier = Earlier { metrics: &metrics, burst: None, forecast: None };
    let ready = ready_pods(situation.pods.iter().map(|pod| &**pod));
    let mut decided = rules.decide(evaluation, &situation.past.history, earlier, ready, situation.at);
    let target = TargetState::new(situation.pods.iter().map(|pod| &**pod));
    let mut effect = rules.apply(&mut decided, &target, &schedules);
    effect.next = rules.next_change(&decided.history, situation.at);
    situation.explanation = decided.decision.explanation().clone();
    situation.policy = Some(effect);
    situation.rules = Some(Arc::new(rules));
    situation
}

/// A generator of inputs.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.next() % of.len() as u64).unwrap()].clone()
    }

    fn drawn(&mut self) -> Drawn {
        let min = self.one(&[0, 0, 1, 2, 3]);
        let max = self.one(&[4, 9, 30]);
        let current = self.one(&[0, 1, 2, 3, 5, 7, 8]).clamp(if min > 0 { min } else { 0 }, max);
        let zero = current == 0;
        let pods = if zero { 0 } else { usize::try_from(current + self.one(&[0, 0, 0, 0, 1, 4])).unwrap() };
        let (missing, unready) = self.one(&[(0, 0), (0, 0), (0, 0), (1, 0), (0, 1), (0, 3), (1, 1), (2, 0)]);
        let (missing, unready) =
            if missing + unready < pods { (missing, unready) } else { (0, pods.min(unready)) };
        let mut metrics = Vec::new();
        for _ in 0..self.one(&[1, 1, 1, 2]) {
            let kind = self.one(if zero { &KINDS[4..] } else { &KINDS });
            let fails = self.one(&[false, false, false, false, false, false, false, true]);
            // Metrics with the same name have the same value.
            if !metrics.iter().any(|(other, _)| is_cpu(*other)) || !is_cpu(kind) {
                metrics.push((kind, fails));
            }
        }
        let values = metrics.iter().map(|(kind, _)| {
            let share =
                self.one(&[0, 1, 3, 150, 260, 322, 361, 380, 399, 400, 401, 425, 441, 470, 650, 1_203]);
            match kind {
                Kind::ObjectValue | Kind::ExternalValue => share * 7_000 / 400,
                Kind::ObjectAverage | Kind::ExternalAverage => share * i64::from(current.max(1)),
                _ => share,
            }
        });
        let values = values.collect();
        let rules = |draw: &mut Self| {
            json!({"stabilizationWindowSeconds": draw.one(&[0, 0, 60, 300]), "tolerance": draw.one(&["0.1", "0.02", "0.3"]),
                "selectPolicy": draw.one(&["Max", "Max", "Min", "Disabled"]),
                "policies": [{"type": "Pods", "value": draw.one(&[1, 4]), "periodSeconds": 60},
                    {"type": "Percent", "value": 100, "periodSeconds": 15}]})
        };
        let behavior = json!({"scaleUp": rules(self), "scaleDown": rules(self)});
        Drawn {
            current,
            status: if zero { 0 } else { (current + self.one(&[0, 0, 0, 1, -1])).max(1) },
            min,
            max,
            metrics,
            values,
            pods,
            missing,
            unready,
            behavior: self.one(&[None, Some(behavior)]),
            recommended: self.one(&[vec![(1_000, current)], vec![(100, current), (40, current + 2)]]),
            added: self.one(&[vec![], vec![], vec![(40, 1)]]),
            policy: self.one(&[
                "",
                "",
                "",
                "mode: ScaleUpOnly",
                "mode: Paused",
                "guards: {maxStep: {up: 1, down: 1}}",
                "schedules: [{name: sale, from: 2026-07-01T00:00:00Z, to: 2026-07-02T00:00:00Z, minReplicas: 4}]",
                "tolerance: 0.3",
                "combine: Min",
                "fallback: [{when: Error, failureDurationSeconds: 0, action: Replicas, replicas: 4}]",
                "fallback: [{when: Error, failureDurationSeconds: 60, action: Replicas, replicas: 4}]",
                "{mode: Paused, until: 2026-07-01T12:05:00Z}",
                "schedules: [{name: peak, from: 2026-07-01T12:05:00Z, to: 2026-07-02T00:00:00Z, minReplicas: 6}]",
                "schedules: [{name: night, from: 2026-07-01T12:05:00Z, to: 2026-07-02T00:00:00Z, maxReplicas: 3}]",
                "burst: {}",
            ]),
        }
    }
}

fn is_cpu(kind: Kind) -> bool {
    matches!(kind, Kind::Utilization | Kind::ContainerUtilization | Kind::Average)
}

/// The values on both sides of an end, as the last value before it and the first value at it.
fn value(measure: Measure, total: Option<i64>, usage: Option<i64>, rounds_up: bool) -> i64 {
    match measure {
        // Utilization is rounded down to whole percent.
        Measure::Percent(percent) => usage.unwrap_or_else(|| {
            let lowest = i64::from(percent) * REQUEST / 100;
            if rounds_up { lowest + REQUEST / 100 - 1 } else { lowest }
        }),
        Measure::Milli(milli) | Measure::MilliPerPod(milli) => total.unwrap_or(milli),
    }
}

/// Tries one change. Returns what is false about it.
fn faults(drawn: &Drawn, change: &Change) -> Vec<String> {
    let mut faults = Vec::new();
    let current = drawn.current;
    let now = drawn.count(&drawn.values, 0);
    let (direction, thresholds, to, tried) = match change {
        Change::Metrics { direction, thresholds, for_seconds, to } => {
            let tried = if *for_seconds > 0 { drawn.settled() } else { drawn.clone() };
            (*direction, thresholds, *to, tried)
        }
        Change::Keep { direction, thresholds, to } => (*direction, thresholds, *to, drawn.clone()),
        Change::Wait { until, to, .. } => {
            let wait = until.duration_since(crate::scene::now()).as_secs();
            // At the time itself, the entries of a window count only without `behavior`.
            for (passed, expected) in [((wait - 1).max(0), now), (wait + 1, *to)] {
                let count = drawn.count(&drawn.values, passed);
                if count != expected {
                    faults.push(format!("{count} after {passed} s instead of {expected}"));
                }
            }
            return faults;
        }
        Change::Field { path, to, .. } => {
            let mut with = drawn.clone();
            let rules = |with: &mut Drawn, name: &str| {
                with.behavior.as_mut().unwrap()[name]["selectPolicy"] = json!("Max");
            };
            match *path {
                "spec.maxReplicas" => with.max = *to,
                "spec.minReplicas" => with.min = *to,
                "spec.behavior.scaleUp.selectPolicy" => rules(&mut with, "scaleUp"),
                _ => rules(&mut with, "scaleDown"),
            }
            let count = with.count(&with.values, 0);
            if count != *to {
                faults.push(format!("{count} with the field"));
            }
            return faults;
        }
        Change::Policy { at, to, .. } => {
            let before = drawn.count_at(*at - SignedDuration::from_secs(1), current).unwrap_or(current);
            let count = drawn.count_at(*at, before);
            if to.is_some() && count != *to {
                faults.push(format!("{count:?} at {at} instead of {to:?}"));
            }
            return faults;
        }
        Change::Repair { .. } => return faults,
    };
    let is_wanted = |count: i32| match change {
        Change::Keep { .. } => count == current,
        _ if to > current => count > current,
        _ => count < current,
    };
    let onwards = if direction == Direction::Up { 1 } else { -1 };
    let index = |threshold: &Threshold| {
        let names = drawn.metrics.iter().enumerate();
        let mut names = names.map(
            |(index, (kind, _))| {
                if is_cpu(*kind) { "cpu".to_owned() } else { format!("m{index}") }
            },
        );
        names.position(|name| name == *threshold.subject.name).unwrap()
    };
    let mut all = drawn.values.clone();
    for threshold in thresholds {
        let total = threshold.totals.map(|[.., first]| first);
        all[index(threshold)] = value(threshold.first, total, threshold.usage, direction == Direction::Down);
    }
    let mut expect = |values: &[i64], expected: bool, what: &str| {
        let count = tried.count(values, 0);
        if is_wanted(count) != expected {
            faults.push(format!("{count} {what} {values:?}"));
        }
    };
    expect(&all, true, "at");
    for threshold in thresholds {
        let (at, mut values) = (index(threshold), all.clone());
        values[at] -= onwards;
        expect(&values, false, "before");
        if let Some(Until { last, total, usage }) = threshold.until {
            values[at] = value(last, total, usage, direction == Direction::Up);
            expect(&values, true, "until");
            values[at] += onwards;
            expect(&values, false, "beyond");
        } else if thresholds.len() == 1 {
            for factor in [3, 50] {
                values[at] = if onwards > 0 { all[at] * factor } else { all[at] / factor };
                expect(&values, true, "beyond");
            }
        }
        if thresholds.len() == 1 {
            for step in 0..20 {
                values[at] = drawn.values[at] + (all[at] - onwards - drawn.values[at]) * step / 20;
                expect(&values, false, "between");
            }
        }
    }
    let count = tried.count(&all, 0);
    if count != to {
        faults.push(format!("{count} instead of {to} at {all:?}"));
    }
    faults
}

/// Tries values for a direction in which no value changes the count.
fn held(drawn: &Drawn, direction: Direction) -> Vec<String> {
    let mut faults = Vec::new();
    let tried = drawn.settled();
    let levels = [0, 40, 70, 95, 110, 130, 300, 100_000];
    let choices = drawn.values.len() + 1;
    for level in levels {
        for only in 0..choices {
            let values: Vec<i64> = (0..drawn.values.len())
                .map(|index| {
                    let changes = only == index || only == drawn.values.len();
                    let base = drawn.values[index].max(400);
                    if changes { base * level / 100 } else { drawn.values[index] }
                })
                .collect();
            let count = tried.count(&values, 0);
            let moves =
                if direction == Direction::Up { count > drawn.current } else { count < drawn.current };
            if moves {
                faults.push(format!("{count} at {values:?}, although nothing gives another count"));
            }
        }
    }
    faults
}

#[test]
fn changes_of_drawn_hpas_are_true() {
    let number =
        std::env::var("CONCERTINA_COUNTERFACTUALS").ok().map_or(DRAWN, |number| number.parse().unwrap());
    let mut tried = BTreeMap::<String, usize>::new();
    let mut wrong = Vec::new();
    for seed in 0..number {
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d);
        for _ in 0..4 {
            draw.next();
        }
        let drawn = draw.drawn();
        let situation = drawn.situation(&drawn.values, 0);
        let found = counterfactual(&situation);
        // The windows of a burst are unknown.
        let is_unknown =
            drawn.policy.starts_with("burst") && situation.explanation.path == DecisionPath::Metrics;
        if found.is_none() != is_unknown {
            wrong.push(format!("seed {seed}: {found:?}\n  {drawn:?}"));
        }
        let Some(found) = found else {
            *tried.entry("Unknown".to_owned()).or_default() += 1;
            continue;
        };
        let step = found.step(&situation.explanation, situation.at, &Zone::utc());
        let text = |index: usize| step.as_ref().map(|step| step.lines[index].text()).unwrap_or_default();
        for (index, change) in found.changes.iter().enumerate() {
            let name = format!("{change:?}");
            let name = name.split(' ').next().unwrap_or_default().to_owned();
            let kinds = match change {
                Change::Metrics { .. } | Change::Keep { .. } if drawn.metrics.len() == 1 => {
                    format!(" {:?}", drawn.metrics[0].0)
                }
                Change::Policy { to, .. } => format!(", known {}", to.is_some()),
                _ => String::new(),
            };
            *tried.entry(name + &kinds).or_default() += 1;
            let faults = faults(&drawn, change);
            if !faults.is_empty() {
                wrong.push(format!("seed {seed}: {}: {faults:?}\n  {drawn:?}", text(index)));
            }
        }
        if situation.explanation.path == DecisionPath::Metrics {
            for hold in &found.holds {
                *tried.entry("Hold".to_owned()).or_default() += 1;
                let faults = held(&drawn, hold.direction);
                if !faults.is_empty() {
                    wrong.push(format!("seed {seed}: {hold:?}: {faults:?}\n  {drawn:?}"));
                }
            }
        }
    }
    println!("{number} HPAs, {} false changes: {tried:?}", wrong.len());
    for wrong in wrong.iter().take(40) {
        println!("{wrong}");
    }
    assert!(wrong.is_empty(), "{} changes are false", wrong.len());
    assert!(tried.len() > 18 && tried.values().all(|number| *number > 1), "{tried:?}");
}
