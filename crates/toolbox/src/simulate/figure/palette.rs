//! The colours, by meaning. The colours are few, distinguishable for colour-blind readers, and legible on
//! light and dark backgrounds.

use std::fmt::Write as _;

use plotters::style::RGBColor;

/// The meaning of a line or an area. The name is part of the class in SVG, and the name of the colour in CSS.
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
    /// A time in which a scaling policy has an effect.
    Policy,
    /// The range between the HPA's bound and the bound of a schedule.
    Schedule,
    /// Replicas that a scaling policy withholds.
    Withheld,
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

/// Each ink with its name, and its colours on light and dark backgrounds.
const PAINTS: [(Ink, &str, &str, &str); 30] = [
    (Ink::Ground, "ground", "#ffffff", "#171b20"),
    (Ink::Grid, "grid", "#e7e9ec", "#2a3037"),
    (Ink::Label, "label", "#5b6570", "#a3adb8"),
    (Ink::Desired, "desired", "#17202a", "#f2f4f6"),
    (Ink::Ready, "ready", "#0072b2", "#56b4e9"),
    (Ink::Running, "running", "#0072b22b", "#56b4e933"),
    (Ink::Bound, "bound", "#8b95a0", "#77828e"),
    (Ink::Window, "window", "#f0a80066", "#f0b42959"),
    (Ink::Rate, "rate", "#a3478f", "#e08fcb"),
    (Ink::Policy, "policy", "#7b4fc926", "#b89aff30"),
    (Ink::Schedule, "schedule", "#009e7333", "#35c79b3d"),
    (Ink::Withheld, "withheld", "#7b4fc9", "#b89aff"),
    (Ink::Demand, "demand", "#17202a", "#f2f4f6"),
    (Ink::Capacity, "capacity", "#0072b2", "#56b4e9"),
    (Ink::Short, "short", "#d1490c99", "#ff8a4c99"),
    (Ink::Queue, "queue", "#0072b2", "#56b4e9"),
    (Ink::Value, "value", "#0072b2", "#56b4e9"),
    (Ink::Spread, "spread", "#0072b240", "#56b4e94d"),
    (Ink::DemandSpread, "demand-spread", "#17202a40", "#f2f4f64d"),
    (Ink::Above, "above", "#d1490c59", "#ff8a4c66"),
    (Ink::Target, "target", "#00795a", "#35c79b"),
    (Ink::Tolerated, "tolerated", "#009e7326", "#35c79b2e"),
    (Ink::Missing, "missing", "#8b95a0", "#77828e"),
    (Ink::Happening, "happening", "#6c788424", "#9aa5b02e"),
    (Ink::Variant(0), "variant0", "#17202a", "#f2f4f6"),
    (Ink::Variant(1), "variant1", "#0072b2", "#56b4e9"),
    (Ink::Variant(2), "variant2", "#d1490c", "#ff8a4c"),
    (Ink::Variant(3), "variant3", "#00795a", "#35c79b"),
    (Ink::Variant(4), "variant4", "#a3478f", "#e08fcb"),
    (Ink::Variant(5), "variant5", "#a06f00", "#f0c419"),
];

impl Ink {
    /// The ink of the variant at `index`.
    pub(in super::super) fn variant(index: usize) -> Self {
        Self::Variant(u8::try_from(index).unwrap_or(u8::MAX) % VARIANTS)
    }

    /// The name in CSS.
    pub(in super::super) fn name(self) -> &'static str {
        PAINTS.iter().find(|(ink, ..)| *ink == self).map_or("grid", |(_, name, ..)| name)
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
    for (_, name, on_light, on_dark) in &PAINTS {
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
        let (_, _, on_light, on_dark) = PAINTS[0];
        for (ink, _, light, dark) in PAINTS {
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
