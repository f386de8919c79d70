//! A recorded load, read from a CSV file.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::number::{index, length};

/// The longest series in minutes.
pub(crate) const LONGEST: usize = 60 * 1440;
/// The longest file in bytes.
const LARGEST: u64 = 16 << 20;
/// The highest load in pods.
const HIGHEST: f64 = 1e6;
/// The header of the columns.
const HEADER: &str = "minute,load";

/// A load per minute.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The first minute.
    pub start: Timestamp,
    /// The load in pods at 100 % utilization. `None` is a gap.
    pub loads: Vec<Option<f64>>,
}

impl Series {
    /// The start of a minute of the series.
    pub fn time(&self, minute: usize) -> Timestamp {
        let seconds = self.start.as_second().saturating_add(length(minute).saturating_mul(60));
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
    }
}

/// The reason why a file has no series.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct SeriesError {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: Option<u64>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The file is UTF-16.
    #[error("the file is UTF-16 text: save it as UTF-8")]
    Utf16,
    /// The line is not UTF-8.
    #[error("the line is not UTF-8 text")]
    NotText,
    /// The first line is not the header.
    #[error("the first line must be \"{HEADER}\"; lines that start with # are skipped")]
    Header,
    /// A line has another number of columns.
    #[error("expected two columns, the minute and the load")]
    Columns,
    /// The first minute is missing.
    #[error("the first row needs its minute, such as 2026-11-02T00:00:00Z")]
    NoStart,
    /// A minute is not a time.
    #[error("{0:?} is not a time in RFC 3339, such as 2026-11-02T00:00:00Z")]
    Time(String),
    /// A minute is not after the previous minute.
    #[error("the minute {0} is not after the minute of the row before: sort the rows")]
    Order(Timestamp),
    /// A load is not a number of pods.
    #[error("the load {0:?} is not a number of pods from 0 to {HIGHEST}; an empty load is a gap")]
    Load(String),
    /// The series is too long.
    #[error("the series is longer than {} days: pass its last days", LONGEST / 1440)]
    TooLong,
    /// The file is too large.
    #[error("the file is larger than {} MiB", LARGEST >> 20)]
    TooLarge,
    /// The file has too few loads.
    #[error("the series has {0} loads: pass two hours at least")]
    TooShort(usize),
}

/// Reads the columns `minute,load`. Only the first row needs its minute: an empty minute is one minute after the
/// previous one. A minute without a row or without a load is a gap.
///
/// # Errors
/// Returns a [`SeriesError`] with the path and the line.
pub fn read(path: &Path, input: impl BufRead) -> Result<Series, SeriesError> {
    let mut line = 0;
    read_lines(input, &mut line).map_err(|problem| SeriesError {
        path: path.to_owned(),
        line: (line > 0 && !matches!(problem, Problem::Read(_) | Problem::TooShort(_))).then_some(line),
        problem,
    })
}

fn read_lines(input: impl BufRead, line: &mut u64) -> Result<Series, Problem> {
    let mut input = input.take(LARGEST + 1);
    let (mut bytes, mut has_header) = (Vec::new(), false);
    let mut series: Option<Series> = None;
    loop {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        *line += 1;
        if input.limit() == 0 {
            return Err(Problem::TooLarge);
        }
        if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) || bytes.contains(&0) {
            return Err(Problem::Utf16);
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| Problem::NotText)?;
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if !has_header {
            if text.replace([' ', '"'], "") != HEADER {
                return Err(Problem::Header);
            }
            has_header = true;
            continue;
        }
        add(&mut series, text)?;
    }
    let found = series.iter().flat_map(|series| &series.loads).flatten().count();
    match series {
        _ if !has_header => Err(Problem::Header),
        Some(series) if found >= 120 => Ok(series),
        _ => Err(Problem::TooShort(found)),
    }
}

fn add(series: &mut Option<Series>, row: &str) -> Result<(), Problem> {
    let mut columns = row.split(',').map(|column| column.trim().trim_matches('"'));
    let (Some(minute), Some(load), None) = (columns.next(), columns.next(), columns.next()) else {
        return Err(Problem::Columns);
    };
    let minute = match minute {
        "" => None,
        text => {
            let time: Timestamp = text.parse().map_err(|_| Problem::Time(shortened(text)))?;
            Some((time, time.as_second().div_euclid(60)))
        }
    };
    let load = match load {
        "" => None,
        text => {
            let load = text.parse::<f64>().ok().filter(|load| (0.0..=HIGHEST).contains(load));
            Some(load.ok_or_else(|| Problem::Load(shortened(text)))?)
        }
    };
    let series = match (series, minute) {
        (Some(series), minute) => {
            let next = series.start.as_second().div_euclid(60) + length(series.loads.len());
            let (time, minute) = minute.unwrap_or((series.start, next));
            let gaps = index(minute - next).ok_or(Problem::Order(time))?;
            if series.loads.len().saturating_add(gaps) >= LONGEST {
                return Err(Problem::TooLong);
            }
            series.loads.resize(series.loads.len() + gaps, None);
            series
        }
        (series @ None, Some((_, minute))) => {
            let start = Timestamp::from_second(minute * 60).map_err(|_| Problem::NoStart)?;
            series.insert(Series { start, loads: Vec::new() })
        }
        (None, None) => return Err(Problem::NoStart),
    };
    series.loads.push(load);
    Ok(())
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Series, String> {
        read(Path::new("a.csv"), text.as_bytes()).map_err(|error| error.to_string())
    }

    fn rows(rows: &str) -> String {
        let rest = ",1\n".repeat(120);
        format!("# a source\nminute,load\n2026-11-02T00:00:30Z,0.5\n{rows}{rest}")
    }

    #[test]
    fn minutes_follow_the_first_and_gaps_stay_open() {
        let series = parse(&rows(",\n2026-11-02T00:04:00Z,2\n")).unwrap();
        assert_eq!(series.start, "2026-11-02T00:00:00Z".parse().unwrap());
        assert_eq!(series.loads[..6], [Some(0.5), None, None, None, Some(2.0), Some(1.0)]);
        assert_eq!(series.time(60), "2026-11-02T01:00:00Z".parse().unwrap());
        assert!(parse(&format!("\u{feff}{}", rows("").replace('\n', "\r\n"))).is_ok());
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let not_a_load = "is not a number of pods from 0 to 1000000; an empty load is a gap";
        let header = "the first line must be \"minute,load\"; lines that start with # are skipped";
        for (text, expected) in [
            (rows(",NaN\n"), format!("a.csv:4: the load \"NaN\" {not_a_load}")),
            (rows(",-1\n"), format!("a.csv:4: the load \"-1\" {not_a_load}")),
            (rows(",1e9\n"), format!("a.csv:4: the load \"1e9\" {not_a_load}")),
            (rows(",inf\n"), format!("a.csv:4: the load \"inf\" {not_a_load}")),
            (rows(",1,2\n"), "a.csv:4: expected two columns, the minute and the load".to_owned()),
            (rows("5\n"), "a.csv:4: expected two columns, the minute and the load".to_owned()),
            (
                rows("2026-11-02T00:00:59Z,1\n"),
                "a.csv:4: the minute 2026-11-02T00:00:59Z is not after the minute of the row before: sort the rows"
                    .to_owned(),
            ),
            (
                rows("noon,1\n"),
                "a.csv:4: \"noon\" is not a time in RFC 3339, such as 2026-11-02T00:00:00Z".to_owned(),
            ),
            (
                rows("2027-11-02T00:00:00Z,1\n"),
                "a.csv:4: the series is longer than 60 days: pass its last days".to_owned(),
            ),
            (
                "minute,load\n,1\n".to_owned(),
                "a.csv:2: the first row needs its minute, such as 2026-11-02T00:00:00Z".to_owned(),
            ),
            ("time,load\n".to_owned(), format!("a.csv:1: {header}")),
            (String::new(), format!("a.csv: {header}")),
            (rows("")[..60].to_owned(), "a.csv: the series has 5 loads: pass two hours at least".to_owned()),
        ] {
            assert_eq!(parse(&text).unwrap_err(), expected);
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        let utf16 = |bytes: fn(u16) -> [u8; 2], mark: bool| -> Vec<u8> {
            let text = rows("");
            mark.then_some(0xfeff).into_iter().chain(text.encode_utf16()).flat_map(bytes).collect()
        };
        let latin = rows("").into_bytes().into_iter().chain(*b"# caf\xe9\n").collect();
        let sheet = "a.csv:1: the file is UTF-16 text: save it as UTF-8";
        for (bytes, expected) in [
            (utf16(u16::to_le_bytes, true), sheet),
            (utf16(u16::to_be_bytes, true), sheet),
            (utf16(u16::to_le_bytes, false), sheet),
            (latin, "a.csv:124: the line is not UTF-8 text"),
        ] {
            assert_eq!(read(Path::new("a.csv"), &bytes[..]).unwrap_err().to_string(), expected);
        }
    }

    /// Text that repeats its rows without an end, and counts the bytes that were read.
    struct Endless {
        header: &'static [u8],
        row: &'static [u8],
        read: u64,
    }

    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            for byte in &mut *buffer {
                let at = usize::try_from(self.read).unwrap();
                let rest = at.checked_sub(self.header.len());
                *byte = rest.map_or_else(|| self.header[at], |rest| self.row[rest % self.row.len()]);
                self.read += 1;
            }
            Ok(buffer.len())
        }
    }

    #[test]
    fn large_files_are_not_read_to_their_end() {
        let header = b"minute,load\n2026-11-02T00:00:00Z,1\n";
        for (row, expected) in [
            (&b",1\n"[..], "a.csv:86402: the series is longer than 60 days: pass its last days"),
            (&b"# nothing\n"[..], "a.csv:1677721: the file is larger than 16 MiB"),
            (&b"1"[..], "a.csv:3: the file is larger than 16 MiB"),
        ] {
            let mut endless = Endless { header, row, read: 0 };
            let error = read(Path::new("a.csv"), std::io::BufReader::new(&mut endless)).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(endless.read <= LARGEST + (16 << 10), "{}", endless.read);
        }
    }
}
