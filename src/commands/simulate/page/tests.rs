use super::super::run::Comparison;
use super::super::sample;
use super::*;

#[test]
fn a_day_fits_in_a_megabyte() {
    let page = render(&sample::day());
    assert!(page.len() < 1_000_000, "{}", page.len());
}

#[test]
fn a_day_of_nothing_but_new_decisions_still_fits_and_the_page_says_what_it_leaves_out() {
    let mut comparison = sample::day();
    let hpa = &mut comparison.runs[0].hpas[0];
    let points: Vec<_> = hpa.decisions.iter().cycle().take(5760).cloned().collect();
    hpa.decisions = points;
    for (seconds, point) in (0..).step_by(15).zip(&mut hpa.decisions) {
        point.at = std::time::Duration::from_secs(seconds);
    }
    let page = render(&comparison);
    assert!(page.len() < 1_000_000, "{}", page.len());
    assert!(page.contains("decisions that changed nothing have their sentence only"));
}

#[test]
fn the_same_comparison_gives_the_same_bytes() {
    assert_eq!(render(&sample::variants()), render(&sample::variants()));
    assert!(render(&Comparison::default()).contains("</html>"));
}

#[test]
fn nothing_in_the_page_needs_more_than_its_policy_allows() {
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
fn names_cannot_become_markup() {
    let page = render(&sample::many(5));
    assert!(!page.contains("<script>alert") && !page.contains("<img") && !page.contains('\u{1b}'));
    assert!(page.contains("shop/&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.contains("a&amp;b"));
    // The data ends where the page ends it.
    let data = page.split("id=\"data\">").nth(1).unwrap();
    let data = data.split("</script>").next().unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(data).is_ok());
}

#[test]
fn of_many_hpas_the_first_have_charts_and_the_page_says_so() {
    let page = render(&sample::many(30));
    assert_eq!(page.matches("class=\"course\"").count(), CHARTS);
    assert!(page.contains("Charts are shown of the first 12 HPAs; 18 more are in the table of scores only."));
}
