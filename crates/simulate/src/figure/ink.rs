//! The colours by meaning, and the backend of the drawing library.
//!
//! The colours are few, distinguishable for colour-blind readers, and legible on light and dark backgrounds. The
//! backend writes SVG paths that name their colour by class, and a style sheet sets the colours. The markup has no
//! inline styles, because the content security policy forbids them.

use std::convert::Infallible;
use std::fmt::Write as _;

use plotters::style::RGBColor;
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, DrawingBackend, DrawingErrorKind};

/// The units of the drawing library per SVG unit. The library uses only whole numbers.
pub(super) const FINE: i32 = 10;

/// The meaning of a line or an area. The name of an ink is the name of the colour in CSS, and part of the class in SVG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Ink {
    Ground,
    Grid,
    /// The labels of axes.
    Label,
    /// `spec.replicas`.
    Desired,
    Ready,
    /// The existing pods that are not terminating.
    Running,
    /// `minReplicas` and `maxReplicas`.
    Bound,
    /// The replicas between the proposal and the stabilized count.
    Window,
    /// The replicas between the stabilized count and the rate limit.
    Rate,
    /// A period in which a scaling policy has an effect.
    Policy,
    /// The range between the HPA's bound and the bound of a schedule.
    Schedule,
    /// The replicas between the recommended and the desired count, if a scaling policy applied a different count.
    Withheld,
    /// The floor of a forecast.
    Floor,
    /// The floor of a forecast that is only shown.
    Preview,
    /// The load that a forecast expects, in pods.
    Expected,
    /// Incoming work.
    Demand,
    /// The capacity of the ready pods.
    Capacity,
    /// The work beyond the capacity of the ready pods.
    Short,
    /// The length of the queue.
    Queue,
    /// The value of a metric.
    Value,
    /// The range of a metric's values, if the curve is downsampled.
    Spread,
    /// The range of the incoming work, if the curve is downsampled.
    DemandSpread,
    /// The values of a metric above its tolerance.
    Above,
    /// The target of a metric.
    Target,
    /// The range of values within tolerance.
    Tolerated,
    /// A period without values.
    Missing,
    /// An event of the scenario.
    Happening,
    /// A variant in the overlay: its index modulo [`VARIANTS`].
    Variant(u8),
}

/// The number of distinct colours of variants. Further variants reuse these colours.
const VARIANTS: u8 = 6;

/// Each ink with its name, and its colours on light and dark backgrounds.
const PAINTS: [(Ink, &str, &str, &str); 33] = [
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
    (Ink::Floor, "floor", "#00795a", "#35c79b"),
    (Ink::Preview, "preview", "#00795a", "#35c79b"),
    (Ink::Expected, "expected", "#00795a26", "#35c79b2e"),
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
    /// Returns the ink of the variant at `index`.
    pub(in super::super) fn variant(index: usize) -> Self {
        Self::Variant(u8::try_from(index).unwrap_or(u8::MAX) % VARIANTS)
    }

    pub(in super::super) fn name(self) -> &'static str {
        PAINTS.iter().find(|(ink, ..)| *ink == self).map_or("grid", |(_, name, ..)| name)
    }

    /// Returns the placeholder colour that carries the ink through the drawing library to the backend.
    pub(super) fn placeholder(self) -> RGBColor {
        let index =
            PAINTS.iter().position(|(ink, ..)| *ink == self).and_then(|index| u8::try_from(index).ok());
        RGBColor(index.unwrap_or(0), 0, 0)
    }

    /// Returns the ink of a placeholder colour.
    pub(super) fn from_placeholder(rgb: (u8, u8, u8)) -> Self {
        PAINTS.get(usize::from(rgb.0)).map_or(Self::Grid, |(ink, ..)| *ink)
    }
}

/// Returns the colours as CSS variables that follow the colour scheme. Browsers without `light-dark()` show the light
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

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// A sequence of SVG paths. Consecutive paths with the same ink and the same filling become one element.
#[derive(Debug)]
pub(super) struct Paths<'a> {
    svg: &'a mut String,
    size: (u32, u32),
    /// The ink of the current element, and whether the element is filled.
    open: Option<(Ink, bool)>,
}

impl<'a> Paths<'a> {
    /// Creates paths that are appended to `svg`. `size` is that of the canvas, in units of the drawing library.
    pub(super) fn new(svg: &'a mut String, size: (u32, u32)) -> Self {
        Self { svg, size, open: None }
    }

    fn path(&mut self, color: BackendColor, is_filled: bool, points: impl IntoIterator<Item = BackendCoord>) {
        let mut points = points.into_iter();
        let Some(first) = points.next().filter(|_| color.alpha > 0.0) else { return };
        let shape = (Ink::from_placeholder(color.rgb), is_filled);
        if self.open != Some(shape) {
            self.close();
            let (kind, name) = (if is_filled { "f" } else { "s" }, shape.0.name());
            // Writing to a string cannot fail.
            let _ = write!(self.svg, r#"<path class="{kind}-{name}" d=""#);
            self.open = Some(shape);
        }
        self.command('M', first.0, Some(first.1));
        let mut at = first;
        let mut pending: BackendCoord = (0, 0);
        for point in points {
            let step = (point.0 - at.0, point.1 - at.1);
            at = point;
            // Consecutive steps in the same direction along an axis become one step.
            let goes_on = (step.0 == 0 && pending.0 == 0 && step.1.signum() == pending.1.signum())
                || (step.1 == 0 && pending.1 == 0 && step.0.signum() == pending.0.signum());
            if goes_on {
                pending = (pending.0 + step.0, pending.1 + step.1);
            } else {
                self.line_by(pending);
                pending = step;
            }
        }
        self.line_by(pending);
        if is_filled {
            self.svg.push('z');
        }
    }

    fn line_by(&mut self, step: (i32, i32)) {
        match step {
            (0, 0) => {}
            (x, 0) => self.command('h', x, None),
            (0, y) => self.command('v', y, None),
            (x, y) => self.command('l', x, Some(y)),
        }
    }

    fn command(&mut self, letter: char, first: i32, second: Option<i32>) {
        self.svg.push(letter);
        self.number(first);
        if let Some(second) = second {
            self.svg.push(' ');
            self.number(second);
        }
    }

    /// Writes a number of library units as SVG units.
    fn number(&mut self, fine: i32) {
        let sign = if fine < 0 { "-" } else { "" };
        let (fine, unit) = (fine.unsigned_abs(), FINE.unsigned_abs());
        let (whole, rest) = (fine / unit, fine % unit);
        let _ = match (whole, rest) {
            (_, 0) => write!(self.svg, "{sign}{whole}"),
            (0, _) => write!(self.svg, "{sign}.{rest}"),
            _ => write!(self.svg, "{sign}{whole}.{rest}"),
        };
    }

    fn close(&mut self) {
        if self.open.take().is_some() {
            self.svg.push_str("\"/>\n");
        }
    }
}

impl DrawingBackend for Paths<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        self.close();
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        self.path(color, true, [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)]);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.path(style.color(), false, [from, to]);
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (left, top): BackendCoord,
        (right, bottom): BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        self.path(style.color(), fill, corners);
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        self.path(style.color(), false, path);
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        vertices: I,
        style: &S,
    ) -> Drawn {
        self.path(style.color(), true, vertices);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_merges_paths_of_one_ink_and_straight_steps() {
        let mut svg = String::new();
        let mut paths = Paths::new(&mut svg, (1000, 100));
        let color = |ink: Ink| {
            let placeholder = ink.placeholder();
            BackendColor { alpha: 1.0, rgb: (placeholder.0, placeholder.1, placeholder.2) }
        };
        paths.draw_path([(0, 10), (5, 10), (25, 10), (25, 3), (30, 0)], &color(Ink::Ready)).unwrap();
        paths.draw_line((40, 0), (40, 100), &color(Ink::Ready)).unwrap();
        paths.fill_polygon([(0, 0), (10, 0), (10, 10)], &color(Ink::Window)).unwrap();
        paths.present().unwrap();
        let expected = "<path class=\"s-ready\" d=\"M0 1h2.5v-.7l.5 -.3M4 0v10\"/>\n\
                        <path class=\"f-window\" d=\"M0 0h1v1z\"/>\n";
        assert_eq!(svg, expected);
    }

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
