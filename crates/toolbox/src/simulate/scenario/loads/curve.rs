//! The curves of a scenario's loads.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::super::Sources;
use super::super::curve_format::{BusinessDayFile, CurveFile, ShapedFile};
use super::super::hpas::sibling_path;
use super::super::problem::Problem;
use fake_cluster::load::{Curve, Interpolation, Points, Shape};

/// The inputs of a curve other than its fields.
pub(super) struct LoadContext<'a> {
    pub(super) sources: Sources<'a>,
    pub(super) start: Timestamp,
    pub(super) seed: u64,
}

/// Builds the curve of a field.
pub(super) fn curve(file: &CurveFile, field: &str, context: &LoadContext<'_>) -> Result<Curve, Problem> {
    let file = match file {
        CurveFile::Constant(amount) => return Ok(Curve::constant(amount.0)),
        CurveFile::Shaped(file) => file,
    };
    let mut curve = shape(file, field, context)?;
    if let Some(scale) = file.scale {
        curve = curve.scaled_by(scale.0);
    }
    if let Some(offset) = file.offset {
        curve = curve.starting_at(offset.0);
    }
    if let Some(period) = file.repeat {
        curve = curve.repeating(period.0);
    }
    if let Some(noise) = file.noise {
        curve = curve.with_noise(noise.0, file.noise_seed.unwrap_or(context.seed));
    }
    Ok(curve)
}

fn shape(file: &ShapedFile, field: &str, context: &LoadContext<'_>) -> Result<Curve, Problem> {
    let wrong = |message: String| context.sources.problem(field, message);
    let mut shapes: Vec<(&str, Curve)> = Vec::new();
    let between = if file.steps { Interpolation::Step } else { Interpolation::Linear };
    if let Some(amount) = file.constant {
        shapes.push(("constant", Curve::constant(amount.0)));
    }
    if let Some(ramp) = &file.ramp {
        let end = ramp.at.0.saturating_add(ramp.over.0);
        let points = [(Duration::ZERO, ramp.from.0), (ramp.at.0, ramp.from.0), (end, ramp.to.0)];
        let points = Points::new(points, Interpolation::Linear).map_err(|error| wrong(error.to_string()))?;
        shapes.push(("ramp", points.into()));
    }
    if let Some(step) = &file.step {
        shapes.push(("step", Shape::Step { before: step.from.0, after: step.to.0, at: step.at.0 }.into()));
    }
    if let Some(sine) = &file.sine {
        let shape = Shape::Sine { mean: sine.mean.0, amplitude: sine.amplitude.0, period: sine.period.0 };
        shapes.push(("sine", shape.into()));
    }
    if let Some(day) = &file.business_day {
        shapes.push(("businessDay", business_day(day, context.start)));
    }
    if let Some(spikes) = &file.spikes {
        let (base, peak) = (spikes.base.0, spikes.peak.0);
        let shape = Shape::Spikes { base, peak, every: spikes.every.0, width: spikes.width.0 };
        shapes.push(("spikes", shape.into()));
    }
    if let Some(spikes) = &file.random_spikes {
        let (base, peak) = (spikes.base.0, spikes.peak.0);
        let (every, width) = (spikes.every.0, spikes.width.0);
        let shape = Shape::RandomSpikes { base, peak, every, width, seed: context.seed };
        shapes.push(("randomSpikes", shape.into()));
    }
    if let Some(points) = &file.points {
        let points = points.iter().map(|point| (point.at.0, point.value.0));
        let points = Points::new(points, between)
            .map_err(|error| context.sources.problem(&format!("{field}.points"), error.to_string()))?;
        shapes.push(("points", points.into()));
    }
    if let Some(name) = &file.csv {
        let field = format!("{field}.csv");
        let path = sibling_path(&context.sources.location(&field), name);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            context.sources.problem(&field, format!("{} cannot be read: {error}", path.display()))
        })?;
        let points = Points::from_csv(&text, between).map_err(|error| {
            context.sources.problem(&field, format!("{} cannot be parsed: {error}", path.display()))
        })?;
        shapes.push(("csv", points.into()));
    }
    if let Some(curves) = &file.sum {
        let curves: Vec<_> = curves
            .iter()
            .enumerate()
            .map(|(index, one)| {
                let context =
                    LoadContext { seed: context.seed.wrapping_add((index as u64 + 1) << 32), ..*context };
                curve(one, &format!("{field}.sum[{index}]"), &context)
            })
            .collect::<Result<_, _>>()?;
        shapes.push(("sum", Curve::sum(curves)));
    }
    match shapes.len() {
        0 => Err(wrong(
            "no shape is set; use a quantity or one of constant, ramp, step, sine, businessDay, spikes, \
             randomSpikes, points, csv and sum"
                .to_owned(),
        )),
        1 => Ok(shapes.remove(0).1),
        _ => {
            let names: Vec<_> = shapes.iter().map(|(name, _)| *name).collect();
            Err(wrong(format!("{} are both set; combine shapes with sum", names.join(" and "))))
        }
    }
}

/// A 24 h day follows the time of day and the day of the week. A shorter or longer day starts with the
/// scenario.
fn business_day(file: &BusinessDayFile, start: Timestamp) -> Curve {
    let hours = Duration::from_hours(24);
    let day = file.day.map_or(hours, |day| day.0);
    let shape = Shape::BusinessDay { night: file.night.0, peak: file.peak.0, day, weekend: file.weekend.0 };
    if day != hours {
        return shape.into();
    }
    let local = start.to_zoned(TimeZone::UTC);
    let days = u32::try_from(local.weekday().to_monday_zero_offset()).unwrap_or(0);
    let midnight = local.start_of_day().ok();
    let since = midnight.and_then(|midnight| Duration::try_from(local.duration_since(&midnight)).ok());
    Curve::from(shape).starting_at(hours * days + since.unwrap_or_default())
}
