//! Draws the share of the steps that each way has answered after a time.

use std::fmt::Write as _;

use super::Delays;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 20.0;
/// The end of the axis of time, in seconds.
const SECONDS: u32 = 45;
/// Colours that differ in brightness, too.
const COLOURS: [&str; 5] = ["#7f1d1d", "#c2410c", "#15803d", "#6d28d9", "#0369a1"];

/// Returns the chart as SVG.
pub(crate) fn draw(delays: &[(&str, Delays)]) -> String {
    let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
    let x = |seconds: f64| LEFT + WIDTH * (seconds / f64::from(SECONDS)).min(1.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>Share of steps in load that are answered after a time</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        right + 20.0,
        bottom + 40.0 + 20.0 * 5.0,
    );
    for percent in [0, 25, 50, 75, 100] {
        let y = bottom - HEIGHT * f64::from(percent) / 100.0;
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{percent} %</text>",
            LEFT - 6.0,
            y + 4.0,
        );
    }
    for seconds in (0..=SECONDS).step_by(5) {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{seconds} s</text>",
            x(seconds.into()),
            bottom + 18.0,
        );
    }
    for (index, ((title, delays), colour)) in delays.iter().zip(COLOURS).enumerate() {
        let mut line = format!("M{LEFT} {bottom}");
        let mut answered = 0.0;
        let share = HEIGHT / f64::from(u32::try_from(delays.0.len().max(1)).unwrap_or(u32::MAX));
        for delay in &delays.0 {
            answered += share;
            let _ = write!(line, "H{:.1}V{:.1}", x(*delay), bottom - answered);
        }
        let y = bottom + 40.0 + 20.0 * f64::from(u32::try_from(index).unwrap_or_default());
        let _ = writeln!(
            svg,
            "<path d=\"{line}H{right}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <path d=\"M{LEFT} {}h24\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <text x=\"{}\" y=\"{y}\">{title}: half of the steps within {:.1} s, 99 % within {:.1} s</text>",
            y - 4.0,
            LEFT + 32.0,
            delays.percentile(50),
            delays.percentile(99),
        );
    }
    svg.push_str("</svg>\n");
    svg
}
