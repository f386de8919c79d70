//! Pages of metrics. The result is the same for every split. A series that is printed with quoted names parses to an
//! equal series. A kubelet's page is read within the same limits.
//!
//! The input is cuts and bytes (`cuts::parts`). Bytes that end with `# EOF` are also read as OpenMetrics.

#![no_main]

mod cuts;
mod plant;

use exposition::kubelet::{KubeletPage, PodKey, Storage};
use exposition::{Format, Limits, Page, PageError, Series};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { bytes: 4 << 10, line: 1 << 10, labels: 8, series: 10 };
/// The limits of a printed series. They are larger, because escapes can double a text, and numbers are printed in full.
const PRINTED: Limits = Limits { bytes: 8 << 10, line: 8 << 10, ..LIMITS };

/// Name, labels and value.
type Read = (Vec<u8>, Vec<(Vec<u8>, String)>, f64);

fuzz_target!(|input: &[u8]| {
    let (lengths, bytes) = cuts::parts(input);
    let pieces = cuts::cut(bytes, lengths);
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let whole = read(format, LIMITS, &[bytes]);
        let mut cut = read(format, LIMITS, &pieces);
        if plant::planted("page") && pieces.len() > 2 {
            cut = cut.map(|mut all| {
                all.retain(|(_, labels, _)| labels.len() < 2);
                all
            });
        }
        // A page that is too large can also have an earlier error.
        if bytes.len() <= LIMITS.bytes {
            // If a line has several errors, the split decides which error is found first.
            assert_eq!(format!("{:?}", whole.as_ref().ok()), format!("{:?}", cut.ok()));
        }
        for one in whole.iter().flatten() {
            let again =
                read(Format::Prometheus, PRINTED, &[&print(one)]).expect("a printed series must be valid");
            assert_eq!(format!("{again:?}"), format!("{:?}", [one]));
        }
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
});

fn read(format: Format, limits: Limits, pieces: &[&[u8]]) -> Result<Vec<Read>, PageError> {
    let mut all = Vec::new();
    let mut each = |series: Series<'_>| {
        let labels: Vec<_> =
            series.labels().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        assert!(labels.len() <= limits.labels);
        all.push((series.name().into_owned(), labels, series.value));
        Ok(())
    };
    let mut page = Page::new(format, limits);
    for piece in pieces {
        page.push(piece, &mut each)?;
    }
    page.finish(&mut each)?;
    Ok(all)
}

/// A series in the older format, with quoted names.
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
