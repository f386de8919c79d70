//! The table of attacks.

use std::fmt::Write as _;

use crate::measure::Spread;

/// The bound of the controller's resident memory with the tenant: a multiple of the median without the
/// tenant, plus a number of bytes.
const MEMORY_FACTOR: f64 = 1.3;
const MEMORY_SUMMAND: f64 = 64.0 * 1_048_576.0;

/// The figures without or with the tenant.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// The share of the syncs of all other HPAs that were at most a second late.
    pub(super) on_time: f64,
    pub(super) lateness: Option<Spread>,
    /// The number of observed syncs of these HPAs divided by the expected number, one per HPA and period.
    pub(super) done: f64,
    /// Median and maximum of the resident bytes of the controller.
    pub(super) resident: f64,
    pub(super) peak: f64,
    /// Cores in use by the controller, and by the server, which includes the tenant.
    pub(super) controller: f64,
    pub(super) server: f64,
    /// The longest time without a write of the Lease, in seconds.
    pub(super) lease: f64,
}

/// The row of one attack.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) title: String,
    /// Actions per second: as intended, as made, and as answered by the controller.
    pub(super) wanted: f64,
    pub(super) made: f64,
    pub(super) answered: Option<f64>,
    pub(super) calm: Part,
    pub(super) hostile: Part,
    /// The number of times that the controller exited or was killed for its memory.
    pub(super) exits: usize,
}

/// The table as Markdown.
pub(super) fn render(rows: &[Row]) -> String {
    let mut out = String::from(
        "| | actions per second (actual of intended) | syncs on time without, with | lateness p99, max | syncs made / due without, with | \
         resident without, with, maximum; bound | cores of the controller without, with | cores of the server without, with | \
         longest time without renewal without, with | exits |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let Row { title, wanted, made, answered, calm, hostile, exits } = row;
        let rate = match (wanted, answered) {
            (0.0, _) => "–".to_owned(),
            (_, None) => format!("{made:.0} of {wanted:.0}"),
            (_, Some(answered)) => format!("{made:.0} of {wanted:.0}, {answered:.0} answered"),
        };
        let late = hostile.lateness.map_or_else(
            || "–".to_owned(),
            |late| format!("{:.2} s, {:.2} s of {}", late.p99, late.max, late.count),
        );
        let megabytes = |bytes: f64| format!("{:.0}", bytes / 1_048_576.0);
        let bound = calm.resident * MEMORY_FACTOR + MEMORY_SUMMAND;
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {title} | {rate} | {:.2} %, {:.2} % | {late} | {:.1} %, {:.1} % | {}, {}, {} MiB; {} MiB | {:.2}, {:.2} | {:.2}, {:.2} | \
             {:.1} s, {:.1} s | {exits} |",
            calm.on_time * 100.0,
            hostile.on_time * 100.0,
            calm.done * 100.0,
            hostile.done * 100.0,
            megabytes(calm.resident),
            megabytes(hostile.resident),
            megabytes(hostile.peak),
            megabytes(bound),
            calm.controller,
            hostile.controller,
            calm.server,
            hostile.server,
            calm.lease,
            hostile.lease,
        );
    }
    out
}
