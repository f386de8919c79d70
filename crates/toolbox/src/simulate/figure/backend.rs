//! The backend of the drawing library. The backend writes SVG paths that name their colour by class. A style
//! sheet sets the colours for light and dark backgrounds. The markup has no inline styles, because the
//! content security policy forbids them.

use std::convert::Infallible;
use std::fmt::Write as _;

use plotters_backend::{BackendColor, BackendCoord, BackendStyle, DrawingBackend, DrawingErrorKind};

use super::palette::Ink;

/// The units of the drawing library per SVG unit. The library uses only whole numbers.
pub(super) const FINE: i32 = 10;

/// A sequence of paths. Consecutive paths of one ink become one element.
#[derive(Debug)]
pub(super) struct Paths<'a> {
    svg: &'a mut String,
    size: (u32, u32),
    open: Option<(Ink, bool)>,
}

impl<'a> Paths<'a> {
    /// Starts paths on a canvas of `size`, in units of the drawing library. The paths are appended to `svg`.
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
        self.svg.push('M');
        self.number(first.0);
        self.svg.push(' ');
        self.number(first.1);
        let mut at = first;
        let mut pending: BackendCoord = (0, 0);
        for point in points {
            let step = (point.0 - at.0, point.1 - at.1);
            at = point;
            // Merges steps in the same direction along an axis.
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
            (x, 0) => {
                self.svg.push('h');
                self.number(x);
            }
            (0, y) => {
                self.svg.push('v');
                self.number(y);
            }
            (x, y) => {
                self.svg.push('l');
                self.number(x);
                self.svg.push(' ');
                self.number(y);
            }
        }
    }

    /// Writes a number of library units as SVG units.
    fn number(&mut self, fine: i32) {
        let sign = if fine < 0 { "-" } else { "" };
        let (whole, rest) =
            (fine.unsigned_abs() / FINE.unsigned_abs(), fine.unsigned_abs() % FINE.unsigned_abs());
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

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        self.close();
        Ok(())
    }

    fn draw_pixel(
        &mut self,
        (x, y): BackendCoord,
        color: BackendColor,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        self.path(color, true, [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)]);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        self.path(style.color(), false, [from, to]);
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (left, top): BackendCoord,
        (right, bottom): BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        self.path(style.color(), fill, corners);
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        self.path(style.color(), false, path);
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        vertices: I,
        style: &S,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
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
}
