//! Tests of pages in pieces, of limits, and of invalid pages.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use exposition::{LabelsHash, Limits, Page, PageError, Reduce, Sample, Scrape, SeriesSelector, SyntaxError};
use limits::page::{COMPARISONS, LABELS, LINES};
use proptest::prelude::*;

/// The name, labels, bits of the value, and timestamp of a series.
type Read = (Vec<u8>, Vec<(Vec<u8>, String)>, u64, Option<i64>);

fn read(limits: Limits, pieces: &[&[u8]]) -> Result<Vec<Read>, PageError> {
    let mut all = Vec::new();
    let mut page = Page::new(limits);
    let mut each = |series: exposition::Series<'_>| {
        let labels = series.labels().map(|(name, value)| (name.into_owned(), value.into_owned()));
        all.push((series.name().into_owned(), labels.collect(), series.value.to_bits(), series.timestamp));
        Ok(())
    };
    for piece in pieces {
        page.push(piece, &mut each)?;
    }
    page.finish(&mut each)?;
    Ok(all)
}

fn scrape(page: &str, series: &str, labels: &[(&str, &str)]) -> Result<Vec<Sample>, PageError> {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let selector = SeriesSelector { series: series.into(), labels };
    let mut scrape = Scrape::new(Limits::default(), [selector]);
    scrape.push(page.as_bytes())?;
    scrape.finish()?.remove(0)
}

#[test]
fn scrape_keeps_the_wanted_series() {
    let page = "# HELP http_requests_total Requests.\n# TYPE http_requests_total counter\n\
        http_requests_total{code=\"200\",path=\"/a\\\"b\\\\c\\nd\"} 3 1700000000000\n\
        http_requests_total{code=\"500\"} 1e3\nhttp_requests_total_other 5\n\
        # TYPE latency histogram\nlatency_bucket{le=\"1\"} 2\nlatency_bucket{le=\"+Inf\"} 4\n";
    let all = scrape(page, "http_requests_total", &[]).unwrap();
    assert_eq!(Reduce::Sum.samples(&all), Ok(Some(1_003.0)));
    let labels = [("path", "/a\"b\\c\nd"), ("code", "200")];
    let hash = LabelsHash::new(labels.map(|(name, value)| (name.as_bytes().into(), value.into())));
    assert_eq!((all[0].labels, all[0].timestamp), (hash, Some(1_700_000_000_000)));
    let failed = scrape(page, "http_requests_total", &[("code", "500"), ("path", "")]).unwrap();
    assert_eq!(Reduce::Max.samples(&failed), Ok(Some(1_000.0)));
    assert_eq!(scrape(page, "http_requests_total", &[("code", "404")]), Ok(vec![]));
    assert_eq!(Reduce::Average.samples(&[]), Ok(None));
    // A label without a value is no label.
    assert_eq!(scrape("a{b=\"\",b=\"1\",__name__=\"\"} 1\n", "a", &[("b", "1")]).unwrap().len(), 1);
    assert_eq!(scrape(page, "latency_bucket", &[("le", "1.0")]).unwrap().len(), 1);
}

#[test]
fn page_is_refused_as_a_whole() {
    let text = |page: &str| scrape(page, "a", &[]).unwrap_err().to_string();
    assert_eq!(text("a 1\nb{c=\"d\n"), "line 2 is invalid: expected a quoted label value, at \"b{c=\\\"d\"");
    assert_eq!(text("a 1\nb\n"), "line 2 is invalid: expected a number, at \"b\"");
    assert_eq!(text("a{b=\"c\"} 1\na{b=\"c\"} 2\n"), "line 2 repeats a series of this page");
    // A repeated label invalidates the page, even in a series that is not selected.
    assert_eq!(text("a 1\nb{c=\"d\",e=\"f\",c=\"d\"} 2\n"), "line 2 has the label c twice");
    assert_eq!(text("a 1\n{\"b\",\"__name__\"=\"c\"} 2\n"), "line 2 has the label __name__ twice");
    assert_eq!(text("a{\"c\\\"d\"=\"e\",\"c\\\"d\"=\"f\"} 2\n"), "line 1 has the label c\"d twice");
    assert_eq!(text("<html>"), "line 1 is invalid: expected a metric name or a comment, at \"<\"");
    let exemplar = read(Limits::default(), &[b"a 1 # {b=\"c\"} 2\n"]);
    let (error, at) = (SyntaxError::LineEnd, "a 1 #".to_owned());
    assert_eq!(exemplar, Err(PageError::Syntax { line: 1, error, at }));
}

#[test]
fn limits_hold_for_any_page() {
    let limits = Limits { bytes: 100_000, line: 1_000, labels: 3, series: 2 };
    let with = |page: &[u8]| read(limits, &[page]).unwrap_err();
    assert_eq!(with(&vec![b'\n'; 100_001]), PageError::TooLarge(100_000));
    let long = [b"ok 1\n# ".as_slice(), &vec![b'x'; 2_000], b"\n"].concat();
    assert_eq!(with(&long), PageError::LineTooLong { line: 2, limit: 1_000 });
    let endless = [b"a{b=\"".as_slice(), &vec![b'\n'; 50_000]].concat();
    assert_eq!(with(&endless), PageError::LineTooLong { line: 1, limit: 1_000 });
    assert_eq!(with(b"a{b=\"\",c=\"\",d=\"\",e=\"\"} 1\n"), PageError::TooManyLabels { line: 1, limit: 3 });
    let selector = SeriesSelector { series: "a".into(), labels: [].into() };
    let mut scrape = Scrape::new(limits, [selector]);
    assert_eq!(
        scrape.push(b"a{b=\"1\"} 1\na{b=\"2\"} 1\na{b=\"3\"} 1\n# "),
        Err(PageError::TooManySeries(2))
    );
}

#[test]
fn lines_of_a_page_are_bounded() {
    let of = |lines: usize| read(Limits::default(), &[&vec![b'\n'; lines]]);
    assert_eq!(of(LINES), Ok(Vec::new()));
    assert_eq!(of(LINES + 1), Err(PageError::TooManyLines(LINES)));
}

#[test]
fn comparisons_of_a_page_are_bounded() {
    // Without a value, a label of a selector is compared with each label of a series.
    let labels = (0..LABELS).map(|label| format!("l{label}=\"\",")).collect::<Vec<_>>().concat();
    let series = format!("a{{{labels}}} 1\n");
    let last = ("last".to_owned(), "x".to_owned());
    let selector = |labels: usize| {
        let absent = (0..labels).map(|label| (format!("m{label}"), String::new()));
        SeriesSelector { series: "a".into(), labels: absent.chain([last.clone()]).collect() }
    };
    let read = |labels: usize| {
        let mut scrape = Scrape::new(Limits::default(), [selector(labels)]);
        (0..5_000).try_for_each(|_| scrape.push(series.as_bytes()))
    };
    assert_eq!(read(1), Ok(()));
    assert_eq!(read(29), Err(PageError::TooManyComparisons(COMPARISONS)));
}

#[test]
fn page_that_arrives_byte_by_byte_costs_no_more_than_linear_time() {
    // The entry could end at each line break in the label value. Quadratic time would mean 4 × 10⁹ steps.
    let limits = Limits { line: 64 << 10, ..Limits::default() };
    let mut page = Page::new(limits);
    let mut series = 0;
    let mut each = |_: exposition::Series<'_>| {
        series += 1;
        Ok(())
    };
    page.push(b"a{b=\"", &mut each).unwrap();
    for _ in 0..60_000 {
        page.push(b"\n", &mut each).unwrap();
    }
    page.push(b"\"} 1\n", &mut each).unwrap();
    page.finish(&mut each).unwrap();
    assert_eq!(series, 1);
}

#[test]
fn values_that_are_no_numbers_are_refused_when_reduced() {
    for value in ["NaN", "+Inf", "-Inf"] {
        let samples = scrape(&format!("a 1\na{{b=\"c\"}} {value}\n"), "a", &[]).unwrap();
        for reduce in [Reduce::Sum, Reduce::Average, Reduce::Max] {
            assert!(reduce.samples(&samples).is_err(), "{value}");
        }
    }
    assert!(Reduce::Sum.values([f64::MAX, f64::MAX]).is_err());
}

/// Generates pages from valid and invalid parts.
fn page() -> impl Strategy<Value = Vec<u8>> {
    let part = prop::sample::select(vec![
        "a",
        "b_total",
        "{",
        "}",
        "x=",
        "\"v\"",
        "le=\"1\"",
        ",",
        " ",
        "\t",
        "\n",
        "1",
        "2.5",
        "NaN",
        "# ",
        "#",
        "HELP ",
        "TYPE ",
        "EOF",
        "# EOF\n",
        "counter",
        "histogram",
        "\0",
        "\\",
        "\"",
        "a 1\n",
        "a{x=\"y\"} 2 3\n",
        "# TYPE a histogram\n",
        "# HELP a b\n",
        "a{le=\"1\"} 2\n",
        "é",
        "0x1p2",
        "1e400",
    ]);
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat().into_bytes())
}

proptest! {
    #[test]
    fn pieces_do_not_change_what_is_read(
        page in page(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(page.len() + 1)).collect();
        cuts.sort_unstable();
        let (mut pieces, mut start) = (Vec::new(), 0);
        for cut in cuts {
            pieces.push(&page[start..cut]);
            start = cut;
        }
        pieces.push(&page[start..]);
        let bytes: Vec<&[u8]> = page.chunks(1).collect();
        let whole = read(Limits::default(), &[&page]);
        prop_assert_eq!(&read(Limits::default(), &pieces), &whole);
        prop_assert_eq!(&read(Limits::default(), &bytes), &whole);
    }
}
