use super::super::run::Comparison;
use super::super::sample;
use super::*;

#[test]
fn page_of_a_day_is_smaller_than_a_megabyte() {
    let page = render(&sample::day());
    assert!(page.len() < 1_000_000, "{}", page.len());
}

#[test]
fn page_omits_steps_when_a_day_has_too_many_decisions() {
    let mut comparison = sample::day();
    let hpa = &mut comparison.runs[0].hpas[0];
    let points: Vec<_> = hpa.decisions.iter().cycle().take(5760).cloned().collect();
    hpa.decisions = points;
    for (seconds, point) in (0..).step_by(15).zip(&mut hpa.decisions) {
        point.at = std::time::Duration::from_secs(seconds);
    }
    let page = render(&comparison);
    assert!(page.len() < 1_000_000, "{}", page.len());
    assert!(page.contains("decisions without effect show only their sentence"));
}

#[test]
fn page_has_the_same_bytes_for_the_same_comparison() {
    assert_eq!(render(&sample::variants()), render(&sample::variants()));
    assert!(render(&Comparison::default()).contains("</html>"));
}

#[test]
fn page_has_no_content_that_its_policy_forbids() {
    let page = render(&sample::outage());
    assert!(!page.contains(" style=") && !page.contains("unsafe-inline"));
    let inline = page.matches("<script").count();
    assert_eq!((inline, page.matches("<style>").count()), (2, 1));
    let attributes = ["onclick=", "onerror=", "javascript:", "src=", "@import", "http-equiv=\"refresh\""];
    for attribute in attributes {
        assert!(!page.contains(attribute), "{attribute}");
    }
}

#[test]
fn page_escapes_markup_in_names() {
    let page = render(&sample::many(5));
    assert!(!page.contains("<script>alert") && !page.contains("<img") && !page.contains('\u{1b}'));
    assert!(page.contains("shop/&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.contains("a&amp;b"));
    // The data must not contain the end tag of its element.
    let data = page.split("id=\"data\">").nth(1).unwrap();
    let data = data.split("</script>").next().unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(data).is_ok());
}

#[test]
fn page_limits_charts_when_there_are_many_hpas() {
    let page = render(&sample::many(30));
    assert_eq!(page.matches("class=\"course\"").count(), CHARTS);
    assert!(
        page.contains("Charts are limited to the first 12 HPAs; 18 more are only in the table of scores.")
    );
}
