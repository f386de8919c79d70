//! The timeline of an HPA in a cluster, drawn as the report draws a run.

use super::figure::{self, Figure, HATCHES};
use super::page;

pub(crate) use super::figure::Timeline;

/// Returns the style rules of the drawing.
pub(crate) fn style() -> String {
    format!("{}{}", figure::variables(), figure::STYLE)
}

/// Draws a timeline as markup. Texts are escaped.
pub(crate) fn draw(timeline: &Timeline) -> String {
    format!(
        "<div><svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\">{HATCHES}</svg>{}</div>",
        page::panels(&Figure::from_timeline(timeline))
    )
}
