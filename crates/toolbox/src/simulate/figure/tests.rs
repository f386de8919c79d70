use super::super::sample;
use super::*;

fn figure(comparison: &super::super::run::Comparison) -> Figure {
    let run = &comparison.runs[0];
    Figure::new(run, &run.hpas[0])
}

#[test]
fn figure_has_panels_of_replicas_metrics_and_load() {
    let figure = figure(&sample::day());
    let titles: Vec<_> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
    assert_eq!(titles, ["Replicas", "cpu", "Load"]);
    let inks: Vec<_> = figure.panels[0].keys.iter().map(|(ink, ..)| *ink).collect();
    assert!(inks.contains(&Ink::Window) && inks.contains(&Ink::Rate), "{inks:?}");
    assert!(figure.marks.iter().any(|mark| mark.kind == MarkKind::Up && mark.label.ends_with("replicas")));
}

#[test]
fn figure_shows_an_outage_as_zone_and_missing_values() {
    let figure = figure(&sample::outage());
    assert_eq!(
        figure.zones,
        [Zone { from: 39_600.0, to: 43_200.0, label: "resource metrics API is down".to_owned() }]
    );
    let missing = figure.panels[1].areas.iter().find(|area| area.ink == Ink::Missing).unwrap();
    assert_eq!((missing.pieces.len(), missing.pieces[0][0].0), (1, 39_600.0));
    assert!(figure.marks.iter().any(|mark| mark.kind == MarkKind::Warning));
}

#[test]
fn figure_has_a_queue_panel_when_the_load_is_a_queue() {
    assert!(figure(&sample::queue()).panels.iter().any(|panel| panel.title == "Queue"));
}

#[test]
fn variants_share_their_value_axes() {
    let comparison = sample::variants();
    let mut figures: Vec<_> = comparison.runs.iter().map(|run| Figure::new(run, &run.hpas[0])).collect();
    assert_ne!(figures[0].panels[0].values, figures[2].panels[0].values);
    share_axes(&mut figures);
    assert_eq!(figures[0].panels[0].values, figures[2].panels[0].values);
}

#[test]
fn plot_of_a_day_is_smaller_than_60_kb() {
    let figure = figure(&sample::day());
    let sizes: Vec<_> =
        figure.panels.iter().map(|panel| draw::plot(&figure, panel, (1000, 200)).len()).collect();
    assert!(sizes.iter().all(|size| *size < 60_000), "{sizes:?}");
}
