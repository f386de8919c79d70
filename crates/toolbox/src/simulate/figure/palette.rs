//! The colours, by meaning. The colours are few, distinguishable for colour-blind readers, and legible on
//! light and dark backgrounds.

use std::fmt::Write as _;

use plotters::style::RGBColor;

/// The meaning of a line or an area. The name is the class in SVG and the name of the colour in CSS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Ink {
    /// The background.
    Ground,
    /// The grid lines.
    Grid,
    /// Labels of axes.
    Label,
    /// `spec.replicas`.
    Desired,
    /// Ready pods.
    Ready,
    /// Pods that exist.
    Running,
    /// `minReplicas` and `maxReplicas`.
    Bound,
    /// Replicas that a stabilization window holds back.
    Window,
    /// Replicas that a rate limit holds back.
    Rate,
    /// Incoming work.
    Demand,
    /// The capacity of the ready pods.
    Capacity,
    /// Work beyond the capacity.
    Short,
    /// Items in the queue.
    Queue,
    /// A metric's value.
    Value,
    /// The range of a metric's values, if the values are too many to draw each.
    Spread,
    /// The range of the incoming work.
    DemandSpread,
    /// A metric's values above its tolerance.
    Above,
    /// A metric's target.
    Target,
    /// Values within tolerance.
    Tolerated,
    /// A time without values.
    Missing,
    /// An event of the scenario.
    Happening,
    /// A variant in the overlay, by its index.
    Variant(u8),
}

/// The number of distinct variant colours. Further variants reuse these colours.
const VARIANTS: u8 = 6;

/// Each ink with its colours on light and dark backgrounds.
const PAINTS: [(Ink, &str, &str); 27] = [
    (Ink::Ground, "#ffffff", "#171b20"),
    (Ink::Grid, "#e7e9ec", "#2a3037"),
    (Ink::Label, "#5b6570", "#a3adb8"),
    (Ink::Desired, "#17202a", "#f2f4f6"),
    (Ink::Ready, "#0072b2", "#56b4e9"),
    (Ink::Running, "#0072b22b", "#56b4e933"),
    (Ink::Bound, "#8b95a0", "#77828e"),
    (Ink::Window, "#f0a80066", "#f0b42959"),
    (Ink::Rate, "#a3478f", "#e08fcb"),
    (Ink::Demand, "#17202a", "#f2f4f6"),
    (Ink::Capacity, "#0072b2", "#56b4e9"),
    (Ink::Short, "#d1490c99", "#ff8a4c99"),
    (Ink::Queue, "#0072b2", "#56b4e9"),
    (Ink::Value, "#0072b2", "#56b4e9"),
    (Ink::Spread, "#0072b240", "#56b4e94d"),
    (Ink::DemandSpread, "#17202a40", "#f2f4f64d"),
    (Ink::Above, "#d1490c59", "#ff8a4c66"),
    (Ink::Target, "#00795a", "#35c79b"),
    (Ink::Tolerated, "#009e7326", "#35c79b2e"),
    (Ink::Missing, "#8b95a0", "#77828e"),
    (Ink::Happening, "#6c788424", "#9aa5b02e"),
    (Ink::Variant(0), "#17202a", "#f2f4f6"),
    (Ink::Variant(1), "#0072b2", "#56b4e9"),
    (Ink::Variant(2), "#d1490c", "#ff8a4c"),
    (Ink::Variant(3), "#00795a", "#35c79b"),
    (Ink::Variant(4), "#a3478f", "#e08fcb"),
    (Ink::Variant(5), "#a06f00", "#f0c419"),
];

impl Ink {
    /// The ink of the variant at `index`.
    pub(in super::super) fn variant(index: usize) -> Self {
        Self::Variant(u8::try_from(index).unwrap_or(u8::MAX) % VARIANTS)
    }

    /// The name in CSS.
    pub(in super::super) fn name(self) -> &'static str {
        match self {
            Self::Ground => "ground",
            Self::Grid => "grid",
            Self::Label => "label",
            Self::Desired => "desired",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Bound => "bound",
            Self::Window => "window",
            Self::Rate => "rate",
            Self::Demand => "demand",
            Self::Capacity => "capacity",
            Self::Short => "short",
            Self::Queue => "queue",
            Self::Value => "value",
            Self::Spread => "spread",
            Self::DemandSpread => "demand-spread",
            Self::Above => "above",
            Self::Target => "target",
            Self::Tolerated => "tolerated",
            Self::Missing => "missing",
            Self::Happening => "happening",
            Self::Variant(0) => "variant0",
            Self::Variant(1) => "variant1",
            Self::Variant(2) => "variant2",
            Self::Variant(3) => "variant3",
            Self::Variant(4) => "variant4",
            Self::Variant(_) => "variant5",
        }
    }

    /// The placeholder colour that carries the ink through the drawing library to the backend.
    pub(super) fn placeholder(self) -> RGBColor {
        let index =
            PAINTS.iter().position(|(ink, ..)| *ink == self).and_then(|index| u8::try_from(index).ok());
        RGBColor(index.unwrap_or(0), 0, 0)
    }

    /// The ink of a placeholder colour.
    pub(super) fn from_placeholder(rgb: (u8, u8, u8)) -> Self {
        PAINTS.get(usize::from(rgb.0)).map_or(Self::Grid, |(ink, ..)| *ink)
    }
}

/// The colours as CSS variables that follow the colour scheme. Browsers without `light-dark()` get the light
/// colours.
pub(in super::super) fn variables() -> String {
    let (mut light, mut both) = (String::new(), String::new());
    for (ink, on_light, on_dark) in &PAINTS {
        let name = ink.name();
        // Writing to a string cannot fail.
        let _ = write!(light, "--{name}:{on_light};");
        let _ = write!(both, "--{name}:light-dark({on_light},{on_dark});");
    }
    format!(":root{{{light}}}\n@supports (color:light-dark(red,red)){{:root{{{both}}}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ink_round_trips_through_its_placeholder() {
        for (ink, ..) in PAINTS {
            let RGBColor(red, green, blue) = ink.placeholder();
            assert_eq!(Ink::from_placeholder((red, green, blue)), ink);
        }
        assert_eq!(Ink::variant(8), Ink::Variant(2));
    }

    #[test]
    fn lines_have_contrast_on_light_and_dark() {
        // WCAG 2.1 requires a contrast of 3:1 for graphics.
        let (_, on_light, on_dark) = PAINTS[0];
        for (ink, light, dark) in PAINTS {
            if light.len() == 7 && !matches!(ink, Ink::Ground | Ink::Grid) {
                let contrasts = [contrast(light, on_light), contrast(dark, on_dark)];
                assert!(contrasts.iter().all(|contrast| *contrast >= 3.0), "{ink:?}: {contrasts:?}");
            }
        }
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    fn luminance(color: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }
}
