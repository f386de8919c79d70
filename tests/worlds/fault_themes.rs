//! The themes with faults between a controller and the API server.

use crate::draft::Draft;
use crate::metrics::{CUSTOM, EXTERNAL, RESOURCE};
use crate::plan::{Action, Answer, Class, Fault, Trait};
use crate::rng::Rng;
use crate::themes::mark;

fn fault(draft: &mut Draft, class: Class, times: u32, mut action: Action) {
    // Each controller sends the events of all worlds one after another. An event with a delayed retry would shift the
    // events of other worlds into steps with other faults.
    if let (Class::Event, Action::Answer(answer)) = (class, &mut action) {
        answer.retry_after = None;
    }
    draft.next.faults.push(Fault { class, times, action });
}

/// Keeps one metric, so that both controllers send one request to the metrics APIs per sync.
pub(crate) fn one_source(draft: &mut Draft) {
    draft.sources.truncate(1);
}

fn any_class(dice: &mut Rng) -> Class {
    dice.pick(&[
        Class::ScaleGet,
        Class::ScalePut,
        Class::ScalePut,
        Class::StatusPut,
        Class::Event,
        Class::Metrics,
    ])
}

/// Injects the responses of an overloaded API server.
pub(crate) fn throttled(draft: &mut Draft, number: usize) {
    for _ in 0..draft.dice.between(1, 2) {
        let class = any_class(&mut draft.dice);
        let times = draft.dice.pick(&[1, 1, 2]);
        let answer = match draft.dice.below(4) {
            0 | 1 => Answer::text(429, "Too many requests, please try again later.\n").after(1),
            2 => Answer::text(429, "Too many requests, please try again later.\n"),
            _ => Answer::status(429, "TooManyRequests", "the server is busy").after(1),
        };
        if number > 0 {
            fault(draft, class, times, Action::Answer(answer));
        }
    }
}

pub(crate) fn server_errors(draft: &mut Draft, number: usize) {
    for _ in 0..draft.dice.between(1, 2) {
        let class = any_class(&mut draft.dice);
        let times = draft.dice.pick(&[1, 1, 2]);
        let answer = match draft.dice.below(8) {
            0 => Answer::text(500, "Internal Server Error\n"),
            1 => {
                Answer::status(500, "InternalError", "Internal error occurred: etcdserver: request timed out")
            }
            2 => Answer::text(502, "<html>Bad Gateway</html>"),
            3 => Answer::text(503, "no healthy upstream\n").after(1),
            4 => Answer::status(503, "ServiceUnavailable", "apiserver is shutting down").after(1),
            5 => Answer::status(
                504,
                "Timeout",
                "Timeout: request did not complete within the allotted timeout",
            ),
            6 => Answer::status(403, "Forbidden", "the quota is used up"),
            _ => Answer::text(401, "Unauthorized\n"),
        };
        if number > 0 {
            fault(draft, class, times, Action::Answer(answer));
        }
    }
}

pub(crate) fn cut(draft: &mut Draft, number: usize) {
    let class = draft.dice.pick(&[
        Class::ScaleGet,
        Class::ScalePut,
        Class::ScalePut,
        Class::StatusPut,
        Class::Metrics,
    ]);
    let action = match draft.dice.below(3) {
        0 => Action::CutBefore,
        1 => Action::CutAfter,
        _ => Action::CutWithin,
    };
    if number == 0 {
        return;
    }
    if class == Class::ScalePut && !matches!(action, Action::CutBefore) {
        mark(draft, Trait::LostResponse);
    }
    fault(draft, class, 1, action);
}

/// Lets other clients write between the read and the write of a controller.
pub(crate) fn conflicts(draft: &mut Draft, number: usize) {
    if number > 0 {
        let (class, times) = draft.dice.pick(&[
            (Class::ScalePut, 1),
            (Class::ScalePut, 2),
            (Class::ScalePut, 4),
            (Class::ScalePut, 7),
            (Class::StatusPut, 1),
        ]);
        fault(draft, class, times, Action::Interfere);
    }
}

pub(crate) fn metric_faults(draft: &mut Draft, number: usize) {
    if number == 0 {
        return;
    }
    let group = draft.dice.pick(&[RESOURCE, CUSTOM, EXTERNAL]);
    let (kind, version) = match group {
        RESOURCE => ("PodMetricsList", "v1beta1"),
        CUSTOM => ("MetricValueList", "v1beta2"),
        _ => ("ExternalMetricValueList", "v1beta1"),
    };
    let body = |items: &str| {
        let body = format!(r#"{{"kind":"{kind}","apiVersion":"{group}/{version}"{items}"#);
        Answer { body, ..Answer::status(200, "", "") }
    };
    let answer = match draft.dice.below(7) {
        0 => Answer::text(404, "404 page not found\n"),
        1 => Answer::status(404, "NotFound", "no such series"),
        2 => Answer::status(403, "Forbidden", "not for you"),
        3 => body("}"),
        4 => body(r#","items":[{"meta"#),
        5 => Answer::status(500, "InternalError", "the store is unavailable"),
        _ => body(r#","items":[{"value":"much"}]}"#),
    };
    draft.next.readings.failures.insert(group, answer);
}
