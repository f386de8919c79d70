//! The live view: renders a snapshot as lines of a terminal.

use super::observe::{ConditionState, EventState, HpaState, MetricState, Snapshot};
use terminal::explain::{Line, Role, Style};
use terminal::options::Size;
use terminal::words::counted;

/// The minimum width of the terminal, in columns, for bars of metrics next to the histories of replicas.
const WIDE: usize = 104;
/// The width of the bar of a metric, in columns. The target is in the middle.
const BAR: usize = 16;
/// The maximum number of events in a frame.
const EVENTS: usize = 6;

/// Renders a frame that fits into `size`: the state, the events and, if space remains, the introduction. If the whole
/// introduction does not fit, only its line with the kubeconfig and the first command are shown.
pub(super) fn render(intro: &[String], snapshot: &Snapshot, size: Size, color: bool) -> Vec<String> {
    let mut body = vec![
        Line::default()
            .with(Role::Strong, "Concertina demo")
            .with(Role::Plain, format!("  {}  ", clock(snapshot.elapsed.as_secs())))
            .with(Role::Dim, format!("{} syncs, Ctrl-C stops", snapshot.syncs)),
        Line::default(),
    ];
    for hpa in &snapshot.hpas {
        body.extend(hpa_lines(hpa, snapshot.last_event(hpa), size.columns));
    }
    let rows = size.rows.saturating_sub(1);
    let room = rows.saturating_sub(body.len());
    // The heading takes one row, and is shown only with at least one event.
    let shown = snapshot.events.len().min(EVENTS).min(room.saturating_sub(1));
    if shown > 0 {
        body.push(Line::default().with(Role::Strong, "Events"));
        body.extend(snapshot.events.iter().skip(snapshot.events.len() - shown).map(event_line));
    }
    let style = Style { colours: color, width: Some(size.columns) };
    let mut lines: Vec<_> = body.iter().map(|line| style.cut(line)).collect();
    let short = intro.iter().position(|line| line.contains("KUBECONFIG"));
    let short = short.and_then(|at| intro.get(at..at + 2)).unwrap_or_default();
    let head = if intro.len() + lines.len() <= rows { intro } else { short };
    if head.len() + lines.len() <= rows {
        let head = head.iter().map(|line| style.cut(&Line::default().plain(line)));
        lines.splice(0..0, head);
    }
    lines.truncate(rows);
    lines
}

fn hpa_lines(hpa: &HpaState, event: Option<&EventState>, columns: usize) -> Vec<Line> {
    let mut title = Line::default()
        .with(Role::Strong, hpa.key())
        .with(Role::Plain, format!("  {}  ", hpa.target))
        .with(Role::Strong, counted(hpa.replicas, "replica"))
        .with(Role::Dim, format!("  {} ready, {} to {}", hpa.ready, hpa.min, hpa.max));
    if let Some(condition) = hpa.headline() {
        title = title.with(style_of(condition), format!("  {}", condition.reason));
    }
    let mut lines = vec![title];

    let history = sparkline(&hpa.history, hpa.max, columns.saturating_sub(36).clamp(10, 60));
    let mut metrics = hpa.metrics.iter();
    lines.push(metric(Line::default().with(Role::Good, format!("  {history}  ")), metrics.next(), columns));
    let indent = " ".repeat(history.chars().count() + 4);
    lines.extend(metrics.map(|it| metric(Line::default().with(Role::Plain, &indent), Some(it), columns)));
    let why = match (hpa.headline(), event) {
        (Some(condition), _)
            if style_of(condition) == Role::Bad || condition.kind == "ScalingPolicyActive" =>
        {
            condition.message.clone()
        }
        (_, Some(event)) => format!("{}  {}", event.reason, event.message),
        (Some(condition), None) => condition.message.clone(),
        (None, None) => "waiting for its first sync".to_owned(),
    };
    lines.push(Line::default().with(Role::Dim, format!("  {why}")));
    lines.push(Line::default());
    lines
}

/// Returns the role of a condition: `Bad` if the HPA cannot scale, `Warn` if the HPA is disabled, limited or held by a
/// policy, otherwise `Dim`.
fn style_of(condition: &ConditionState) -> Role {
    match (condition.kind.as_str(), condition.is_true) {
        ("ScalingActive", false) if condition.reason == "ScalingDisabled" => Role::Warn,
        ("AbleToScale" | "ScalingActive", false) => Role::Bad,
        ("ScalingLimited" | "ScalingPolicyActive", true) => Role::Warn,
        _ => Role::Dim,
    }
}

fn metric(line: Line, metric: Option<&MetricState>, columns: usize) -> Line {
    let Some(metric) = metric else { return line };
    let style = match metric.ratio {
        None => Role::Dim,
        Some(ratio) if ratio > 1.1 => Role::Warn,
        Some(_) => Role::Good,
    };
    let current = metric.current.as_deref().unwrap_or("unknown");
    let line =
        if columns >= WIDE { line.with(style, bar(metric.ratio)).with(Role::Plain, "  ") } else { line };
    line.with(Role::Plain, format!("{} ", metric.name))
        .with(style, current)
        .with(Role::Plain, format!(" of {}", metric.target))
}

fn event_line(event: &EventState) -> Line {
    // Extracts the time of day from a timestamp such as 2030-01-01T10:02:03Z.
    let time = event.time.get(11..19).unwrap_or_default();
    let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
    let style = if event.is_warning { Role::Warn } else { Role::Plain };
    Line::default()
        .with(Role::Dim, format!("  {time}  "))
        .with(Role::Plain, format!("{}  ", event.hpa))
        .with(style, &event.reason)
        .with(Role::Dim, format!("  {}{times}", event.message))
}

/// Draws the last `width` counts as bars. A bar of full height means `max`, and a dot means 0.
fn sparkline(history: &[i64], max: i64, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = history.iter().skip(history.len().saturating_sub(width));
    let bars = shown.map(|&replicas| {
        let eighths = replicas.saturating_mul(8).checked_div(max).unwrap_or(8).clamp(1, 8) - 1;
        let bar = usize::try_from(eighths).ok().and_then(|at| BARS.get(at));
        if replicas <= 0 { '·' } else { bar.copied().unwrap_or('█') }
    });
    let bars: String = bars.collect();
    format!("{bars:>width$}")
}

/// Draws the ratio of a metric to its target as a bar, with the target in the middle.
fn bar(ratio: Option<f64>) -> String {
    let ratio = ratio.unwrap_or(0.0);
    let filled = (0_u32..).zip(0..BAR).map(|(cell, at)| {
        let is_filled = ratio * 0.5 > (f64::from(cell) + 0.5) / BAR as f64;
        match (is_filled, at == BAR / 2) {
            (true, _) => '█',
            (false, true) => '│',
            (false, false) => '─',
        }
    });
    filled.collect()
}

fn clock(seconds: u64) -> String {
    format!("{:02}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::observe::{ConditionState, EventState, HpaState, MetricState, Snapshot};
    use super::{Size, bar, render, sparkline};

    fn web() -> HpaState {
        HpaState {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            target: "Deployment/web".to_owned(),
            min: 2,
            max: 10,
            replicas: 7,
            ready: 5,
            metrics: vec![MetricState {
                name: "cpu".to_owned(),
                current: Some("90%".to_owned()),
                target: "60%".to_owned(),
                ratio: Some(1.5),
            }],
            conditions: vec![
                condition("AbleToScale", true, "SucceededRescale", "able"),
                condition("ScalingLimited", true, "ScaleUpLimit", "limited"),
            ],
            history: vec![0, 2, 4, 7],
            lowest: 0,
            highest: 7,
            rescales: 3,
        }
    }

    fn condition(kind: &str, is_true: bool, reason: &str, message: &str) -> ConditionState {
        let (kind, reason, message) = (kind.to_owned(), reason.to_owned(), message.to_owned());
        ConditionState { kind, is_true, reason, message }
    }

    fn event(number: usize) -> EventState {
        EventState {
            uid: number.to_string(),
            count: 1,
            time: format!("2030-01-01T10:02:{number:02}Z"),
            hpa: "shop/web".to_owned(),
            is_warning: false,
            reason: "SuccessfulRescale".to_owned(),
            message: format!("New size: {number}"),
        }
    }

    fn snapshot(hpas: Vec<HpaState>, events: usize) -> Snapshot {
        Snapshot {
            elapsed: Duration::from_secs(83),
            hpas,
            events: (1..=events).map(event).collect(),
            syncs: 42,
        }
    }

    fn intro() -> Vec<String> {
        ["Hello", "  export KUBECONFIG=/tmp/k", "  concertina why web"].map(str::to_owned).into()
    }

    const SMALL: Size = Size { columns: 80, rows: 24 };

    #[test]
    fn frame_shows_count_history_metric_reason_and_events() {
        let frame = render(&intro(), &snapshot(vec![web()], 2), SMALL, false);
        let expected = [
            "Hello",
            "  export KUBECONFIG=/tmp/k",
            "  concertina why web",
            "Concertina demo  01:23  42 syncs, Ctrl-C stops",
            "",
            "shop/web  Deployment/web  7 replicas  5 ready, 2 to 10  ScaleUpLimit",
            "                                          ·▁▃▅  cpu 90% of 60%",
            "  SuccessfulRescale  New size: 2",
            "",
            "Events",
            "  10:02:01  shop/web  SuccessfulRescale  New size: 1",
            "  10:02:02  shop/web  SuccessfulRescale  New size: 2",
        ];
        assert_eq!(frame, expected);
    }

    #[test]
    fn frame_has_a_bar_around_the_target_when_it_is_wide() {
        let frame = render(&[], &snapshot(vec![web()], 0), Size { columns: 120, rows: 24 }, false);
        assert!(frame.iter().any(|line| line.contains("████████████────  cpu 90% of 60%")), "{frame:#?}");
        assert_eq!(bar(Some(0.5)), "████────│───────");
        assert_eq!(bar(Some(1.0)), "████████│───────");
        assert_eq!(bar(Some(7.0)), "████████████████");
        assert_eq!(bar(None), "────────│───────");
    }

    #[test]
    fn frame_has_the_same_text_with_and_without_colour() {
        let plain = render(&intro(), &snapshot(vec![web()], 3), SMALL, false);
        let colored = render(&intro(), &snapshot(vec![web()], 3), SMALL, true);
        assert!(colored.concat().contains("\x1b[33m  ScaleUpLimit\x1b[0m"));
        let stripped: Vec<_> = colored.iter().map(|line| strip(line)).collect();
        assert_eq!(stripped, plain);
    }

    fn strip(line: &str) -> String {
        line.split('\x1b')
            .enumerate()
            .map(|(at, part)| if at == 0 { part } else { part.split_once('m').unwrap().1 })
            .collect()
    }

    #[test]
    fn frame_never_exceeds_the_terminal() {
        let hpas: Vec<_> = (0..9).map(|_| web()).collect();
        for size in [
            SMALL,
            Size { columns: 30, rows: 6 },
            Size { columns: 0, rows: 0 },
            Size { columns: 300, rows: 100 },
        ] {
            let frame = render(&intro(), &snapshot(hpas.clone(), 20), size, false);
            assert!(frame.len() < size.rows.max(1), "{size:?}");
            assert!(frame.iter().all(|line| line.chars().count() <= size.columns), "{size:?}");
        }
    }

    #[test]
    fn frame_keeps_the_kubeconfig_and_the_first_command_when_space_is_short() {
        let long: Vec<_> = intro().into_iter().chain((0..20).map(|_| "more".to_owned())).collect();
        let frame = render(&long, &snapshot(vec![web()], 2), SMALL, false);
        assert_eq!(frame[..2], ["  export KUBECONFIG=/tmp/k", "  concertina why web"]);
    }

    #[test]
    fn frame_shows_the_condition_of_a_failure() {
        let mut hpa = web();
        hpa.conditions = vec![
            condition("AbleToScale", true, "SucceededGetScale", "able"),
            condition("ScalingActive", false, "FailedGetResourceMetric", "no metrics"),
        ];
        hpa.metrics[0].current = None;
        hpa.metrics[0].ratio = None;
        let text = render(&[], &snapshot(vec![hpa], 1), SMALL, false).join("\n");
        assert!(text.contains("  FailedGetResourceMetric\n") && text.contains("\n  no metrics\n"), "{text}");
        assert!(text.contains("cpu unknown of 60%"), "{text}");
    }

    #[test]
    fn frame_shows_what_a_policy_does_instead_of_the_last_event() {
        let mut hpa = web();
        hpa.conditions = vec![
            condition("AbleToScale", true, "ReadyForNewScale", "able"),
            condition("ScalingPolicyActive", true, "Paused", "paused at 7"),
        ];
        let text = render(&[], &snapshot(vec![hpa], 1), SMALL, false).join("\n");
        assert!(text.contains("2 to 10  Paused\n") && text.contains("\n  paused at 7\n"), "{text}");
    }

    #[test]
    fn frame_removes_control_characters() {
        let mut hostile = event(1);
        hostile.message = "bad\x1b[2J\nnews".to_owned();
        let snapshot = Snapshot { events: vec![hostile], hpas: vec![web()], ..Snapshot::default() };
        let frame = render(&[], &snapshot, SMALL, false);
        assert!(frame.iter().all(|line| !line.contains(char::is_control)), "{frame:#?}");
    }

    #[test]
    fn sparkline_scales_to_the_maximum_and_aligns_right() {
        assert_eq!(sparkline(&[0, 1, 5, 10], 10, 6), "  ·▁▄█");
        assert_eq!(sparkline(&[1, 2, 3, 4], 4, 2), "▆█");
        assert_eq!(sparkline(&[3], 0, 1), "█");
    }
}
