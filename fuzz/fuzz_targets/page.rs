//! Pages of metrics, as Prometheus' text format and as the page of a kubelet. The result is equal for every cut of the
//! bytes. A series that is printed with quoted names parses to an equal series.
//!
//! The input is that of `cuts::parts`.

#![no_main]

mod cost;
mod cuts;
mod plant;

use exposition::kubelet::{KubeletPage, PodKey, Storage};
use exposition::{Limits, Page, PageError, Series};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { bytes: 4 << 10, line: 1 << 10, labels: 8, series: 10 };
/// The limits of a printed series. They exceed [`LIMITS`], because escapes can double a text, and numbers can have more
/// digits.
const PRINTED: Limits = Limits { bytes: 8 << 10, line: 8 << 10, ..LIMITS };

/// The name, the labels and the value of a series.
type Read = (Vec<u8>, Vec<(Vec<u8>, String)>, f64);

fuzz_target!(|input: &[u8]| cost::bounded(|| {
    let (lengths, bytes) = cuts::parts(input);
    let pieces = cuts::cut(bytes, lengths);
    let whole = read(LIMITS, &[bytes]);
    let mut cut = read(LIMITS, &pieces);
    if plant::planted("page") && pieces.len() > 2 {
        cut = cut.map(|mut all| {
            all.retain(|(_, labels, _)| labels.len() < 2);
            all
        });
    }
    // A page above the limit may also have an earlier error, so only smaller pages are compared.
    if bytes.len() <= LIMITS.bytes {
        // Errors are not compared: if a line has several errors, the cut determines which error is reported.
        assert_eq!(format!("{:?}", whole.as_ref().ok()), format!("{:?}", cut.ok()));
    }
    for one in whole.iter().flatten() {
        let again = read(PRINTED, &[&print(one)]).expect("a printed series must be valid");
        assert_eq!(format!("{again:?}"), format!("{:?}", [one]));
    }
    let mut page = KubeletPage::new(LIMITS, 1_700_000_000_000);
    if let Ok(batch) = page.push(bytes).and_then(|()| page.finish()) {
        let mut storage = Storage::new(std::time::Duration::from_secs(15));
        storage.store(batch.clone(), std::time::Duration::ZERO);
        storage.store(batch, std::time::Duration::ZERO);
        let pod = PodKey { namespace: "shop".into(), name: "web-1".into() };
        if let Some(usage) = storage.usage(&pod) {
            assert!(usage.containers.values().all(|usage| usage.memory_bytes > 0));
        }
    }
}));

fn read(limits: Limits, pieces: &[&[u8]]) -> Result<Vec<Read>, PageError> {
    let mut all = Vec::new();
    let mut each = |series: Series<'_>| {
        let labels: Vec<_> =
            series.labels().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        assert!(labels.len() <= limits.labels);
        all.push((series.name().into_owned(), labels, series.value));
        Ok(())
    };
    let mut page = Page::new(limits);
    for piece in pieces {
        page.push(piece, &mut each)?;
    }
    page.finish(&mut each)?;
    Ok(all)
}

/// Prints a series in Prometheus' text format, with quoted names.
fn print((name, labels, value): &Read) -> Vec<u8> {
    let mut line = b"{".to_vec();
    quote(&mut line, name);
    for (name, value) in labels {
        line.push(b',');
        quote(&mut line, name);
        line.push(b'=');
        quote(&mut line, value.as_bytes());
    }
    line.extend_from_slice(format!("}} {value:?}").as_bytes());
    line
}

fn quote(line: &mut Vec<u8>, text: &[u8]) {
    line.push(b'"');
    for byte in text {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', *byte]),
            _ => line.push(*byte),
        }
    }
    line.push(b'"');
}
